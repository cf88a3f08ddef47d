"""Argument trees: calls of everything that Python reaches, drawn from what registry and signatures say.

`reach()` finds what can be called and how its parameters are typed; `draw(rng, target)` makes a call of it,
right or slightly wrong; `str(tree)` is text that `judge.py` evaluates with either library; `simpler(tree)`
yields trees with less in them, for minimising.
"""

import ast
import copy
import dataclasses
import functools
import inspect
import math
import re
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path

from operands import CONTENTS, DTYPES, LAYOUTS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src" / "facula" / "op"))
from generate import PY_KEYWORDS, parse_schema, python_forms, read_catalog  # noqa: E402

HIDDEN = 128  # of an operator's namespaces
SPACES = ("nn.functional", "linalg", "fft", "special", "")
MORE = ("signal.windows", "sparse", "masked")  # of functions that are no operators
NAMESPACES = {"fft": 8, "linalg": 16, "special": 32}
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 16, 33]
FAR = [2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1]
INTEGERS = [0, 1, -1, 2, 3, -2, 4, 5, -5, 7, 31, 64, 100, -100, *FAR, *(-n for n in FAR), -(2**63)]
BEYOND = [2**63, -(2**63) - 1, 2**70]
FLOATS = "0.0 -0.0 0.5 1.0 -1.0 2.5 nan inf -inf 1e300 -1e300 1e-320 0.1 1e10".split()
STRINGS = "'a' '' 'mean' 'none' 'sum' 'cpu' 'float32' 'reflect' 'ij' '\\x00'".split()
WRONG = (
    "None 'a' b'a' () [] {} set() object() 1j 1.5 True -1 2**63 nan F.float32 F.strided F F.Tensor "
    "slice(None) "
    "range(3) [1,'a'] [None] [[1,2],[3]] (1,2,3) [1.5] ... np.array([1.5,2.0]) np.float32(1.5) np.int64(3) "
    "t((2,3)) [t((2,))] F.Size([2]) F.device('cpu') F.Generator() lambda:0 int F.channels_last"
).split()
DTYPE_TEXTS = [*("F." + d for d in DTYPES), "'float32'", "int", "float", "bool", "complex", "str", "None"]
DEVICES = "'cpu' 'meta' 'cuda' 'cuda:0' 'nowhere' F.device('meta') 'cpu:1' 0 None ''".split()
FORMATS = "F.contiguous_format F.channels_last F.preserve_format F.strided None 'channels_last'".split()


# ---- what can be called


@dataclass
class Target:
    """One way to call something: a dotted path below the library, `Tensor.` for methods."""

    path: str
    parameters: list  # of generate.Parameter
    samples: list = field(default_factory=list)
    out: bool = False
    writes: bool = False
    random: bool = False
    names: frozenset = frozenset()  # by which an error may call it
    strings: tuple = ()  # what its samples and defaults give for strings
    results: tuple = ()  # their names, of an operator


def parameter(name, kind, default=None, keyword_only=False):
    """A schema's parameter for one of a Python signature."""
    text = f"x({kind} {name}{'=' + default if default else ''}) -> Tensor"
    p = parse_schema(text, "x").parameters[0]
    p.keyword_only = keyword_only
    return p


ANNOTATIONS = {
    "Tensor": "Tensor", "Tensor | None": "Tensor?", "int": "int", "int | None": "int?", "float": "float",
    "float | None": "float?", "bool": "bool", "bool | None": "bool?", "str": "str", "str | None": "str?",
    "Sequence[int]": "int[]", "list[Tensor]": "Tensor[]", "Sequence[Tensor]": "Tensor[]", "dtype": "dtype",
    "dtype | None": "dtype?", "tuple[int, int]": "int[2]", "Generator | None": "Generator?",
}  # fmt: skip
BY_NAME = {
    "self": "Tensor",
    "dtype": "dtype?",
    "device": "Device?",
    "generator": "Generator?",
    "memory_format": "MemoryFormat?",
}


