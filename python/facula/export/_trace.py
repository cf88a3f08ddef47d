"""Export: traces a module and names the inputs and outputs of its graph."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from .. import _C
from ..fx import Graph
from ..fx._bridge import Lowered, size_text, size_value, symbols_of
from ..fx.node import Node
from ..nn.modules.module import Module
from ..nn.parameter import Parameter
from ..program import require, traced_by
from ..utils import _pytree as pytree
from ._attributes import attributes_restored
from .dynamic_shapes import INFINITE, Symbol, UserError, arguments_by_name, bounds, hints_for, sizes_of_inputs
from .exported_program import CallSpec, Checks, ExportedProgram, Input, constant_or_name
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
    object_argument,
)

__all__ = ["export", "export_again"]

Tensor = _C.Tensor
_CONSTANTS = (type(None), bool, int, float, complex, str, bytes, _C.dtype, _C.device)


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Returns the program of ``mod(*args, **kwargs)``, a graph of operators that can be changed, saved and
    run elsewhere.

    Tensors among the arguments are inputs; their sizes are fixed unless ``dynamic_shapes`` says otherwise: a
    dict by parameter of ``forward``, or a tuple, with a dict ``{dimension: Dim}`` for each tensor.
    Everything else is part of the program. Raises UserError if the module's code fixes a size that should be
    able to change.

    >>> from facula.export import Dim, export
    >>> net = facula.nn.Linear(3, 2)
    >>> program = export(net, (facula.ones(4, 3),), dynamic_shapes={"input": {0: Dim("batch", max=64)}})
    >>> program.module()(facula.ones(8, 3)).shape
    facula.Size([8, 2])
    >>> program.range_constraints
    {s0: VR[1, 64]}
    """
    if not isinstance(mod, Module):
        raise ValueError(
            f"Expected `mod` to be an instance of `{_C.package_name()}.nn.Module`, got {type(mod)}."
        )
    if not isinstance(args, tuple):
        raise UserError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if preserve_module_call_signature:
        raise NotImplementedError(
            "export: preserve_module_call_signature: submodules are not kept apart in the graph"
        )
    kwargs = dict(kwargs or {})
    sizes, symbols = sizes_of_inputs(mod, args, kwargs, dynamic_shapes)
    program = _program(mod, args, kwargs, sizes, symbols)
    return _Naming(mod, program, args, kwargs, sizes, symbols).exported()


def _program(mod: Any, args: tuple, kwargs: dict, sizes: list[list], symbols: dict[str, Symbol]) -> Any:
    """Traces the module on tensors without data of the sizes to trace with."""
    if _C.autocast_state()[0]:
        raise NotImplementedError("export: within autocast; enter the region in the module's forward")
    numbers = {n for of_tensor in sizes for n in of_tensor if isinstance(n, int)}
    hints = hints_for(symbols, numbers)

    def size(n: Any) -> Any:
        return (n.name, hints[n.name], *bounds(n)) if isinstance(n, Symbol) else int(n)

    def record(run: Callable, tensors: list, name: str) -> Any:
        changed = [s.name for s in symbols.values() if hints[s.name] != s.hint]
        likes = [_resized(t, of, hints) if changed else t for t, of in zip(tensors, sizes)]
        return _C.trace_sizes(run, likes, name, [[size(n) for n in of] for of in sizes])

    was_fixed = _exporting[0]
    _exporting[0] = True
    try:
        with attributes_restored(mod):
            return traced_by(record, mod, args, kwargs)
    finally:
        _exporting[0] = was_fixed


_exporting = [False]


def _resized(t: Tensor, sizes: list, hints: dict[str, int]) -> Tensor:
    numbers = [hints[n.name] if isinstance(n, Symbol) else int(n) for n in sizes]
    if numbers == list(t.shape):
        return t
    order = sorted(range(t.dim()), key=lambda d: (-t.stride(d), d))
    resized = _C.functions.empty([numbers[d] for d in order], dtype=t.dtype, device=t.device)
    like = resized.permute([order.index(d) for d in range(t.dim())])
    return like.requires_grad_(t.requires_grad)


