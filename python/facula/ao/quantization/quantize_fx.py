"""The flow for graphs: a model is traced, layers are fused, values observed, and the graph converted."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable
from typing import Any

from ... import _C, _quantized, _quantized_ops, nn
from ..._ops import ops
from ..._types import qint8
from ...fx import Graph, GraphModule, Node, Tracer
from ...fx.node import map_arg
from ...nn import functional as F
from ..nn import quantized as nnq
from ..nn.intrinsic.modules.fused import _FusedModule
from .backend_config import BackendConfig, ObservationType, get_native_backend_config
from .fx.custom_config import ConvertCustomConfig, FuseCustomConfig, PrepareCustomConfig
from .observer import FixedQParamsObserver, PlaceholderObserver, check_activation
from .qconfig import _is_reuse_input_qconfig
from .qconfig_mapping import QConfigMapping
from .quantization_mappings import (
    DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
    DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
)
from .quantize import _has_seen_data, is_activation_post_process

__all__ = ["convert_fx", "convert_to_reference_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx"]

_f = _C.functions
_RELUS: tuple = (F.relu, _f.relu, "relu", "relu_")
# Functions of ``ops.quantized`` for functions of two operands, by name.
_BINARY: dict[Any, str] = {
    **dict.fromkeys((operator.add, _f.add, "add"), "add"),
    **dict.fromkeys((operator.mul, _f.mul, "mul"), "mul"),
    **dict.fromkeys((operator.matmul, _f.matmul, "matmul"), "matmul"),
}
_WITH_SCALE: dict[Any, str] = {
    F.elu: "elu",
    F.hardswish: "hardswish",
    F.leaky_relu: "leaky_relu",
    F.layer_norm: "layer_norm",
    F.group_norm: "group_norm",
    F.instance_norm: "instance_norm",
}
# Functions with several results, which have the scale of the operand; the results are not observed.
_SEVERAL: tuple = (_f.chunk, _f.split, _f.topk, "chunk", "split")
_FUNCTIONAL: dict[Any, str] = {
    F.linear: "linear",
    F.conv1d: "conv1d",
    F.conv2d: "conv2d",
    F.conv3d: "conv3d",
}


class QuantizationTracer(Tracer):
    """Traces a model; modules of nn, and those that the user names, stay one node."""

    def __init__(self, skipped_module_names: list[str], skipped_module_classes: list[type]) -> None:
        super().__init__()
        self.skipped_module_names = skipped_module_names
        self.skipped_module_classes = tuple(skipped_module_classes)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if module_qualified_name in self.skipped_module_names or type(m) in self.skipped_module_classes:
            return True
        return isinstance(m, _FusedModule) or super().is_leaf_module(m, module_qualified_name)


class ObservedGraphModule(GraphModule):
    """A graph with observers, and what ``convert_fx`` has to know of it."""


def _swap_functional_modules(model: nn.Module) -> None:
    """Replaces FloatFunctional by modules without an observer, which the graph gets instead."""
    for name, child in model.named_children():
        if isinstance(child, nnq.FloatFunctional):
            model._modules[name] = nnq.FXFloatFunctional()
        else:
            _swap_functional_modules(child)


def _traced(model: nn.Module, custom: Any) -> tuple[GraphModule, dict]:
    _swap_functional_modules(model)
    names = getattr(custom, "non_traceable_module_names", [])
    tracer = QuantizationTracer(names, getattr(custom, "non_traceable_module_classes", []))
    graph = tracer.trace(model)
    preserved = {
        a: getattr(model, a) for a in getattr(custom, "preserved_attributes", []) if hasattr(model, a)
    }
    traced = GraphModule(model, graph)
    for name, value in preserved.items():
        setattr(traced, name, value)
    traced.train(model.training)
    return traced, {n: scope[0] for n, scope in tracer.node_name_to_scope.items()}


def _module(model: nn.Module, node: Node) -> Any:
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None


def _set_module(model: nn.Module, path: str, module: nn.Module) -> None:
    owner, _, name = path.rpartition(".")
    setattr(model.get_submodule(owner), name, module)


def _kind(model: nn.Module, node: Node) -> Any:
    """Returns what a node calls: a class of modules, a function or a method's name."""
    if node.op == "call_module":
        return type(_module(model, node))
    return node.target if node.op in ("call_function", "call_method") else None


