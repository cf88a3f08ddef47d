"""Modules over several devices, of which there is one: they pass their calls on."""

from .data_parallel import DataParallel as DataParallel
from .data_parallel import data_parallel as data_parallel
from .distributed import DistributedDataParallel as DistributedDataParallel
from .scatter_gather import gather as gather
from .scatter_gather import parallel_apply as parallel_apply
from .scatter_gather import replicate as replicate
from .scatter_gather import scatter as scatter
