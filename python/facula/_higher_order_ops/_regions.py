"""Control flow in traced functions: a call of cond, while_loop, scan or map becomes one call of the graph, a
region, whose functions are programs.

A region is an operator of the namespace ``facula_region`` that this process defines; its operands are the
call's tensors and the tensors that its functions read (parameters). Its gradient is a second operator, which
runs the region again. The bridge to fx (:mod:`facula.fx._bridge`) shows the functions as submodules.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

from .. import _C
from .._ops import HigherOrderOperator
from ..utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = ["REGIONS", "Region", "is_recorded", "record", "region_of"]

Tensor = _C.Tensor
NAMESPACE = "facula_region"
_numbers = itertools.count()
_regions: dict[str, Region] = {}

# By name: the operator that graphs of fx call. It calls the public function, so that it is recorded again
# in a trace.
REGIONS: dict[str, HigherOrderOperator] = {
    n: HigherOrderOperator(n) for n in ("cond", "while_loop", "scan", "map_impl")
}


def is_recorded(values: Any) -> bool:
    """Returns whether a call with these tensors is part of a trace."""
    return _C.is_tracing() and any(isinstance(x, Tensor) and _C.is_traced(x) for x in tree_leaves(values))


def region_of(operator: str) -> Region | None:
    """Returns the region that an operator of the graph stands for."""
    return _regions.get(operator.partition(".")[0])


class Region:
    """One call of control flow.

    Attributes:
        kind: "cond", "while_loop", "scan" or "map_impl"
        programs: the functions, as programs of flat tensors
        extras: tensors that the functions read besides their arguments
        run: (functions of flat tensors, flat operands) -> flat results
    """

    def __init__(
        self, kind: str, functions: list[Callable], examples: list[list[Tensor]], run: Callable, split: int
    ) -> None:
        self.kind, self.run, self.split = kind, run, split
        self.programs = [_program(kind, f, e) for f, e in zip(functions, examples, strict=True)]
        self.extras: list[Tensor] = []
        for p in self.programs:
            self.extras += [t for t in p.captured if not any(t is x for x in self.extras)]
        self.modules = [_module(p, len(e), self.extras) for p, e in zip(self.programs, examples)]
        self._operands = [[_described(t) for t in e] for e in examples]
        self.name = f"{NAMESPACE}::{kind}_{next(_numbers)}"
        _regions[self.name] = self
        self._define()

    def functions(self, extras: list[Tensor]) -> list[Callable]:
        """Returns the functions of flat tensors that read ``extras`` in place of what they captured."""

        def bound(module: Any) -> Callable:
            return lambda *operands: list(module(*operands, *extras))

        return [bound(m) for m in self.modules]

    def arguments(self, functions: list, operands: list, extras: list) -> tuple:
        """Returns the arguments of the operator of fx: ``functions`` are its submodules, the others its
        operands.
        """
        if self.kind == "cond":
            return (operands[0], *functions, (*operands[1:], *extras))
        if self.kind == "while_loop":
            return (*functions, tuple(operands), tuple(extras))
        first, rest = tuple(operands[: self.split]), tuple(operands[self.split :])
        if self.kind == "scan":
            return (*functions, first, rest, tuple(extras))
        return (*functions, first, (*rest, *extras))

    def graphs(self) -> list[str]:
        """Returns the functions as texts of graphs of their operands and all extras, which C++ runs."""
        extras = [_described(t) for t in self.extras]
        return [_graph_text(m, [*of, *extras]) for m, of in zip(self.modules, self._operands)]

    def compute(self, operands: list[Tensor], extras: list[Tensor]) -> list[Tensor]:
        """Runs the region."""
        inputs = {id(t) for t in (*operands, *extras)}
        results = self.run(self.functions(extras), operands)
        return [t.clone() if id(t) in inputs else t for t in results]

    def _define(self) -> None:
        from ..library import custom_op

        def forward(operands: list[Tensor], extras: list[Tensor]) -> list[Tensor]:
            return _separate(self.compute(operands, extras), [*operands, *extras])

        def gradient(
            operands: list[Tensor], extras: list[Tensor], grads: list[Tensor], wanted: list[bool]
        ) -> list[Tensor]:
            return _gradient(self, operands, extras, grads, wanted)

        op = custom_op(self.name, forward, mutates_args=())
        op.register_fake(lambda operands, extras: self.compute(operands, extras))
        backward_op = custom_op(self.name + "_backward", gradient, mutates_args=())
        backward_op.register_fake(
            lambda operands, extras, grads, wanted: [
                _C.functions.empty_like(t) for t, w in zip([*operands, *extras], wanted) if w
            ]
        )

        def setup(ctx: Any, inputs: tuple, output: Any) -> None:
            operands, extras = inputs
            ctx.save_for_backward(*operands, *extras)
            ctx.count = len(operands)
            ctx.metas = [(t.shape, t.dtype, t.device) for t in output]

        def backward(ctx: Any, grads: list) -> tuple:
            saved = list(ctx.saved_tensors)
            grads = [
                _C.functions.zeros(shape, dtype=dtype, device=device) if g is None else g
                for g, (shape, dtype, device) in zip(grads, ctx.metas)
            ]
            wanted = [t.is_floating_point() or t.is_complex() for t in saved]
            gradients = iter(backward_op(saved[: ctx.count], saved[ctx.count :], grads, wanted))
            every = [next(gradients) if w else None for w in wanted]
            return every[: ctx.count], every[ctx.count :]

        op.register_autograd(backward, setup_context=setup)
        self.operator = op


def _separate(results: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Copies results that share memory with an input or another result."""
    seen = {t.untyped_storage().data_ptr() for t in inputs if t.numel()}
    separate = []
    for t in results:
        shares = t.numel() > 0 and t.untyped_storage().data_ptr() in seen
        separate.append(t.clone() if shares else t)
        seen.add(separate[-1].untyped_storage().data_ptr())
    return separate


