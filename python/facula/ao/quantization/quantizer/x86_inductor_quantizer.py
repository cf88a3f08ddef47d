"""X86InductorQuantizer: activations of uint8 and weights of int8 per channel, for processors with VNNI."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .... import _C, _qscheme
from ...._ops import ops
from ....fx import GraphModule, Node
from ..fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from ..observer import (
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from ..pt2e.graph_utils import ADDITIONS, LINEAR, NORMS, RELUS, SOURCES, calls, chains
from .quantizer import (
    Q_ANNOTATION_KEY,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)
from .utils import (
    QuantizationConfig,
    get_input_act_qspec,
    get_module_name_filter,
    get_output_act_qspec,
    is_annotated,
)
from .xnnpack_quantizer_utils import weighted_inputs

__all__ = ["X86InductorQuantizer", "get_default_x86_inductor_quantization_config"]

_aten = ops.aten
_f = _C.functions
_Filter = Callable[[list[Node]], bool]
_CONVOLUTIONS = (_aten.conv1d.default, _aten.conv2d.default)
_BEHIND_CONVOLUTION = (*RELUS, _aten.hardtanh.default, _aten.hardswish.default, _aten.silu.default)
_BEHIND_LINEAR = (*RELUS, _aten.leaky_relu.default, _aten.tanh.default, _aten.gelu.default)

# Operators that move integers or average them; they are quantised where their inputs are.
int8_in_int8_out_ops: set = {
    _aten.max_pool2d.default,
    _aten.cat.default,
    _aten.avg_pool2d.default,
    _aten.adaptive_avg_pool2d.default,
    _aten.flatten.using_ints,
    _aten.view.default,
}
propagation_quantizable_ops = int8_in_int8_out_ops
default_quantizable_ops = propagation_quantizable_ops | {*_CONVOLUTIONS, *LINEAR, _aten.mul.Tensor}
quantizable_ops = default_quantizable_ops | {_aten.matmul.default}


@dataclass
class _X86InductorQuantizationAnnotation(QuantizationAnnotation):
    # whether the node has the result of a pattern that computes with integers
    _is_output_of_quantized_pattern: bool = False


@functools.lru_cache
def get_default_x86_inductor_quantization_config(
    is_qat: bool = False, is_dynamic: bool = False, reduce_range: bool = False
) -> QuantizationConfig:
    """Returns the configuration; ``reduce_range`` leaves a bit unused, for processors without VNNI."""
    if is_qat and is_dynamic:
        observer = MovingAverageMinMaxObserver.with_args(averaging_constant=1)
        activation = FakeQuantize.with_args(observer=observer, eps=2**-12)
    else:
        static = FusedMovingAvgObsFakeQuantize if is_qat else HistogramObserver
        activation = (PlaceholderObserver if is_dynamic else static).with_args(eps=2**-12)
    if is_qat:
        weight = FusedMovingAvgObsFakeQuantize.with_args(
            observer=MovingAveragePerChannelMinMaxObserver, eps=2**-12
        )
    else:
        weight = PerChannelMinMaxObserver.with_args(eps=2**-12)
    activation_spec = QuantizationSpec(
        dtype=_C.uint8,
        quant_min=0,
        quant_max=127 if reduce_range else 255,
        qscheme=_qscheme.per_tensor_affine,
        is_dynamic=is_dynamic,
        observer_or_fake_quant_ctr=activation,
    )
    weight_spec = QuantizationSpec(
        dtype=_C.int8,
        quant_min=-128,
        quant_max=127,
        qscheme=_qscheme.per_channel_symmetric,
        ch_axis=0,
        observer_or_fake_quant_ctr=weight,
    )
    return QuantizationConfig(activation_spec, activation_spec, weight_spec, None, is_qat)


def _annotation(**fields: Any) -> _X86InductorQuantizationAnnotation:
    return _X86InductorQuantizationAnnotation(_annotated=True, **fields)


def _is_quantized(node: Node) -> bool:
    annotation = node.meta.get(Q_ANNOTATION_KEY)
    return bool(getattr(annotation, "_is_output_of_quantized_pattern", False)) and annotation._annotated


class X86InductorQuantizer(Quantizer):
    """Quantises convolutions and linear layers with what follows them, and what moves their results.

    >>> from facula.ao.quantization.quantizer.x86_inductor_quantizer import (
    ...     X86InductorQuantizer, get_default_x86_inductor_quantization_config)
    >>> quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    """

    module_function_to_aten_operator_type = {
        source: target
        for target in (
            *_CONVOLUTIONS,
            *LINEAR,
            _aten.max_pool2d.default,
            _aten.cat.default,
            _aten.avg_pool2d.default,
            _aten.adaptive_avg_pool2d.default,
            _aten.matmul.default,
            _aten.mul.Tensor,
        )
        for source in SOURCES[target]
    } | {_f.flatten: _aten.flatten.using_ints}

    def __init__(self) -> None:
        super().__init__()
        self.global_config: QuantizationConfig | None = None
        self.operator_type_qconfig: dict[Any, QuantizationConfig | None] = {}
        self.module_name_qconfig: dict[str, QuantizationConfig | None] = {}

    def _is_mixed(self, config: QuantizationConfig | None) -> bool:
        """Returns whether a configuration is static and another one dynamic, or for training and not."""
        every = [*self.module_name_qconfig.values(), *self.operator_type_qconfig.values(), self.global_config]
        for other in every:
            if config is None or other is None:
                continue
            if other.is_qat != config.is_qat:
                warnings.warn("Mixed QAT and Non-QAT quantization config is not supported.", stacklevel=3)
                return True
            inputs = other.input_activation, config.input_activation
            if all(inputs) and inputs[0].is_dynamic != inputs[1].is_dynamic:  # type: ignore[union-attr]
                warnings.warn("Mixed dynamic and static quantization config is not supported.", stacklevel=3)
                return True
        return False

    def _set(
        self, table: dict, key: Any, config: QuantizationConfig | None, what: Any
    ) -> X86InductorQuantizer:
        if self._is_mixed(config):
            warnings.warn(f"Skip the quantization config for {what}.", stacklevel=3)
        else:
            table[key] = config
        return self

    def set_global(self, quantization_config: QuantizationConfig) -> X86InductorQuantizer:
        """Sets the configuration of everything that has no other one."""
        return self._set(self.__dict__, "global_config", quantization_config, "the global config")

    def get_global_quantization_config(self) -> QuantizationConfig | None:
        if self.global_config is None:
            warnings.warn("X86InductorQuantizer has no global config; set_global() sets it", stacklevel=2)
        return self.global_config

    def _set_operator(self, kind: Any, config: QuantizationConfig | None, what: str) -> X86InductorQuantizer:
        target = self.module_function_to_aten_operator_type.get(kind)
        if target is None:
            warnings.warn(
                f"{what}: Unable to customize quantization config for {kind} by X86InductorQuantizer.",
                stacklevel=3,
            )
            return self
        return self._set(self.operator_type_qconfig, target, config, kind)

    def set_function_type_qconfig(
        self, function_type: Callable, quantization_config: QuantizationConfig | None
    ) -> X86InductorQuantizer:
        """Sets the configuration of a function, such as ``nn.functional.linear``; None leaves it in float."""
        return self._set_operator(function_type, quantization_config, "function")

    def set_module_type_qconfig(
        self, module_type: type, quantization_config: QuantizationConfig | None
    ) -> X86InductorQuantizer:
        """Sets the configuration of a class of modules, such as ``nn.Linear``."""
        return self._set_operator(module_type, quantization_config, "Module")

    def set_module_name_qconfig(
        self, module_name: str, quantization_config: QuantizationConfig | None
    ) -> X86InductorQuantizer:
        """Sets the configuration within the module with this path."""
        return self._set(self.module_name_qconfig, module_name, quantization_config, module_name)

    def annotate(self, model: GraphModule) -> GraphModule:
        for name, config in self.module_name_qconfig.items():
            belongs = get_module_name_filter(name)
            self._annotate(model, config, lambda nodes, belongs=belongs: all(map(belongs, nodes)))
        for target, config in self.operator_type_qconfig.items():
            self._annotate(model, config, functools.partial(_contains_one, (target,)))
        if self.global_config is not None:
            one = functools.partial(_contains_one, default_quantizable_ops)
            self._annotate(model, self.global_config, one)
        self._share_results(model)
        return model

    def _annotate(self, model: GraphModule, config: QuantizationConfig | None, accepts: _Filter) -> None:
        if config is None or config.is_qat:
            for tail in ([ADDITIONS, RELUS], [ADDITIONS], [_BEHIND_CONVOLUTION], []):
                for nodes in chains(model, [_CONVOLUTIONS, NORMS, *tail]):
                    self._layer(nodes, config, accepts, add=ADDITIONS in tail, output=True)
        for tail in ([ADDITIONS, RELUS], [ADDITIONS], [_BEHIND_CONVOLUTION], []):
            for nodes in chains(model, [_CONVOLUTIONS, *tail]):
                self._layer(nodes, config, accepts, add=ADDITIONS in tail)
        for tail in ([ADDITIONS, RELUS], [ADDITIONS], [_BEHIND_LINEAR], []):
            for nodes in chains(model, [LINEAR, *tail]):
                self._layer(nodes, config, accepts)
        for node in calls(model, (_aten.matmul.default, _aten.mul.Tensor)):
            self._pair(node, config, accepts)
        for node in calls(model, propagation_quantizable_ops):
            self._propagate(node, config, accepts)

    def _layer(
        self,
        nodes: list[Node],
        config: QuantizationConfig | None,
        accepts: _Filter,
        add: bool = False,
        output: bool = False,
    ) -> None:
        """Annotates a layer and the calls that follow it; the last call computes the result."""
        if is_annotated(nodes) or not accepts(nodes) or not isinstance(nodes[0].args[1], Node):
            return
        if config is None:
            _leave(nodes)
            return
        for node in nodes:
            node.meta[Q_ANNOTATION_KEY] = _annotation()
        nodes[0].meta[Q_ANNOTATION_KEY].input_qspec_map = weighted_inputs(nodes[0], config)
        if add:
            addition = next(n for n in nodes if n.target in ADDITIONS)
            for other in addition.args[:2]:
                if isinstance(other, Node) and other not in nodes:
                    addition.meta[Q_ANNOTATION_KEY].input_qspec_map[other] = get_input_act_qspec(config)
        last = nodes[-1].meta[Q_ANNOTATION_KEY]
        last._is_output_of_quantized_pattern = True
        last.output_qspec = get_output_act_qspec(config) if output else None

    def _pair(self, node: Node, config: QuantizationConfig | None, accepts: _Filter) -> None:
        if is_annotated([node]) or not accepts([node]):
            return
        if config is None:
            _leave([node])
            return
        values = [a.meta.get("val") if isinstance(a, Node) else None for a in node.args[:2]]
        if not all(isinstance(v, _C.Tensor) for v in values):
            return
        if node.target == _aten.mul.Tensor and values[0].shape != values[1].shape:
            return
        inputs = dict.fromkeys(node.args[:2], get_input_act_qspec(config))
        node.meta[Q_ANNOTATION_KEY] = _annotation(
            input_qspec_map=inputs, _is_output_of_quantized_pattern=True
        )

    def _propagate(self, node: Node, config: QuantizationConfig | None, accepts: _Filter) -> None:
        """Annotates an operator that moves integers, if its inputs are results of quantised patterns."""
        if is_annotated([node]) or not accepts([node]):
            return
        if config is None:
            _leave([node])
            return
        inputs = node.all_input_nodes if node.target == _aten.cat.default else node.all_input_nodes[:1]
        if not all(map(_is_quantized, inputs)):
            return
        moves = node.target in (_aten.flatten.using_ints, _aten.view.default)
        if moves and node.users and not any(u.target in quantizable_ops for u in node.users):
            return
        shared = SharedQuantizationSpec((inputs[0], node))
        specs = {**dict.fromkeys(inputs, shared), inputs[0]: get_input_act_qspec(config)}
        node.meta[Q_ANNOTATION_KEY] = _annotation(input_qspec_map=specs, _is_output_of_quantized_pattern=True)

    def _share_results(self, model: GraphModule) -> None:
        for node in calls(model, int8_in_int8_out_ops):
            if _is_quantized(node):
                source = node.all_input_nodes[0]
                node.meta[Q_ANNOTATION_KEY].output_qspec = SharedQuantizationSpec((source, node))

    def validate(self, model: GraphModule) -> None:
        pass


def _leave(nodes: Iterable[Node]) -> None:
    for node in nodes:
        node.meta[Q_ANNOTATION_KEY] = _annotation()


def _contains_one(targets: Iterable[Any], nodes: list[Node]) -> bool:
    count = sum(node.target in targets for node in nodes)
    if count > 1:
        raise NotImplementedError(
            f"Several nodes within a single pattern are quantizable operations: {nodes}"
        )
    return count == 1
