"""Configurations: how values and weights of a layer are observed."""

from __future__ import annotations

import copy
from collections import namedtuple
from typing import Any

from ... import _C
from ..._types import qint8, quint8
from ...nn import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Identity, Module
from .fake_quantize import (
    FakeQuantize,
    FakeQuantizeBase,
    FusedMovingAvgObsFakeQuantize,
    default_dynamic_fake_quant,
    default_embedding_fake_quant,
    default_embedding_fake_quant_4bit,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    fused_per_channel_wt_fake_quant_range_neg_127_to_127,
    fused_wt_fake_quant_range_neg_127_to_127,
)
from .observer import (
    HistogramObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    ReuseInputObserver,
    _PartialWrapper,
    default_debug_observer,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_float_qparams_observer_4bit,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_reuse_input_observer,
    default_weight_observer,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)

__all__ = [
    "QConfig",
    "QConfigAny",
    "QConfigDynamic",
    "default_activation_only_qconfig",
    "default_debug_qconfig",
    "default_dynamic_qat_qconfig",
    "default_dynamic_qconfig",
    "default_embedding_qat_qconfig",
    "default_embedding_qat_qconfig_4bit",
    "default_per_channel_qconfig",
    "default_per_channel_symmetric_qnnpack_qat_qconfig",
    "default_per_channel_symmetric_qnnpack_qconfig",
    "default_qat_qconfig",
    "default_qat_qconfig_v2",
    "default_qconfig",
    "default_quint8_weight_qconfig",
    "default_reuse_input_qconfig",
    "default_symmetric_qnnpack_qat_qconfig",
    "default_symmetric_qnnpack_qconfig",
    "default_weight_only_qconfig",
    "float16_dynamic_qconfig",
    "float16_static_qconfig",
    "float_qparams_weight_only_qconfig",
    "float_qparams_weight_only_qconfig_4bit",
    "get_default_qat_qconfig",
    "get_default_qat_qconfig_dict",
    "get_default_qconfig",
    "get_default_qconfig_dict",
    "per_channel_dynamic_qconfig",
    "qconfig_equals",
]


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """The constructors of the observers of a layer's result and of its weight.

    >>> from facula.ao.quantization import MinMaxObserver, QConfig, default_weight_observer
    >>> QConfig(MinMaxObserver.with_args(reduce_range=True), default_weight_observer).activation().quant_max
    127
    """

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        if isinstance(activation, Module) or isinstance(weight, Module):
            raise ValueError(
                "QConfig received observer instance, please pass observer class instead. "
                "Use MyObserver.with_args(x=1) to override arguments to constructor if needed"
            )
        return super().__new__(cls, activation, weight)


class QConfigDynamic(namedtuple("QConfigDynamic", ["activation", "weight"])):
    """The former configuration of layers whose inputs are quantised at each call."""

    __slots__ = ()

    def __new__(cls, activation: Any = Identity, weight: Any = Identity) -> QConfigDynamic:
        if isinstance(weight, Module):
            raise ValueError("QConfigDynamic received observer instance, please pass observer class instead.")
        return super().__new__(cls, activation, weight)


QConfigAny = QConfig | None

default_qconfig = QConfig(default_observer, default_weight_observer)
default_debug_qconfig = QConfig(default_debug_observer, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
float16_dynamic_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=_C.float16, is_dynamic=True),
    PlaceholderObserver.with_args(dtype=_C.float16),
)
float16_static_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=_C.float16), PlaceholderObserver.with_args(dtype=_C.float16)
)
per_channel_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_per_channel_weight_observer)
float_qparams_weight_only_qconfig = QConfig(default_placeholder_observer, default_float_qparams_observer)
float_qparams_weight_only_qconfig_4bit = QConfig(
    default_placeholder_observer, default_float_qparams_observer_4bit
)
default_qat_qconfig = QConfig(default_fake_quant, default_weight_fake_quant)
default_dynamic_qat_qconfig = QConfig(default_dynamic_fake_quant, default_weight_fake_quant)
default_weight_only_qconfig = QConfig(Identity, default_weight_fake_quant)
default_activation_only_qconfig = QConfig(default_fake_quant, Identity)
default_qat_qconfig_v2 = QConfig(default_fused_act_fake_quant, default_fused_wt_fake_quant)
default_reuse_input_qconfig = QConfig(default_reuse_input_observer, NoopObserver)
default_embedding_qat_qconfig = QConfig(
    NoopObserver.with_args(dtype=_C.float32), default_embedding_fake_quant
)
default_embedding_qat_qconfig_4bit = QConfig(
    NoopObserver.with_args(dtype=_C.float32), default_embedding_fake_quant_4bit
)
_symmetric_activation = HistogramObserver.with_args(dtype=qint8, reduce_range=False, eps=2**-12)
default_symmetric_qnnpack_qconfig = QConfig(_symmetric_activation, weight_observer_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    _symmetric_activation, per_channel_weight_observer_range_neg_127_to_127
)
_symmetric_fake = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=qint8,
    reduce_range=False,
    eps=2**-12,
)
default_symmetric_qnnpack_qat_qconfig = QConfig(_symmetric_fake, fused_wt_fake_quant_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _symmetric_fake, fused_per_channel_wt_fake_quant_range_neg_127_to_127
)
default_quint8_weight_qconfig = QConfig(
    HistogramObserver.with_args(), PerChannelMinMaxObserver.with_args(dtype=quint8)
)
_default_fp32_placeholder_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=_C.float32), PlaceholderObserver.with_args(dtype=_C.float32)
)
_default_quint8_placeholder_qconfig = QConfig(PlaceholderObserver.with_args(dtype=quint8), None)