def _gradient(
    region: Region, operands: list[Tensor], extras: list[Tensor], grads: list[Tensor], wanted: list[bool]
) -> list[Tensor]:
    with _C.GradMode(True):
        leaves = [t.detach().requires_grad_(w) for t, w in zip([*operands, *extras], wanted)]
        results = region.compute(leaves[: len(operands)], leaves[len(operands) :])
        pairs = [(r, g) for r, g in zip(results, grads) if r.requires_grad]
        inputs = [t for t, w in zip(leaves, wanted) if w]
        if not pairs:
            return [_C.functions.zeros_like(t) for t in inputs]
        gradients = _C.grad([r for r, _ in pairs], inputs, [g for _, g in pairs], False, False, True)
    return [_C.functions.zeros_like(t) if g is None else g.contiguous() for g, t in zip(gradients, inputs)]


def _program(kind: str, f: Callable, operands: list[Tensor]) -> Any:
    """Traces a function of a region on tensors like the operands, whose sizes may change."""
    examples = [(*_described(t), t.requires_grad) for t in operands]
    try:
        program = _traced(f, examples)
    except RuntimeError as e:
        if "trace" in str(e):
            raise RuntimeError(
                f"{kind}: a function of it reads a tensor that the surrounding function computes\n"
                "  hint: pass it among the operands"
            ) from e
        raise
    if _C.program_graph(program._native)["mutated"]:
        raise RuntimeError(f"{kind}: a function of it writes its operands or tensors from outside")
    return program


def regions_in(graph: str) -> list[dict[str, Any]]:
    """Returns the regions that the text of a graph calls, inner ones first, in the form that C++ reads."""
    regions: dict[str, dict[str, Any]] = {}

    def add(text: str) -> None:
        for name in dict.fromkeys(re.findall(NAMESPACE + r"::\w+", text)):
            name = name.removesuffix("_backward")
            if name in regions:
                continue
            region = _regions[name]
            graphs = region.graphs()
            for inner in graphs:
                add(inner)
            lines = [g.split("\n") for g in graphs]
            regions[name] = {"name": name, "kind": region.kind, "split": region.split, "functions": lines}

    add(graph)
    return list(regions.values())


def _described(t: Tensor) -> tuple[list[str], Any]:
    return [str(n) for n in t.shape], t.dtype


def _graph_text(module: Any, inputs: list[tuple[list[str], Any]]) -> str:
    """Returns the graph of a module of tensors with these sizes, texts, and dtypes."""
    program = _traced(lambda *xs: list(module(*xs)), [(*of, False) for of in inputs])
    return program._native.text()


def _traced(f: Callable, inputs: list[tuple[list[str], Any, bool]]) -> Any:
    """Traces a function of tensors. Each is described by its sizes, as texts, its dtype, and whether it
    requires gradients. A number is a fixed size; equal texts of symbols are equal sizes.
    """
    from ..program import traced_by

    symbols: dict[str, tuple] = {}

    def size(text: str) -> Any:
        if text.isdigit():
            return int(text)
        return symbols.setdefault(text, (f"s{len(symbols)}", _example_size(text), 1, 1 << 60))

    sizes = [[size(text) for text in of] for of, _, _ in inputs]

    def record(run: Callable, tensors: list, name: str) -> Any:
        return _C.trace_sizes(run, tensors, name, sizes)

    def traced() -> Any:
        examples = []
        for of, (_, dtype, requires_grad) in zip(sizes, inputs):
            numbers = [n if isinstance(n, int) else n[1] for n in of]
            examples.append(_C.functions.empty(numbers, dtype=dtype).requires_grad_(requires_grad))
        return traced_by(record, f, tuple(examples), {})

    return _C.outside_of_trace(traced)


