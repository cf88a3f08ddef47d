"""Quantizers: they annotate a graph with how each value is quantised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ....fx import GraphModule, Node

__all__ = [
    "DerivedQuantizationSpec",
    "EdgeOrNode",
    "FixedQParamsQuantizationSpec",
    "QuantizationAnnotation",
    "QuantizationSpec",
    "QuantizationSpecBase",
    "Quantizer",
    "SharedQuantizationSpec",
]

# The key of a node's annotation in ``node.meta``.
Q_ANNOTATION_KEY = "quantization_annotation"

# A value, or a value as one of its users reads it: (value, user).
EdgeOrNode = tuple[Node, Node] | Node


class QuantizationSpecBase(ABC):  # noqa: B024
    """How a value is quantised."""


@dataclass(eq=True, frozen=True)
class QuantizationSpec(QuantizationSpecBase):
    """A value with a separate observer, or module for fake quantisation.

    Attributes:
        dtype: the dtype of the integers, such as ``int8``.
        observer_or_fake_quant_ctr: the constructor; it gets the other attributes as arguments.
        quant_min, quant_max: the limits of the integers.
        qscheme: per tensor or per channel, affine or symmetric.
        ch_axis: the dimension of the channels.
        is_dynamic: whether the range is that of each call.
    """

    dtype: Any
    observer_or_fake_quant_ctr: Any
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    ch_axis: int | None = None
    is_dynamic: bool = False

    def __post_init__(self) -> None:
        if self.quant_min is not None and self.quant_max is not None and self.quant_min > self.quant_max:
            raise ValueError(f"quant_min {self.quant_min} must be <= quant_max {self.quant_max}.")
        if self.ch_axis is not None and self.ch_axis < 0:
            raise ValueError(f"ch_axis must not be negative, got {self.ch_axis}")


@dataclass(eq=True, frozen=True)
class FixedQParamsQuantizationSpec(QuantizationSpecBase):
    """A value with a known scale and zero point."""

    dtype: Any
    scale: float
    zero_point: int
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    is_dynamic: bool = False


@dataclass(eq=True, frozen=True)
class SharedQuantizationSpec(QuantizationSpecBase):
    """A value that is quantised as another one is, by the same observer."""

    edge_or_node: EdgeOrNode


@dataclass(eq=True, frozen=True)
class DerivedQuantizationSpec(QuantizationSpecBase):
    """A value whose scale and zero point ``derive_qparams_fn`` computes from the observers of others."""

    derived_from: list[EdgeOrNode]
    derive_qparams_fn: Callable[[list[Any]], tuple[Any, Any]]
    dtype: Any
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    ch_axis: int | None = None
    is_dynamic: bool = False


@dataclass
class QuantizationAnnotation:
    """How the inputs and the result of a node are quantised.

    Attributes:
        input_qspec_map: by input node.
        output_qspec: of the result.
        allow_implicit_sharing: whether the input shares the observer of the same value elsewhere.
    """

    input_qspec_map: dict[Node, QuantizationSpecBase | None] = field(default_factory=dict)
    output_qspec: QuantizationSpecBase | None = None
    allow_implicit_sharing: bool = True
    _annotated: bool = False


class Quantizer(ABC):
    """The base of quantizers."""

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Changes the graph before it is annotated."""
        return model

    @abstractmethod
    def annotate(self, model: GraphModule) -> GraphModule:
        """Sets ``node.meta["quantization_annotation"]`` of the nodes that are to be quantised."""

    @abstractmethod
    def validate(self, model: GraphModule) -> None:
        """Raises an error for annotations that the backend does not support."""

    def prepare_obs_or_fq_callback(  # noqa: B027
        self, model: GraphModule, edge_or_node_to_obs_or_fq: dict[EdgeOrNode, Any]
    ) -> None:
        """Changes observers before they are inserted."""