class _Naming:
    """Gives the inputs and outputs of a traced program the names and kinds of exported programs."""

    def __init__(
        self, mod: Any, program: Any, args: tuple, kwargs: dict, sizes: list, symbols: dict[str, Symbol]
    ) -> None:
        self.mod, self.program, self.args, self.kwargs = mod, program, args, kwargs
        self.sizes, self.symbols = sizes, symbols
        self.graph = Graph()
        self.paths: list[tuple[str, str]] | None = None
        self.specs: list[InputSpec] = []
        self.state = mod.state_dict(keep_vars=True)
        self.constants: dict[str, Any] = {}
        self.facts = _C.program_graph(program._native)
        if self.facts["slots"]:
            raise NotImplementedError(
                "export: the module calls backward(), or reads or sets the gradients of tensors; "
                f"{_C.package_name()}.program.trace exports entire training steps"
            )
        self.refine()

    def refine(self) -> None:
        """Applies what the trace assumed about sizes that should be able to change, or raises."""
        self.guards = []
        for left, relation, right in self.facts["guards"]:
            names = symbols_of(left) | symbols_of(right)
            s = self.symbols.get(left[1]) if isinstance(left, tuple) and left[0] == "symbol" else None
            if s is not None and isinstance(right, int):
                if self._bounded(s, relation, right):
                    continue
            elif isinstance(right, tuple) and right[0] == "symbol" and isinstance(left, int):
                other = {
                    "<": lambda s, n: self._bounded(s, ">=", n + 1),
                    "==": lambda s, n: self._bounded(s, "==", n),
                }
                if (
                    relation in other
                    and right[1] in self.symbols
                    and other[relation](self.symbols[right[1]], left)
                ):
                    continue
            if _always(left, relation, right, self.symbols):
                continue
            is_identity = relation == "==" and _holds_for_samples(left, right, self.symbols)
            if (
                relation == "=="
                and not is_identity
                and any(s is not None and s.dim for s in map(self.symbols.get, names))
            ):
                self._check_equality(left, right, names)
            self.guards.append((left, relation, right))
        for s in self.symbols.values():
            if s.low > s.high:
                raise UserError(f"Constraints violated ({s.title})! No size satisfies the module's code")

    def _bounded(self, s: Symbol, relation: str, n: int) -> bool:
        """Narrows the range of a symbol; returns whether the range says all of the comparison."""
        low, high = s.low, s.high
        if relation == "==":
            if s.required:
                raise UserError(
                    f"Constraints violated ({s.title})!\n  - You marked {s.where} as dynamic but your code "
                    f"specialized it "
                    f"to be a constant ({n}).\nSuggested fixes:\n  use Dim.STATIC or None for {s.where}, "
                    f"or do not use it "
                    "as a number of Python (range(), a list's length, int())"
                )
            low = high = n
        elif relation == "<":
            high = min(high, n - 1)
        elif relation == ">=":
            low = max(low, n)
        elif n == low:
            low = n + 1
        elif n == high:
            high = n - 1
        else:
            return not low <= n <= high
        narrower = (low > s.low and low > 2) or high < s.high
        if narrower and s.chosen and s.dim:
            said = f"min={low}" if low > s.low else f"max={high}"
            raise UserError(
                f"Constraints violated ({s.dim.__name__})!\n  - {s.where} must be from {low} to "
                f"{'any size' if high == INFINITE else high}, and its Dim is from {s.low} to "
                f"{s.high}\nSuggested fixes:\n"
                f"  {s.dim.__name__} = Dim({s.dim.__name__!r}, {said})"
            )
        s.low, s.high = low, high
        return True

    def _check_equality(self, left: Any, right: Any, names: set[str]) -> None:
        titles = ", ".join(sorted({self.symbols[n].title for n in names if n in self.symbols}))
        raise UserError(
            f"Constraints violated ({titles})!\n  - the module's code needs {size_text(left)} == "
            f"{size_text(right)}, where "
            + ", ".join(f"{n} is {self.symbols[n].where}" for n in sorted(names) if n in self.symbols)
            + "\nSuggested fixes:\n  use the same Dim for sizes that are always equal, Dim.AUTO, or None"
        )

    def exported(self) -> ExportedProgram:
        """Returns the exported program."""
        captured = self._captured_placeholders()
        self._object_placeholders()
        user = self._user_placeholders()
        inputs = [*user, *captured]
        lowered = Lowered(self.program._native, placeholders=inputs, graph=self.graph, objects=self.objects)
        for name, tensor in lowered.constants:
            self.constants[name] = tensor
        outputs, specs = self._written(lowered)
        results = self._results(lowered, specs)
        self.graph.output((*outputs, *results))
        lowered.drop_unused_items()
        call = CallSpec(pytree.tree_structure((self.args, self.kwargs)), self.out_spec)
        checks = Checks(self.inputs, self.symbols, self.guards, call)
        checks.names = list(arguments_by_name(self.mod, self.args, self.kwargs))
        state = {n: t for n, t in self.state.items()}
        self.constants |= {t: self.unsaved[t] for t in self.unsaved}
        root = {n.target: self.constants[n.target] for n in self.graph.nodes if n.op == "get_attr"}
        return ExportedProgram(
            root, self.graph, ExportGraphSignature(self.specs, specs), state, self.constants, checks,
            (self.args, self.kwargs),
        )  # fmt: skip

    def _captured_placeholders(self) -> list[Any]:
        """Creates placeholders of parameters, buffers and constants; returns those of the captured tensors
        in order.
        """
        by_id: dict[int, Any] = {}
        self.unsaved: dict[str, Any] = {}
        for name, p in self.mod.named_parameters(remove_duplicate=False):
            if id(p) not in by_id:
                by_id[id(p)] = self._state_input(InputKind.PARAMETER, "p_", name)
        for name, b in self.mod.named_buffers(remove_duplicate=False):
            if id(b) not in by_id:
                persistent = name in self.state
                by_id[id(b)] = self._state_input(InputKind.BUFFER, "b_", name, persistent)
                if not persistent:
                    self.unsaved[name] = b
        attributes = {id(v): f"{path}.{k}".lstrip(".") for path, m in self.mod.named_modules()
                      for k, v in vars(m).items() if isinstance(v, Tensor)}  # fmt: skip
        for t in self.facts["captured"]:
            if id(t) not in by_id:
                if isinstance(t, Parameter):
                    warnings.warn(
                        "export: a parameter that is none of the module's becomes a constant", stacklevel=5
                    )
                name = attributes.get(id(t), f"lifted_tensor_{len(self.constants)}")
                by_id[id(t)] = self._state_input(InputKind.CONSTANT_TENSOR, "c_", name)
                self.constants[name] = t
        return [by_id[id(t)] for t in self.facts["captured"]]

    def _object_placeholders(self) -> None:
        """Creates placeholders of the objects of C++ classes that are attributes of modules."""
        arguments = {x._identity() for x in pytree.tree_leaves((self.args, self.kwargs)) if _is_object(x)}
        called = {x._identity() for call in self.facts["nodes"] for x in call[1] if _is_object(x)}
        results = pytree.tree_leaves(self.program._results)
        called |= {x._identity() for x in results if _is_object(x)}
        self.objects: dict[int, Any] = {}
        for path, m in self.mod.named_modules():
            for name, x in vars(m).items():
                key = x._identity() if _is_object(x) else None
                if key in called and key not in arguments and key not in self.objects:
                    target = f"{path}.{name}".lstrip(".")
                    node = self.objects[key] = self.graph.placeholder("obj_" + target.replace(".", "_"))
                    node.meta["val"] = self.constants[target] = x
                    self.specs.append(InputSpec(InputKind.CUSTOM_OBJ, object_argument(node.name, x), target))

    def _state_input(self, kind: InputKind, prefix: str, name: str, persistent: bool | None = None) -> Any:
        node = self.graph.placeholder(prefix + name.replace(".", "_"))
        self.specs.append(InputSpec(kind, TensorArgument(node.name), name, persistent))
        return node

    def _user_placeholders(self) -> list[Any]:
        """Creates a placeholder for each leaf of the arguments; returns those of tensors."""
        nodes, self.inputs = [], []
        paths = self.paths or _paths(self.mod, self.args, self.kwargs)
        sizes = iter(self.sizes)
        for (name, path), x in zip(paths, pytree.tree_leaves((self.args, self.kwargs)), strict=True):
            node = self.graph.placeholder(name)
            if isinstance(x, Tensor):
                nodes.append(node)
                shape = tuple(n.name if isinstance(n, Symbol) else int(n) for n in next(sizes))
                self.inputs.append(Input(path, x.dtype, shape))
                self.specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
            elif _is_object(x):
                self.inputs.append(Input(path, value=x))
                self.objects[x._identity()] = node
                node.meta["val"] = x
                self.specs.append(InputSpec(InputKind.USER_INPUT, object_argument(node.name, x), None))
            else:
                self.inputs.append(Input(path, value=x))
                node.meta["val"] = x
                self.specs.append(InputSpec(InputKind.USER_INPUT, ConstantArgument(node.name, x), None))
        return nodes

    def _written(self, lowered: Lowered) -> tuple[list, list[OutputSpec]]:
        """Returns the values that are written to inputs, and their specifications."""
        kinds = {
            InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
            InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
            InputKind.CONSTANT_TENSOR: OutputKind.BUFFER_MUTATION,
            InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
        }
        by_name = {s.arg.name: s for s in self.specs}
        outputs, specs = [], []
        for number, value in lowered.mutated:
            spec = by_name[lowered.inputs[number].name]
            outputs.append(value)
            target = spec.target or spec.arg.name
            specs.append(OutputSpec(kinds[spec.kind], TensorArgument(value.name), target))
        return outputs, specs

    def _results(self, lowered: Lowered, specs: list[OutputSpec]) -> list:
        count = self.facts["results"] - self.facts["checks"]
        for valid, (kind, text) in zip(lowered.outputs[count : self.facts["results"]], self.program._checks):
            self.graph.call_function(require, (valid, kind, text))
        leaves, self.out_spec = pytree.tree_flatten(self.program._results)
        results = [
            lowered.outputs[x.number] if hasattr(x, "number")
            else lowered._object(x) if _is_object(x)
            else x
            for x in leaves
        ]  # fmt: skip
        for x in results:
            if not isinstance(x, (Node, *_CONSTANTS)):
                raise UserError(
                    f"export: the module returns an object of {type(x).__module__}.{type(x).__qualname__}, "
                    "which holds its tensors where export does not see them\n"
                    "  hint: return tensors in tuples, lists and dicts, or register the class by "
                    f"{_C.package_name()}.utils._pytree.register_pytree_node"
                )
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, constant_or_name(x), None))
        return results


