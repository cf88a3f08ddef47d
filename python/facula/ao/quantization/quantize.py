"""The flows for modules: observe, calibrate or train, convert."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from ... import _C, nn
from ..._types import qint8, quint4x2, quint8
from ..nn import quantizable as nnqa
from ..nn import quantized as nnq
from ..nn.intrinsic.modules.fused import _FusedModule
from ..nn.intrinsic.qat.modules import _ConvReLU, _WithNorm
from ..nn.quantized.modules.rnn import LSTM as QuantizedLSTM
from ..nn.quantized.modules.rnn import MultiheadAttention as QuantizedMultiheadAttention
from .fake_quantize import FakeQuantizeBase
from .observer import ObserverBase, check_activation
from .qconfig import (
    QConfig,
    _activation_is_memoryless,
    _assert_valid_qconfig,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
)
from .quantization_mappings import (
    _get_special_act_post_process,
    _has_special_act_post_process,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
    no_observer_set,
)
from .stubs import DeQuantStub, QuantWrapper
from .utils import has_no_children_ignoring_parametrizations, type_before_parametrizations

__all__ = [
    "add_quant_dequant",
    "convert",
    "get_default_custom_config_dict",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
]

_CUSTOM: dict[str, dict] = {
    "float_to_observed_custom_module_class": {
        nn.LSTM: nnqa.LSTM,
        nn.MultiheadAttention: nnqa.MultiheadAttention,
    },
    "observed_to_quantized_custom_module_class": {
        nnqa.LSTM: QuantizedLSTM,
        nnqa.MultiheadAttention: QuantizedMultiheadAttention,
    },
}


def get_default_custom_config_dict() -> dict:
    """Returns the classes that are replaced by ones of quantisable parts, and what becomes of these."""
    return _CUSTOM


# Modules that are replaced as a whole, not part by part.
_WHOLE = (_FusedModule, _WithNorm, _ConvReLU)


def is_activation_post_process(module: Any) -> bool:
    """Returns whether a module is an observer or a fake quantiser."""
    return isinstance(module, (ObserverBase, FakeQuantizeBase))


def propagate_qconfig_(
    module: nn.Module, qconfig_dict: Any = None, prepare_custom_config_dict: Any = None
) -> None:
    """Gives each submodule the configuration for its path or class, or that of its parent."""
    _propagate(module, qconfig_dict or {}, None, "", prepare_custom_config_dict or {})


def _propagate(module: nn.Module, table: dict, parent: Any, prefix: str, custom: dict) -> None:
    qconfig = table.get(type_before_parametrizations(module), parent)
    qconfig = table.get(prefix, qconfig)
    qconfig = getattr(module, "qconfig", qconfig)
    try:
        _assert_valid_qconfig(qconfig, module)
    except AssertionError as e:
        raise AssertionError(f"prepare: {prefix or 'the model'}: {e}") from e
    module.qconfig = qconfig
    for name, child in module.named_children():
        opaque = name in custom.get("non_traceable_module_name", ()) or type(child) in custom.get(
            "non_traceable_module_class", ()
        )
        if not opaque:
            _propagate(child, table, qconfig, f"{prefix}.{name}" if prefix else name, custom)


def _observer_forward_hook(self: Any, input: Any, output: Any) -> Any:
    return self.activation_post_process(output)


def _observer_forward_pre_hook(self: Any, input: Any) -> Any:
    return self.activation_post_process(input[0])


def _wants(module: Any) -> bool:
    return getattr(module, "qconfig", None) is not None


def _attach(module: Any, special: Any = None) -> None:
    """Adds an observer of a module's result, or of its input if ranges are those of each call."""
    if not _wants(module) or isinstance(module, DeQuantStub):
        return
    module.add_module("activation_post_process", (special or module.qconfig.activation)())
    if _activation_is_memoryless(module.qconfig):
        module.register_forward_pre_hook(_observer_forward_pre_hook, prepend=True)
    else:
        module.register_forward_hook(_observer_forward_hook, prepend=True)


def _add_observer_(module: nn.Module, listed: Any, non_leaf: Any, custom: dict) -> None:
    for name, child in module.named_children():
        kind = type_before_parametrizations(child)
        if kind is nn.Dropout or is_activation_post_process(child):
            continue
        if issubclass(kind, (nnq.FloatFunctional, nnq.QFunctional)):
            if _wants(child):
                child.activation_post_process = child.qconfig.activation()
        elif isinstance(child, _WHOLE):
            _attach(child)
        elif non_leaf is not None and kind in non_leaf:
            _attach(child)
        elif _has_special_act_post_process(child):
            _attach(child, _get_special_act_post_process(child))
        elif _wants(child) and kind in custom:
            observed = custom[kind].from_float(child)
            setattr(module, name, observed)
            if not issubclass(custom[kind], tuple(no_observer_set())):
                _attach(observed)
        else:
            _add_observer_(child, listed, non_leaf, custom)
    is_listed = not isinstance(module, nn.Sequential) and type_before_parametrizations(module) in listed
    if is_listed and (
        has_no_children_ignoring_parametrizations(module) or hasattr(module, "weight_fake_quant")
    ):
        _attach(module)