# ---- fusion


def _is_relu(model: nn.Module, node: Node) -> bool:
    kind = _kind(model, node)
    return kind is nn.ReLU or (kind in _RELUS if kind.__hash__ else False)


def _chain(model: nn.Module, node: Node, patterns: dict) -> list[Node]:
    """Returns the longest sequence of nodes from ``node`` that is fused."""
    nodes, kinds, best = [node], [_kind(model, node)], []
    while len(nodes[-1].users) == 1:
        following = next(iter(nodes[-1].users))
        if following.op == "output" or not following.args or following.args[0] is not nodes[-1]:
            break
        nodes.append(following)
        kinds.append(nn.ReLU if _is_relu(model, following) else _kind(model, following))
        if tuple(kinds) in patterns:
            best = list(nodes)
        elif not any(p[: len(kinds)] == tuple(kinds) for p in patterns):
            break
    return best


def _fuse(model: GraphModule, is_qat: bool, backend_config: BackendConfig) -> None:
    patterns = {
        c.pattern: c.fuser_method
        for c in backend_config.configs
        if isinstance(c.pattern, tuple) and c.fuser_method
    }
    uses: dict[str, int] = {}
    for node in model.graph.nodes:
        if node.op == "call_module":
            uses[str(node.target)] = uses.get(str(node.target), 0) + 1
    for node in list(model.graph.nodes):
        if node.op != "call_module":
            continue
        nodes = _chain(model, node, patterns)
        shared = any(uses.get(str(n.target), 0) > 1 for n in nodes[:-1])
        if not nodes or shared:
            continue
        layers = [_module(model, n) if n.op == "call_module" else nn.ReLU() for n in nodes]
        for layer in layers:
            layer.training = layers[0].training
        method = patterns[tuple(map(type, layers))]
        _set_module(model, str(node.target), method(is_qat, *layers))
        nodes[-1].replace_all_uses_with(node)
        for n in reversed(nodes[1:]):
            model.graph.erase_node(n)
    model.delete_all_unused_submodules()
    model.recompile()


# ---- observers


