"""Records PyTorch's behaviour from its own database of operators. Runs where PyTorch is installed:

    python tests/conformance/dump.py OUT.zip [--samples 12] [--elements 2000] [--jobs 2] [--cache FOLDER]
    python tests/conformance/dump.py OUT.zip --compact RECORDING.zip

For each entry of op_db and each dtype: the sample inputs, the results of the function of that name, the
gradients, what the method, the in-place form, the Python operator and the aliases make of it, what `out=`
takes; second derivatives and directional derivatives in double precision; and the calls that must raise with
the type and text of the error. Results that depend on the random state are recorded without values.

Every entry has a member, and every sample that is not recorded is counted with its reason. `--cache` keeps
recordings by what they depend on; `--compact` takes a small part of one for the repository's tests.
"""

import argparse
import collections
import functools
import hashlib
import re
import shutil
import subprocess
import sys
import time
import unittest
import warnings
import zipfile
from itertools import zip_longest
from pathlib import Path

import torch
from record import (
    DTYPES,
    FLOAT8,
    OUT_FORMS,
    Reader,
    Unrecordable,
    Writer,
    along,
    determined,
    find,
    flat,
    gradients,
    leaf,
    out_tensors,
    pack,
    parts,
    second_derivatives,
    tangents,
    tensors,
    unpack,
    weights,
)
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import DecorateInfo

TOO_LARGE = "more elements than a recording holds"
MOST_HOLES = 200
UNINITIALISED = re.compile(r"(new_)?empty|resize")
HIGH = ("float64", "complex128")
SINGLE = ("float32", "complex64")
CHANGE, DRAWS = 4 * 2.0**-23, 4  # of each operand, relatively, and how often
TOLERANCES = {"float16": (1e-5, 1e-3), "bfloat16": (1e-5, 1.6e-2)}  # absolute and relative, by dtype
TOLERANCES |= dict.fromkeys(SINGLE, (1e-5, 1.3e-6)) | dict.fromkeys(HIGH, (1e-7, 1e-7))
EXACT = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "complex64": "complex128"}
# The tests of the database that compare an operator with itself called in another way, the first that says
# something about a dtype wins.
CONSISTENCY = ("test_variant_consistency_eager", "test_noncontiguous_samples")


# Forms, and the test of the database that must pass for PyTorch's own answer to count.
TESTED = {
    "out": ("TestCommon", "test_out"),
    "gradient": ("TestBwdGradients", "test_fn_grad"),
    "gradgrad": ("TestBwdGradients", "test_fn_gradgrad"),
    "jvp": ("TestFwdGradients", "test_forward_mode_AD"),
}


def refuted(op, dtype):
    """The forms that PyTorch's own test of this operator is expected to find wrong."""
    high = torch.complex128 if dtype.is_complex else torch.float64

    def fails(form):
        return any(
            isinstance(d, DecorateInfo)
            and unittest.expectedFailure in d.decorators
            and d.is_active(*TESTED[form], "cpu", high, {})
            for d in op.decorators
        )

    return [form for form in TESTED if fails(form)]


def tolerances(op, dtype):
    """[atol, rtol] that the database grants to the consistency tests of this operator and dtype, or None."""
    for test in CONSISTENCY:
        found = None
        for d in op.decorators:
            if isinstance(d, DecorateInfo):
                if d.cls_name != "TestCommon" and d.cls_name is not None:
                    continue
                if not d.is_active("TestCommon", test, "cpu", dtype, {}):
                    continue
            for t in getattr(d, "decorators", None) or [d]:
                if isinstance(t, toleranceOverride) and dtype in t.d:
                    found = [t.d[dtype].atol, t.d[dtype].rtol]
                if isinstance(t, precisionOverride) and dtype in t.d:
                    found = [t.d[dtype], 0]
        if found:
            return found
    return None


