"""Control flow, now ``torch.cond`` and ``torch._higher_order_ops``."""

from torch._higher_order_ops import cond as cond
from torch._higher_order_ops import map as map
