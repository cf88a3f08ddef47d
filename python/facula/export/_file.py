"""Files of exported programs: a zip archive without compression, of

- ``facula.json``: the format, its version, and the version of the library that wrote the file
- ``graph.json``: the graph of an ExportedProgram with its signature, sizes and structures
- ``program.json``: the same program as the compiler's graph, as text, with its captured tensors: C++ loads
  this one
- ``objects.json``: the objects of C++ classes, by class and state, if there are any
- ``tensors.json``: dtype, sizes, strides and storage of each tensor
- ``storages/0``, ...: the bytes of the storages, each at a multiple of 64 bytes, so that readers can map them

A later version of the library reads every earlier format (``_UPGRADES``) and writes the newest.
"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import operator
import os
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from .. import _C
from .._classes import _restore
from .._higher_order_ops._regions import regions_in
from .._ops import FunctionOperator, HigherOrderOperator, OpOverload, _operator
from ..fx import Graph
from ..fx._bridge import without_gradient
from ..fx.node import Node
from ..nn.parameter import Parameter
from ..program import _read, _Result, _written, require
from ..serialization import replacing
from ..utils import _pytree as pytree
from . import graph_signature as signature
from .dynamic_shapes import INFINITE, Dim, Symbol
from .exported_program import CallSpec, Checks, ExportedProgram, Input

__all__ = ["FORMAT", "VERSION", "Archive", "load", "save"]

FORMAT, VERSION = "facula program", 3
ALIGNMENT = 64
# By version: a function that changes the parts of a file (a dict of what the JSON files contain) to the
# next version.
_UPGRADES: dict[int, Callable[[dict], dict]] = {
    1: lambda parts: parts,  # 2 has objects
    2: lambda parts: parts,  # 3 says which 16-bit values kernels round
}
_LITTLE_ENDIAN_NAMES = ("facula.json", "graph.json", "program.json", "tensors.json")
_MOST_JSON = 1 << 30


class Tensors:
    """The tensors of a file, by number; those that share memory share a storage. And its objects of C++
    classes, each after those that its state holds.
    """

    def __init__(self) -> None:
        self.objects: list[dict] = []
        self._object_numbers: dict[int, int | None] = {}  # by identity; None while the state is written
        self.entries: list[dict] = []
        self.storages: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._storage_numbers: dict[int, int] = {}
        self._alive: list[Any] = []

    def number(self, t: Any) -> int:
        """Returns the number of a tensor, adding it if it is not there."""
        if id(t) in self._numbers:
            return self._numbers[id(t)]
        if not t.is_cpu or t.layout is not _C.strided:
            raise NotImplementedError(
                f"save: a tensor on {t.device} of the layout {t.layout}: move it to the CPU"
            )
        plain = t.detach()
        storage = plain.untyped_storage()
        if storage.data_ptr() not in self._storage_numbers or not storage.nbytes():
            self._storage_numbers[storage.data_ptr()] = len(self.storages)
            self.storages.append(storage)
        self.entries.append(
            {
                "dtype": str(t.dtype).rpartition(".")[2],
                "sizes": list(t.shape),
                "strides": list(t.stride()),
                "offset": t.storage_offset(),
                "storage": self._storage_numbers[storage.data_ptr()],
                "requires_grad": t.requires_grad and t.is_leaf,
                "parameter": isinstance(t, Parameter),
            }
        )
        self._numbers[id(t)] = len(self.entries) - 1
        self._alive += [t, storage]
        return self._numbers[id(t)]

    def object_number(self, x: Any) -> int:
        """Returns the number of an object, adding it if it is not there."""
        key = x._identity()
        if key not in self._object_numbers:
            self._object_numbers[key] = None
            state = _argument(x.__getstate__(), self)
            self._object_numbers[key] = len(self.objects)
            self.objects.append({"class": f"{x._namespace}.{x._class_name}", "state": state})
            self._alive.append(x)
        number = self._object_numbers[key]
        if number is None:
            raise NotImplementedError(
                f"save: objects of the class {x._namespace}.{x._class_name} hold each other, which a file "
                "cannot hold"
            )
        return number


class Parts(list):
    """The tensors of a file that was loaded, by number, and its objects."""

    def __init__(self, tensors: list, objects: list[dict]) -> None:
        super().__init__(tensors)
        self.objects: list[Any] = []
        for entry in objects:
            namespace, _, name = entry["class"].partition(".")
            try:
                _C.class_facts(namespace, name)
            except RuntimeError:
                raise NotImplementedError(
                    f"load: the program holds an object of the class {entry['class']}, which this process "
                    "does not have\n  hint: load the library that defines it first"
                ) from None
            state = _argument_of(entry["state"], {}, self)
            self.objects.append(_restore(namespace, name, state))


class _Writer:
    """Writes a zip archive whose records begin at multiples of 64 bytes, or appends to one (mode "a")."""

    def __init__(self, f: Any, mode: str = "w") -> None:
        self.zip = zipfile.ZipFile(f, mode, zipfile.ZIP_STORED, allowZip64=True)

    def add(self, name: str, data: Any) -> None:
        info = zipfile.ZipInfo(name)  # of 1980, so that files with equal contents are equal
        size = len(data)
        large = size >= 0xFFFFFFFF - 1024
        start = self.zip.fp.tell() + 30 + len(name) + (20 if large else 0) + 4
        info.extra = struct.pack("<2sH", b"FB", padding := -start % ALIGNMENT) + b"Z" * padding
        info.file_size = size
        with self.zip.open(info, "w", force_zip64=large) as record:
            record.write(data)

    def json(self, name: str, value: Any) -> None:
        self.add(name, json.dumps(value, indent=1).encode())


# ---- the graph as JSON


def _argument(x: Any, tensors: Tensors) -> Any:
    if isinstance(x, Node):
        return {"node": x.name}
    if x is None or type(x) in (bool, int, str):
        return x
    if type(x) in (float, complex):
        return {type(x).__name__: repr(x)}
    if isinstance(x, dict):
        return {"dict": [[k, _argument(v, tensors)] for k, v in x.items()]}
    if isinstance(x, tuple):
        return {"tuple": [_argument(i, tensors) for i in x]}
    if isinstance(x, list):
        return [_argument(i, tensors) for i in x]
    if isinstance(x, slice):
        return {"slice": [_argument(i, tensors) for i in (x.start, x.stop, x.step)]}
    if isinstance(x, (_C.dtype, _C.device, _C.memory_format, _C.layout)):
        return {type(x).__name__: str(x).rpartition(".")[2]}
    if isinstance(x, type) and issubclass(x, Exception):
        return {"error": x.__name__}
    if isinstance(x, _C.Tensor):
        return {"tensor": tensors.number(x)}
    if isinstance(x, _C.ScriptObject):
        return {"object": tensors.object_number(x)}
    raise NotImplementedError(
        f"save: the graph has an argument of the type {type(x).__name__}, which a file cannot hold"
    )


def _argument_of(x: Any, nodes: dict[str, Node], tensors: list) -> Any:
    def inner(i: Any) -> Any:
        return _argument_of(i, nodes, tensors)

    if isinstance(x, list):
        return [inner(i) for i in x]
    if not isinstance(x, dict):
        return x
    ((kind, value),) = x.items()
    if kind == "node":
        return nodes[value]
    if kind in ("float", "complex"):
        return {"float": float, "complex": complex}[kind](value)
    if kind == "dict":
        return {k: inner(v) for k, v in value}
    if kind == "tuple":
        return tuple(inner(i) for i in value)
    if kind == "slice":
        return slice(*(inner(i) for i in value))
    if kind == "device":
        return _C.device(value)
    if kind in ("dtype", "memory_format", "layout"):
        looked_up = getattr(_C, value)
        if type(looked_up).__name__ != kind:
            raise ValueError(f"{value} is no {kind}")
        return looked_up
    if kind == "error":
        import builtins

        looked_up = getattr(builtins, value)
        if not (isinstance(looked_up, type) and issubclass(looked_up, Exception)):
            raise ValueError(f"{value} is no exception")
        return looked_up
    if kind == "tensor":
        return tensors[_index(value, len(tensors))]
    if kind == "object":
        return tensors.objects[_index(value, len(tensors.objects))]  # type: ignore[attr-defined]
    raise ValueError(f"unknown kind of argument {kind!r}")


def _index(n: Any, end: int) -> int:
    if type(n) is not int or not 0 <= n < end:
        raise ValueError(f"a number is out of range: {n!r}")
    return n


_FUNCTIONS: dict[str, Any] = {
    **{
        f"operator.{n}": getattr(operator, n)
        for n in ("getitem", "add", "sub", "mul", "floordiv", "mod", "truediv", "neg")
    },
    "sym_max": _C.sym_max,
    "sym_min": _C.sym_min,
    "require": require,
    "without_gradient": without_gradient,
}
_FUNCTION_NAMES = {id(f): name for name, f in _FUNCTIONS.items()}


def _target(node: Node) -> Any:
    t = node.target
    if node.op != "call_function":
        return t
    if isinstance(t, OpOverload) and "=" in t._operators[0]:
        raise NotImplementedError(
            f"save: the graph calls {t}, a gradient that was derived; save the program of the step"
        )
    if isinstance(t, (OpOverload, FunctionOperator)):
        return {"operator": f"{t.namespace}::{t._opname}.{t._overloadname}"}
    if isinstance(t, HigherOrderOperator):
        return {"region": t.name()}
    if id(t) not in _FUNCTION_NAMES:
        raise NotImplementedError(f"save: the graph calls {t!r}, which is no operator")
    return {"function": _FUNCTION_NAMES[id(t)]}


def _target_of(t: Any) -> Any:
    if not isinstance(t, dict):
        return t
    ((kind, name),) = t.items()
    if kind == "function":
        return _FUNCTIONS[name]
    if kind == "region":
        from .._higher_order_ops._regions import REGIONS

        return REGIONS[name]
    if kind != "operator":
        raise ValueError(f"unknown kind of function {kind!r}")
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    if not (namespace.isidentifier() and base.isidentifier() and overload.isidentifier()):
        raise ValueError(f"{name!r} is no name of an operator")
    try:
        return _operator(namespace, base, overload)
    except AttributeError:
        raise NotImplementedError(
            f"load: the program calls {name}, which this process does not have\n"
            "  hint: import the module that defines it, or load its library"
        ) from None


def _graph(graph: Graph, module: Any, tensors: Tensors) -> dict:
    nodes = []
    for n in graph.nodes:
        entry = {
            "name": n.name,
            "op": n.op,
            "target": _target(n),
            "args": _argument(tuple(n.args), tensors)["tuple"],
        }
        if n.kwargs:
            entry["kwargs"] = _argument(dict(n.kwargs), tensors)["dict"]
        if "sizes" in n.meta and isinstance(n.meta.get("val"), _C.Tensor):
            entry["type"] = [str(n.meta["val"].dtype).rpartition(".")[2], list(n.meta["sizes"])]
        if n.op == "get_attr" and isinstance(inner := _member(module, n.target), _FxModule()):
            entry["graph"] = _graph(inner.graph, inner, tensors)
        nodes.append(entry)
    return {"nodes": nodes}


def _FxModule() -> type:
    from ..fx import GraphModule

    return GraphModule


def _member(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def _graph_of(entry: dict, tensors: list, root: dict) -> Graph:
    graph, nodes = Graph(), {}
    for e in entry["nodes"]:
        args = tuple(_argument_of(x, nodes, tensors) for x in e["args"])
        kwargs = {k: _argument_of(x, nodes, tensors) for k, x in e.get("kwargs", [])}
        op, name = e["op"], e["name"]
        if (
            op not in ("placeholder", "get_attr", "call_function", "output")
            or name in nodes
            or not name.isidentifier()
        ):
            raise ValueError(f"a node {name!r} of the kind {op!r}")
        target = _target_of(e["target"])
        if (
            op != "call_function"
            and not isinstance(target, str)
            or op == "call_function"
            and isinstance(target, str)
        ):
            raise ValueError(f"the node {name} has no target")
        node = graph.create_node(op, target, args, kwargs, name)
        if node.name != name:
            raise ValueError(f"a node cannot have the name {name!r}")
        if "type" in e:
            dtype, sizes = e["type"]
            node.meta["dtype"], node.meta["sizes"] = getattr(_C, dtype), tuple(sizes)
        if "graph" in e:
            inner: dict = {}
            root[target] = _FxModule()(inner, _graph_of(e["graph"], tensors, inner))
        nodes[name] = node
    return graph


# ---- the signature, sizes and structures


def _leaf_tree(spec: Any) -> Any:
    return _written(spec.unflatten([_Result(k) for k in range(spec.num_leaves)]))


def _spec_of(tree: Any) -> Any:
    return pytree.tree_structure(_read(tree))


def _spec(s: Any) -> list:
    arg = ["tensor", s.arg.name]
    if isinstance(s.arg, signature.ConstantArgument):
        arg = ["constant", s.arg.name, _argument(s.arg.value, Tensors())]
    elif isinstance(s.arg, signature.CustomObjArgument):
        arg = ["object", s.arg.name, s.arg.class_fqn]
    return [s.kind.name, arg, s.target, getattr(s, "persistent", None)]


def _spec_from(entry: list, kinds: Any, make: Any) -> Any:
    kind, arg, target, persistent = entry
    if arg[0] == "constant":
        argument: Any = signature.ConstantArgument(arg[1], _argument_of(arg[2], {}, []))
    elif arg[0] == "object":
        argument = signature.CustomObjArgument(arg[1], arg[2])
    else:
        argument = signature.TensorArgument(arg[1])
    rest = (persistent,) if make is signature.InputSpec else ()
    return make(kinds[kind], argument, target, *rest)


def _symbol(s: Symbol) -> dict:
    return {
        "name": s.name, "dim": s.dim and s.dim.__name__, "where": s.where, "hint": s.hint, "low": s.low,
        "high": None if s.high == INFINITE else s.high,
    }  # fmt: skip


def _symbol_of(e: dict) -> Symbol:
    high = INFINITE if e["high"] is None else int(e["high"])
    kind = Dim(e["dim"], min=0) if e["dim"] and e["dim"].isidentifier() else Dim.DYNAMIC
    s = Symbol(e["name"], kind, e["where"], int(e["hint"]))
    s.low, s.high = int(e["low"]), high
    return s


def _tuples(x: Any) -> Any:
    """Returns a size of a graph from JSON."""
    return (x[0], *map(_tuples, x[1:])) if isinstance(x, list) else x


def _exported(ep: ExportedProgram, tensors: Tensors) -> dict:
    c = ep._checks
    return {
        **_graph(ep.graph, ep.graph_module, tensors),
        "inputs": [_spec(s) for s in ep.graph_signature.input_specs],
        "outputs": [_spec(s) for s in ep.graph_signature.output_specs],
        "state": [[name, tensors.number(t)] for name, t in ep.state_dict.items()],
        "constants": [
            [name, tensors.number(t)] for name, t in ep.constants.items() if isinstance(t, _C.Tensor)
        ],
        "objects": [
            [name, tensors.object_number(x)]
            for name, x in ep.constants.items()
            if isinstance(x, _C.ScriptObject)
        ],
        "arguments": {
            "structure": _leaf_tree(c.call_spec.in_spec),
            "names": c.names,
            "leaves": [
                [
                    x.name,
                    x.dtype and str(x.dtype).rpartition(".")[2],
                    list(x.sizes),
                    _argument(x.value, tensors),
                ]
                for x in c.inputs
            ],
        },
        "results": _leaf_tree(c.call_spec.out_spec),
        "symbols": [_symbol(s) for s in c.symbols.values()],
        "guards": [list(g) for g in c.guards],
    }


def _exported_of(e: dict, tensors: Parts) -> ExportedProgram:
    root: dict = {}
    graph = _graph_of(e, tensors, root)
    state = {name: tensors[_index(k, len(tensors))] for name, k in e["state"]}
    constants = {name: tensors[_index(k, len(tensors))] for name, k in e["constants"]}
    constants |= {name: _argument_of({"object": k}, {}, tensors) for name, k in e.get("objects", [])}
    root |= {
        n.target: constants[n.target] for n in graph.nodes if n.op == "get_attr" and n.target not in root
    }
    a = e["arguments"]
    inputs = [
        Input(name, getattr(_C, dtype) if dtype else None, tuple(sizes), _argument_of(value, {}, tensors))
        for name, dtype, sizes, value in a["leaves"]
    ]
    symbols = {s["name"]: _symbol_of(s) for s in e["symbols"]}
    checks = Checks(
        inputs,
        symbols,
        [tuple(map(_tuples, g)) for g in e["guards"]],
        CallSpec(_spec_of(a["structure"]), _spec_of(e["results"])),
    )
    checks.names = a["names"]
    signed = signature.ExportGraphSignature(
        [_spec_from(s, signature.InputKind, signature.InputSpec) for s in e["inputs"]],
        [_spec_from(s, signature.OutputKind, signature.OutputSpec) for s in e["outputs"]],
    )
    return ExportedProgram(root, graph, signed, state, constants, checks, None)


# ---- the program for C++


def compiled_form(ep: ExportedProgram) -> Any:
    """Returns the program of an ExportedProgram as the compiler has it, whose captured tensors are those of
    the state.
    """
    from ._trace import _program, again

    args, kwargs = ep.example_inputs or _examples(ep)
    return _program(ep.module(), args, kwargs, *again(ep))


def _examples(ep: ExportedProgram) -> tuple[tuple, dict]:
    """Returns arguments of a call, tensors without elements of meaning."""
    hints = {name: s.hint for name, s in ep._checks.symbols.items()}
    leaves = [
        x.value if x.dtype is None else _C.functions.empty([hints.get(n, n) for n in x.sizes], dtype=x.dtype)
        for x in ep._checks.inputs
    ]
    return ep.call_spec.in_spec.unflatten(leaves)


def _native(program: Any, tensors: Tensors) -> dict:
    """Returns the fields of a traced program, which C++ reads (io/program.cpp)."""
    native = program._with_numbers()
    facts = _C.program_graph(native)
    if facts["reads"]:
        raise NotImplementedError(
            "save: the program depends on elements of tensors that it read while it was traced"
        )

    def number(t: Any) -> int:
        return -1 if t is None else tensors.number(t)

    captured = [tensors.number(t) for t in facts["captured"]]
    graph = native.text()
    regions = regions_in(graph)
    _check_regions(regions)
    return {
        "name": facts["name"],
        "graph": graph.split("\n"),
        "regions": regions,
        "objects": [tensors.object_number(x) for x in _objects_of(facts)],
        "captured": captured,
        "results": facts["results"],
        "differentiates": facts["differentiates"],
        "required": facts["required"],
        "slots": [
            [a, number(leaf), number(b), relied, out, number(c)]
            for a, leaf, b, relied, out, c in facts["slots"]
        ],
        "checks": [[kind.__name__, text] for kind, text in program._checks],
        "extra": json.dumps({"arguments": _written(program._example), "results": _written(program._results)}),
    }


def _objects_of(facts: dict) -> list:
    """Returns the objects of a program in the order of their numbers in its text."""
    objects: dict[int, Any] = {}
    for call in facts["nodes"]:
        for x in call[1]:
            if isinstance(x, _C.ScriptObject):
                objects.setdefault(x._identity(), x)
    return list(objects.values())


def _check_regions(regions: list[dict]) -> None:
    if any("=object " in line for r in regions for lines in r["functions"] for line in lines):
        raise NotImplementedError(
            "save: a function of cond, while_loop, scan or map calls a method of a C++ class; call it outside"
        )


# ---- files


def save_traced(
    program: Any, f: str | os.PathLike | io.IOBase, extra_files: dict[str, Any] | None = None
) -> None:
    """Writes a traced program to a file for :func:`facula.program.load` and for C++."""
    tensors = Tensors()
    write(f, {"program.json": _native(program, tensors)}, tensors, extra_files or {})


def save(
    ep: ExportedProgram,
    f: str | os.PathLike | io.IOBase,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Writes an exported program to a file for :func:`load` and for C++ (``facula::Program::load``).

    >>> program = facula.export.export(facula.nn.ReLU(), (facula.ones(2),))
    >>> facula.export.save(program, path := tempfile.mktemp(suffix=".fpt"))
    >>> facula.export.load(path).module()(facula.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead."
        )
    tensors = Tensors()
    parts = {"graph.json": _exported(ep, tensors), "program.json": _native(compiled_form(ep), tensors)}
    write(f, parts, tensors, extra_files or {})


def write(f: Any, parts: dict[str, Any], tensors: Tensors, extra_files: dict[str, Any]) -> None:
    """Writes the JSON files ``parts``, and tensors, as an archive."""
    from .. import __version__

    named = isinstance(f, (str, os.PathLike))
    with replacing(os.fspath(f), "export.save") if named else contextlib.nullcontext(f) as file:
        writer = _Writer(file)
        # Earlier releases read programs that do not have what they lack.
        rounds = any(" held" in line for line in parts["program.json"]["graph"])
        version = 3 if rounds else 2 if tensors.objects else 1
        writer.json("facula.json", {"format": FORMAT, "version": version, "written by": str(__version__)})
        for name, part in parts.items():
            writer.json(name, part)
        if tensors.objects:
            writer.json("objects.json", tensors.objects)
        sizes = [s.nbytes() for s in tensors.storages]
        writer.json("tensors.json", {"tensors": tensors.entries, "storages": sizes})
        for k, storage in enumerate(tensors.storages):
            writer.add(f"storages/{k}", _bytes(storage))
        for name, data in extra_files.items():
            writer.add(f"extra/{name}", data if isinstance(data, bytes) else str(data).encode())
        writer.zip.close()


def _bytes(storage: Any) -> Any:
    n = storage.nbytes()
    if not n:
        return b""
    return memoryview(_C.functions.empty(0, dtype=_C.uint8).set_(storage, 0, (n,), (1,)).numpy())


class Archive:
    """A file that is open: its JSON files, and tensors over its memory.

    Raises RuntimeError if the file is damaged, of a later version or another format.
    """

    def __init__(self, f: Any) -> None:
        self.name = os.fspath(f) if isinstance(f, (str, os.PathLike)) else "the file"
        try:
            self.zip = zipfile.ZipFile(f)
            self.memory = self._map(f)
        except (zipfile.BadZipFile, ValueError, OverflowError, struct.error) as e:
            raise RuntimeError(f"load: {self.name} is no file of an exported program: {e}") from None
        self.head = self.json("facula.json")
        self._check_version()

    def _map(self, f: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            with open(f, "rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        f.seek(0)
        return bytearray(f.read())

    def _check_version(self) -> None:
        head = self.head
        if not isinstance(head, dict) or head.get("format") != FORMAT or type(head.get("version")) is not int:
            raise RuntimeError(f"load: {self.name} is no file of an exported program")
        self.version = head["version"]
        if self.version > VERSION or self.version < 1:
            raise RuntimeError(
                f"load: {self.name} has the version {self.version} of the format, written by "
                f"{_C.package_name()} "
                f"{head.get('written by')}, and this library reads versions up to {VERSION}\n"
                "  hint: load it with that release or a later one"
            )

    def json(self, name: str) -> Any:
        """Returns the contents of a JSON file."""
        try:
            info = self.zip.getinfo(name)
            return json.loads(bytes(self.record(info)))
        except KeyError:
            raise RuntimeError(
                f"load: {self.name} is no file of an exported program: it has no {name}"
            ) from None
        except (ValueError, RecursionError) as e:
            raise self.damaged(e) from None

    def has(self, name: str) -> bool:
        return name in self.zip.NameToInfo

    def record(self, info: zipfile.ZipInfo) -> memoryview:
        """Returns the memory of a record, which must not be compressed."""
        view = memoryview(self.memory)
        at = info.header_offset
        if (
            info.compress_type != zipfile.ZIP_STORED
            or at + 30 > len(view)
            or bytes(view[at : at + 4]) != b"PK\3\4"
        ):
            raise ValueError(f"the record {info.filename}")
        name, extra = struct.unpack_from("<HH", view, at + 26)
        begin = at + 30 + name + extra
        if begin + info.file_size > len(view) or info.file_size != info.compress_size:
            raise ValueError(f"the record {info.filename} ends beyond the file")
        if zipfile.crc32(view[begin : begin + info.file_size]) != info.CRC:
            raise ValueError(f"the record {info.filename} has another checksum")
        return view[begin : begin + info.file_size]

    def tensors(self) -> list:
        """Returns the tensors of the file. Their memory is the file's, mapped; writes change only this
        process.
        """
        parts = self.json("tensors.json")
        try:
            sizes = parts["storages"]
            arguments = (self._storage, range(len(sizes)), sizes)
            if sum(sizes) > 1 << 24:  # threads compute the checksums of large files
                from concurrent.futures import ThreadPoolExecutor

                with ThreadPoolExecutor(_C.get_num_threads()) as pool:
                    storages = list(pool.map(*arguments))
            else:
                storages = list(map(*arguments))
            return [_tensor(e, storages) for e in parts["tensors"]]
        except (KeyError, ValueError, TypeError, AttributeError, IndexError, RuntimeError) as e:
            raise self.damaged(e) from None

    def _storage(self, k: int, size: int) -> Any:
        info = self.zip.getinfo(f"storages/{k}")
        if info.file_size != size:
            raise ValueError(f"the storage {k} has another size")
        if not size:
            return _C.functions.empty(0, dtype=_C.uint8)
        return _C.frombuffer(self.record(info), dtype=_C.uint8)

    def damaged(self, e: Any) -> RuntimeError:
        return RuntimeError(f"load: {self.name} is damaged: {e}")


def _tensor(e: dict, storages: list) -> Any:
    dtype = getattr(_C, e["dtype"])
    if type(dtype) is not _C.dtype:
        raise ValueError(f"{e['dtype']} is no dtype")
    sizes, strides, offset = e["sizes"], e["strides"], e["offset"]
    every_byte = storages[_index(e["storage"], len(storages))]
    if len(sizes) != len(strides) or any(type(n) is not int or n < 0 for n in (*sizes, *strides, offset)):
        raise ValueError("a tensor has other sizes than strides")
    empty = 0 in sizes
    last = offset + sum((n - 1) * s for n, s in zip(sizes, strides))
    if not empty and (last + 1) * dtype.itemsize > every_byte.numel():
        raise ValueError("a tensor is larger than its storage")
    t = _C.functions.empty(0, dtype=dtype).set_(
        every_byte.untyped_storage(), offset, tuple(sizes), tuple(strides)
    )
    if e["parameter"]:
        return Parameter(t, requires_grad=bool(e["requires_grad"]))
    return t.requires_grad_() if e["requires_grad"] else t


def load(
    f: str | os.PathLike | io.IOBase,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """Returns the program that :func:`save` wrote. The weights are mapped, not read. Loading executes
    nothing.

    Raises RuntimeError if the file is damaged, or was written in a later version of the format.
    """
    archive = Archive(f)
    tensors = archive.tensors()
    parts = {"graph.json": archive.json("graph.json")}
    for version in range(archive.version, VERSION):
        parts = _UPGRADES[version](parts)
    try:
        for name in extra_files or {}:
            extra_files[name] = bytes(archive.record(archive.zip.getinfo(f"extra/{name}"))).decode()
        objects = archive.json("objects.json") if archive.has("objects.json") else []
        return _exported_of(parts["graph.json"], Parts(tensors, objects))
    except NotImplementedError:
        raise
    except Exception as e:
        raise archive.damaged(e) from None