def same(a, b):
    def both(x, y):
        if isinstance(x, torch.Tensor) != isinstance(y, torch.Tensor):
            return False
        if not isinstance(x, torch.Tensor):
            return x == y or (x != x and y != y)
        if x.layout != y.layout or x.shape != y.shape:
            return False
        if x.layout != torch.strided:
            return same(parts(x), parts(y))
        if x.dtype == y.dtype == torch.complex32:
            x, y = torch.view_as_real(x), torch.view_as_real(y)
        if x.dtype == y.dtype == torch.uint64:
            return torch.equal(x, y)
        if x.dtype == y.dtype and str(x.dtype).split(".")[1] in FLOAT8:
            x, y = x.float(), y.float()
        return x.dtype == y.dtype and torch.equal(torch.nan_to_num(x), torch.nan_to_num(y))

    return len(a) == len(b) and all(both(x, y) for x, y in zip(a, b))


def dtype_of(t):
    """Of a tensor as it was recorded."""
    return dtype_of(t["parts"][-1]) if "layout" in t else t.get("T")


def one_line(e):
    return f"{type(e).__name__}: {' '.join(str(e).split())[:90]}"


class Calls(torch.overrides.TorchFunctionMode):
    """Notes the calls of PyTorch's functions that a function of the database makes."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.made.append((func, args, kwargs or {}, result))
        return result


def traced(op, s):
    """(name, args, kwargs) of the one function of PyTorch that the database's own function calls: some of
    its entries have no function of their name, others pass the arguments in another order.
    """
    calls = Calls()
    with calls:
        result = op.op(s.input, *s.args, **s.kwargs)
    made = [c for c in calls.made if c[3] is result]
    name = torch.overrides.resolve_name(made[-1][0]) if made else None
    if made and isinstance(made[-1][0], (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name = f"ops.{made[-1][0]}"
    if not name:
        raise Unrecordable("the database's function is no single call of a public function")
    return name.removeprefix("torch.").removeprefix("functional."), made[-1][1], made[-1][2]


def slope(f):
    """The derivative of f(h) at 0 by differences of fourth order; NaN where two steps disagree."""

    def by(h):
        return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)

    wide, narrow = by(1e-3), by(5e-4)
    return torch.where((wide - narrow).abs() <= 1e-8 * (1 + narrow.abs()), narrow, torch.nan)


def encode(w, args, kwargs):
    return {
        "args": [w.value(torch, x) for x in args],
        "kwargs": {"kwargs": {k: w.value(torch, v) for k, v in kwargs.items()}},
    }


def call(f, w, case, of_leaf=None, seed=0, extra=None):
    r = Reader(torch, w.bytes, of_leaf)
    args, kwargs = r.value(case["args"]), r.value(case["kwargs"])
    torch.manual_seed(seed)
    return args, f(*args, **kwargs, **(extra or {})), r


def sizes(x):
    if isinstance(x, dict):
        return x["n"] if "n" in x else sum(sizes(y) for y in x.values())
    return sum(sizes(y) for y in x) if isinstance(x, list) else 0


class Entry:
    """Records one entry of the database."""

    def __init__(self, op, samples, elements):
        self.op, self.limit, self.elements, self.bound = op, samples, elements, elements
        self.f, self.w = find(torch, op.name), Writer()
        # Whose dtypes: functions of entries for GPUs alone may take the same samples on a CPU.
        self.device = "cpu" if op.supported_dtypes("cpu") else "cuda"
        self.skipped = collections.Counter()
        self.out = {
            "name": op.name,
            "variant": op.variant_test_name,
            "aliases": [
                [a.name.removeprefix("torch."), hasattr(torch.Tensor, a.name.split(".")[-1])]
                for a in op.aliases
            ],
            "tolerances": {},
            "cases": [],
            "errors": [],
        }

    def record(self):
        self.record_dtypes()
        if not self.out["cases"] and TOO_LARGE in self.skipped:
            self.elements *= 30
            self.skipped.clear()
            self.record_dtypes()
        self.record_errors()
        self.out["skipped"] = dict(self.skipped.most_common())
        return pack(self.out, self.w.bytes)

    def record_dtypes(self):
        for name in DTYPES:
            dtype = getattr(torch, name)
            if dtype not in self.op.supported_dtypes(self.device):
                continue
            if t := tolerances(self.op, dtype):
                self.out["tolerances"][name] = t
            self.record_dtype(name, dtype)

    def record_dtype(self, name, dtype):
        differentiable = self.op.supported_backward_dtypes(self.device)
        gradient = self.op.supports_autograd and dtype in differentiable
        try:
            samples = list(self.op.sample_inputs("cpu", dtype, requires_grad=gradient))
        except Exception as e:  # noqa: BLE001  a sample maker of the database that needs what is not installed
            self.skipped[f"no samples in {name}: {one_line(e)}"] += 1
            return
        limit = self.limit if name in ("float32", "float64") else max(2, self.limit // 2)
        for number, k in enumerate(self.choose(samples, limit)):
            at = len(self.w.bytes)
            try:
                case = self.sample(samples[k], name, number)
                if doubtful := refuted(self.op, dtype):
                    case["refuted"] = doubtful
                self.out["cases"].append({"dtype": name, "sample": k, **case})
            except Unrecordable as e:
                del self.w.bytes[at:]
                self.skipped[str(e)] += 1
            except Exception as e:  # noqa: BLE001  PyTorch refuses the database's own sample
                del self.w.bytes[at:]
                self.skipped[one_line(e)] += 1

    def choose(self, samples, limit):
        """Positions of small samples, evenly spread; of the two smallest where all are large."""

        def size(k):
            s = samples[k]
            return sum(x.numel() for x in tensors(torch, [s.input, s.args, list(s.kwargs.values())]))

        small = [k for k in range(len(samples)) if size(k) <= self.elements]
        self.bound = self.elements if small else 10 * self.elements
        small = small or sorted(range(len(samples)), key=size)[:2]
        step = max(1, len(small) / limit)
        return [small[int(k * step)] for k in range(min(limit, len(small)))]

    def sample(self, s, dtype, number):
        w, f, case = self.w, self.f, {}
        try:
            if f is None:
                raise TypeError
            case = encode(w, (s.input, *s.args), s.kwargs)
            self.check_size(case)
            args, result, _ = call(f, w, case)
        except (TypeError, RuntimeError, ValueError, IndexError, AttributeError):
            name, args, kwargs = traced(self.op, s)
            case = {
                "function": name,
                **encode(w, args, kwargs),
                "own": encode(w, (s.input, *s.args), s.kwargs),
            }
            f = find(torch, name)
            self.check_size(case)
            args, result, _ = call(f, w, case)
        outputs = flat(result)
        if sum(o.numel() for o in outputs if isinstance(o, torch.Tensor)) > self.bound:
            raise Unrecordable(TOO_LARGE)
        for o in tensors(torch, outputs):
            self.w.check(torch, o)
        values = self.repeatable(f, case, outputs) and not UNINITIALISED.match(self.op.name)
        memory = {
            x.untyped_storage().data_ptr()
            for x in tensors(torch, args)
            if x.layout == torch.strided and x.numel()
        }
        case["results"] = [self.result(o, values, memory) for o in outputs]
        if values:
            self.changes(case, args)
            self.derivatives(f, case, dtype, number)
            self.exact(f, case, dtype, outputs)
            self.variants(f, case, outputs, s, number)
        return case

    def repeatable(self, f, case, outputs):
        """Whether the results are those for other random numbers as well."""
        for seed in range(1, 8):
            torch.manual_seed(seed)
            before = torch.random.get_rng_state()
            if not same(outputs, flat(call(f, self.w, case, seed=seed)[1])):
                return False
            if torch.equal(torch.random.get_rng_state(), before):
                break  # it draws none
        return True

    def check_size(self, case):
        if sizes(case["args"]) + sizes(case["kwargs"]) > self.bound:
            raise Unrecordable(TOO_LARGE)

    def result(self, o, values, memory):
        if not isinstance(o, torch.Tensor):
            return {"value": self.w.value(torch, o)} if values else {"type": type(o).__name__}
        if not values:
            return {"T": str(o.dtype).split(".")[1], "shape": list(o.shape)}
        t = self.w.tensor(torch, o, span=False)
        if o.layout == torch.strided and o.numel() and o.untyped_storage().data_ptr() in memory:
            t["view"] = 1
        return t

    def changes(self, case, args):
        """Arguments that the function has written."""
        r = Reader(torch, self.w.bytes)
        before = tensors(torch, r.value(case["args"]))
        written = [
            [k, self.w.tensor(torch, a, span=False)]
            for k, (a, b) in enumerate(zip(tensors(torch, args), before))
            if a.shape != b.shape or not same([a], [b])
        ]
        if written:
            case["written"] = written

    def derivatives(self, f, case, dtype, number):
        w, op = self.w, self.op

        def encoded(grads):
            dense = [
                torch.zeros(g.shape, dtype=g.dtype) if g is not None and g._is_zerotensor() else g
                for g in grads
            ]
            return [None if g is None else w.tensor(torch, g, span=False) for g in dense]

        def attempt(key, make):
            try:
                found = make()
                if found is not None and any(x is not None for x in found):
                    case[key] = encoded(found)
            except Exception as e:  # noqa: BLE001  PyTorch has no such derivative
                self.skipped[f"{key}: {one_line(e)}"] += 1

        def after_call(g):
            _, result, r = call(f, w, case, leaf)
            return g(torch, determined(torch, op.name, flat(result)), r.leaves)

        if not any(dtype_of(o) in HIGH + tuple(EXACT) for o in case["results"]):
            return
        attempt("gradients", lambda: after_call(gradients))
        if dtype not in HIGH or number >= 6 or "gradients" not in case:
            return
        if op.supports_gradgrad:
            attempt("second", lambda: after_call(second_derivatives))
        if op.supports_forward_ad:

            def run(r):
                args, kwargs = r.value(case["args"]), r.value(case["kwargs"])
                torch.manual_seed(0)
                return determined(torch, op.name, flat(f(*args, **kwargs)))

            attempt("tangents", lambda: tangents(torch, w.bytes, op.name, case, run))
            self.tangents_by_differences(case, run)
        if dtype == "float64":
            self.second_by_differences(f, case)

    def tangents_by_differences(self, case, run):
        """The directional derivatives by differences of the function: exact where PyTorch's are further off
        than the tolerance.
        """

        @functools.cache
        def at(h):
            return run(Reader(torch, self.w.bytes, along(torch, self.op.name, case, lambda x, d: x + h * d)))

        with torch.no_grad():
            slopes = [t and slope(lambda h, k=k: at(h)[k]) for k, t in enumerate(case.get("tangents", ()))]
        self.differing("tangents", case, slopes)

    def second_by_differences(self, f, case):
        """The second derivatives by differences of gradients, where PyTorch's are no numbers."""
        slopes = []
        for k, t in enumerate(case.get("second", ())):
            x = t and self.dense(t)
            holes = [] if x is None or x.is_complex() else x.isnan().nonzero().tolist()
            slopes.append(x)
            for hole in holes[:MOST_HOLES]:
                x[tuple(hole)] = slope(lambda h, k=k, hole=hole: self.weighted_gradients(f, case, k, hole, h))
        self.differing("second", case, slopes)

    def weighted_gradients(self, f, case, k, element, h):
        """The sum of what second_derivatives differentiates, with h added to one element of leaf k."""
        count = iter(range(k + 1))

        def moved(x):
            if next(count, None) == k:
                x = x.clone()
                x[tuple(element)] += h
            return leaf(x)

        _, result, r = call(f, self.w, case, moved)
        first = gradients(torch, determined(torch, self.op.name, flat(result)), r.leaves)
        return sum((weights(torch, g) * g).sum() for g in first or () if g is not None)

    def dense(self, t):
        """A recorded result as a tensor in the order of its elements."""
        return Reader(torch, self.w.bytes).tensor({**t, "strides": torch.empty(t["shape"]).stride()})

    def differing(self, key, case, truths):
        """Records derivatives by differences where PyTorch's differ from them: its answer says little."""
        found, differ = [], False
        for t, truth in zip(case.get(key, ()), truths):
            found.append(t)
            if truth is None or not truth.numel():
                continue
            theirs = self.dense(t)
            off = ~truth.isnan() & ~torch.isclose(theirs, truth, 5e-8, 5e-8)
            if off.any():
                found[-1] = self.w.tensor(torch, torch.where(off, truth, theirs), span=False)
                differ = True
        if differ:
            case["exact " + key] = found

    def exact(self, f, case, dtype, outputs):
        """The results, arguments that were written, and gradients in double precision, where PyTorch's own
        are further from them than the tolerance, or where the last digits of the operands move them further:
        its answer says little there.
        """
        r = Reader(torch, self.w.bytes)
        operands = (*tensors(torch, r.value(case["args"])), *tensors(torch, r.value(case["kwargs"])))
        if not {dtype, *(str(x.dtype).split(".")[1] for x in operands)} & EXACT.keys():
            return  # all in double precision, or integers
        try:
            given, outs, grads = self.in_double(f, case)
        except Exception:  # noqa: BLE001  no such call in double precision
            return
        written = [(k, t, given[k]) for k, t in case.get("written", ())]
        if self.off([t for _, t, _ in written], [x for _, _, x in written]):
            case["exact written"] = [[k, self.w.tensor(torch, x, span=False)] for k, _, x in written]
        moved = self.spreads(f, case, [*outs, *(grads or ())]) if dtype in SINGLE else []
        recorded = [*case["results"], *(case["gradients"] if grads else ())]
        if self.off(recorded, [*outs, *(grads or ())]) or any(map(self.beyond, recorded, moved)):
            encoded = [self.truth(x, m) for x, m in zip_longest([*outs, *(grads or ())], moved)]
            case["exact"], case["exact gradients"] = encoded[: len(outs)], encoded[len(outs) :]

    def in_double(self, f, case, change=lambda x: x):
        """(tensors among the arguments, results, gradients) of the call with its operands in double
        precision, each of them changed.
        """
        leaves, given = [], []

        def widen(x):
            if isinstance(x, torch.Tensor):
                known = x.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.complex64)
                if not known:
                    return x
                y = change(x.detach().to(torch.complex128 if x.is_complex() else torch.float64))
                return y.requires_grad_(x.requires_grad)
            if isinstance(x, (tuple, list)):
                return type(x)(widen(y) for y in x)
            return (
                getattr(torch, EXACT[str(x).split(".")[1]])
                if isinstance(x, torch.dtype) and str(x).split(".")[1] in EXACT
                else x
            )

        def wide_call(*args, **kwargs):
            args, kwargs = widen(list(args)), {k: widen(v) for k, v in kwargs.items()}
            leaves.extend(x for x in (*tensors(torch, args), *tensors(torch, kwargs)) if x.requires_grad)
            given[:] = tensors(torch, args)
            return f(*args, **kwargs)

        outs = flat(call(wide_call, self.w, case, leaf)[1])
        made = determined(torch, self.op.name, outs)
        return given, outs, gradients(torch, made, leaves) if "gradients" in case else None

    def off(self, recorded, truths):
        """Whether a recorded result is further from the one in double precision than half the tolerance."""
        for t, truth in zip(recorded, truths):
            if t and truth is not None and "layout" in t:
                t, truth = t["parts"][-1], parts(truth)[-1]
            if t is None or not isinstance(truth, torch.Tensor) or "at" not in t:
                continue
            if str(truth.dtype).split(".")[1] not in HIGH:
                continue
            x = self.dense(t).to(truth.dtype)
            atol, rtol = TOLERANCES.get(t["T"], (1e-5, 1.3e-6))
            if not torch.allclose(x, truth.detach(), rtol / 2, atol / 2, equal_nan=True):
                return True
        return False

    def spreads(self, f, case, truths):
        """How far each result in double precision moves, element by element, when every operand changes by
        four epsilons; None where there is no number for it. Algorithms that are backward stable give what is
        right for such operands, no more.
        """
        generator, out = torch.Generator().manual_seed(0), [None] * len(truths)

        def moved(x):
            signs = torch.randint(0, 2, x.shape, generator=generator) * 2 - 1
            return x * (1 + signs * CHANGE)

        for _ in range(DRAWS):
            try:
                _, outs, grads = self.in_double(f, case, moved)
            except Exception:  # noqa: BLE001  operands that are singular otherwise
                return out
            for k, (x, truth) in enumerate(zip([*outs, *(grads or ())], truths)):
                if not isinstance(truth, torch.Tensor) or truth.layout != torch.strided or x is None:
                    continue
                if str(truth.dtype).split(".")[1] not in HIGH or x.shape != truth.shape:
                    continue
                d = torch.nan_to_num((x - truth).detach().abs(), 0, 0, 0)
                out[k] = d if out[k] is None else torch.maximum(d, out[k])
        return out

    def beyond(self, t, spread):
        """Whether operands' last digits move a result by more than half the tolerance."""
        if t is None or spread is None or "at" not in t or t["T"] not in SINGLE:
            return False
        atol, rtol = TOLERANCES[t["T"]]
        return bool((spread > (atol + rtol * self.dense(t).abs()) / 2).any())

    def truth(self, x, spread):
        if not isinstance(x, torch.Tensor):
            return None
        t = self.w.tensor(torch, x, span=False)
        return t if spread is None else {**t, "spread": self.w.tensor(torch, spread, span=False)}

    def variants(self, f, case, outputs, s, number):
        op, w = self.op, self.w
        own = case.get("own", case)  # of methods
        method = getattr(op.method_variant, "__name__", None)
        if method and hasattr(torch.Tensor, method) and f is not getattr(torch.Tensor, method):
            try:
                if same(flat(call(getattr(torch.Tensor, method), w, own)[1]), outputs):
                    case["method"] = method
            except (RuntimeError, TypeError):
                self.skipped["method: takes other arguments"] += 1
        name = getattr(op.inplace_variant, "__name__", "")
        if name.endswith("_") and hasattr(torch.Tensor, name):
            self.in_place(case, own, name)
        operator = getattr(getattr(op, "operator_variant", None), "__name__", None)
        if operator and not s.kwargs and number < 3:
            case["operator"] = operator
        if op.supports_out and number < 2 and "function" not in case:
            self.out_forms(f, case, outputs)

    def in_place(self, case, own, name):
        form = {"name": name}
        try:
            args, result, _ = call(getattr(torch.Tensor, name), self.w, own)
            if result is not args[0]:
                return
            form["result"] = self.w.tensor(torch, args[0], span=False)
        except (RuntimeError, TypeError, IndexError, ValueError) as e:
            if isinstance(e, TypeError):  # another signature
                self.skipped["in-place: takes other arguments"] += 1
                return
            form["error"], form["text"] = type(e).__name__, one_line(e)
        case["inplace"] = form

    def out_forms(self, f, case, outputs):
        """What each way to give `out` does: an error of a type, or results (those of the function are not
        written again)."""
        if not all(isinstance(o, torch.Tensor) for o in outputs):
            return
        kinds = [(tuple(o.shape), o.dtype) for o in outputs]
        forms = {}
        for form in OUT_FORMS:
            out = out_tensors(torch, form, kinds)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(f, self.w, case, extra={"out": out})
            except Exception as e:  # noqa: BLE001
                forms[form] = {"error": type(e).__name__, "text": one_line(e)}
                continue
            forms[form] = [
                {"strides": list(o.stride())}
                if same([o], [r])
                else {**self.w.tensor(torch, o, span=False), "strides": list(o.stride())}
                for o, r in zip(flat(out), outputs)
            ]
        if any("error" not in x for x in forms.values()):
            case["out"] = forms
        else:
            self.skipped["out: takes other arguments"] += 1

    def record_errors(self):
        try:
            errors = list(self.op.error_inputs("cpu")) if self.op.error_inputs_func else []
        except Exception as e:  # noqa: BLE001
            self.skipped[f"no error inputs: {one_line(e)}"] += 1
            return
        for e in errors:
            at, s = len(self.w.bytes), e.sample_input
            try:
                case = encode(self.w, (s.input, *s.args), s.kwargs)
                self.check_size(case)
                if self.f is None:
                    raise Unrecordable("an error of a function without a name")
            except Unrecordable as why:
                del self.w.bytes[at:]
                self.skipped[f"error: {why}"] += 1
                continue
            try:
                call(self.f, self.w, case)
                self.skipped["error: none by the public function"] += 1
            except Exception as error:  # noqa: BLE001
                text = re.sub(r"\s+", " ", str(error))[:300]
                self.out["errors"].append({**case, "error": type(error).__name__, "text": text})