@functools.cache
def stubs():
    """What C gives Python, by (class or "", name): a function with the signature that its stub has."""
    tree = ast.parse((ROOT / "python" / "facula" / "_C" / "__init__.pyi").read_text())
    found = {}
    for owner, body in [
        ("", tree.body),
        *((c.name, c.body) for c in tree.body if isinstance(c, ast.ClassDef)),
    ]:
        for f in body:
            if isinstance(f, ast.FunctionDef) and not f.decorator_list:
                text = f"from __future__ import annotations\ndef {f.name}({ast.unparse(f.args)}) -> 0: ..."
                made = {}
                exec(text, made)  # noqa: S102
                made[f.name].__annotations__["return"] = ast.unparse(f.returns)
                found[owner, f.name] = made[f.name]
    return found


def kind_of(p):
    """A schema's type for a parameter of Python: of its annotation, its name, or its default."""
    kind = ANNOTATIONS.get(str(p.annotation).strip("'").replace("_int", "int").replace("_bool", "bool"))
    return kind or BY_NAME.get(p.name) or ANNOTATIONS.get(type(p.default).__name__, "Any")


def signature(f, of_tensors=True):
    """The parameters of a Python function; None of one that neither takes nor gives tensors."""
    try:
        told = inspect.signature(f)
    except (TypeError, ValueError):
        return None
    out = []
    for p in told.parameters.values():
        kind = kind_of(p)
        if p.kind == p.VAR_KEYWORD:
            continue
        for k in range(3) if p.kind == p.VAR_POSITIONAL else (0,):
            made = parameter(f"{p.name}{k}" if k else p.name, "Tensor" if kind == "Any" else kind)
            made.type = "Any" if kind == "Any" else made.type
            made.default = None if p.default is p.empty and k == 0 else repr(p.default)
            made.keyword_only = p.kind == p.KEYWORD_ONLY
            out.append(made)
    tensors = any(p.type == "Tensor" for p in out) or "Tensor" in str(told.return_annotation)
    return out if tensors or not of_tensors else None


def resolve(lib, path):
    for part in path.split("."):
        lib = getattr(lib, part, None)
    return lib


@functools.cache
def unwritable(lib):
    """Names of operators that no user writes: an error has to speak of the function that was called."""
    from facula import _C

    out = set()
    for o in _C.operators():
        name = o["name"]
        out.add(name if o["namespaces"] & HIDDEN or name.split("_")[0] in SPACES else "")
        out.add(name + "_" if o["in_place"] else "")
    public = {name for space in (*SPACES, "Tensor") for name in dir(resolve(lib, space) if space else lib)}
    return {n for n in out - public if not n.isalpha()}


def operator_targets(lib):
    from facula import _C

    for o in _C.operators():
        if o["namespaces"] & HIDDEN or o["name"].startswith("_"):
            continue
        full = o["name"] + ("." + o["overload"] if o["overload"] else "")
        told = _C.inspect_operator(full)
        schema = parse_schema(o["schema"], full)
        texts = [a["literal"] for s in told["samples"] for a in s.values() if a["kind"] == "literal"]
        texts += [p.default for p in schema.parameters if p.default]
        strings = tuple(sorted({x for x in texts if x[:1] in "'\""}))
        names = frozenset((o["name"], *o["aliases"]))
        writes = any(p.written for p in schema.parameters)

        def target(path, out, writes, schema=schema, told=told, names=names, strings=strings):
            unfixed = told["random"] or shows_memory(path)
            results = tuple(r.name for r in schema.results)
            return Target(
                path, schema.parameters, told["samples"], out, writes, unfixed, names, strings, results
            )

        for name in sorted(names):
            short = name.split("_", 1)[-1]
            for space in SPACES:
                prefixed = name.startswith(space + "_")
                if (
                    not prefixed
                    and not o["namespaces"] & NAMESPACES.get(space, 0)
                    and space not in ("", "nn.functional")
                ):
                    continue
                path = f"{space}.{short if prefixed else name}".lstrip(".")
                if callable(resolve(lib, path)):
                    yield target(path, o["out"], writes)
                if space == "" and o["in_place"] and callable(resolve(lib, path + "_")):
                    yield target(path + "_", False, True)
            first = schema.parameters[0] if schema.parameters else None
            if first is None or first.name != "self":
                continue
            for path, in_place in ((f"Tensor.{name}", False), (f"Tensor.{name}_", True)):
                if callable(resolve(lib, path)) and (o["in_place"] or not in_place):
                    yield target(path, False, in_place or writes)