_BACKENDS = ("fbgemm", "x86", "qnnpack", "onednn")


def _check_backend(backend: str, version: int, versions: tuple, name: str) -> None:
    if backend not in _BACKENDS:
        raise AssertionError(f"backend: {backend} not supported. backend must be one of {list(_BACKENDS)}")
    if version not in versions:
        allowed = " or ".join(map(str, versions))
        raise AssertionError(
            f"Version number: {version} in {name} is not supported. Version number must be {allowed}"
        )


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """Returns the configuration for quantisation after training.

    Args:
        backend: ``x86`` and ``fbgemm`` leave one bit of values unused; ``qnnpack`` has one scale a weight.
        version: 0.
    """
    _check_backend(backend, version, (0,), "get_default_qconfig")
    return QConfig(
        HistogramObserver.with_args(reduce_range=backend in ("x86", "fbgemm")),
        default_weight_observer if backend == "qnnpack" else default_per_channel_weight_observer,
    )


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """Returns the configuration for training for a quantised model; version 1 has fused modules."""
    _check_backend(backend, version, (0, 1), "get_default_qat_qconfig")
    kind = FusedMovingAvgObsFakeQuantize if version else FakeQuantize
    options: dict[str, Any] = {} if backend == "onednn" else {"reduce_range": backend != "qnnpack"}
    per_tensor, per_channel = (
        (default_fused_wt_fake_quant, default_fused_per_channel_wt_fake_quant)
        if version
        else (default_weight_fake_quant, default_per_channel_weight_fake_quant)
    )
    activation = kind.with_args(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, **options)
    return QConfig(activation, per_tensor if backend == "qnnpack" else per_channel)


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> dict:
    """Returns ``get_default_qconfig_mapping(...)`` as a dictionary."""
    from .qconfig_mapping import get_default_qconfig_mapping

    return get_default_qconfig_mapping(backend, version).to_dict()


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> dict:
    """Returns ``get_default_qat_qconfig_mapping(...)`` as a dictionary."""
    from .qconfig_mapping import get_default_qat_qconfig_mapping

    return get_default_qat_qconfig_mapping(backend, version).to_dict()


def _assert_valid_qconfig(qconfig: Any, mod: Module) -> None:
    """Raises AssertionError for a transposed convolution whose weight would get a scale per channel."""
    if qconfig is None or not isinstance(mod, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)):
        return
    if qconfig.weight is not None and isinstance(qconfig.weight(), PerChannelMinMaxObserver):
        raise AssertionError(
            f"Per channel weight observer is not supported yet for {type(mod).__name__}\n"
            "  hint: a QConfig with default_weight_observer as weight works, or qconfig = None "
            "for this module"
        )


def _constructors_equal(a: Any, b: Any) -> bool:
    if not (isinstance(a, _PartialWrapper) and isinstance(b, _PartialWrapper)):
        return bool(a == b)
    mine, other = copy.copy(a.p.keywords), copy.copy(b.p.keywords)
    inner = _constructors_equal(mine.pop("observer", None), other.pop("observer", None))
    return inner and a.p.func == b.p.func and a.p.args == b.p.args and mine == other


def qconfig_equals(q1: Any, q2: Any) -> bool:
    """Returns whether two configurations make equal observers."""
    if q1 is None or q2 is None:
        return q1 is q2
    return _constructors_equal(q1.activation, q2.activation) and _constructors_equal(q1.weight, q2.weight)


def _activation_is_memoryless(qconfig: Any) -> bool:
    """Returns whether the range of a value is that of the last one alone."""
    post = qconfig.activation()
    if isinstance(post, FakeQuantizeBase):
        post = getattr(post, "activation_post_process", post)
    return getattr(post, "averaging_constant", None) == 1


def _is_reuse_input_qconfig(qconfig: Any) -> bool:
    return (
        qconfig is not None
        and isinstance(qconfig.activation(), ReuseInputObserver)
        and isinstance(qconfig.weight(), NoopObserver)
    )
