"""Reduces a program that fails or differs when it is compiled to a short script (facula.compiler.minify)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from .. import _C

# Settings that leave out a part of the way to machine code, and the name of that part.
_WITHOUT = {
    "fuse": {"FACULA_FUSE": "0"},
    "library calls": {"FACULA_LIBRARIES": "0"},
    "code generation by LLVM": {"FACULA_TARGET": "c99"},
    "vectors of AVX-512": {"FACULA_CPU_CAPABILITY": "avx2"},
}


def difference(module: Any, inputs: list) -> str | None:
    """Returns how the compiled graph differs from its calls one by one; None if it does not."""
    from .. import program

    plain = module(*(x.clone() for x in inputs))
    copies = [x.clone() for x in inputs]
    try:
        compiled = program.trace(module, *copies)(*copies)
    except Exception as e:  # noqa: BLE001  (the failure that is looked for)
        return f"{type(e).__name__}: {e}".splitlines()[0]
    for k, (a, b) in enumerate(zip(compiled, plain)):
        if not isinstance(b, _C.Tensor):
            continue
        exact = not (b.dtype.is_floating_point or b.dtype.is_complex)
        reach = (
            0.0
            if exact
            else 1e-4
            if b.dtype in (_C.float32, _C.float64, _C.complex64, _C.complex128)
            else 5e-2
        )
        a, b = a.detach(), b.detach()
        scale = float(b.abs().max()) if b.numel() and not exact else 0.0
        if a.shape != b.shape or not bool(
            _C.functions.isclose(a, b, rtol=reach, atol=reach * scale, equal_nan=True).all()
        ):
            return f"result {k} differs"
    return None


class _Values:
    """The value of each node, by calls one by one."""

    def __init__(self, module: Any, inputs: list) -> None:
        from ..fx import Interpreter

        values = self.of = {}

        class Keep(Interpreter):
            def run_node(self, n: Any) -> Any:
                values[n.name] = super().run_node(n)
                return values[n.name]

        Keep(module).run(*(x.clone() for x in inputs))


def _with_output(module: Any, name: str) -> Any:
    """Returns the module whose only result is a node."""
    import copy

    from ..fx import GraphModule

    graph = copy.deepcopy(module.graph)
    (node,) = (n for n in graph.nodes if n.name == name)
    (output,) = (n for n in graph.nodes if n.op == "output")
    output.args = ((node,),)
    graph.eliminate_dead_code()
    return GraphModule(module, graph)


def _with_inputs(module: Any, inputs: list, names: set[str], values: dict) -> tuple[Any, list]:
    """Returns the module in which these calls are inputs, and its inputs, without those that nobody reads."""
    import copy

    from ..fx import GraphModule

    graph = copy.deepcopy(module.graph)
    values_of = dict(zip((n.name for n in graph.nodes if n.op == "placeholder"), inputs))
    for n in list(graph.nodes):
        if n.name in names and n.op == "call_function":
            with graph.inserting_before(next(iter(graph.nodes))):
                stand = graph.placeholder(f"{n.name}_in")
            values_of[stand.name] = values[n.name]
            n.replace_all_uses_with(stand)
            graph.erase_node(n)
    graph.eliminate_dead_code()
    for n in list(graph.nodes):
        if n.op == "placeholder" and not n.users:
            graph.erase_node(n)
    graph.lint()
    names_left = [n.name for n in graph.nodes if n.op == "placeholder"]
    return GraphModule(module, graph), [values_of[name] for name in names_left]


def _calls(module: Any) -> list[str]:
    return [n.name for n in module.graph.nodes if n.op == "call_function"]


def _chunks(names: list[str]) -> Iterator[set[str]]:
    size = len(names)
    while size:
        size = size // 2
        for k in range(0, len(names), max(size, 1)):
            yield set(names[k : k + max(size, 1)])


def reduced(module: Any, inputs: list, fails: Callable) -> tuple[Any, list]:
    """Returns a module with fewer calls that fails, too, and its inputs."""
    values = _Values(module, inputs).of
    for name in _calls(module):  # the first call whose value differs
        if isinstance(values[name], _C.Tensor):
            shorter = _with_output(module, name)
            if fails(shorter, inputs):
                module = shorter
                break
    done = False
    while not done:
        done = True
        for names in _chunks(_calls(module)[:-1]):
            tensors = {n for n in names if isinstance(values[n], _C.Tensor)}
            if not tensors:
                continue
            shorter, fewer = _with_inputs(module, inputs, tensors, values)
            if len(_calls(shorter)) < len(_calls(module)) and fails(shorter, fewer):
                module, inputs, done = shorter, fewer, False
                break
    return module, inputs


def _input_text(x: Any) -> str:
    if x.numel() <= 64:
        return f"facula.tensor({x.detach().tolist()!r}, dtype={x.dtype}).reshape({tuple(x.shape)})"
    low, high = (float(v) for v in (x.detach().double().min(), x.detach().double().max()))
    return f"(facula.rand({tuple(x.shape)}) * {high - low!r} + {low!r}).to({x.dtype})"


def script_of(module: Any, inputs: list) -> str:
    """Returns a script that compares the compiled module with its calls, and fails if it differs."""
    body = module.code.strip().replace("def forward(self, ", "def f(").replace("def forward(self", "def f(")
    tensors = ",\n    ".join(_input_text(x) for x in inputs)
    return f"""import sys

import facula
from facula._dynamo.minifier import difference
from math import inf, nan


{body}


facula.manual_seed(0)
inputs = [
    {tensors},
]
told = difference(f, inputs)
print(told or "no difference")
sys.exit(told is not None)
"""


def responsible(script: str) -> str | None:
    """Returns the part of the compiler without which the script finds no difference, or None."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "reduced.py")
        with open(path, "w") as out:
            out.write(script)
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        around = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
        for name, settings in _WITHOUT.items():
            done = subprocess.run([sys.executable, path], env=around | settings, capture_output=True)
            if done.returncode == 0:
                return name
    return None


def minify(fn: Callable, *args: Any, fails: Callable | None = None, path: str | None = None) -> str:
    """Reduces a function that fails or differs when it is compiled.

    fails: ``fails(module, inputs)`` decides whether a part still shows the fault; by default it is compiled
        and compared with its calls one by one.
    path: a file for the script

    Returns a short script that shows the fault, whose first line names the part of the compiler that is
    responsible, if leaving it out removes the fault. Raises ValueError if the function shows no fault.
    """
    from .. import program
    from ..fx._bridge import module_of

    traced = program.trace(fn, *args)
    module = module_of(traced)
    inputs = [x for x in args if isinstance(x, _C.Tensor)] + list(traced.captured)
    inputs = [x.detach().clone() for x in inputs]
    test = fails or difference
    if not test(module, inputs):
        raise ValueError("minify: the compiled function gives what its calls give one by one")
    module, inputs = reduced(module, inputs, test)
    script = script_of(module, inputs)
    part = responsible(script) if fails is None else None
    script = f"# {len(_calls(module))} calls; responsible: {part or 'unknown'}\n{script}"
    if path is not None:
        with open(path, "w") as out:
            out.write(script)
    return script
