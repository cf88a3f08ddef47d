"""The calls: for every operator that users see and every dtype, derived from what the registry says of it.
Its samples are the templates; what their tensors hold is replaced. A hidden operator is called as the
functions of nn.functional that its definition declares, with their parameters.

The calls of an operator are a list of dicts: "label" and "group" (the dtype and the template: whoever refuses
the group's first call, which is an ordinary one, refuses them all), "form" (call, in place, out), "each" (the
operator works element by element) and "args", by name and as record.Reader reads them.
"""

import inspect
import json
import sys
from math import prod
from pathlib import Path

import numpy as np
import specials
from record import pack
from support.operators import COMPLEX, DTYPES, FLOATING, Case, cases, is_real_tensor, largest, literal, values

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src" / "facula" / "op"))
from generate import PythonForm, parse_schema, python_forms, read_catalog  # noqa: E402

CATALOG = read_catalog(ROOT / "src" / "facula" / "catalog")[1]
FAMILY = {o.full_name: o for o in CATALOG}
# The functions of nn.functional that hidden operators declare, by the name that users write.
PUBLIC = {"nn.functional." + f.name: f for f in python_forms(CATALOG) if "hidden" in f.op.namespaces}
NAMESPACE_BITS = {
    "function": 1,
    "method": 2,
    "nn_functional": 4,
    "fft": 8,
    "linalg": 16,
    "special": 32,
    "hidden": 128,
}
TEMPLATES = 7  # samples of an operator that are taken, those of other attributes first
LARGEST = 200  # elements of a template
# The dtypes in which what does not depend on values is tried: forms, shapes, indices, layouts.
FORMS = ("float32", "int64", "complex64", "bfloat16", "bool")
PIVOTS = ("pivots", "LU_pivots")  # indices as LAPACK gives them
NUMBERS = {
    "floating": [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 2, 0.5, 1e300, True],
    "complex": [np.nan, np.inf, 0.0, -1, 2, 1j, complex(0, np.inf)],
    "integral": [0, 1, -1, 2, 31, 300, -300, 2**31, True, 0.5, 2.5, np.inf],
    "bool": [True, False, 2, 0.5],
}


def kind_of(dtype):
    if dtype in FLOATING:
        return "floating"
    return "complex" if dtype in COMPLEX else "bool" if dtype == "bool" else "integral"


def takes(f, operator):
    """Whether f is a function of Python with the parameters of the operator."""
    schema = parse_schema(operator["schema"], operator["name"])
    names = {"input" if p.name == "self" else p.name for p in schema.parameters}
    return hasattr(f, "__wrapped__") and names <= set(inspect.signature(f).parameters)


def find_names(operator):
    """Names that users may find it by, the likeliest first, as record.find takes them."""
    import facula

    bits, base, out = operator["namespaces"], operator["name"], []
    forms = {n: f.op.full_name for n, f in PUBLIC.items()}
    own = base + ("." + operator["overload"] if operator["overload"] else "")
    for n in (base, *operator["aliases"]):
        # Some are wrapped in Python there.
        if forms.get("nn.functional." + n, own) != own:
            pass  # that function is another operator's
        elif bits & NAMESPACE_BITS["nn_functional"] or hasattr(facula.nn.functional, n):
            out.append("nn.functional." + n)
        for space in ("fft", "linalg", "special"):
            if bits & NAMESPACE_BITS[space] and n.startswith(space + "_"):
                out.append(f"{space}.{n[len(space) + 1 :]}")
        if bits & NAMESPACE_BITS["function"]:
            out.append(n)
        if bits & NAMESPACE_BITS["method"]:
            out.append("Tensor." + n)
        if bits & NAMESPACE_BITS["hidden"] and takes(getattr(facula, n, None), operator):
            out.append(n)
    return out