class _Preparation:
    """Inserts observers into a graph."""

    def __init__(
        self,
        model: GraphModule,
        scopes: dict,
        mapping: QConfigMapping,
        custom: PrepareCustomConfig,
        backend_config: BackendConfig,
        is_qat: bool,
    ) -> None:
        self.model, self.scopes, self.mapping, self.custom = model, scopes, mapping, custom
        self.backend_config, self.is_qat = backend_config, is_qat
        self.qconfigs: dict[str, Any] = {}
        self.observers: dict[Node, Node] = {}  # of a value, the node of its observer
        self.count = 0

    def find_qconfigs(self) -> None:
        indices: dict[tuple, int] = {}
        for node in self.model.graph.nodes:
            kind = _kind(self.model, node)
            if kind is None:
                continue
            path = str(node.target) if node.op == "call_module" else self.scopes.get(node.name, "")
            owner = path.rpartition(".")[0] if node.op == "call_module" else path
            index = indices.get((owner, kind), 0)
            indices[owner, kind] = index + 1
            ordered = self.mapping.module_name_object_type_order_qconfigs.get((owner, kind, index))
            lookup = (
                type(_module(self.model, node)[0])
                if isinstance(_module(self.model, node), _FusedModule)
                else kind
            )
            self.qconfigs[node.name] = ordered or self.mapping.find(path, lookup, index)

    def pattern(self, node: Node) -> Any:
        kind = _kind(self.model, node)
        return None if kind is None else self.backend_config.find(kind)

    def is_quantized(self, node: Node) -> bool:
        """Returns whether a node computes with integers: it has a pattern, and a configuration that fits."""
        qconfig, pattern = self.qconfigs.get(node.name), self.pattern(node)
        if qconfig is None or pattern is None:
            return False
        if _is_reuse_input_qconfig(qconfig):
            return True
        post = qconfig.activation()
        dynamic, dtype = getattr(post, "is_dynamic", False), getattr(post, "dtype", None)
        if dynamic or pattern.observation_type is ObservationType.INPUT_OUTPUT_NOT_OBSERVED:
            return False
        if kind_is_fixed(post) and not self._is_bounded(node):
            return False
        return any(
            d.input_dtype == dtype and not d.is_dynamic for d in pattern.dtype_configs
        ) and self._operands(node)

    def _is_bounded(self, node: Node) -> bool:
        from .qconfig_mapping import _FIXED_QPARAMS_OP_TO_OBSERVER

        return _kind(self.model, node) in _FIXED_QPARAMS_OP_TO_OBSERVER

    def _operands(self, node: Node) -> bool:
        """Returns whether a function of two operands has two tensors, or a tensor and a number."""
        if _kind(self.model, node) not in _BINARY:
            return True
        return all(isinstance(a, (Node, int, float)) for a in node.args[:2])

    def swap_for_training(self) -> None:
        for node in self.model.graph.nodes:
            pattern = self.pattern(node) if node.op == "call_module" else None
            qconfig = self.qconfigs.get(node.name)
            if pattern is None or pattern.qat_module is None or qconfig is None:
                continue
            module = _module(self.model, node)
            if hasattr(module, "weight_fake_quant"):
                continue
            module.qconfig = qconfig
            _set_module(self.model, str(node.target), pattern.qat_module.from_float(module))

    def insert(self) -> None:
        graph = self.model.graph
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        for k in self.custom.input_quantized_indexes:
            self._observe(placeholders[k], self.mapping.global_qconfig)
        skipped: set[Node] = set()
        for node in list(graph.nodes):
            if node in skipped or not self.is_quantized(node):
                continue
            qconfig = self.qconfigs[node.name]
            load = functools.partial(self._input, qconfig=qconfig, user=node)
            node.args, node.kwargs = map_arg(node.args, load), map_arg(node.kwargs, load)
            last, relu = node, self._relu_behind(node)
            if relu is not None:
                skipped.add(relu)
                last = relu
            self._output(node, last, qconfig)
        self._outputs()
        graph.lint()
        self.model.recompile()

    def _relu_behind(self, node: Node) -> Node | None:
        """Returns the rectifier that follows a sum or product, with which it is one function."""
        if _BINARY.get(_kind(self.model, node)) not in ("add", "mul") or len(node.users) != 1:
            return None
        following = next(iter(node.users))
        return following if following.op != "output" and _is_relu(self.model, following) else None

    def _takes(self, n: Node) -> bool:
        """Returns whether a value may be quantised: a tensor that the program computes."""
        if n.op == "get_attr":
            return False
        return not (
            n.op == "call_method" and n.target in ("size", "dim", "numel", "item", "tolist")
        ) and not (
            n.op == "call_function" and n.target in (getattr, len, operator.getitem) and self._of_numbers(n)
        )

    def _of_numbers(self, n: Node) -> bool:
        if n.target is operator.getitem and isinstance(n.args[0], Node):
            source = n.args[0]
            return not self._takes(source) or (source.op == "call_function" and source.target is getattr)
        return n.target is not operator.getitem

    def _input(self, n: Node, qconfig: Any, user: Node) -> Node:
        if not self._takes(n) or is_activation_post_process(_module(self.model, n)):
            return n
        if _kind(self.model, user) in _FUNCTIONAL and n is not user.args[0]:
            return n
        if n not in self.observers:
            fixed = kind_is_fixed(qconfig.activation()) or _is_reuse_input_qconfig(qconfig)
            own = self.qconfigs.get(n.name)
            usable = (
                own
                if own is not None and not kind_is_fixed(own.activation())
                else self.mapping.global_qconfig
            )
            self._observe(n, usable if fixed else qconfig)
        return self.observers[n]

    def _observe(self, n: Node, qconfig: Any, module: Any = None) -> None:
        if qconfig is None:
            return
        path = f"activation_post_process_{self.count}"
        self.count += 1
        module = qconfig.activation() if module is None else module
        module.observed = n.name
        setattr(self.model, path, module)
        with self.model.graph.inserting_after(n):
            observer = self.model.graph.call_module(path, (n,))
        for user in list(n.users):
            if user is not observer:
                user.replace_input_with(n, observer)
        self.observers[n] = observer

    def _output(self, node: Node, last: Node, qconfig: Any) -> None:
        pattern = self.pattern(node)
        if _kind(self.model, node) in _SEVERAL:
            return
        sources = [n for n in node.all_input_nodes if is_activation_post_process(_module(self.model, n))]
        if (
            pattern.observation_type is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
            or _is_reuse_input_qconfig(qconfig)
        ):
            if not sources:
                return
            module = _module(self.model, sources[0])
            for other in sources[1:]:
                self._replace(_module(self.model, other), module)
            self._observe(last, qconfig, module)
            return
        self._observe(last, qconfig)

    def _replace(self, old: Any, new: Any) -> None:
        """Lets all places of an observer have another one, which then sees their values too."""
        for name, module in list(self.model.named_modules(remove_duplicate=False)):
            if module is old:
                _set_module(self.model, name, new)

    def _outputs(self) -> None:
        output = self.model.graph.output_node()
        results = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
        for k in self.custom.output_quantized_indexes:
            n = results[k]
            if (
                isinstance(n, Node)
                and not is_activation_post_process(_module(self.model, n))
                and n not in self.observers
            ):
                self._observe(n, self.mapping.global_qconfig)


