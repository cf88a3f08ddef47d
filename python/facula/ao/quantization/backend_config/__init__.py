"""The patterns that a backend computes with integers, and how they are observed."""

from .backend_config import BackendConfig as BackendConfig
from .backend_config import BackendPatternConfig as BackendPatternConfig
from .backend_config import DTypeConfig as DTypeConfig
from .backend_config import DTypeWithConstraints as DTypeWithConstraints
from .backend_config import ObservationType as ObservationType
from .native import get_native_backend_config as get_fbgemm_backend_config
from .native import get_native_backend_config as get_native_backend_config
from .native import get_native_backend_config as get_onednn_backend_config
from .native import get_native_backend_config as get_qnnpack_backend_config
from .native import get_native_backend_config as get_x86_backend_config
from .native import get_native_backend_config_dict as get_native_backend_config_dict