def form_targets(lib):
    """Functions of nn.functional that hidden operators declare: with the operator's parameters where they are
    the same, and samples.
    """
    from facula import _C

    facts = {o["name"]: o for o in _C.operators() if o["namespaces"] & HIDDEN}
    for form in python_forms(read_catalog(ROOT / "src" / "facula" / "catalog")[1]):
        if form.op.name not in facts:
            continue
        told, written = _C.inspect_operator(form.op.full_name), form.by_schema()
        of_schema = {p.name: p for p in form.op.parameters}
        parameters = []
        for p in signature(resolve(lib, "nn.functional." + form.name)):
            if p.name in written:
                p = dataclasses.replace(
                    of_schema[written[p.name]], name=p.name, default=p.default, keyword_only=p.keyword_only
                )
            parameters.append(p)
        renamed = {of: name for name, of in written.items()}
        samples = [{renamed[n]: a for n, a in s.items() if n in renamed} for s in told["samples"]]
        texts = [a["literal"] for s in samples for a in s.values() if a["kind"] == "literal"]
        texts += [p.default for p in parameters if p.default]
        strings = tuple(sorted({x for x in texts if x[:1] in "'\""}))
        path, names = "nn.functional." + form.name, frozenset((form.name,))
        yield Target(path, parameters, samples, form.own("out"), False, told["random"], names, strings)


def function_targets(lib, known):
    """Functions and methods that are no operators of the registry, as signatures and stubs tell them, and
    operators under names that only Python gives.
    """
    by_name = {path.removeprefix("Tensor."): o for path, o in known.items() if "." not in path[7:]}
    for space in (*SPACES, *MORE, "Tensor"):
        module = resolve(lib, space) if space else lib
        for name in sorted(set(dir(module)) - set(getattr(module, "_SUBMODULES", ()))):
            path = f"{space}.{name}".lstrip(".")
            if name.startswith("_") or path in known:
                continue
            f = getattr(module, name)
            if isinstance(f, (type, types.ModuleType)) or not callable(f):
                continue
            if getattr(f, "__module__", None) in ("typing", "collections.abc"):
                continue
            same = by_name.get(getattr(f, "__name__", ""))
            if same and type(f) is type(lib.add):
                yield dataclasses.replace(same, path=path, names=same.names | {name})
                continue
            parameters = signature(stubs().get(("Tensor" if space == "Tensor" else "", name), f))
            if parameters:
                names = frozenset((name, getattr(f, "__name__", name)))
                yield Target(
                    path, parameters, writes=name.endswith("_"), random=shows_memory(path), names=names
                )


def module_targets(lib):
    """Modules: constructed, then called. Parameters of the call are named `()`."""
    for name in dir(lib.nn):
        cls = getattr(lib.nn, name)
        if not (isinstance(cls, type) and issubclass(cls, lib.nn.Module)) or cls is lib.nn.Module:
            continue
        made, called = signature(cls.__init__, False), signature(cls.forward, False)
        if made is None or called is None:
            continue
        for p in called[1:]:
            if p.type == "Any" and p.default is None:
                p.type = "Tensor"
            p.name = "()" + p.name
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        yield Target(
            "nn." + name, made[1:] + called[1:], random=True, names=frozenset((name, snake, name.lower()))
        )


def operator_forms(lib):
    """`x + y`, `x[i]` and the like: the special methods of Tensor that take operands."""
    from generate import OPERATORS, UNARY_OPERATORS

    for sign, name in OPERATORS:
        yield Target(
            f"{sign}",
            [parameter("self", "Tensor"), parameter("other", "Tensor|Scalar")],
            names=frozenset(
                (name, {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}.get(name, name))
            ),  # reflected
        )
    for sign, name in UNARY_OPERATORS:
        yield Target(f"{sign}.", [parameter("self", "Tensor")], names=frozenset((name,)))


def shows_memory(path):
    """Does it give memory that nobody wrote, or as it lies?"""
    return bool(re.search("empty|resize|strided", path))


def reach(lib):
    operators = list(operator_targets(lib)) + list(form_targets(lib))
    known = {o.path: o for o in operators}
    forms = list(operator_forms(lib))
    read, value = (
        [parameter("self", "Tensor"), parameter("index", "Tensor")],
        parameter("value", "Tensor|Scalar"),
    )
    index = [
        Target("[]", read, names=frozenset("index slice".split())),
        Target("[]=", [*read, value], names=frozenset("index slice index_put copy setitem assign".split())),
    ]
    return operators + list(function_targets(lib, known)) + list(module_targets(lib)) + forms + index


