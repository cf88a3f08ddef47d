"""Control flow in traced functions: a call of cond, while_loop, scan or map becomes one call of the graph, a
region, whose functions are programs.

A region is an operator of the namespace ``facula_region`` that C++ runs (io/region.h); its operands are the
call's tensors and the tensors that its functions read (parameters, values of the surrounding function). What
the functions write (buffers, parameters, states) is carried through the region like its other operands, and
written when it is done. The bridge to fx (:mod:`facula.fx._bridge`) shows the functions as submodules.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from .. import _C
from .._ops import HigherOrderOperator, ops
from ..program import require, taken_checks, traced_by
from ..utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = ["REGIONS", "Region", "is_recorded", "record", "region_of"]

Tensor = _C.Tensor
NAMESPACE = "facula_region"
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
        split: the number of states of a scan, or of operands that a map slices
        written: tensors from outside that the functions write
        extras: tensors that the functions read besides their arguments
    """

    def __init__(
        self, kind: str, functions: list[Callable], examples: list[list[Tensor]], split: int
    ) -> None:
        self.kind, self.split = kind, split
        self.checks: list[tuple] = []  # (a flag that the functions write, exception class, its text)
        self._programs = [_program(kind, f, e, self.checks) for f, e in zip(functions, examples, strict=True)]
        self._facts = [_C.program_graph(p._native) for p in self._programs]
        self._counts = [len(e) for e in examples]
        self.written = self._written()
        self.extras: list[Tensor] = []
        for p in self._programs:
            self.extras += [t for t in p.captured if not _contains([*self.written, *self.extras], t)]
        self._states = split if kind == "scan" else -1
        if kind == "scan":
            self.split += len(self.written)
        self.name = _C.define_region(kind, self.split, self.graphs())
        self.operator = getattr(getattr(ops, NAMESPACE), self.name.partition("::")[2])
        _regions[self.name] = self

    def _written(self) -> list[Tensor]:
        written: list[Tensor] = []
        for k, (facts, count) in enumerate(zip(self._facts, self._counts)):
            numbers = [number - count for number, _ in facts["mutated"]]
            if any(number < 0 for number in numbers):
                raise RuntimeError(f"{self.kind}: a function of it writes its operands")
            if numbers and (self.kind == "map_impl" or self._is_condition(k)):
                what = "the function of map" if self.kind == "map_impl" else "the condition of while_loop"
                raise RuntimeError(f"{what} writes tensors from outside")
            written += [t for n in numbers if not _contains(written, t := facts["captured"][n])]
            if any(output >= 0 or leaf.grad is not after for _, leaf, *_, output, after in facts["slots"]):
                raise RuntimeError(
                    f"{self.kind}: a function of it leaves a gradient in .grad of a tensor from outside\n"
                    "  hint: return the gradient, or write it to a tensor"
                )
        return written

    def _is_condition(self, k: int) -> bool:
        return self.kind == "while_loop" and k == 0

    def _arrangement(self, k: int) -> tuple[list, list]:
        """Returns the inputs and the results of function ``k`` in the region: operands, among which are the
        written tensors, and extras; results, among which are the new values of the written tensors. An
        input is its number in the program, or a tensor that the program does not read; a result is the
        number of an output, of a value that the program writes, or of an input of the region behind these.
        """
        program, facts, count = self._programs[k], self._facts[k], self._counts[k]
        captured = list(program.captured)

        def place(t: Tensor) -> Any:
            return next((count + n for n, x in enumerate(captured) if x is t), t)

        at = count if self._states < 0 else self._states
        written = [place(t) for t in self.written]
        inputs = [*range(at), *written, *range(at, count), *map(place, self.extras)]
        outputs, results = len(facts["outputs"]), list(range(facts["results"]))
        if not self._is_condition(k):
            new = {number: outputs + n for n, (number, _) in enumerate(facts["mutated"])}
            unchanged = range(outputs + len(new) + at, outputs + len(new) + at + len(written))
            first = len(results) if self._states < 0 else self._states
            results[first:first] = [
                other if isinstance(w, Tensor) else new.get(w, other) for w, other in zip(written, unchanged)
            ]
        return inputs, results

    @functools.cached_property
    def modules(self) -> list:
        """The functions as modules of the operands and all extras."""
        return [self._module(k) for k in range(len(self._programs))]

    def _module(self, k: int) -> Any:
        from ..fx import Graph, GraphModule
        from ..fx._bridge import module_of

        program, (inputs, results) = self._programs[k], self._arrangement(k)
        module, graph = module_of(program), Graph()
        nodes = list(module.graph.nodes)
        own = [n for n in nodes if n.op == "placeholder"]
        operands = len(inputs) - len(self.extras)
        names = [f"arg{n}_1" for n in range(operands)] + [f"extra{n}_1" for n in range(len(self.extras))]
        placeholders = [graph.placeholder(name) for name in names]
        values = {}
        for number, placeholder in zip(inputs, placeholders):
            if not isinstance(number, Tensor):
                values[own[number]] = placeholder
                placeholder.meta = dict(own[number].meta)
        for n in nodes:
            if n.op not in ("placeholder", "output"):
                values[n] = graph.node_copy(n, lambda x: values[x])
        facts = self._facts[k]
        computed = [None if n is None else values[n] for n in nodes[-1].args[0]]
        unseen = [None] * (len(facts["outputs"]) - facts["results"])
        every = [*computed[: facts["results"]], *unseen, *computed[facts["results"] :], *placeholders]
        graph.output(tuple(every[n] for n in results))
        return GraphModule(module, graph)

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
        arranged = (self._arrangement(k) for k in range(len(self._programs)))
        return [_C.region_function(p._native, *of) for p, of in zip(self._programs, arranged)]

    def __call__(self, operands: list[Tensor]) -> list[Tensor]:
        """Records the call, and the writes of the functions; returns their results."""
        for flag, *_ in self.checks:
            flag.fill_(True)
        at = len(operands) if self._states < 0 else self._states
        results = list(self.operator([*operands[:at], *self.written, *operands[at:]], list(self.extras)))
        first = at if self.kind in ("scan", "while_loop") else len(results) - len(self.written)
        values = results[first : first + len(self.written)]
        del results[first : first + len(self.written)]
        if any(v.requires_grad for v in values):
            raise NotImplementedError(
                f"{self.kind}: a function of it writes tensors from outside where gradients are recorded\n"
                "  hint: return what it computes, or call it within no_grad()"
            )
        with _C.GradMode(False):
            for t, value in zip(self.written, values):
                t.copy_(value)
        for flag, error, text in self.checks:
            require(flag.clone(), error, text)
        return results


