"""Calls of layers in place of the operators that an exported graph has of them.

``export`` records what normalisation, pooling, dropout and some convolutions compute. Quantizers and training
work with the layers, so the graph gets these again, as PyTorch's graphs for training have them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ...._ops import OpOverload, ops
from ....fx import Graph, GraphModule, Node
from .graph_utils import SOURCES

_aten = ops.aten

_SLOPE = ("view", ("to_dtype", ("rsqrt", ("add", ("to_dtype", "var"), "eps"))))
_CENTRED = ("sub", "x", ("view", "mean"))
_NORM = ("_fused_multiply_add", ("mul", _SLOPE, ("view", "weight")), _CENTRED, ("view", "bias"))
_PLAIN_NORM = ("mul", _CENTRED, _SLOPE)
_LINE = ("squeeze", ("conv2d", ("unsqueeze", "x"), ("unsqueeze", "weight"), "bias"))
_TRANSPOSED = ("convolution_backward_input", "x", "weight", "size")
_TRANSPOSED_BIAS = ("add", _TRANSPOSED, ("view", "bias"))
_TRANSPOSED_LINE = ("convolution_backward_input", ("unsqueeze", "x"), ("unsqueeze", "weight"), "size")
_TRANSPOSED_LINE_BIAS = ("squeeze", ("add", _TRANSPOSED_LINE, ("view", "bias")))
_DROPOUT = ("mul", "x", ("where", ("ge", ("_uniform", ("_rng_take", "count"), "sizes"), "p")))


def _name(node: Node) -> str:
    if node.op != "call_function":
        return ""
    target = node.target
    return target._opname if isinstance(target, OpOverload) else getattr(target, "__name__", "")


def _matches(pattern: Any, value: Any, parts: dict[str, Any], outermost: bool = True) -> bool:
    """Returns whether a call matches a pattern: a name, or (operator, patterns of its first arguments).

    ``parts`` gets the values that names stand for, and the calls by operator. Only the outermost call may
    have several users.
    """
    if isinstance(pattern, str):
        return parts.setdefault(pattern, value) is value
    if not isinstance(value, Node) or _name(value) != pattern[0] or (len(value.users) > 1 and not outermost):
        return False
    parts["call " + pattern[0]] = value
    arguments = [*value.args, *[None] * len(pattern)]
    return all(_matches(p, a, parts, False) for p, a in zip(pattern[1:], arguments))


def _call(model: GraphModule, last: Node, target: Any, args: tuple) -> Node:
    """Replaces the value of ``last`` by a call."""
    while args and args[-1] is None:
        args = args[:-1]
    with model.graph.inserting_after(last):
        node = model.graph.call_function(target, args)
    node.meta = dict(last.meta)
    last.replace_all_uses_with(node, lambda user: user is not node)
    return node


def _norm(model: GraphModule, node: Node) -> bool:
    for pattern in (_NORM, _PLAIN_NORM):
        parts: dict[str, Any] = {}
        if _matches(pattern, node, parts) and parts["mean"].op == parts["var"].op == "get_attr":
            parameters = (parts["mean"], parts["var"], parts.get("weight"), parts.get("bias"))
            args = (parts["x"], *parameters, False, 0.1, parts["eps"])
            _call(model, node, _aten.batch_norm.default, args)
            return True
    return False


def _chain_of_users(node: Node, names: list[str]) -> list[Node] | None:
    """Returns calls of these operators, each the only user of the one before."""
    chain: list[Node] = []
    for name in names:
        users = [u for u in node.users if _name(u) == name]
        if len(users) != 1:
            return None
        node = users[0]
        chain.append(node)
    return chain


def _trained_norm(model: GraphModule, node: Node) -> bool:
    """Replaces statistics of the batch, and the updates of the running ones, by one call."""
    if _name(node) != "_batch_norm_train":
        return False
    items = {u.args[1]: u for u in node.users if u.target is operator.getitem}
    x, weight, bias, eps = (*node.args, *node.kwargs.values())
    buffers, momentum = [], 0.1
    for k, update in ((1, "_update_running_mean"), (2, "_update_running_var")):
        chain = items.get(k) and _chain_of_users(
            items[k], ["detach", update, "detach", "_with_history", "copy_"]
        )
        if not chain:
            continue
        momentum = chain[1].args[2]
        buffers.append(chain[-1].args[0])
        model.graph.erase_node(chain[-1])
    if len(buffers) == 1:
        raise RuntimeError(f"{node}: the graph updates only one of the running statistics")
    mean, var = buffers or (None, None)
    args = (x, mean, var, weight, bias, True, momentum, eps)
    _call(model, items[0], _aten.batch_norm.default, args)
    return True


def _max_pool(model: GraphModule, node: Node) -> bool:
    if _name(node) != "max_pool2d_taps":
        return False
    items = [u for u in node.users if u.target is operator.getitem]
    if [u.args[1] for u in items if u.users] != [0]:
        return False
    first = next(u for u in items if u.args[1] == 0)
    _call(model, first, _aten.max_pool2d.default, (*node.args, *node.kwargs.values()))
    return True


def _average(model: GraphModule, node: Node) -> bool:
    """Replaces the mean of images, and averages of unequal windows, by adaptive pooling."""
    name, rest = _name(node), (*node.args[1:], *node.kwargs.values())
    if name == "_adaptive_avg_pool2d":
        size = rest[0]
    elif name == "mean" and len(rest) == 2 and rest[1] is True and len(_shape(node)) == 4:
        if sorted(d % 4 for d in rest[0]) != [2, 3]:
            return False
        size = [1, 1]
    else:
        return False
    _call(model, node, _aten.adaptive_avg_pool2d.default, (node.args[0], size))
    return True


def _shape(node: Node) -> list[int]:
    return list(node.meta["val"].shape)


def _convolution_of_line(model: GraphModule, node: Node) -> bool:
    parts: dict[str, Any] = {}
    if not _matches(_LINE, node, parts):
        return False
    call = parts["call conv2d"]
    numbers = [*call.args[3:], *([1, 1], [0, 0], [1, 1], 1)[len(call.args[3:]) :]]
    stride, padding, dilation = ([n[1]] for n in numbers[:3])
    args = (parts["x"], parts["weight"], parts["bias"], stride, padding, dilation, numbers[3])
    _call(model, node, _aten.conv1d.default, args)
    return True


def _transposed(model: GraphModule, node: Node) -> bool:
    """Replaces the gradient of a convolution, which a transposed convolution computes, by its call."""
    for pattern, rank in ((_TRANSPOSED_LINE_BIAS, 1), (_TRANSPOSED_BIAS, 2), (_TRANSPOSED, 2)):
        parts: dict[str, Any] = {}
        if not _matches(pattern, node, parts):
            continue
        call = parts["call convolution_backward_input"]
        if rank == 2 and _name(parts["x"]) == "unsqueeze" and any(_name(u) == "squeeze" for u in node.users):
            return False  # that of a line, which ends in the squeeze
        if any(_name(u) == "add" for u in node.users) and pattern is _TRANSPOSED:
            return False  # a bias may follow
        stride, padding, dilation = (list(a)[-rank:] for a in call.args[3:6])
        size, source, kernel = (
            _shape(call)[-rank:],
            _shape(parts["x"])[-rank:],
            _shape(parts["weight"])[-rank:],
        )
        extra = [
            size[k] - ((source[k] - 1) * stride[k] - 2 * padding[k] + dilation[k] * (kernel[k] - 1) + 1)
            for k in range(rank)
        ]
        target = _aten.conv_transpose1d.default if rank == 1 else _aten.conv_transpose2d.default
        bias = parts.get("bias")
        _call(
            model,
            node,
            target,
            (parts["x"], parts["weight"], bias, stride, padding, extra, call.args[6], dilation),
        )
        return True
    return False


def _origin(value: Any, moves: set[str]) -> Any:
    """Returns the operand of a chain of calls that move values."""
    while isinstance(value, Node) and _name(value) in moves:
        value = value.args[0]
    return value


def _convolution_of_volumes(model: GraphModule, node: Node) -> bool:
    """Replaces the convolution of windows of planes, which computes one of volumes."""
    ends = _name(node) == "_row_major" or (
        _name(node) == "transpose" and not any(_name(u) == "_row_major" for u in node.users)
    )
    call = _origin(node, {"_row_major", "transpose", "view"}) if ends else None
    if not isinstance(call, Node) or _name(call) != "conv2d":
        return False
    windows = _origin(call.args[0], {"view", "_row_major", "permute"})
    weight = _origin(call.args[1], {"view"})
    if _name(windows) != "_windows" or windows.args[1] != -3 or len(_shape(weight)) != 5:
        return False
    numbers = [*call.args[3:], *([1, 1], [0, 0], [1, 1], 1)[max(len(call.args) - 3, 0) :]]
    stride, padding, dilation = ([first, *n] for first, n in zip(windows.args[3:6], numbers))
    bias = call.args[2] if len(call.args) > 2 else None
    args = (windows.args[0], weight, bias, stride, padding, dilation, numbers[3])
    _call(model, node, _aten.conv3d.default, args)
    return True


def _dropout(model: GraphModule, node: Node) -> bool:
    parts: dict[str, Any] = {}
    if not _matches(_DROPOUT, node, parts):
        return False
    p = parts["p"]
    p = p.args[1] if isinstance(p, Node) and _name(p) == "full" else p
    if not isinstance(p, float) or _shape(parts["call _uniform"]) != _shape(parts["x"]):
        return False
    _call(model, node, _aten.dropout.default, (parts["x"], p, True))
    return True


_RULES: tuple[Callable[[GraphModule, Node], bool], ...] = (
    _norm,
    _trained_norm,
    _max_pool,
    _average,
    _convolution_of_line,
    _convolution_of_volumes,
    _transposed,
    _dropout,
)


def drop_detached(model: GraphModule) -> None:
    """Erases calls of detach, which a graph that was exported without gradients has behind every operator.

    Those that belong to the updates of running statistics stay.
    """
    for node in list(model.graph.nodes):
        if _name(node) != "detach":
            continue
        around = {_name(n) for n in (node.args[0], *node.users)}
        if around & {"_update_running_mean", "_update_running_var", "_with_history"}:
            continue
        node.replace_all_uses_with(node.args[0])
        model.graph.erase_node(node)


def recompose(model: GraphModule) -> None:
    """Replaces operators by the layers that they come from."""
    for node in list(model.graph.nodes):
        any(rule(model, node) for rule in _RULES)
    erase_unread(model.graph)
    _set_scopes(model)
    model.graph.lint()
    model.recompile()


def erase_unread(graph: Graph) -> None:
    """Erases calls that nobody reads and that write nothing."""
    for node in reversed(list(graph.nodes)):
        name = str(node.target) if node.op == "call_method" else _name(node)
        writes = name.endswith("_") or (node.op == "call_function" and node.is_impure(False))
        is_value = node.op in ("call_function", "call_method", "get_attr")
        if is_value and not node.users and not writes and node.target != _aten.batch_norm.default:
            graph.erase_node(node)


# ---- the modules that calls belong to


def _common(a: str, b: str) -> str:
    shared = []
    for p, q in zip(a.split("."), b.split(".")):
        if p != q:
            break
        shared.append(p)
    return ".".join(shared)


def _set_scopes(model: GraphModule) -> None:
    """Sets ``nn_module_stack`` of calls: the path of a layer is that of its parameters; other calls belong to
    the innermost module that contains the layers before and behind them.
    """
    nodes = [n for n in model.graph.nodes if n.op == "call_function"]
    own = {}
    for n in nodes:
        paths = [str(a.target) for a in n.all_input_nodes if a.op == "get_attr"]
        if paths:
            own[n] = paths[0].rpartition(".")[0]
    before, behind = {}, {}
    for order, table, following in ((nodes, before, "all_input_nodes"), (nodes[::-1], behind, "users")):
        for n in order:
            near = (own.get(a, table.get(a)) for a in getattr(n, following))
            table[n] = next((path for path in near if path is not None), None)
    kinds = model.meta.get("module_types", {})
    for n in nodes:
        ends = [p for p in (before[n], behind[n]) if p is not None]
        path = own[n] if n in own else _common(ends[0], ends[-1]) if ends else ""
        stack = {}
        steps = path.split(".") if path else []
        for k in range(len(steps)):
            prefix = ".".join(steps[: k + 1])
            kind = kinds.get(prefix, "")
            if not kind and k == len(steps) - 1 and n in own and n.target in SOURCES:
                module = SOURCES[n.target][0]
                kind = f"{module.__module__}.{module.__qualname__}"
            stack[prefix] = (prefix, kind)
        n.meta.setdefault("nn_module_stack", stack)
