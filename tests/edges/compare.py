"""What differs between our answer to a call and the recorded one, as lines of one form:

    DTYPE WHAT: OURS for THEIRS at/with WHERE

WHAT is value, gradient of NAME, dtype, shape or error. OURS and THEIRS are nan, inf, -inf, 0, -0 or `finite`;
both as numbers where both are finite, and `... of equal elements` where operators that pick elements picked
others that are equal. WHERE is the operands of that element, for operators that work element by element, else
what was special about the call. The declarations in *.txt name the beginning of such lines.
"""

import contextlib
import re

import numpy as np
from bind import perform
from record import Reader, distance, flat, gradients, leaf, widened
from ways import Wider

import facula

EPS = {
    "float16": 2.0**-10,
    "complex32": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}
SMALLEST |= {
    "complex32": SMALLEST["float16"],
    "complex64": SMALLEST["float32"],
    "complex128": SMALLEST["float64"],
}
# Units in the last place: of results element by element, of others, and of gradients.
ULPS = {"each": 16, "other": 64, "gradient": 64}
ULPS_16 = {"each": 1, "other": 2, "gradient": 2}  # of float16 and bfloat16, rounded once from more
# Types of errors (PyTorch's, ours) that may stand for each other, beside ours being a kind of theirs.
ACCEPTED = {
    ("RuntimeError", "IndexError"),
    ("AcceleratorError", "RuntimeError"),
    ("_LinAlgError", "LinAlgError"),
}
# Operators of which the peer's documentation leaves open which of equal elements are taken.
PICK_ANY = ("sort", "argsort", "topk", "kthvalue", "nanmedian")
LEFT_OPEN = "among equal elements, which its documentation leaves open"


WIDER = {facula.bfloat16: facula.float32, facula.complex32: facula.complex64}  # what NumPy has


def numpy(x):
    x = x.detach()
    return x.to(WIDER.get(x.dtype, x.dtype)).resolve_conj().numpy()


def dtype_of(x):
    return str(x.dtype).split(".")[1]


def word(x):
    """How a number is called: by its class, or as it is."""
    if isinstance(x, (complex, np.complexfloating)):
        return f"({word(x.real)}, {word(x.imag)})"
    if isinstance(x, (bool, np.bool_)):
        return str(bool(x))
    if isinstance(x, (int, np.integer)):
        return str(int(x))
    x = float(x)
    return "nan" if x != x else f"{x:.9g}"


def class_of(x):
    if isinstance(x, (complex, np.complexfloating)):
        return f"({class_of(x.real)}, {class_of(x.imag)})"
    if not isinstance(x, (float, np.floating)):
        return word(x)
    return word(x) if not np.isfinite(x) or x == 0 else "finite"


def said(got, want):
    """`ours for theirs`."""
    a, b = class_of(got), class_of(want)
    return f"{a} for {b}" if a != b else f"{word(got)} for {word(want)}"


def near(got, want, dtype, ulps, scale, zeros):
    """Where they agree."""
    if want.dtype.kind not in "fc":
        return got == want
    if want.dtype.kind == "c":
        part = lambda x: (x.real, x.imag)  # noqa: E731
        magnitude = np.where(np.isfinite(want.real) & np.isfinite(want.imag), np.abs(want), 0)
        with np.errstate(all="ignore"):
            re, im = (
                near_reals(g, w, dtype, ulps, np.maximum(scale, magnitude), zeros)
                for g, w in zip(part(got), part(want))
            )
        # A complex number with an infinite part is infinite, one with a part that is no number else is none
        # (C, annex G): which part it is depends on the peer's vector width.
        infinite = lambda x: np.isinf(x.real) | np.isinf(x.imag)  # noqa: E731
        nan = lambda x: (np.isnan(x.real) | np.isnan(x.imag)) & ~infinite(x)  # noqa: E731
        return (re & im) | (infinite(got) & infinite(want)) | (nan(got) & nan(want))
    return near_reals(got, want, dtype, ulps, scale, zeros)


def near_reals(got, want, dtype, ulps, scale, zeros):
    with np.errstate(all="ignore"):
        g, w = got.astype(np.float64), want.astype(np.float64)
        bound = ulps * (EPS[dtype] * np.maximum(np.abs(w), scale) + SMALLEST[dtype])
        same = (
            (g == w)
            | (np.isnan(g) & np.isnan(w))
            | (np.isfinite(g) & np.isfinite(w) & (np.abs(g - w) <= bound))
        )
    if zeros:
        same &= ~((w == 0) & (g == 0) & (np.signbit(g) != np.signbit(w)))
    return same