def _contains(tensors: list[Tensor], t: Tensor) -> bool:
    return any(t is x for x in tensors)


def _program(kind: str, f: Callable, operands: list[Tensor], checks: list[tuple]) -> Any:
    """Traces a function of a region on tensors like the operands, whose sizes may change. Adds a flag to
    ``checks`` for each check of elements that it makes, which the function writes.
    """

    def function(*tensors: Tensor) -> list[Tensor]:
        results = f(*tensors)
        for valid, error, text in taken_checks():
            flag = _C.outside_of_trace(_C.functions.ones, (), dtype=_C.bool)
            flag.logical_and_(valid)
            checks.append((flag, error, text))
        return results

    program = _traced(function, operands)
    if program._readers:
        raise NotImplementedError(f"{kind}: a function of it steps an optimizer; step it outside")
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


def _traced(f: Callable, operands: list[Tensor]) -> Any:
    """Traces a function of tensors like these; it may read values of the surrounding function. Equal symbols
    are equal sizes.
    """
    symbols: dict[str, tuple] = {}

    def size(text: str) -> Any:
        if text.isdigit():
            return int(text)
        return symbols.setdefault(text, (f"s{len(symbols)}", _example_size(text), 1, 1 << 60))

    sizes = [[size(str(n)) for n in t.shape] for t in operands]
    kinds = [(t.dtype, t.requires_grad) for t in operands]

    def record(run: Callable, tensors: list, name: str) -> Any:
        return _C.trace_sizes(run, tensors, name, sizes, True)

    def traced() -> Any:
        examples = []
        for of, (dtype, requires_grad) in zip(sizes, kinds):
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


def record(
    kind: str,
    functions: list[Callable],
    examples: list[list[Tensor]],
    operands: list[Tensor],
    split: int = 0,
) -> list[Tensor]:
    """Records a region with these functions of flat tensors and returns the results. ``split`` counts the
    initial states of a scan, or the operands that a map slices.
    """
    return Region(kind, functions, examples, split)(list(operands))


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

    def condition(*xs: Any) -> Any:
        flag = cond_graph(*xs, *extras)
        return flag[0] if isinstance(flag, (tuple, list)) else flag

    return list(while_loop(condition, lambda *xs: body_graph(*xs, *extras), tuple(carried)))


@REGIONS["scan"].py_impl("CompositeImplicitAutograd")
def _scan(graph: Callable, init: Any, xs: Any, extras: Any) -> list:
    from .scan import scan

    n = len(init)

    def step(state: Any, x: Any) -> tuple:
        results = list(graph(*state, *x, *extras))
        return results[:n], results[n:]

    last, outputs = scan(step, list(init), list(xs))
    return [*last, *outputs]


@REGIONS["map_impl"].py_impl("CompositeImplicitAutograd")
def _map(graph: Callable, xs: Any, extras: Any) -> list:
    from .map import map

    return list(map(lambda x, *rest: list(graph(*x, *rest)), list(xs), *extras))
