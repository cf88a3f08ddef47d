"""Names of how finely a tensor is quantised: the blocks that share a scale, and how ranges become scales."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = [
    "Granularity",
    "MappingType",
    "PerAxis",
    "PerBlock",
    "PerGroup",
    "PerRow",
    "PerTensor",
    "PerToken",
    "TorchAODType",
    "ZeroPointDomain",
    "get_block_size",
]


class MappingType(Enum):
    """How a range of numbers is mapped to integers: symmetric around 0, or not."""

    SYMMETRIC = auto()
    SYMMETRIC_NO_CLIPPING_ERR = auto()
    ASYMMETRIC = auto()


class ZeroPointDomain(Enum):
    """Whether a zero point is an integer, a number, or absent."""

    INT = auto()
    FLOAT = auto()
    NONE = auto()


class TorchAODType(Enum):
    """Integers of fewer than 8 bits, which no dtype holds."""

    INT1 = auto()
    INT2 = auto()
    INT3 = auto()
    INT4 = auto()
    INT5 = auto()
    INT6 = auto()
    INT7 = auto()


@dataclass(frozen=True)
class Granularity:
    """The base of the classes that say which elements share a scale."""


@dataclass(frozen=True)
class PerBlock(Granularity):
    """Blocks of these sizes share a scale."""

    block_size: tuple[int, ...]


@dataclass(frozen=True)
class PerTensor(Granularity):
    """All elements share a scale."""


@dataclass(frozen=True)
class PerAxis(Granularity):
    """The elements with the same index along a dimension share a scale."""

    axis: int


@dataclass(frozen=True)
class PerGroup(Granularity):
    """Consecutive elements of the last dimension share a scale."""

    group_size: int


class PerRow(Granularity):
    """The elements of a row, along the last dimension, share a scale."""


class PerToken(Granularity):
    """The elements of a token, along the last dimension, share a scale."""


def get_block_size(input_shape: tuple[int, ...], granularity: Granularity) -> tuple[int, ...]:
    """Returns the sizes of the blocks that share a scale.

    >>> from facula.ao.quantization import PerAxis, get_block_size
    >>> get_block_size((8, 16), PerAxis(0))
    (1, 16)
    """
    sizes = tuple(input_shape)
    if isinstance(granularity, PerTensor):
        return sizes
    if isinstance(granularity, PerBlock):
        if len(granularity.block_size) != len(sizes):
            raise AssertionError(
                f"Block size (shape) must be divisible by block_size: {granularity.block_size} for {sizes}"
            )
        return granularity.block_size
    if isinstance(granularity, PerAxis):
        axis = granularity.axis % len(sizes)
        return (*sizes[:axis], 1, *sizes[axis + 1 :])
    if isinstance(granularity, (PerRow, PerToken)):
        return (*[1] * (len(sizes) - 1), sizes[-1])
    if isinstance(granularity, PerGroup):
        if len(sizes) != 2:
            raise AssertionError(f"Expecting input shape dim to be 2 for per group quantization, got {sizes}")
        return (1, granularity.group_size)
    raise ValueError(f"Unsupported Granularity: {granularity}")