def member(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def record_part(path, a, k, n):
    """Entries k, k + n, ... of the database."""
    torch.set_num_threads(1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
        for op in op_db[k::n]:
            if a.only and not re.fullmatch(a.only, member(op)):
                continue
            torch.manual_seed(0)
            z.writestr(member(op), Entry(op, a.samples, a.elements).record())


def merge(parts, out):
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
        for part in parts:
            with zipfile.ZipFile(part) as y:
                for name in y.namelist():
                    z.writestr(name, y.read(name))
            part.unlink()


def key(a):
    """What a recording depends on."""
    here = Path(__file__).parent
    text = "".join((here / n).read_text() for n in ("dump.py", "record.py"))
    return hashlib.sha256(f"{text}{torch.__version__}{a.samples},{a.elements},{a.only}".encode()).hexdigest()[
        :16
    ]


def compacted(blob, number):
    """The part of an entry that the repository keeps: some small calls in dtypes that take turns."""
    record, data = unpack(blob)
    w = Writer()

    def moved(x):
        if isinstance(x, dict):
            if "at" not in x:
                return {k: moved(v) for k, v in x.items()}
            size = len(Reader(torch, data).array(x).tobytes())
            at = len(w.bytes)
            w.bytes += data[x["at"] : x["at"] + size]
            return {**x, "at": at}
        return [moved(y) for y in x] if isinstance(x, list) else x

    turn = {
        k: i for i, k in enumerate(("int32", "bfloat16", "complex64", "bool", "float16", "uint8", "int64"))
    }
    wanted = {"float32": 2, "float64": 1, "complex128": number % 2}
    wanted |= {d: 1 for d, i in turn.items() if number % len(turn) in (i, (i + 3) % len(turn))}
    kept = []
    for case in sorted(record["cases"], key=lambda c: (len(c.get("out", ())) == 0, sizes(c["args"]))):
        if wanted.get(case["dtype"], 0) and 0 < sizes([case["args"], case["results"]]) <= 150:
            wanted[case["dtype"]] -= 1
            kept.append(case)
    if not kept and record["cases"]:
        smallest = min(record["cases"], key=lambda c: sizes([c["args"], c["results"]]))
        kept += [smallest] if sizes([smallest["args"], smallest["results"]]) <= 2000 else []
    record["cases"] = [moved(c) for c in kept]
    record["errors"] = [moved(c) for c in record["errors"][:4]]
    return pack(record, w.bytes)


def compact(source, out):
    with zipfile.ZipFile(source) as y, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for number, name in enumerate(sorted(y.namelist())):
            info = zipfile.ZipInfo(name)  # no time of day: the same recording gives the same file
            info.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(info, compacted(y.read(name), number))


def record_all(a):
    out = Path(a.out)
    cached = Path(a.cache) / f"conformance-{key(a)}.zip" if a.cache else None
    if cached and cached.exists():
        shutil.copy(cached, out)
        print(f"recorded before: {cached.name}")
        return
    started = time.time()
    parts = [out.with_suffix(f".{k}.part") for k in range(a.jobs)]
    arguments = ["--samples", str(a.samples), "--elements", str(a.elements), "--only", a.only]
    running = [
        subprocess.Popen([sys.executable, __file__, str(p), "--part", f"{k}/{a.jobs}", *arguments])
        for k, p in enumerate(parts)
    ]
    if any([p.wait() for p in running]):
        sys.exit("a recording process failed")
    merge(parts, out)
    if cached:
        cached.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(out, cached)
    print(f"recorded {len(zipfile.ZipFile(out).namelist())} entries in {time.time() - started:.0f} s")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument(
        "--samples", type=int, default=12, help="at most so many of float32 and float64, half of others"
    )
    p.add_argument("--elements", type=int, default=2000, help="leave out samples with more elements")
    p.add_argument("--only", default="", help="a regular expression that names must match as a whole")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--cache", help="a folder that keeps recordings")
    p.add_argument("--compact", metavar="RECORDING", help="write a small part of that recording")
    p.add_argument("--part", help=argparse.SUPPRESS)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    if a.compact:
        compact(a.compact, a.out)
    elif a.part:
        record_part(a.out, a, *map(int, a.part.split("/")))
    else:
        record_all(a)


if __name__ == "__main__":
    main()