def _is_object(x: Any) -> bool:
    return isinstance(x, _C.ScriptObject)


def _range(size: Any, symbols: dict[str, Symbol]) -> tuple[float, float]:
    """Returns bounds of a size of a graph that follow from those of its symbols."""
    if not isinstance(size, tuple):
        return size, size
    kind, *operands = size
    if kind == "symbol":
        s = symbols.get(operands[0])
        return (0, math.inf) if s is None else (s.low, math.inf if s.high == INFINITE else s.high)
    (a, b), (c, d) = (_range(x, symbols) for x in operands)
    if kind == "add":
        return a + c, b + d
    if kind in ("min", "max"):
        f = min if kind == "min" else max
        return f(a, c), f(b, d)
    if kind == "mul":
        ends = [x * y if x and y else 0 for x in (a, b) for y in (c, d)]
        return min(ends), max(ends)
    if kind == "floordiv" and c == d > 0:
        return a // c, b // c if b != math.inf else b
    if kind == "mod" and c == d > 0:
        return 0, c - 1
    return -math.inf, math.inf


def _holds_for_samples(left: Any, right: Any, symbols: dict[str, Symbol]) -> bool:
    """Returns whether two sizes are equal for many values of their symbols; if so, each call checks that
    they are.
    """
    names = symbols_of(left) | symbols_of(right)
    for k in range(24):
        values = {}
        for j, name in enumerate(sorted(names)):
            s = symbols.get(name)
            low, high = (2, INFINITE) if s is None else (s.low, s.high)
            values[name] = min(low + (k * 7 + j * 11) % 61 if k else low, high)
        if size_value(left, values) != size_value(right, values):
            return False
    return True


