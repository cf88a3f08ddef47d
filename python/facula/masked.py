"""Reductions and normalisations of what a mask leaves, under the names of torch.masked.

All are operators of the registry: ``_masked_sum`` is found here as ``sum``.

>>> facula.masked.sum(facula.tensor([1, 2, 3]), mask=facula.tensor([True, False, True]))
tensor(4)
"""

from . import _C

_PREFIX = "_masked_"
__all__ = sorted(name.removeprefix(_PREFIX) for name in vars(_C.ops) if name.startswith(_PREFIX))
globals().update({name: getattr(_C.ops, _PREFIX + name) for name in __all__})
