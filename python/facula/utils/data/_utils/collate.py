"""PyTorch's location of the collate functions."""

import re

from ..collate import (
    collate as collate,
)
from ..collate import (
    collate_tensor_fn as collate_tensor_fn,
)
from ..collate import (
    default_collate as default_collate,
)
from ..collate import (
    default_collate_fn_map as default_collate_fn_map,
)
from ..collate import (
    default_convert as default_convert,
)

__all__ = ["collate", "default_collate", "default_convert", "np_str_obj_array_pattern"]

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # dtypes of arrays that cannot become tensors