_PRIMES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179)


def _example_size(text: str) -> int:
    """Returns a number for a size: different ones for different symbols. (Comparing a symbol with a number,
    or converting it, would fix it.)
    """
    names = set(re.findall(r"[su]\d+", text))
    values = {n: _PRIMES[int(n[1:]) % len(_PRIMES)] + (n[0] == "u") for n in names}
    return int(eval(text, {"__builtins__": {}, "max": max, "min": min}, values))


def _module(program: Any, count: int, extras: list[Tensor]) -> Any:
    """Returns a program as a module of ``count`` operands and all ``extras``."""
    from ..fx import Graph, GraphModule
    from ..fx._bridge import module_of

    module, graph = module_of(program), Graph()
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    values = {n: graph.placeholder(f"arg{k}_1") for k, n in enumerate(inputs[:count])}
    others = [graph.placeholder(f"extra{k}_1") for k in range(len(extras))]
    for n, t in zip(inputs[count:], program.captured, strict=True):
        values[n] = next(o for o, x in zip(others, extras) if x is t)
    for n in inputs:
        values[n].meta = dict(n.meta)
    for n in module.graph.nodes:
        if n.op != "placeholder":
            values[n] = graph.node_copy(n, lambda x: values[x])
    return GraphModule(module, graph)


def record(
    kind: str,
    functions: list[Callable],
    examples: list[list[Tensor]],
    run: Callable,
    operands: list[Tensor],
    split: int = 0,
) -> list[Tensor]:
    """Records a region with these functions of flat tensors and returns the results. ``split`` counts the
    initial states of a scan, or the operands that a map slices.
    """
    region = Region(kind, functions, examples, run, split)
    return list(region.operator(list(operands), list(region.extras)))


def flat_function(f: Callable, spec: Any, specs: list) -> Callable:
    """Returns ``f``, whose arguments have the structure ``spec``, as a function of flat tensors. The
    structure of its results is appended to ``specs``.
    """

    def flat(*leaves: Tensor) -> list[Tensor]:
        results, result_spec = tree_flatten(f(*tree_unflatten(list(leaves), spec)))
        specs.append(result_spec)
        return results

    return flat


# ---- what graphs of fx call


@REGIONS["cond"].py_impl("CompositeImplicitAutograd")
def _cond(pred: Any, true_graph: Callable, false_graph: Callable, operands: Any) -> list:
    from .cond import cond

    return list(cond(pred, true_graph, false_graph, tuple(operands)))


@REGIONS["while_loop"].py_impl("CompositeImplicitAutograd")
def _while_loop(cond_graph: Callable, body_graph: Callable, carried: Any, extras: Any) -> list:
    from .while_loop import while_loop

    n, (fixed, others) = len(carried), _divided(extras)

    def body(*xs: Any) -> tuple:
        return (*body_graph(*xs[:n], *others(xs[n:])), *xs[n:])

    def condition(*xs: Any) -> Any:
        return _single(cond_graph(*xs[:n], *others(xs[n:])))

    return list(while_loop(condition, body, (*carried, *fixed)))[:n]


def _divided(extras: Any) -> tuple[list, Callable]:
    """Divides the tensors that a function reads into values of the trace, which have to be operands, and
    others. The function that is returned gives all of them, from operands for the former.
    """
    values = [k for k, x in enumerate(extras) if _C.is_traced(x)]

    def every(operands: Any) -> list:
        by_place = dict(zip(values, operands))
        return [by_place.get(k, x) for k, x in enumerate(extras)]

    return [extras[k] for k in values], every


def _single(x: Any) -> Any:
    return x[0] if isinstance(x, (tuple, list)) else x


@REGIONS["scan"].py_impl("CompositeImplicitAutograd")
def _scan(graph: Callable, init: Any, xs: Any, extras: Any) -> list:
    from .scan import scan

    n, (fixed, others) = len(init), _divided(extras)

    def step(state: Any, x: Any) -> tuple:
        results = list(graph(*state[:n], *x, *others(state[n:])))
        return [*results[:n], *state[n:]], results[n:]

    last, outputs = scan(step, [*init, *fixed], list(xs))
    return [*last[:n], *outputs]


@REGIONS["map_impl"].py_impl("CompositeImplicitAutograd")
def _map(graph: Callable, xs: Any, extras: Any) -> list:
    from .map import map

    return list(map(lambda x, *rest: list(graph(*x, *rest)), list(xs), *extras))
