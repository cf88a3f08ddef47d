"""Neural networks: modules, parameters, functions, initial values."""

from .. import _namespace
from . import common_types as common_types
from . import functional as functional
from . import grad as grad
from . import init as init
from . import modules as modules
from . import parallel as parallel
from . import utils as utils
from .modules import *
from .parallel import DataParallel as DataParallel
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter import UninitializedBuffer as UninitializedBuffer
from .parameter import UninitializedParameter as UninitializedParameter

TYPE_CHECKING = False
_SUBMODULES = "attention intrinsic qat quantizable quantized".split()
if TYPE_CHECKING:
    from ._lazy import *
else:
    __getattr__, __dir__ = _namespace.later(globals(), _SUBMODULES)


def factory_kwargs(kwargs: dict | None) -> dict:
    """Returns the arguments of a module's constructor that its tensors are created with: device, dtype,
    memory_format.
    """
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    expected = simple | {"factory_kwargs"}
    if not kwargs.keys() <= expected:
        raise TypeError(f"unexpected kwargs {kwargs.keys() - expected}")
    tensor_options = dict(kwargs.get("factory_kwargs", {}))
    for name in simple & kwargs.keys():
        if name in tensor_options:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        tensor_options[name] = kwargs[name]
    return tensor_options