def kind_is_fixed(post: Any) -> bool:
    """Returns whether an observer has a fixed scale."""
    return isinstance(getattr(post, "activation_post_process", post), FixedQParamsObserver)


def _as_mapping(qconfig_mapping: Any) -> QConfigMapping:
    if isinstance(qconfig_mapping, QConfigMapping):
        return copy.copy(qconfig_mapping)
    if isinstance(qconfig_mapping, dict):
        return QConfigMapping.from_dict(qconfig_mapping)
    raise TypeError(
        f"expected a QConfigMapping or a dictionary, got {type(qconfig_mapping).__name__}\n"
        "  hint: get_default_qconfig_mapping() gives one"
    )


def _option(value: Any, kind: Any) -> Any:
    return kind() if value is None else kind.from_dict(value) if isinstance(value, dict) else value


def _prepare(
    model: nn.Module,
    qconfig_mapping: Any,
    example_inputs: Any,
    prepare_custom_config: Any,
    backend_config: Any,
    is_qat: bool,
) -> GraphModule:
    custom = _option(prepare_custom_config, PrepareCustomConfig)
    backend = get_native_backend_config() if backend_config is None else backend_config
    backend = BackendConfig.from_dict(backend) if isinstance(backend, dict) else backend
    traced, scopes = _traced(model, custom)
    _fuse(traced, is_qat, backend)
    work = _Preparation(traced, scopes, _as_mapping(qconfig_mapping), custom, backend, is_qat)
    work.find_qconfigs()
    if is_qat:
        work.swap_for_training()
    work.insert()
    observed = ObservedGraphModule(traced, traced.graph)
    observed.train(model.training)
    for name in custom.preserved_attributes:
        if hasattr(model, name):
            setattr(observed, name, getattr(model, name))
    observed.meta["quantization"] = {
        "qconfigs": {n.name: work.qconfigs.get(n.name) for n in observed.graph.nodes},
        "quantized": {n.name for n in observed.graph.nodes if work.is_quantized(n)},
        "custom": custom,
    }
    return observed