def _always(left: Any, relation: str, right: Any, symbols: dict[str, Symbol]) -> bool:
    """Returns whether a comparison holds for all sizes within their bounds."""
    (a, b), (c, d) = _range(left, symbols), _range(right, symbols)
    return {"<": b < c, ">=": a >= d, "!=": b < c or a > d, "==": a == b == c == d}[relation]


def _paths(mod: Any, args: tuple, kwargs: dict) -> list[tuple[str, str]]:
    """Returns a name for the node of each leaf, and its path for errors."""
    names = list(arguments_by_name(mod, args, kwargs))
    paths = []
    for key_path, _ in pytree.tree_flatten_with_path((args, kwargs))[0]:
        outer, first, *rest = key_path
        name = (
            (names[first.idx] if first.idx < len(names) else f"arg{first.idx}")
            if outer.idx == 0
            else first.key
        )
        if outer.idx == 0 and first.idx >= len(names) - len(kwargs):
            name = f"args_{first.idx}"  # of *args
        path = f"{name}{pytree.keystr(tuple(rest))}"
        paths.append(("_".join([str(name), *(str(_key(k)) for k in rest)]), path))
    return paths


def _key(k: Any) -> Any:
    return getattr(k, "idx", getattr(k, "key", getattr(k, "name", k)))