# ---- trees


@dataclass
class T:
    """A tensor of operands.maker."""

    shape: tuple
    dtype: str = "float32"
    layout: str = ""
    content: str = ""
    seed: int = 0
    grad: bool = False
    low: float = -2
    high: float = 2
    name: str = ""  # another argument is this one too

    def __str__(self):
        given = [str(self.shape), repr(self.dtype)]
        for f, usual in (
            ("layout", ""),
            ("content", ""),
            ("seed", 0),
            ("grad", False),
            ("low", -2),
            ("high", 2),
        ):
            if getattr(self, f) != usual:
                given.append(f"{f}={getattr(self, f)!r}")
        text = f"t({', '.join(given)})"
        return f"({self.name} := {text})" if self.name else text


@dataclass
class Listed:
    items: list
    round: bool = False

    def __str__(self):
        inside = ", ".join(map(str, self.items))
        if self.round:
            return f"({inside}{',' if len(self.items) == 1 else ''})"
        return f"[{inside}]"


@dataclass
class View:
    """A view of a tensor that is an argument too."""

    of: str
    how: str
    apart: bool = False  # the same numbers elsewhere

    def __str__(self):
        return f"{self.of}{self.how}{'.clone()' if self.apart else ''}"


@dataclass
class Tree:
    path: str
    arguments: list  # (name or None, node); a node is T, Listed or text
    number: int = 0
    before: "Tree | None" = None  # a call of the same that comes first

    def is_module(self):
        return self.path[:3] == "nn." and self.path[3].isupper()

    def __str__(self):
        nodes = [x for _, x in self.arguments]
        if self.path == "[]":
            return f"{nodes[0]}[{nodes[1]}]"
        if self.path == "[]=":
            return f"put({', '.join(map(str, nodes))})"
        if not self.path[0].isalpha():
            return (
                f"{self.path[:-1]} {nodes[0]}"
                if self.path.endswith(".")
                else f"{nodes[0]} {self.path} {nodes[1]}"
            )
        texts = [str(x) if n in (None, "()") else f"{n.removeprefix('()')}={x}" for n, x in self.arguments]
        if self.is_module():
            first = next((k for k, (n, _) in enumerate(self.arguments) if n and n[:2] == "()"), len(texts))
            return f"F.{self.path}({', '.join(texts[:first])})({', '.join(texts[first:])})"
        if self.path.startswith("Tensor.") and self.arguments and self.arguments[0][0] is None:
            if isinstance(nodes[0], T):
                return f"{texts[0]}.{self.path[7:]}({', '.join(texts[1:])})"
        return f"F.{self.path}({', '.join(texts)})"


# ---- drawing


