"""Pipes that are gone through."""

from ..datapipe import Batcher as Batcher
from ..datapipe import Collator as Collator
from ..datapipe import Concater as Concater
from ..datapipe import Filter as Filter
from ..datapipe import IterableWrapper as IterableWrapper
from ..datapipe import Mapper as Mapper
from ..datapipe import Multiplexer as Multiplexer
from ..datapipe import ShardingFilter as ShardingFilter
from ..datapipe import Shuffler as Shuffler
from ..datapipe import UnBatcher as UnBatcher
from ..datapipe import Zipper as Zipper
