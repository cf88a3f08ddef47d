"""The parts of the export-based flow: :mod:`facula.ao.quantization.quantize_pt2e`."""

from ..fake_quantize import *  # noqa: F403
from ..granularity import *  # noqa: F403
from ..observer import *  # noqa: F403
from .export_utils import allow_exported_model_train_eval as allow_exported_model_train_eval
from .export_utils import model_is_exported as model_is_exported
from .export_utils import move_exported_model_to_eval as move_exported_model_to_eval
from .export_utils import move_exported_model_to_train as move_exported_model_to_train
from .graph_utils import find_sequential_partitions as find_sequential_partitions