class Draw:
    """One tree, by numbers of `rng` (random.Random)."""

    def __init__(self, rng, target):
        self.rng, self.target = rng, target
        self.seed = 0
        self.size = None  # most sizes and integers of a call that has no sample, so that they fit
        if not target.samples and self.chance(0.9 if target.path.startswith("nn.") else 0.3):
            self.size = self.rng.randint(1, 4)

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, items):
        return items[self.rng.randrange(len(items))]

    # ---- values

    def shape(self):
        rank = self.pick([0, 1, 1, 2, 2, 2, 3, 3, 4, 5])
        shape = [self.pick(SIZES if self.chance(0.3) else [1, 2, 3, 4]) for _ in range(rank)]
        if self.size and self.chance(0.8):
            return (self.size,) * rank
        if shape and self.chance(0.03):
            shape[self.rng.randrange(rank)] = self.pick(FAR[:4])
        while math.prod(shape) > 1 << 14 and max(shape) <= 33:
            shape[shape.index(max(shape))] = 2
        return tuple(shape)

    def tensor(self, shape=None, dtype=None):
        self.seed += 1
        x = T(
            self.shape() if shape is None else shape,
            dtype or self.pick(DTYPES if self.chance(0.5) else ["float32"]),
        )
        x.seed = self.seed
        if self.chance(0.15):
            x.layout = self.pick(LAYOUTS)
        if self.chance(0.1):
            x.content = self.pick(CONTENTS)
        x.grad = self.chance(0.1)
        return x

    def number(self):
        return self.pick(
            [
                str(self.pick(INTEGERS)),
                self.pick(FLOATS),
                str(self.pick([0, 1, 2, -1, 3])),
                self.pick(["True", "1j", "complex(0, inf)"]),
            ]
        )

    def integer(self):
        if self.size and self.chance(0.7):
            return str(self.size)
        if self.chance(0.03):
            return str(self.pick(BEYOND))
        return str(self.pick(INTEGERS) if self.chance(0.35) else self.rng.randint(-4, 5))

    def one(self, p):
        """A value of a parameter's type, without its list."""
        kind = p.type
        if kind == "Tensor":
            return self.number() if p.number and self.chance(0.4) else self.tensor()
        if kind in ("Scalar",):
            return self.number()
        if kind in ("int", "SymInt"):
            return self.integer()
        if kind == "float":
            return self.pick(FLOATS) if self.chance(0.7) else self.number()
        if kind == "bool":
            return self.pick(["True", "False"])
        if kind == "str":
            own = self.target.strings
            return self.pick(own) if own and self.chance(0.7) else self.pick(STRINGS)
        if kind == "dtype":
            return self.pick(DTYPE_TEXTS)
        if kind == "Device":
            return self.pick(DEVICES)
        if kind == "MemoryFormat":
            return self.pick(FORMATS)
        if kind == "Generator":
            return self.pick(["F.Generator()", "None", "F.default_generator"])
        return self.anything()

    def anything(self):
        if self.size and self.chance(0.6):
            return self.integer()
        return self.pick(
            [
                self.pick(WRONG),
                self.integer(),
                self.number(),
                self.tensor(),
                self.pick(STRINGS),
                self.integers(),
            ]
        )

    def integers(self):
        return Listed([self.integer() for _ in range(self.rng.randrange(4))], self.chance(0.5))

    def value(self, p):
        if not p.list:
            return self.one(p)
        if p.list_size and p.type != "Tensor" and self.chance(0.3):
            return self.one(p)
        n = p.list_size if p.list_size and self.chance(0.7) else self.rng.randrange(5)
        items = [self.one(p) for _ in range(n)]
        if p.optional_items:
            items = ["None" if self.chance(0.2) else x for x in items]
        if p.type == "Tensor" and items and self.chance(0.5):  # mostly alike
            items = [copy.copy(items[0]) for _ in items]
        return Listed(items, self.chance(0.5))

    def index(self, depth=0):
        kinds = ["int", "slice", "none", "dots", "tensor", "mask", "list", "bool", "wrong"]
        kind = self.pick(kinds if depth else [*kinds, "tuple", "tuple", "tuple", "tuple"])
        if kind == "tuple":
            return Listed([self.index(1) for _ in range(self.rng.randrange(5))], True)
        if kind == "slice":
            return f"slice({', '.join(self.pick(['None', self.integer()]) for _ in range(3))})"
        if kind == "tensor":
            return T(
                self.shape(),
                self.pick(["int64", "int32", "uint8", "int8", "float32"]),
                self.layout(),
                self.content(),
                self.rng.randrange(9),
                False,
                -2,
                3,
            )
        if kind == "mask":
            return T(self.shape(), "bool", self.layout())
        if kind == "list":
            return Listed([self.integer() for _ in range(self.rng.randrange(4))])
        return {
            "int": self.integer(),
            "none": "None",
            "dots": "...",
            "bool": self.pick(["True", "False"]),
        }.get(kind) or self.pick(WRONG)

    def layout(self):
        return self.pick(LAYOUTS) if self.chance(0.15) else ""

    def content(self):
        return self.pick(CONTENTS) if self.chance(0.2) else ""

    # ---- calls

    def sampled(self):
        """The arguments of one of the operator's samples, by name."""
        sample = self.pick(self.target.samples)
        dtype = "float32" if self.chance(0.5) else self.pick(DTYPES)
        grad = self.chance(0.3)
        out = {}
        for name, a in sample.items():
            if a["kind"] == "literal":
                text = a["literal"]
                known = text in DTYPES or text.endswith("_format") or text == "channels_last"
                out[name] = "F." + text if known else text
                continue
            own = "int64" if a["index"] else "bool" if a["boolean"] else dtype
            made = []
            for sizes in a["sizes"]:
                self.seed += 1
                made.append(
                    T(tuple(sizes), own, "", "", self.seed, grad and own == dtype, a["low"], a["high"])
                )
            out[name] = made[0] if a["kind"] == "tensor" else Listed(made)
        return out

    def typed(self):
        """Arguments of the right types and no more."""
        left = 0.3 if self.size is None else 0.15
        return {
            p.name: self.value(p) for p in self.target.parameters if p.default is None or self.chance(left)
        }

    def changed(self, x, p):
        """Something like the argument, slightly wrong."""
        if self.chance(0.12):
            return self.pick(WRONG)
        if isinstance(x, Listed) and x.items:
            return self.changed_list(x, p)
        if not isinstance(x, T):
            return self.value(p) if p else self.anything()
        x = copy.copy(x)
        what = self.pick("shape shape dtype layout layout content content grad new".split())
        if what == "shape":
            x.shape = self.changed_shape(list(x.shape))
        elif what == "dtype":
            x.dtype = self.pick(DTYPES)
        elif what == "layout":
            x.layout = self.pick(LAYOUTS)
        elif what == "content":
            x.content = self.pick(CONTENTS)
        elif what == "grad":
            x.grad = not x.grad
        else:
            x = self.tensor()
        return x

    def changed_shape(self, shape):
        what = self.pick("set set insert remove permute all".split())
        k = self.rng.randrange(len(shape) + 1)
        size = self.pick(FAR[:4]) if self.chance(0.1) else self.pick([0, 0, 1, 1, 2, 3, 5])
        if what == "insert" or not shape:
            shape.insert(k, size)
        elif what == "remove":
            del shape[k % len(shape)]
        elif what == "permute":
            self.rng.shuffle(shape)
        elif what == "all":
            shape = [0] * len(shape) if self.chance(0.5) else [1] * len(shape)
        else:
            shape[k % len(shape)] = size
        return tuple(shape)

    def changed_list(self, x, p):
        items, k = list(x.items), self.rng.randrange(len(x.items))
        what = self.pick(["item", "item", "item", "drop", "double", "empty"])
        if what == "item":
            items[k] = self.changed(items[k], None) if isinstance(items[k], T) or not p else self.one(p)
        elif what == "drop":
            del items[k]
        elif what == "double":
            items.insert(k, items[k])
        else:
            items = []
        return Listed(items, x.round)

    def tree(self, number):
        target = self.target
        if not target.path[0].isalpha():
            nodes = [self.anything() if self.chance(0.1) else self.value(p) for p in target.parameters]
            if target.path.startswith("[]"):
                nodes[0:2] = self.tensor(), self.index()
            elif not any(isinstance(x, T) for x in nodes):
                nodes[self.rng.randrange(len(nodes))] = self.tensor()
            return Tree(target.path, [(None, x) for x in nodes], number)
        if target.out and target.samples and self.chance(0.15):
            return self.second_of_two(number)
        given = self.sampled() if target.samples and self.chance(0.8) else self.typed()
        by_name = {p.name: p for p in target.parameters}
        if self.chance(0.3):
            self.spoil(given)
        for _ in range(self.pick([0, 1, 1, 1, 2, 2, 3])):
            name = self.pick(list(by_name)) if by_name else None
            if name is None:
                continue
            if name in given:
                given[name] = self.changed(given[name], by_name[name])
            elif self.chance(0.6):
                given[name] = self.value(by_name[name])
        if self.chance(0.06):
            self.alias(given)
        if given and self.chance(0.03):
            del given[self.pick(list(given))]
        return Tree(target.path, self.placed(given), number)

    def second_of_two(self, number):
        """A call with out= behind one of other sizes: what was made for the first must not serve it."""
        first, second = (self.into(self.resized(self.sampled(), k)) for k in (1, 2))
        return Tree(self.target.path, second, number, Tree(self.target.path, first, number))

    def resized(self, given, more):
        """Equal sizes stay equal."""
        sizes = sorted({s for x in nodes_of(given) for s in x.shape if s})
        if sizes and self.chance(0.8):
            size = self.pick(sizes)
            for x in nodes_of(given):
                x.shape = tuple(s + more if s == size else s for s in x.shape)
        return given

    def into(self, given):
        """The arguments with an out= that takes its size from the result."""
        own = next((x.dtype for x in nodes_of(given)), "float32")
        dtype = own if self.chance(0.8) else self.pick(["bool", "int64", "float64", "complex64"])
        made = [T((0,), "int64" if name == "indices" else dtype) for name in self.target.results]
        out = Listed(made, True) if len(made) > 1 else made[0] if made else T((0,), dtype)
        return [*self.positioned(given), ("out", out)]

    def spoil(self, given):
        """What operators may trip over, in arguments that are right else."""
        tensors = nodes_of(given)
        kind = {p.name: p for p in self.target.parameters}
        what = self.pick("empty dims huge nan place layout overlap overlap".split())
        if what == "empty" and tensors:
            size = self.pick([s for x in tensors for s in x.shape] or [0])
            for x in tensors:
                x.shape = tuple(0 if s == size else s for s in x.shape)
        elif what == "place" and tensors:
            self.pick(tensors).layout = "meta"
            if "device" in kind:
                given["device"] = self.pick(DEVICES)
        elif what == "layout" and tensors:
            self.pick(tensors).layout = self.pick(["sparse_coo", "sparse_csr", "conj", "neg"])
        elif what == "overlap" and tensors and (self.target.writes or self.chance(0.3)):
            tensors[0].layout = self.pick(["expanded", "overlapping"])
        for name, p in kind.items():
            if what == "dims" and name.startswith(("dim", "axis", "start_dim", "end_dim")):
                value = [str(self.rng.randint(-5, -1)) for _ in range(self.pick([1, 1, 2]))]
                given[name] = Listed(value) if p.list else value[0]
            elif what == "huge" and p.type in ("int", "SymInt") and self.chance(0.5):
                value = str(self.pick([*FAR, *(-n for n in FAR), *BEYOND]))
                given[name] = Listed([value] * max(p.list_size, 1)) if p.list else value
            elif what == "nan" and p.type in ("Scalar", "float") and not p.list:
                given[name] = self.pick("nan inf -inf -0.0 1e300".split())

    def alias(self, given):
        """One tensor twice, or with a view of it."""
        tensors = [n for n, x in given.items() if isinstance(x, T)]
        if len(tensors) > 1:
            given[tensors[0]].name = "a"
            given[tensors[1]] = self.view_of(given[tensors[0]])

    def view_of(self, x):
        ways = [".detach()", ".unsqueeze(0)", ".ravel()"]
        if len(x.shape) > 1:
            ways += [".mT", ".transpose(0, -1)"]
        if x.shape and x.shape[0]:
            ways += ["[:1]", "[-1]", "[1:]", "[::2]", "[:1].expand_as(a)"]
        return "a" if x.layout.startswith("sparse") or self.chance(0.5) else View("a", self.pick(ways))

    def placed(self, given):
        """Arguments as they are written, perhaps with out= and too many."""
        out = self.positioned(given)
        if self.target.out and self.chance(0.25):
            out.append(("out", self.out(given)))
        if self.chance(0.01):
            out.append(("nonsense", "1"))
        if self.chance(0.01):
            out.insert(0, (None, self.anything()))
        return out

    def positioned(self, given):
        """Arguments in order: positional as far as that goes or chance has it, then by name."""
        out, positional = [], True
        method = self.target.path.startswith("Tensor.")
        stop = self.rng.randrange(1, 9) if self.chance(0.3) else 99
        called = False
        for k, p in enumerate(self.target.parameters):
            if p.name.startswith("()") and not called:
                called = positional = True
            if p.name not in given:
                positional = False
                continue
            if p.keyword_only or k >= stop:
                positional = False
            if k == 0 and method:
                out.append((None, given[p.name]))
                continue
            name = "input" if p.name == "self" and not positional else p.name
            if not positional and name in PY_KEYWORDS:
                continue
            out.append((("()" if called else None) if positional else name, given[p.name]))
        return out

    def out(self, given):
        tensors = [x for x in given.values() if isinstance(x, T)]
        what = self.pick("empty like other wrong alias list grad".split())
        if what == "empty" or not tensors:
            return T((0,), self.pick(DTYPES))
        if what == "alias":
            tensors[0].name = "a"
            return self.view_of(tensors[0])
        like = T(tensors[0].shape, tensors[0].dtype, self.layout(), "", 0, what == "grad")
        if what == "other":
            return self.tensor()
        if what == "wrong":
            return self.pick(WRONG)
        return Listed([like, copy.copy(like)], True) if what == "list" else like


