"""Quantisation schemes: names that options of programs use."""

from __future__ import annotations

from typing import NoReturn

from . import _C


class qscheme:
    """A quantisation scheme, such as ``per_tensor_affine``.

    >>> facula.per_tensor_affine
    facula.per_tensor_affine
    """

    __slots__ = ("_name",)
    __module__ = __package__  # the same as PyTorch's
    _name: str

    def __new__(cls) -> NoReturn:
        raise TypeError("cannot create 'qscheme' instances: they are constants, as per_tensor_affine")

    def __repr__(self) -> str:
        return f"{_C.package_name()}.{self._name}"

    def __reduce__(self) -> str:
        return self._name  # its module is the one that the class reports

    def __copy__(self) -> qscheme:
        return self

    def __deepcopy__(self, memo: object) -> qscheme:
        return self


def _scheme(name: str) -> qscheme:
    scheme = object.__new__(qscheme)
    scheme._name = name
    return scheme


per_tensor_affine = _scheme("per_tensor_affine")
per_channel_affine = _scheme("per_channel_affine")
per_tensor_symmetric = _scheme("per_tensor_symmetric")
per_channel_symmetric = _scheme("per_channel_symmetric")
per_channel_affine_float_qparams = _scheme("per_channel_affine_float_qparams")