def fuse_fx(model: nn.Module, fuse_custom_config: Any = None, backend_config: Any = None) -> GraphModule:
    """Returns a graph in which layers are fused, of a model in evaluation mode."""
    custom = _option(fuse_custom_config, FuseCustomConfig)
    backend = get_native_backend_config() if backend_config is None else backend_config
    traced, _ = _traced(model, custom)
    _fuse(traced, False, backend)
    return traced


def prepare_fx(
    model: nn.Module,
    qconfig_mapping: Any,
    example_inputs: Any,
    prepare_custom_config: Any = None,
    _equalization_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """Returns a graph with observers, to be run on data that are typical, and then converted.

    Args:
        model: the model, in evaluation mode; it is changed.
        qconfig_mapping: the configurations, such as ``get_default_qconfig_mapping()``.
        example_inputs: arguments of the model.
        prepare_custom_config: PrepareCustomConfig.
        backend_config: which patterns are quantised; all that Facula computes with integers by default.
    """
    if _equalization_config is not None:
        raise NotImplementedError("prepare_fx: equalization is not supported")
    return _prepare(model, qconfig_mapping, example_inputs, prepare_custom_config, backend_config, False)


def prepare_qat_fx(
    model: nn.Module,
    qconfig_mapping: Any,
    example_inputs: Any,
    prepare_custom_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """Returns a graph that rounds weights and values as the quantised one will, to be trained."""
    return _prepare(model, qconfig_mapping, example_inputs, prepare_custom_config, backend_config, True)


# ---- conversion


class _Conversion:
    """Builds the graph of integers. Values exist in both forms as far as they are used."""

    def __init__(self, model: GraphModule, facts: dict, mapping: Any) -> None:
        self.model, self.facts, self.custom_mapping = model, facts, mapping
        self.graph = Graph()
        self.plain: dict[Node, Node] = {}
        self.integer: dict[Node, Node] = {}
        self.skipped: set[Node] = set()
        self.numbers: dict[str, int] = {}

    def run(self) -> GraphModule:
        custom = self.facts["custom"]
        inputs = 0
        for node in self.model.graph.nodes:
            if node in self.skipped:
                continue
            if node.op == "placeholder":
                form = self.integer if inputs in custom.input_quantized_indexes else self.plain
                form[node] = self.graph.node_copy(node)
                inputs += 1
            elif node.op == "output":
                self._output(node, custom.output_quantized_indexes)
            elif is_activation_post_process(_module(self.model, node)):
                self._pass(node)
            elif node.name in self.facts["quantized"] and self._quantized_node(node):
                continue
            else:
                self._plain_node(node)
        converted = GraphModule(self.model, self.graph)
        converted.delete_all_unused_submodules()
        converted.graph.lint()
        converted.recompile()
        converted.train(self.model.training)
        return converted

    def _pass(self, node: Node) -> None:
        """An observer is the value itself; what is quantised takes its scale."""
        source = node.args[0]
        for form in (self.plain, self.integer):
            if source in form:
                form[node] = form[source]

    def _plain(self, n: Node) -> Node:
        if n not in self.plain:
            self.plain[n] = self.graph.call_method("dequantize", (self.integer[n],))
            for alias in self._aliases(n):
                self.plain[alias] = self.plain[n]
        return self.plain[n]

    def _aliases(self, n: Node) -> list[Node]:
        """Returns the observer of a value, or the value of an observer."""
        if is_activation_post_process(_module(self.model, n)):
            return [n.args[0]]  # type: ignore[list-item]
        return [u for u in n.users if is_activation_post_process(_module(self.model, u))]

    def _integer(self, n: Node, user: Node) -> Node:
        if n in self.integer:
            return self.integer[n]
        post = _module(self.model, n)
        if not is_activation_post_process(post):
            return self._plain(n)
        scale, zero_point = post.calculate_qparams()
        prefix = (str(user.target).replace(".", "_") if user.op == "call_module" else "") + "_input"
        s, z = (
            self._constant(f"{prefix}_scale_", scale[0]),
            self._constant(f"{prefix}_zero_point_", zero_point[0]),
        )
        q = self.graph.call_function(_quantize_per_tensor(), (self._plain(n), s, z, post.dtype))
        self.integer[n] = q
        for alias in self._aliases(n):
            self.integer.setdefault(alias, q)
        return q

    def _constant(self, prefix: str, value: Any) -> Node:
        number = self.numbers.get(prefix, 0)
        self.numbers[prefix] = number + 1
        self.model.register_buffer(f"{prefix}{number}", value.detach().clone())
        return self.graph.get_attr(f"{prefix}{number}")

    def _output(self, node: Node, preserved: list[int]) -> None:
        result = node.args[0]
        if isinstance(result, (tuple, list)):
            items = [
                map_arg(
                    r,
                    lambda n, k=k: (
                        self.integer.get(n) or self._plain(n) if k in preserved else self._plain(n)
                    ),
                )
                for k, r in enumerate(result)
            ]
            self.graph.output(type(result)(items))
        else:
            self.graph.output(
                map_arg(
                    result,
                    lambda n: self.integer.get(n) or self._plain(n) if 0 in preserved else self._plain(n),
                )
            )

    def _plain_node(self, node: Node) -> None:
        if self._asks_for_sizes(node) and node.args[0] in self.integer:
            self.plain[node] = self.graph.node_copy(
                node, lambda n: self.integer[n] if n is node.args[0] else self._plain(n)
            )
            return
        if node.target is operator.getitem and node.args[0] in self.integer:
            form = self.graph.node_copy(node, lambda n: self.integer.get(n, n))
            is_part = node.args[0].target in _SEVERAL and not _is_second_of_topk(node)
            (self.integer if is_part else self.plain)[node] = form
            return
        self._convert_dynamic(node)
        self.plain[node] = self.graph.node_copy(node, self._plain)

    def _asks_for_sizes(self, node: Node) -> bool:
        """Returns whether a node reads the sizes of a tensor, not its elements."""
        if node.op == "call_method":
            return node.target in ("size", "dim", "numel", "ndimension")
        return node.target is getattr and node.args[1] in ("shape", "ndim", "dtype", "device")

    def _convert_dynamic(self, node: Node) -> None:
        """Replaces a module whose weight alone is quantised."""
        module, qconfig = _module(self.model, node), self.facts["qconfigs"].get(node.name)
        if module is None or qconfig is None or type(module) not in DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS:
            return
        post = qconfig.activation()
        rows = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        weight = getattr(qconfig.weight(), "dtype", None)
        if rows and weight in (_quantized.quint8, _quantized.quint4x2) or getattr(post, "is_dynamic", False):
            if not rows and weight not in (qint8, _C.float16):
                return
            module.qconfig = qconfig
            new = DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS[type(module)].from_float(module)
            _set_module(self.model, str(node.target), new)

    def _observer_of(self, node: Node) -> Any:
        """Returns the observer of a node's result."""
        for user in node.users:
            module = _module(self.model, user)
            if is_activation_post_process(module):
                return module
        return None

    def _quantized_node(self, node: Node) -> bool:
        """Emits a node that computes with integers; False if it has to stay in floating point."""
        kind = _kind(self.model, node)
        if kind in _BINARY:
            return self._binary(node, _BINARY[kind])
        if kind in _FUNCTIONAL:
            return self._functional(node, _FUNCTIONAL[kind])
        post = self._observer_of(node)
        if node.op == "call_module":
            return self._module(node, post)
        if kind in _WITH_SCALE and post is not None:
            args = self._arguments(node, _WITH_SCALE[kind])
            s, z = self._scale_of(node, post)
            self.integer[node] = self.graph.call_function(
                getattr(ops.quantized, _WITH_SCALE[kind]),
                tuple(self._loaded(node, a) for a in args[:1])
                + self._mixed(node, _WITH_SCALE[kind], args, s, z),
            )
            return True
        self.integer[node] = self.graph.node_copy(node, lambda n: self._integer(n, node))
        return True

    def _loaded(self, node: Node, a: Any) -> Any:
        return map_arg(a, lambda n: self._integer(n, node))

    def _arguments(self, node: Node, name: str) -> list:
        """Returns the arguments of a function in the order of ``ops.quantized``, without scale."""
        a = list(node.args)
        k = dict(node.kwargs)

        def arg(position: int, key: str, default: Any = None) -> Any:
            return a[position] if position < len(a) else k.get(key, default)

        x = arg(0, "input")
        if name == "elu":
            return [x, arg(1, "alpha", 1.0)]
        if name == "leaky_relu":
            return [x, arg(1, "negative_slope", 0.01), False]
        if name == "layer_norm":
            return [x, arg(1, "normalized_shape"), arg(2, "weight"), arg(3, "bias"), arg(4, "eps", 1e-5)]
        if name == "group_norm":
            return [x, arg(1, "num_groups"), arg(2, "weight"), arg(3, "bias"), arg(4, "eps", 1e-5)]
        if name == "instance_norm":
            return [x, arg(3, "weight"), arg(4, "bias"), arg(7, "eps", 1e-5)]
        return [x]

    def _mixed(self, node: Node, name: str, args: list, s: Node, z: Node) -> tuple:
        rest = tuple(map_arg(a, self._plain) for a in args[1:])
        return (s, z, *rest) if name in ("elu", "hardswish") else (*rest, s, z)

    def _scale_of(self, node: Node, post: Any) -> tuple[Node, Node]:
        scale, zero_point = post.calculate_qparams()
        return self._constant("_scale_", scale[0]), self._constant("_zero_point_", zero_point[0])

    def _binary(self, node: Node, name: str) -> bool:
        last, relu = node, None
        if self._observer_of(node) is None and len(node.users) == 1:
            following = next(iter(node.users))
            if following.op != "output" and _is_relu(self.model, following):
                last, relu = following, following
        post = self._observer_of(last)
        if post is None:
            return False
        x, y = node.args[:2]
        name += "_relu" if relu is not None else ""
        if not (isinstance(x, Node) and isinstance(y, Node)):
            q, number = (x, y) if isinstance(x, Node) else (y, x)
            target = getattr(ops.quantized, name)
            self.integer[last] = self.graph.call_function(target, (self._integer(q, node), number))
        else:
            s, z = self._scale_of(node, post)
            args = (self._integer(x, node), self._integer(y, node), s, z)
            self.integer[last] = self.graph.call_function(getattr(ops.quantized, name), args)
        if relu is not None:
            self.skipped.add(relu)
        return True

    def _functional(self, node: Node, name: str) -> bool:
        """Emits a convolution or linear layer that is called as a function, with a weight of the model."""
        post = self._observer_of(node)
        arguments = dict(
            zip(("input", "weight", "bias", "stride", "padding", "dilation", "groups"), node.args)
        )
        arguments.update(node.kwargs)
        weight, bias = arguments.get("weight"), arguments.get("bias")
        if post is None or not isinstance(weight, Node) or weight.op != "get_attr":
            return False
        value = _attribute(self.model, str(weight.target))
        observer = self.facts["qconfigs"][node.name].weight()
        observer(value)
        from ..nn.quantized.modules.utils import quantized_weight

        b = _attribute(self.model, str(bias.target)) if isinstance(bias, Node) else None
        q = quantized_weight(value, observer)
        if name == "linear":
            packed = _quantized_ops.linear_prepack(q, b)
        else:
            geometry = [
                arguments.get(key, usual)
                for key, usual in (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))
            ]
            packed = _quantized_ops.TABLE[f"{name}_prepack"](q, b, *geometry)
        path = f"_packed_weight_{self.numbers.get('packed', 0)}"
        self.numbers["packed"] = self.numbers.get("packed", 0) + 1
        setattr(self.model, path, packed)
        s, z = self._scale_of(node, post)
        args = (self._integer(arguments["input"], node), self.graph.get_attr(path), s, z)
        self.integer[node] = self.graph.call_function(getattr(ops.quantized, name), args)
        return True

    def _module(self, node: Node, post: Any) -> bool:
        module = _module(self.model, node)
        table = {**DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, **self.custom_mapping, nn.Softmax: nnq.Softmax}
        if type(module) in table and type(module) is not nn.Dropout:
            if post is None:
                return False
            module.qconfig, module.activation_post_process = self.facts["qconfigs"][node.name], post
            try:
                check_activation(post)
                new = table[type(module)].from_float(module)
            except (AssertionError, NotImplementedError, RuntimeError, ValueError) as e:
                raise type(e)(f"convert_fx: {node.target}, a {type(module).__name__}: {e}") from e
            _set_module(self.model, str(node.target), new)
        self.integer[node] = self.graph.node_copy(node, lambda n: self._integer(n, node))
        return True


def _is_second_of_topk(node: Node) -> bool:
    """Returns whether a node takes the indices of topk, which are not quantised."""
    source: Any = node.args[0]
    return source.target is _f.topk and node.args[1] == 1


def _quantize_per_tensor() -> Callable:
    return _quantized.quantize_per_tensor


def _attribute(model: nn.Module, path: str) -> Any:
    owner, _, name = path.rpartition(".")
    return getattr(model.get_submodule(owner), name)


def _check_calibrated(model: GraphModule) -> None:
    posts = [
        (n, _module(model, n)) for n in model.graph.nodes if is_activation_post_process(_module(model, n))
    ]
    ranges = [(n, m) for n, m in posts if not isinstance(m, PlaceholderObserver) and not kind_is_fixed(m)]
    if ranges and not any(_has_seen_data(m) for _, m in ranges):
        raise RuntimeError(
            f"convert_fx: the observer of {ranges[0][0].args[0]} has seen no data, nor have all others\n"
            "  hint: run the prepared model on typical data before convert_fx"
        )


def convert_fx(
    graph_module: GraphModule,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
    keep_original_weights: bool = False,
) -> GraphModule:
    """Returns the graph of integers of a prepared graph that has seen data.

    Args:
        graph_module: what ``prepare_fx`` or ``prepare_qat_fx`` returned; it is changed.
        convert_custom_config: ConvertCustomConfig.

    Raises:
        RuntimeError: no observer has seen data.
    """
    if not isinstance(graph_module, GraphModule) or "quantization" not in graph_module.meta:
        raise ValueError(
            f"convert_fx: expected a graph that prepare_fx returned, got {type(graph_module).__name__}\n"
            "  hint: prepared = prepare_fx(model, get_default_qconfig_mapping(), example_inputs)"
        )
    custom = _option(convert_custom_config, ConvertCustomConfig)
    _check_calibrated(graph_module)
    facts = graph_module.meta["quantization"]
    converted = _Conversion(graph_module, facts, custom.observed_to_quantized_mapping).run()
    for name in custom.preserved_attributes:
        if hasattr(graph_module, name):
            setattr(converted, name, getattr(graph_module, name))
    converted.meta.pop("quantization", None)
    return converted


def convert_to_reference_fx(graph_module: GraphModule, *options: Any, **more: Any) -> GraphModule:
    raise NotImplementedError(
        "convert_to_reference_fx: graphs of dequantized operations are not made\n  hint: "
        "convert_fx gives integers"
    )