def nodes_of(given):
    """The tensors among arguments by name, which may be changed."""
    return [y for x in given.values() for y in tensors_of(x)]


def tensors_of(x):
    if isinstance(x, Tree):  # not text, as --call gives it
        return [y for _, a in x.arguments for y in tensors_of(a)]
    if isinstance(x, Listed):
        return [y for a in x.items for y in tensors_of(a)]
    return [x] if isinstance(x, T) else []


ALIKE = set(LAYOUTS) - {"meta", "sparse_coo", "sparse_csr", "parameter", "view"}


def alike(tree, target):
    """The same call as far as values go, if there is one: without out=, for operands elsewhere."""
    if target.random:
        return None
    tensors = tensors_of(tree)
    views = [x for _, x in tree.arguments if isinstance(x, View)]
    repeated = any(x.layout in ("expanded", "overlapping") or math.prod(x.shape) > 1 << 16 for x in tensors)
    if ((target.writes or views) and repeated) or any(x.layout == "meta" for x in tensors):
        return None
    out = [x for n, x in tree.arguments if n == "out"]
    if out and (repeated or not (out[0] == "a" or isinstance(out[0], View) or tensors_of(out[0]))):
        return None
    if not out and not views and not any(x.layout in ALIKE for x in tensors):
        return None
    apart = [(n, dataclasses.replace(x, apart=True) if isinstance(x, View) else x) for n, x in tree.arguments]
    # Without out= another dtype may be meant, which can't require gradients.
    left_out = ("out", "requires_grad") if out else ()
    return Tree(tree.path, [(n, x) for n, x in apart if n not in left_out], tree.number)


