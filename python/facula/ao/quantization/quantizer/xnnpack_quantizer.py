"""XNNPACKQuantizer: symmetric weights and affine activations of int8."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .... import _C, _qscheme, nn
from ...._ops import OpOverload
from ....fx import GraphModule, Node
from ....nn import functional as F
from ..fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from ..observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from .quantizer import QuantizationSpec, Quantizer
from .utils import (
    OperatorConfig,
    OperatorPatternType,
    QuantizationConfig,
    get_module_name_filter,
    module_type_filter,
)
from .xnnpack_quantizer_utils import OP_TO_ANNOTATOR, convert_scalars_to_attrs, propagate_annotation

__all__ = ["XNNPACKQuantizer", "get_symmetric_quantization_config"]

_f = _C.functions


def _activation_observer(is_qat: bool, is_dynamic: bool) -> Any:
    if is_qat and is_dynamic:
        observer = MovingAverageMinMaxObserver.with_args(averaging_constant=1)
        return FakeQuantize.with_args(observer=observer, eps=2**-12)
    static = FusedMovingAvgObsFakeQuantize if is_qat else HistogramObserver
    return (PlaceholderObserver if is_dynamic else static).with_args(eps=2**-12)


def _weight_observer(is_qat: bool, is_per_channel: bool) -> Any:
    if is_qat:
        averages = MovingAveragePerChannelMinMaxObserver if is_per_channel else MovingAverageMinMaxObserver
        return FusedMovingAvgObsFakeQuantize.with_args(observer=averages, eps=2**-12)
    return (PerChannelMinMaxObserver if is_per_channel else MinMaxObserver).with_args(eps=2**-12)


@functools.lru_cache
def get_symmetric_quantization_config(
    is_per_channel: bool = False,
    is_qat: bool = False,
    is_dynamic: bool = False,
    act_qmin: int = -128,
    act_qmax: int = 127,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
) -> QuantizationConfig:
    """Returns the configuration: weights symmetric around 0, per tensor or per channel."""
    activation = QuantizationSpec(
        dtype=_C.int8,
        quant_min=act_qmin,
        quant_max=act_qmax,
        qscheme=_qscheme.per_tensor_affine,
        is_dynamic=is_dynamic,
        observer_or_fake_quant_ctr=_activation_observer(is_qat, is_dynamic),
    )
    weight = QuantizationSpec(
        dtype=_C.int8,
        quant_min=weight_qmin,
        quant_max=weight_qmax,
        qscheme=_qscheme.per_channel_symmetric if is_per_channel else _qscheme.per_tensor_symmetric,
        ch_axis=0,
        observer_or_fake_quant_ctr=_weight_observer(is_qat, is_per_channel),
    )
    return QuantizationConfig(activation, None if is_dynamic else activation, weight, None, is_qat)


_PATTERNS: list[list[OperatorPatternType]] = [
    [[nn.Conv2d, nn.ReLU], [nn.Conv2d, F.relu], [F.conv2d, nn.ReLU], [F.conv2d, F.relu]],
    [[nn.Linear], [F.linear]],
    [[_f.add]],
    [[nn.AdaptiveAvgPool2d], [F.adaptive_avg_pool2d]],
]


class XNNPACKQuantizer(Quantizer):
    """Quantises convolutions, linear layers, sums, products, concatenations and averages.

    >>> from facula.ao.quantization.quantizer.xnnpack_quantizer import (
    ...     XNNPACKQuantizer, get_symmetric_quantization_config)
    >>> quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    """

    STATIC_QAT_ONLY_OPS = ["conv_bn_relu", "conv_bn", "conv_transpose_bn_relu", "conv_transpose_bn"]
    # The longer patterns come first.
    STATIC_OPS = [
        "linear_relu",
        "linear",
        "conv_relu",
        "conv",
        "conv_transpose_relu",
        "adaptive_avg_pool2d",
        "add_relu",
        "add",
        "mul_relu",
        "mul",
        "cat",
    ]
    DYNAMIC_OPS = ["linear"]

    def __init__(self) -> None:
        super().__init__()
        self.global_config: QuantizationConfig | None = None
        self.operator_type_config: dict[Any, QuantizationConfig | None] = {}
        self.module_type_config: dict[Any, QuantizationConfig | None] = {}
        self.module_name_config: dict[str, QuantizationConfig | None] = {}

    @classmethod
    def get_supported_operators(cls) -> list[OperatorConfig]:
        return [
            OperatorConfig(get_symmetric_quantization_config(per_channel, is_qat), patterns)
            for per_channel in (False, True)
            for is_qat in (False, True)
            for patterns in _PATTERNS
        ]

    @classmethod
    def get_supported_quantization_configs(cls) -> list[QuantizationConfig]:
        return list(dict.fromkeys(config for config, _ in cls.get_supported_operators()))

    @classmethod
    def get_supported_operator_for_quantization_config(
        cls, quantization_config: QuantizationConfig | None
    ) -> list[OperatorPatternType]:
        return [
            pattern
            for config, patterns in cls.get_supported_operators()
            if quantization_config is None or config == quantization_config
            for pattern in patterns
        ]

    def set_global(self, quantization_config: QuantizationConfig) -> XNNPACKQuantizer:
        """Sets the configuration of everything that has no other one."""
        self.global_config = quantization_config
        return self

    def set_operator_type(
        self, operator_type: Any, quantization_config: QuantizationConfig | None
    ) -> XNNPACKQuantizer:
        """Sets the configuration of an operator, such as ``ops.aten.linear.default``."""
        self.operator_type_config[operator_type] = quantization_config
        return self

    def set_module_type(
        self, module_type: Callable, quantization_config: QuantizationConfig | None
    ) -> XNNPACKQuantizer:
        """Sets the configuration within modules of a class."""
        self.module_type_config[module_type] = quantization_config
        return self

    def set_module_name(
        self, module_name: str, quantization_config: QuantizationConfig | None
    ) -> XNNPACKQuantizer:
        """Sets the configuration within the module with this path; None leaves it in floating point."""
        self.module_name_config[module_name] = quantization_config
        return self

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        return convert_scalars_to_attrs(model)

    def annotate(self, model: GraphModule) -> GraphModule:
        special: list[tuple[Callable[[Node], bool], QuantizationConfig | None]] = []
        special += [(get_module_name_filter(n), c) for n, c in self.module_name_config.items()]
        special += [(module_type_filter(t), c) for t, c in self.module_type_config.items()]
        for operator_type, config in self.operator_type_config.items():
            special.append((_calls_operator(operator_type), config))
        for belongs, config in special:
            self._annotate(model, config, belongs)
        self._annotate(model, self.global_config, lambda n: not any(belongs(n) for belongs, _ in special))
        propagate_annotation(model)
        return model

    def _annotate(
        self, model: GraphModule, config: QuantizationConfig | None, filter_fn: Callable[[Node], bool]
    ) -> None:
        if config is None:
            return
        is_dynamic = config.input_activation is not None and config.input_activation.is_dynamic
        names = self.DYNAMIC_OPS if is_dynamic else self.STATIC_OPS
        if config.is_qat and not is_dynamic:
            names = self.STATIC_QAT_ONLY_OPS + names
        for name in names:
            OP_TO_ANNOTATOR[name](model, config, filter_fn)

    def validate(self, model: GraphModule) -> None:
        pass


def _calls_operator(operator_type: Any) -> Callable[[Node], bool]:
    def belongs(n: Node) -> bool:
        target = n.target
        return target == operator_type or (
            isinstance(target, OpOverload) and target._overloadpacket is operator_type
        )

    return belongs