def export_again(program: ExportedProgram, table: dict[Any, Callable]) -> ExportedProgram:
    """Returns the program of a program's module, with the functions of ``table`` in place of operators."""
    from ..fx import Interpreter

    module = program.module()

    class Decomposed(Module):
        def __init__(self) -> None:
            super().__init__()
            self.__dict__.update(
                {k: v for k, v in module.__dict__.items() if k in ("_parameters", "_buffers", "_modules")}
            )

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            leaves = pytree.tree_leaves((args, kwargs))
            return pytree.tree_unflatten(list(run.run(*leaves, enable_io_processing=False)), module._out_spec)

    class Substitutes(Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return (table.get(target) or target)(*args, **kwargs)

    run = Substitutes(module)
    from ._file import _examples

    args, kwargs = program.example_inputs or _examples(program)
    sizes, symbols = again(program)
    traced = _program(Decomposed(), args, kwargs, sizes, symbols)
    naming = _Naming(module, traced, args, kwargs, sizes, symbols)
    naming.state = program.state_dict
    user = (s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT)
    naming.paths = [(s.arg.name, x.name) for s, x in zip(user, program._checks.inputs)]
    exported = naming.exported()
    exported._checks.inputs, exported._checks.names = program._checks.inputs, program._checks.names
    return exported


def again(program: ExportedProgram) -> tuple[list[list], dict[str, Symbol]]:
    """Returns the sizes of the inputs of a program, and copies of its symbols."""
    import copy

    symbols = {name: copy.copy(s) for name, s in program._checks.symbols.items()}
    sizes = [[symbols.get(n, n) for n in x.sizes] for x in program._checks.inputs if x.dtype is not None]
    return sizes, symbols