def of_dense(tree, target):
    """May the call be made with tensors without memory, for the shapes of its results?"""
    tensors = tensors_of(tree)
    usual = all(x.layout not in ("meta", "sparse_coo", "sparse_csr") for x in tensors)
    return bool(tensors) and usual and not tree.is_module() and not target.random and tree.number % 4 == 0


def draw(rng, target, number):
    return Draw(rng, target).tree(number)


# ---- minimising


def simpler_nodes(x):
    if isinstance(x, Listed):
        for k in range(len(x.items)):
            yield Listed(x.items[:k] + x.items[k + 1 :], x.round)
        for k, item in enumerate(x.items):
            for y in simpler_nodes(item):
                yield Listed([*x.items[:k], y, *x.items[k + 1 :]], x.round)
    if not isinstance(x, T):
        return
    for name, usual in (
        ("grad", False),
        ("layout", ""),
        ("content", ""),
        ("dtype", "float32"),
        ("seed", 0),
        ("low", -2),
        ("high", 2),
    ):
        if getattr(x, name) != usual:
            y = copy.copy(x)
            setattr(y, name, usual)
            yield y
    for k, s in enumerate(x.shape):
        for smaller in dict.fromkeys((None, 1, 2, s // 2)):
            if smaller is None or smaller < s:
                y = copy.copy(x)
                y.shape = x.shape[:k] + (() if smaller is None else (smaller,)) + x.shape[k + 1 :]
                yield y


def simpler(tree):
    """Trees with one thing less, the largest cuts first."""
    for x in simpler_alone(tree):
        x.before = tree.before
        yield x
    if tree.before:
        yield Tree(tree.path, tree.arguments, tree.number)
        for x in simpler_alone(tree.before):
            yield Tree(tree.path, tree.arguments, tree.number, x)


def simpler_alone(tree):
    args = tree.arguments
    named = "".join(str(x) for _, x in args)
    for k in range(len(args) - 1, 0, -1) if tree.path[0].isalpha() else ():  # a sign has all its operands
        yield Tree(tree.path, args[:k] + args[k + 1 :], tree.number)
    for k, (name, x) in enumerate(args):
        if isinstance(x, T) and x.name and named.count(x.name) > 1:
            continue
        for y in simpler_nodes(x):
            yield Tree(tree.path, [*args[:k], (name, y), *args[k + 1 :]], tree.number)