def add_quant_dequant(module: nn.Module) -> nn.Module:
    """Wraps leaves that have a configuration between the two stubs."""
    if has_no_children_ignoring_parametrizations(module) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        module._modules[name] = add_quant_dequant(child)
    return module


def prepare(
    model: nn.Module,
    inplace: bool = False,
    allow_list: Any = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: Any = None,
) -> nn.Module:
    """Returns a model with observers, to be run on data that are typical, and then converted.

    Args:
        model: the model; ``model.qconfig``, or that of submodules, says how values are observed.
        inplace: whether ``model`` itself is changed.
        allow_list: the classes that are observed.
        observer_non_leaf_module_list: classes with submodules that are observed too.
        prepare_custom_config_dict: classes of the user's that replace modules.
    """
    custom = prepare_custom_config_dict or get_default_custom_config_dict()
    model = model if inplace else copy.deepcopy(model)
    listed = get_default_qconfig_propagation_list() if allow_list is None else allow_list
    propagate_qconfig_(model)
    if not any(getattr(m, "qconfig", None) for m in model.modules()):
        warnings.warn(
            "None of the submodule got qconfig applied. Make sure you passed correct configuration through "
            "`qconfig_dict` or by assigning the `.qconfig` attribute directly on submodules",
            stacklevel=2,
        )
    _add_observer_(
        model, listed, observer_non_leaf_module_list, custom.get("float_to_observed_custom_module_class", {})
    )
    name_observers(model)
    return model


def name_observers(model: nn.Module) -> None:
    """Tells each observer the path of the module whose values it sees, for its errors."""
    for path, module in model.named_modules():
        if is_activation_post_process(module):
            module.observed = path.rpartition(".")[0] or path


def _remove_qconfig(module: nn.Module) -> None:
    for child in module.children():
        _remove_qconfig(child)
    if hasattr(module, "qconfig"):
        del module.qconfig
    if is_activation_post_process(getattr(module, "activation_post_process", None)):
        delattr(module, "activation_post_process")
    for hooks, hook in (
        (module._forward_pre_hooks, _observer_forward_pre_hook),
        (module._forward_hooks, _observer_forward_hook),
    ):
        for key in [k for k, f in hooks.items() if f is hook]:
            del hooks[key]


def quantize(
    model: nn.Module, run_fn: Callable, run_args: Any, mapping: Any = None, inplace: bool = False
) -> nn.Module:
    """Returns the quantised model, calibrated by ``run_fn(model, *run_args)``."""
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


def _dynamic_spec(dtype: Any) -> tuple[QConfig, tuple]:
    """Returns the configuration for a dtype, and the classes that it is applied to."""
    recurrent = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.RNNCell, nn.GRUCell)
    specs: dict[Any, tuple[QConfig, tuple]] = {
        qint8: (default_dynamic_qconfig, recurrent),
        _C.float16: (float16_dynamic_qconfig, recurrent),
        quint8: (float_qparams_weight_only_qconfig, (nn.EmbeddingBag, nn.Embedding)),
        quint4x2: (float_qparams_weight_only_qconfig_4bit, (nn.EmbeddingBag,)),
    }
    if dtype not in specs:
        raise ValueError(
            f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please\n"
            f"  hint: {', '.join(map(str, specs))} have default settings"
        )
    return specs[dtype]


def quantize_dynamic(
    model: nn.Module, qconfig_spec: Any = None, dtype: Any = qint8, mapping: Any = None, inplace: bool = False
) -> nn.Module:
    """Returns the model with quantised weights; values are quantised with the range of each call.

    Args:
        model: the model.
        qconfig_spec: classes or paths of submodules, as a set, or as a dictionary of configurations.
        dtype: that of the weights: ``qint8``, ``float16``, or ``quint8`` and ``quint4x2`` for embeddings.
        inplace: whether ``model`` itself is changed.

    >>> m = facula.ao.quantization.quantize_dynamic(facula.nn.Sequential(facula.nn.Linear(4, 2)))
    >>> m(facula.ones(1, 4)).dtype
    facula.float32
    """
    if qconfig_spec is None:
        default, kinds = _dynamic_spec(dtype)
        qconfig_spec = dict.fromkeys(kinds, default)
    elif isinstance(qconfig_spec, (set, frozenset, list, tuple)):
        qconfig_spec = dict.fromkeys(qconfig_spec, _dynamic_spec(dtype)[0])
    mapping = get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    return convert(model, mapping, inplace=True)