class Maker:
    """The calls of one operator, or of a function that it declares (`form`); tensors' bytes go to one buffer,
    equal ones once.
    """

    def __init__(self, case: Case, operator: dict, form: PythonForm | None = None):
        self.case, self.operator, self.form = case, operator, form
        self.schema = parse_schema(case.schema, case.name)
        self.parameters = {p.name: p for p in self.schema.parameters}
        self.written = {n: n for n in self.parameters}  # as users write a parameter -> as the schema does
        if form:
            self.written = form.by_schema()
        self.bytes, self.known, self.calls = bytearray(), {}, []
        self.group = None
        family = FAMILY.get(case.name)
        self.family = family.family if family else "other"

    # ---- encoding

    def store(self, x):
        raw = x.tobytes()
        if raw not in self.known:
            self.known[raw] = len(self.bytes)
            self.bytes += raw
        return self.known[raw]

    def tensor(self, x, dtype, leaf=True, stepped=False):
        """As Writer.tensor encodes one. `stepped`: every other element of memory with zeros between."""
        x = np.asarray(x)
        shape = x.shape
        x = np.ascontiguousarray(x, specials.numpy_dtype(dtype)).reshape(shape)
        strides, n = [], 1
        for s in reversed(shape):
            strides.insert(0, n)
            n *= max(s, 1)
        flat = x.reshape(-1)
        if stepped and x.ndim and x.size:
            room = np.zeros(2 * x.size - 1, x.dtype)
            room[::2] = flat
            flat, strides = room, [2 * s for s in strides]
        if dtype == "bfloat16":
            flat = (flat.view(np.uint32) >> 16).astype(np.uint16).view(np.int16)
        out = {"T": dtype, "shape": list(shape), "strides": strides, "at": self.store(flat), "n": flat.size}
        if leaf and kind_of(dtype) in ("floating", "complex"):
            out["g"] = 1
        return out

    def value(self, v):
        if isinstance(v, complex):
            return {"complex": [v.real, v.imag]}
        if isinstance(v, tuple):
            return {"tuple": [self.value(x) for x in v]}
        if isinstance(v, list):
            return [self.value(x) for x in v]
        return v

    def literal(self, text, name):
        if text in DTYPES:
            return {"attribute": text}
        if text in ("contiguous_format", "channels_last", "preserve_format"):
            return {"attribute": text}
        v = literal(text, None)
        if self.form and self.parameters[name].list_size and isinstance(v, list) and len(v) == 1:
            v = v[0]  # one number for all dimensions, which users write so
        return self.value(v)

    # ---- templates

    def templates(self):
        """Numbers of samples: one of each set of attributes, the smallest; then others."""
        chosen, seen = [], set()
        for number, s in sorted(enumerate(self.case.samples), key=lambda x: (abs(largest(x[1]) - 12), x[0])):
            if largest(s) > LARGEST or (largest(s) == 0 and any(a["kind"] != "literal" for a in s.values())):
                continue
            key = json.dumps(
                [(n, a["literal"]) if a["kind"] == "literal" else (n, len(a["sizes"])) for n, a in s.items()]
            )
            if key in seen:
                continue
            seen.add(key)
            chosen.append(number)
        return chosen[:TEMPLATES]

    def contents(self, number, dtype):
        """What the sample gives: arrays, lists of arrays, and literals' text."""
        out = {}
        for name, a in self.case.samples[number].items():
            if a["kind"] == "literal":
                out[name] = a["literal"]
                continue
            arrays = [values(self.case.name, number, name, k, a, dtype) for k in range(len(a["sizes"]))]
            out[name] = arrays[0] if a["kind"] == "tensor" else arrays
        return out

    def own(self, number, name, dtype):
        a = self.case.samples[number][name]
        if a["index"] and name in PIVOTS:
            return "int32"
        return "int64" if a["index"] else "bool" if a["boolean"] else dtype

    def add(self, label, number, dtype, contents, form="call", stepped=False, replaced=(), more=()):
        """One call; `replaced`: arguments by name, encoded already, `more`: of the form's own parameters."""
        args = {}
        for key, name in self.written.items():
            if name in replaced:
                args[key] = replaced[name]
            elif name in contents:
                x = contents[name]
                if isinstance(x, str):
                    args[key] = self.literal(x, name)
                else:
                    own = self.own(number, name, dtype)
                    leaf = own == dtype and not self.parameters[name].written
                    args[key] = (
                        [self.tensor(y, own, leaf, stepped) for y in x]
                        if isinstance(x, list)
                        else self.tensor(x, own, leaf, stepped)
                    )
        args.update(more)
        call = {"label": label, "group": self.group, "dtype": dtype, "form": form, "args": args}
        if self.each:
            call["each"] = 1
        self.calls.append(call)

    # ---- what is tried

    def make(self, dtypes=None):
        templates = self.templates()
        element_wise = {n: self.element_wise(n) for n in templates}
        for dtype in dtypes or DTYPES:
            for order, number in enumerate(templates):
                self.group, self.each = f"{dtype}#{number}", element_wise[number]
                contents = self.contents(number, dtype)
                self.add("ordinary", number, dtype, contents)
                if element_wise[number]:
                    self.element_wise_calls(number, dtype, contents, first=order == 0)
                else:
                    self.placed_calls(number, dtype, contents, first=order < 2)
                    self.shape_calls(number, dtype, contents)
                if order == 0:
                    self.number_calls(number, dtype, contents, element_wise[number])
                self.index_calls(number, dtype, contents)
                if order == 0 and dtype in FORMS:
                    self.attribute_calls(number, dtype, contents)
                    self.form_calls(number, dtype, contents)
        return self

    def real_names(self, number):
        return [n for n, a in self.case.samples[number].items() if is_real_tensor(a)]

    def element_wise(self, number):
        """Whether result i depends on the operands' elements i alone: true of every pointwise operator,
        found by trial for others.
        """
        sample = self.case.samples[number]
        tensors = [n for n, a in sample.items() if a["kind"] != "literal"]
        if self.case.kind == "pointwise":
            return all(sample[n]["kind"] == "tensor" for n in tensors)
        if (
            self.case.kind not in ("composite", "procedure", "loop")
            or self.case.random
            or self.case.writes
            or not tensors
            or any(sample[n]["kind"] != "tensor" or sample[n]["index"] for n in tensors)
        ):
            return False
        import facula._C as C

        import facula as F

        rng = np.random.default_rng(1)
        dtype = "float32" if "float32" in self.case.dtypes else "int64"
        args = {n: literal(a["literal"], F) for n, a in sample.items() if a["kind"] == "literal"}

        def call(arrays):
            r = getattr(C.ops, self.case.base)(
                **args,
                **{
                    n: F.tensor(x) if sample[n]["boolean"] else F.tensor(x).to(getattr(F, dtype))
                    for n, x in arrays.items()
                },
            )
            if isinstance(r, (tuple, list)) or not isinstance(r, F.Tensor):
                raise TypeError
            return r.to(F.float64).numpy()

        def draw(n):
            low, high = (0, 1) if sample[n]["boolean"] else (sample[n]["low"], sample[n]["high"])
            x = rng.uniform(low, high, 5)
            return x > 0.5 if sample[n]["boolean"] else x

        try:
            arrays = {n: draw(n) for n in tensors}
            whole = call(arrays)
            if whole.shape != (5,):
                return False
            parts = [call({n: x[k : k + 1].copy() for n, x in arrays.items()}) for k in range(5)]
        except Exception:  # noqa: BLE001  a vector is no operand of it
            return False
        return all(p.shape == (1,) for p in parts) and np.allclose(np.concatenate(parts), whole)

    def branches(self, number):
        """Numbers that the body compares with, and that the sample and the schema's defaults give it."""
        out = self.compared(number)
        given = {n: a["literal"] for n, a in self.case.samples[number].items() if a["kind"] == "literal"}
        for p in self.schema.parameters:
            text = given.get(p.name, p.default)
            if p.type in ("Scalar", "float", "Tensor") and text not in (None, "None") and not p.list:
                try:
                    v = literal(text, None)
                except (NameError, SyntaxError):
                    continue
                if isinstance(v, (int, float)) and not isinstance(v, bool) and np.isfinite(v):
                    out += [float(v), -float(v)]
        return out

    def compared(self, number):
        """What the registry tells of the definition's comparisons; composites have none."""
        import facula._C as C

        import facula as F

        args = {}
        for n, a in self.case.samples[number].items():
            args[n] = literal(a["literal"], F) if a["kind"] == "literal" else F.ones(2, dtype=F.float64)
            if a["kind"] != "literal" and a["boolean"]:
                args[n] = F.ones(2, dtype=F.bool)
        try:
            found = C.inspect_branches(self.case.name, **args)
        except (RuntimeError, TypeError):
            return []
        return sorted({float(v) for v in found if np.isfinite(v)})[:24]

    def element_wise_calls(self, number, dtype, contents, first):
        names = [n for n in contents if not isinstance(contents[n], str)]
        branches = self.branches(number)
        own = {n: self.own(number, n, dtype) for n in names}
        free = [n for n in names if own[n] == dtype]
        pick = {1: lambda: specials.alone(dtype, branches), 2: lambda: specials.paired(dtype, branches)}
        numbers = pick.get(len(free), lambda: specials.many(dtype))()
        sets = [numbers if n in free else np.array([False, True]) for n in names]
        if prod(len(s) for s in sets) > 6000:
            sets = [s[:6] for s in sets]
        grid = [g.reshape(-1) for g in np.meshgrid(*sets, indexing="ij")] if sets else []
        full = dict(zip(names, grid))

        def tried(label, arrays, **kw):
            self.add(label, number, dtype, {**contents, **arrays}, **kw)

        tried("specials", full)
        if specials.numpy_dtype(dtype).kind in "iu" and len(free) > 1:
            low = np.iinfo(dtype).min
            last, others = full[free[-1]], [full[n] for n in free[:-1]]
            for label, keep in (
                ("specials, divisor not 0", last != 0),
                ("specials, no overflow", (last > 0) & np.all([x != low for x in others], axis=0)),
                (
                    "specials, small",
                    (last >= 0) & (last < 4) & np.all([abs(x.astype(float)) < 4 for x in others], axis=0),
                ),
            ):
                tried(label, {n: x[keep] for n, x in full.items()})
        if not first or dtype not in FORMS:
            return
        tried("specials, stepped", full, stepped=True)
        for label, shape in (("empty", (0,)), ("empty rows", (2, 0, 3)), ("0-d", ()), ("one element", (1,))):
            tried(label, {n: np.resize(x, prod(shape)).reshape(shape) for n, x in full.items()})
        if len(names) > 1:
            tried(
                "0-d beside a vector",
                {n: x if k else x[-1].reshape(()) for k, (n, x) in enumerate(full.items())},
            )

    def number_calls(self, number, dtype, contents, element_wise):
        """Python numbers for `Scalar`s, and for tensors that may be one."""
        tensors = [n for n in contents if not isinstance(contents[n], str)]
        for p in self.schema.parameters:
            scalar = p.type == "Scalar" and not p.list
            beside = p.number and len(tensors) > 1
            attribute = p.type == "float" and not p.list and dtype in ("float32", "float64")
            if not (scalar or beside or attribute):
                continue
            arrays = {}
            if element_wise:
                for n in tensors:
                    own = self.own(number, n, dtype)
                    arrays[n] = specials.paired(own) if n != p.name else None
                arrays = {n: x for n, x in arrays.items() if x is not None}
                # Operands beside each other: the shorter ones repeated.
                longest = max((len(x) for x in arrays.values()), default=0)
                arrays = {n: np.resize(x, longest) for n, x in arrays.items()}
            numbers = NUMBERS[kind_of(dtype)] if not attribute else [np.nan, np.inf, 0.0, -1.0, 1.0, 1e300]
            if not tensors:  # it may be the size of a result
                numbers = [v for v in numbers if not 1000 < abs(v) < 1e30]
            for v in numbers:
                self.add(
                    f"{p.name} is the number {v!r}",
                    number,
                    dtype,
                    {**contents, **arrays},
                    replaced={p.name: self.value(v)},
                )

    def placed_calls(self, number, dtype, contents, first):
        for name in self.real_names(number):
            given = contents[name]
            arrays = given if isinstance(given, list) else [given]
            item = len(arrays) - 1
            if not arrays:
                continue
            x = np.array(arrays[item], specials.numpy_dtype(dtype))
            if x.size == 0:
                continue

            def put(label, y, name=name, given=given, item=item):
                y = [*given[:item], y] if isinstance(given, list) else y
                self.add(f"{name}: {label}", number, dtype, {**contents, name: y})

            places = {0, x.size // 2, x.size - 1} if name == self.real_names(number)[0] else {x.size // 2}
            for what, v in specials.placed(dtype):
                for at in sorted(places if what in ("nan", "inf", "-inf") and first else [x.size // 2]):
                    y = x.copy()
                    y.reshape(-1)[at] = v
                    put(f"{what} at {at}", y)
            if kind_of(dtype) == "floating" and x.size > 2:
                y = x.copy()
                y.reshape(-1)[0], y.reshape(-1)[-1] = np.inf, np.nan
                put("inf and nan", y)
            for what, f in specials.wholes(dtype):
                put(what, f(x.size).reshape(x.shape))
            if self.family == "linalg" and x.ndim >= 2 and kind_of(dtype) in ("floating", "complex"):
                for what, f in specials.matrices(dtype):
                    put(what, f(x.shape))

    def shape_calls(self, number, dtype, contents):
        """The template with a dimension of nothing, of one element, and without dimensions."""
        if dtype not in ("float32", "int64", "complex64"):
            return
        tensors = {n: x for n, x in contents.items() if not isinstance(x, str)}
        shapes = {s for x in tensors.values() for y in (x if isinstance(x, list) else [x]) for s in y.shape}

        def cut(f):
            def one(y):
                shape = f(y.shape)
                return np.resize(y, shape) if y.size and prod(shape) else np.zeros(shape, y.dtype)

            return {n: [one(y) for y in x] if isinstance(x, list) else one(x) for n, x in tensors.items()}

        for size in sorted(shapes):
            self.add(
                f"sizes {size} as 0",
                number,
                dtype,
                {**contents, **cut(lambda s, size=size: tuple(0 if n == size else n for n in s))},
            )
        self.add("one element", number, dtype, {**contents, **cut(lambda s: (1,) * len(s))})
        self.add("0-d", number, dtype, {**contents, **cut(lambda s: ())})
        self.add("stepped", number, dtype, contents, stepped=True)

    def index_calls(self, number, dtype, contents):
        if dtype not in ("float32", "int64"):
            return
        for name, a in self.case.samples[number].items():
            if a["kind"] == "literal":
                continue
            given = contents[name]
            x = given if not isinstance(given, list) else given[-1] if given else np.zeros(0)
            if not x.size:
                continue
            trials = []
            if a["boolean"]:
                trials = [("all false", np.zeros_like(x)), ("all true", np.ones_like(x))]
            elif a["index"]:
                high = int(a["high"])
                for what, v in (
                    ("at the end", high),
                    ("-1", -1),
                    ("at the other end", -high),
                    ("below it", -high - 1),
                    ("largest", 2**63 - 1),
                    ("lowest", -(2**63)),
                ):
                    y = x.copy()
                    y.reshape(-1)[-1] = v
                    trials.append((what, y))
                trials.append(("repeated", np.full_like(x, int(a["low"]))))
            for what, y in trials:
                y = [*given[:-1], y] if isinstance(given, list) else y
                self.add(f"{name}: {what}", number, dtype, {**contents, name: y})
            if a["index"]:
                for other in ("int32", "uint8", "float32", "bool"):
                    encoded = [
                        self.tensor(y, other, False) for y in (given if isinstance(given, list) else [given])
                    ]
                    self.add(
                        f"{name} of {other}",
                        number,
                        dtype,
                        contents,
                        replaced={name: encoded if isinstance(given, list) else encoded[0]},
                    )

    def attribute_calls(self, number, dtype, contents):
        """Dimensions that are not there, and given twice."""
        tensors = [x for x in contents.values() if not isinstance(x, str)]
        if not tensors:
            return
        rank = np.ndim(tensors[0][0] if isinstance(tensors[0], list) and tensors[0] else tensors[0])
        for p in self.schema.parameters:
            if not p.name.startswith(("dim", "axis", "start_dim", "end_dim")) or p.type not in (
                "int",
                "SymInt",
            ):
                continue
            trials = (
                [[rank], [-rank - 1], [0, 0], [0, -rank], [-1], []] if p.list else [rank, -rank - 1, -1, 0]
            )
            for v in trials:
                self.add(f"{p.name} is {v}", number, dtype, contents, replaced={p.name: v})

    def form_calls(self, number, dtype, contents):
        if self.form:
            for own in ("inplace", "return_indices"):
                if self.form.own(own):
                    self.add(f"{own}=True", number, dtype, contents, more={own: True})
            if self.form.own("out"):
                self.add("out", number, dtype, contents, form="out")
            return
        if self.case.in_place:
            self.add("in place", number, dtype, contents, form="in place")
            self.add("in place, stepped", number, dtype, contents, form="in place", stepped=True)
        if self.case.out:
            self.add("out", number, dtype, contents, form="out")


def record(case, operator, form=None, dtypes=None):
    m = Maker(case, operator, form).make(dtypes)
    positional = [p.name for p in m.schema.parameters if not p.keyword_only]
    if form:
        names = list(form.defaults)
        positional = names[: names.index("*")] if "*" in names else names
    data = {
        "op": case.name,
        "base": case.base,
        "family": m.family,
        "names": ["nn.functional." + form.name] if form else find_names(operator),
        "parameters": list(m.written),
        "results": len(m.schema.results),
        "positional": positional,
        "calls": m.calls,
    }
    return pack(data, m.bytes), len(m.calls)


def operators():
    """(name, case, what the registry says, form or None) of everything that users see: operators by their
    full names, and functions of nn.functional that hidden ones declare.
    """
    import facula._C as C

    facts = {o["name"] + ("." + o["overload"] if o["overload"] else ""): o for o in C.operators()}
    forms = {}
    for name, form in PUBLIC.items():
        forms.setdefault(form.op.full_name, []).append((name, form))
    for c in cases():
        if not c.samples:
            continue
        if not facts[c.name]["namespaces"] & NAMESPACE_BITS["hidden"]:
            if not c.name.startswith("_"):
                yield c.name, c, facts[c.name], None
            continue
        yield from ((name, c, facts[c.name], form) for name, form in forms.get(c.name, ()))
        if (
            not c.name.startswith("_")
            and "nn.functional." + c.base not in PUBLIC
            and find_names(facts[c.name])
        ):
            yield c.name, c, facts[c.name], None
