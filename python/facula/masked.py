"""Reductions and normalisations over unmasked elements, under the names of torch.masked.

All are operators of the registry: ``_masked_sum`` is available as ``sum``.

>>> facula.masked.sum(facula.tensor([1, 2, 3]), mask=facula.tensor([True, False, True]))
tensor(4)
"""

import sys

from . import _C, _namespace
from ._masked_tensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

_PREFIX = "_masked_"
_reductions = sorted(name.removeprefix(_PREFIX) for name in vars(_C.ops) if name.startswith(_PREFIX))
globals().update({name: getattr(_C.ops, _PREFIX + name) for name in _reductions})
_namespace.assignable(globals(), " ".join(_reductions))
__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor", *_reductions]
_ops = sys.modules[__name__]  # PyTorch's module of these functions