def nearer(got, want, truth, zeros):
    """Where ours is no further from the exact number than the peer's, both of which may be none."""
    if want.dtype.kind not in "fc":
        return np.zeros(want.shape, bool)
    exact = truth.astype(np.complex128)
    ours, theirs = (distance(x.astype(np.complex128), exact) for x in (got, want))
    out = np.isfinite(ours) & (ours <= theirs)
    if zeros and want.dtype.kind == "f":
        out &= (got != 0) | (truth != 0) | (np.signbit(got) == np.signbit(truth))
    return out


def scale_of(args, want):
    """The largest magnitude that takes part in a call, within reason: sums round to its last place."""
    out = 0.0
    for x in [*args, want]:
        if x.size and x.dtype.kind != "b":
            integral, x = x.dtype.kind in "iu", np.abs(x.astype(np.complex128))
            x = x[np.isfinite(x) & (integral | (x < 1e4))]
            out = max(out, float(x.max(initial=0)))
    return out


class Comparison:
    def __init__(self, call, data):
        self.call, self.data = call, data
        self.each = call.get("each") and call["form"] != "out"
        self.lines, self.operands = {}, None
        self.picks = False  # whether the second result is where elements of the first were

    def add(self, what, said, where=None):
        where = where or f"with {self.call['label']} #{self.call['group'].split('#')[1]}{self.attributes()}"
        line = f"{self.call['dtype']} {what}: {said} {where}"
        self.lines[line] = self.lines.get(line, 0) + 1

    def attributes(self):
        """The arguments that are no tensors, as `, dim=[]`."""
        plain = {n: v for n, v in self.call["args"].items() if not isinstance(v, dict)}
        return "".join(f", {n}={v}" for n, v in plain.items() if "{" not in str(v))

    def inputs(self):
        """Operands as arrays, by name."""
        if self.operands is None:
            r = Reader(facula, self.data)
            self.operands = {}
            for n, v in self.call["args"].items():
                for k, x in enumerate(flat(r.value(v))):
                    if isinstance(x, facula.Tensor):
                        self.operands[f"{n}[{k}]" if isinstance(v, list) else n] = numpy(x)
        return self.operands

    def where(self, at, shape):
        if not self.each:
            return None
        out = []
        for n, x in self.inputs().items():
            if x.shape != shape:  # the gradient of an operand may be smaller than another
                with contextlib.suppress(ValueError):
                    x = np.broadcast_to(x, shape)
            if x.shape == shape:
                out.append(f"{n}={word(x[at])}")
        for n, v in self.call["args"].items():
            if not isinstance(v, (dict, list)) and self.call["label"].startswith(n + " is"):
                out.append(f"{n}={v!r}")
        return "at " + ", ".join(out) if out else None

    def among_equals(self, got, want, dtype, gradient):
        """Where both are about elements of `self` along `dim` that are equal; None if neither is."""
        x, dim = self.inputs().get("self"), self.call["args"].get("dim", -1)
        if not self.picks or x is None or not x.ndim or not isinstance(dim, int):
            return None
        same = lambda a, b: (a == b) | ((a != a) & (b != b))  # noqa: E731
        if gradient:  # the sums over equal elements agree
            x, g, w = (np.moveaxis(a, dim, -1).astype(np.float64) for a in (x, got, want))
            equal = same(x[..., :, None], x[..., None, :])
            with np.errstate(all="ignore"):
                g, w = ((equal * a[..., None, :]).sum(-1) for a in (g, w))
            out = near_reals(g, w, dtype, 64, np.abs(w).max(initial=1), False)
            return np.moveaxis(out, -1, dim)
        if want.dtype.kind != "i":
            return None
        keep = want.ndim == x.ndim
        at = [a if keep else np.expand_dims(a, dim) for a in (got, want)]
        if any(((a < 0) | (a >= x.shape[dim])).any() for a in at):
            return None
        ours, theirs = (np.take_along_axis(x, a, dim) for a in at)
        return same(ours, theirs) if keep else same(ours, theirs).squeeze(dim)

    def tensor(self, what, got, t, reader, gradient=False, unset=(), exact=None):
        """`unset`: numbers of elements where the peer gave what was in memory; NaN of ours is right there.
        `exact`: what it gives in a wider dtype; elements that are nearer to that agree.
        """
        if "any" in t:
            return
        if "value" in t:
            want = reader.value(t["value"])
            if not (type(got) is type(want) and (got == want or (got != got and want != want))):
                self.add(what, f"{got!r:.40} for {want!r:.40}")
            return
        if not isinstance(got, facula.Tensor):
            return self.add(what, f"a {type(got).__name__} for a tensor")
        if dtype_of(got) != t["T"]:
            return self.add("dtype", f"{dtype_of(got)} for {t['T']}")
        if list(got.shape) != t["shape"]:
            return self.add("shape", f"{list(got.shape)} for {t['shape']}")
        if "at" not in t:
            return
        dtype, want = t["T"], widened(t["T"], reader.array(t)).reshape(t["shape"])
        got = numpy(got)
        ulps = (ULPS_16 if dtype in ("float16", "bfloat16", "complex32") else ULPS)[
            "gradient" if gradient else "each" if self.each else "other"
        ]
        scale = 0.0 if self.each else scale_of(self.inputs().values(), want)
        same = near(got, want, dtype, ulps, scale, self.each and not gradient)
        if unset:
            same.reshape(-1)[unset] |= np.isnan(got.reshape(-1)[unset])
        if exact and "at" in exact and not same.all():
            truth = widened(exact["T"], reader.array(exact)).reshape(t["shape"])
            same |= nearer(got, want, truth, self.each and not gradient)
        if same.all():
            return
        equals = self.among_equals(got, want, dtype, gradient)
        for at in np.argwhere(~same):
            at = tuple(int(i) for i in at)
            text = said(got[at], want[at]) + (
                " of equal elements" if equals is not None and equals[at] else ""
            )
            self.add(what, text, self.where(at, want.shape))