def prepare_qat(model: nn.Module, mapping: Any = None, inplace: bool = False) -> nn.Module:
    """Returns a model that rounds weights and values as the quantised one will, to be trained."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode; call model.train()")
    mapping = get_default_qat_module_mappings() if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    convert(model, mapping=mapping, inplace=True, remove_qconfig=False)
    return prepare(model, observer_non_leaf_module_list=set(mapping.values()), inplace=True)


def quantize_qat(model: nn.Module, run_fn: Callable, run_args: Any, inplace: bool = False) -> nn.Module:
    """Returns the quantised model, trained by ``run_fn(model, *run_args)``."""
    model = model if inplace else copy.deepcopy(model)
    model.train()
    prepare_qat(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


def _has_seen_data(post: Any) -> bool:
    """Returns whether an observer of a range has one."""
    post = getattr(post, "activation_post_process", post)
    low, high = getattr(post, "min_val", None), getattr(post, "max_val", None)
    if low is None or high is None:
        return True
    return low.numel() > 0 and not (
        low.numel() == 1 and float(low) == float("inf") and float(high) == -float("inf")
    )


def _check_calibrated(model: nn.Module, mapping: dict) -> None:
    """Raises RuntimeError if no observer has seen data; warns of single ones that have not."""
    observed = {
        path: _has_seen_data(m.activation_post_process)
        for path, m in model.named_modules()
        if type_before_parametrizations(m) in mapping
        and is_activation_post_process(getattr(m, "activation_post_process", None))
    }
    unseen = [path or "the model" for path, seen in observed.items() if not seen]
    if unseen and len(unseen) == len(observed):
        raise RuntimeError(
            f"convert: {unseen[0]}: its observer has seen no data, nor have those of all other modules\n"
            "  hint: run the prepared model on typical data before convert"
        )
    if unseen:
        warnings.warn(
            f"convert: no data have reached the observers of {', '.join(unseen[:5])}: scale 1 "
            "and zero point 0 "
            "are used there",
            stacklevel=3,
        )


def convert(
    module: nn.Module,
    mapping: Any = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> nn.Module:
    """Returns the model with quantised modules in place of observed ones.

    Args:
        module: the prepared model, which has seen data.
        mapping: the quantised class for each class.
        inplace: whether ``module`` itself is changed.
        remove_qconfig: whether configurations and observers are removed.

    Raises:
        RuntimeError: no observer has seen data.
    """
    if is_reference:
        raise NotImplementedError("convert: is_reference=True is not supported; the quantized modules are")
    mapping = get_default_static_quant_module_mappings() if mapping is None else mapping
    custom = (convert_custom_config_dict or get_default_custom_config_dict()).get(
        "observed_to_quantized_custom_module_class", {}
    )
    module = module if inplace else copy.deepcopy(module)
    _check_calibrated(module, mapping)
    _convert(module, mapping, custom, use_precomputed_fake_quant, "")
    if remove_qconfig:
        _remove_qconfig(module)
    return module


def _convert(module: nn.Module, mapping: dict, custom: dict, precomputed: bool, prefix: str) -> None:
    replaced = {}
    for name, child in module.named_children():
        path = f"{prefix}.{name}" if prefix else name
        if not isinstance(child, _WHOLE) and type_before_parametrizations(child) not in custom:
            _convert(child, mapping, custom, precomputed, path)
        try:
            if _wants(child) and type_before_parametrizations(child) in mapping:
                check_activation(getattr(child, "activation_post_process", None))
            replaced[name] = swap_module(child, mapping, custom, precomputed)
        except (AssertionError, NotImplementedError, RuntimeError, ValueError) as e:
            raise type(e)(
                f"convert: {path}, a {type(child).__name__}: {e}\n"
                f"  hint: qconfig = None for this module leaves it in floating point"
            ) from e
    for name, child in replaced.items():
        module._modules[name] = child


def swap_module(
    mod: nn.Module, mapping: dict, custom_module_class_mapping: dict, use_precomputed_fake_quant: bool = False
) -> nn.Module:
    """Returns the quantised form of a module with a configuration; any other as it is."""
    kind = type_before_parametrizations(mod)
    if not _wants(mod) or (kind not in custom_module_class_mapping and kind not in mapping):
        return mod
    if kind in custom_module_class_mapping:
        new = custom_module_class_mapping[kind].from_observed(mod)
    elif "use_precomputed_fake_quant" in inspect.signature(mapping[kind].from_float).parameters:
        new = mapping[kind].from_float(mod, use_precomputed_fake_quant=use_precomputed_fake_quant)
    else:
        new = mapping[kind].from_float(mod)
    for hook in mod._forward_pre_hooks.values():
        if hook is not _observer_forward_pre_hook:
            new.register_forward_pre_hook(hook)
    for hook in mod._forward_hooks.values():
        if hook is not _observer_forward_hook:
            new.register_forward_hook(hook)
    return new


def _get_observer_dict(mod: nn.Module, target_dict: dict, prefix: str = "") -> None:
    for path, m in mod.named_modules(prefix=prefix):
        if hasattr(m, "activation_post_process"):
            target_dict[f"{path}.activation_post_process" if path else "activation_post_process"] = (
                m.activation_post_process
            )