def leaves(call):
    """Names of the tensors that gradients are taken of, in order."""
    out = []

    def visit(n, v):
        if isinstance(v, list):
            for k, x in enumerate(v):
                visit(f"{n}[{k}]", x)
        elif isinstance(v, dict) and v.get("g"):
            out.append(n)

    for n, v in call["args"].items():
        visit(n, v)
    return out


def arguments(call, data, with_gradient=False):
    r = Reader(facula, data, leaf if with_gradient else None)
    return {n: r.value(v) for n, v in call["args"].items()}, r


def our_call(record, answer, call, data, with_gradient=False):
    facula.manual_seed(0)
    args, r = arguments(call, data, with_gradient)
    return perform(facula, answer["plan"], call["form"], args, record["positional"]), r


class Ours:
    """What Facula gives for a call; computed when it is asked for, once for all answers of the peer."""

    def __init__(self, record, answer, call, data):
        self.given = record, answer, call, data
        self.kept = {}

    def once(self, what, make):
        if what not in self.kept:
            try:
                self.kept[what] = make(), None
            except Exception as e:  # noqa: BLE001
                self.kept[what] = None, e
        return self.kept[what]

    def results(self):
        """(results, the error or None)."""
        return self.once("results", lambda: our_call(*self.given)[0])

    def gradients(self):
        """(gradients or None where there are none, the error or None)."""

        def make():
            got, reader = our_call(*self.given, with_gradient=True)
            return gradients(facula, got, reader.leaves)

        return self.once("gradients", make)


def text_of(e):
    return " ".join(str(e).split())[:90]


def taken_in_another_dtype(record, call):
    """Whether the peer answers the ordinary call of this template in some dtype."""
    template = call["group"].split("#")[1]
    return any(
        c["label"] == "ordinary" and c["group"].split("#")[1] == template and "results" in a
        for c, a in zip(record["calls"], record["answers"])
    )


def kinds_of(e):
    return [t.__name__ for t in type(e).__mro__]


def crashed(answer):
    """Whether the peer ended, hung, or stopped at an assertion of its own, which it says is a bug of its."""
    return "crash" in answer or ("error" in answer and "INTERNAL ASSERT FAILED" in answer["text"])


def compare(record, call, answer, data):
    """(status, lines): equal, elsewhere (equal to what the peer answers in another way: `lines` names it),
    rounded (to its answer in a wider dtype), nearer (where it differs, to that), wider (we answer where
    the peer does not take the dtype), crash (the peer does), unset (equal but where the peer sets no result),
    none, different.
    """
    if "absent" in answer:
        return "none", {}
    if crashed(answer):  # ours must give some answer, or an error
        try:
            our_call(record, answer_plan(record, call), call, data)
        except Exception:  # noqa: BLE001
            pass
        return "crash", {}
    ours = Ours(record, answer, call, data)
    unset = {"unset": answer["unset"]} if "unset" in answer else None
    answer = {k: v for k, v in answer.items() if k != "unset"}
    status, lines = against(ours, record, call, answer, data)
    if status == "different":
        others = sorted(answer.get("elsewhere", ()), key=lambda x: x["way"] == Wider.name)
        for other in others:
            if against(ours, record, call, other, data)[0] == "equal":
                return ("rounded" if other["way"] == Wider.name else "elsewhere"), {other["way"]: 1}
        if left_open(record, call, lines):
            return "elsewhere", {LEFT_OPEN: 1}
        if others and others[-1]["way"] == Wider.name:
            if against(ours, record, call, answer, data, others[-1])[0] == "equal":
                return "nearer", {}
        if unset and any(
            against(ours, record, call, {**x, **unset}, data)[0] == "equal" for x in [answer, *others]
        ):
            return "unset", {}
    return status, lines


def left_open(record, call, lines):
    """Whether all that differs is which of equal elements were taken, where the peer promises none."""
    return (
        record["base"] in PICK_ANY
        and not call["args"].get("stable")
        and all(re.search(r" of equal elements (at|with) ", line) for line in lines)
    )


def against(ours, record, call, answer, data, exact=None):
    """One answer of the peer: (status, lines), the answer as a whole: equal in every result and gradient, or,
    with `exact`, nearer to that answer.
    """
    c = Comparison(call, data)
    got, e = ours.results()
    if e is not None:
        kind = type(e).__name__
        if "error" not in answer:
            c.add("error", f"{kind} ({text_of(e)}) for a result")
        elif answer["error"] not in kinds_of(e) and (answer["error"], kind) not in ACCEPTED:
            c.add("error", f"{kind} ({text_of(e)}) for {answer['error']} ({answer['text'][:90]})")
        return ("different" if c.lines else "equal"), c.lines
    if "error" in answer:
        if call["label"] == "ordinary" and taken_in_another_dtype(record, call):
            return "wider", {}
        c.add("error", f"a result for {answer['error']} ({answer['text'][:110]})")
        return "different", c.lines
    wanted, truths = answer["results"], exact and exact["results"]
    if len(got) != len(wanted):
        c.add("value", f"{len(got)} results for {len(wanted)}")
        return "different", c.lines
    reader = Reader(facula, data)
    c.picks = len(wanted) == 2 and wanted[1].get("T") == "int64"
    for k, (x, t) in enumerate(zip(got, wanted)):
        unset = answer["unset"][k] if "unset" in answer else ()
        what = f"value {k}" if len(wanted) > 1 else "value"
        c.tensor(what, x, t, reader, unset=unset, exact=truths and truths[k])
    if "gradients" in answer:
        compare_gradients(c, ours, answer, reader, exact and exact["gradients"])
    return ("different" if c.lines else "equal"), c.lines


def compare_gradients(c, ours, answer, reader, truths):
    names = leaves(c.call)
    grads, e = ours.gradients()
    if e is not None:
        return c.add("gradient", f"{type(e).__name__} ({text_of(e)}) for a gradient")
    none = [None] * len(names)
    for n, g, t, exact in zip(names, grads or none, answer["gradients"], truths or none):
        if t is None or g is None:
            zero = t is None or not widened(t["T"], reader.array(t)).any()
            if not (zero and (g is None or not numpy(g).any())):
                given, theirs = ("none" if x is None else "one" for x in (g, t))
                c.add(f"gradient of {n}", f"{given} for {theirs}")
        else:
            c.tensor(f"gradient of {n}", g, t, reader, gradient=True, exact=exact)


def answer_plan(record, call):
    """How another call of the group is made, for one that the peer could not answer."""
    for other, answer in zip(record["calls"], record["answers"]):
        if other["group"] == call["group"] and "plan" in answer:
            return answer
    return {"plan": [record["names"][0], "leading"]}
