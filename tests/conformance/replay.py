"""Replays in Facula what dump.py recorded, each entry of the database in a process of its own, and prints
what holds.

    python tests/conformance/replay.py RECORDING.zip|.json [--only REGEX] [--jobs 2] [--limit 120]
        [--report docs/conformance.md] [--open FILE] [--known FILE [--write-known]] [--excuse REASON ...]

A call has forms: the function, the method, the in-place form (which is judged by the tensor itself and by its
memory), the Python operator, `out=`, aliases, the gradient, second derivatives, directional derivatives, and
calls that must raise. Each passes or fails by itself. Results agree within the tolerances of
torch.testing.assert_close, or the larger ones that the database grants to this operator and dtype. A result
that does not, but is nowhere further than PyTorch's from the one in double precision (of derivatives that are
recorded in that alone: by differences), is counted apart as nearer; so is a single-precision one that is no
further from it than it moves when the operands change by four epsilons.

A difference that stays is a line of differences.txt: entry, call, what Facula gives, reason. It excuses that
one answer and no other. `--excuse REASON` appends the failures chosen by --only and --match.

The exit status tells whether every failure is a difference that stays or, with --known, a line of that file.
"""

import argparse
import builtins
import collections
import importlib
import json
import operator
import os
import re
import resource
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import processes
import report
from record import (
    ABSOLUTE,
    FLOAT8,
    Reader,
    determined,
    distance,
    find,
    flat,
    gradients,
    layout,
    leaf,
    out_tensors,
    parts,
    second_derivatives,
    tangents,
    tensors,
    unpack,
    widened,
)

facula = importlib.import_module("torch" if "--peer" in sys.argv else "facula")

DIFFERENCES = Path(__file__).parent / "differences.txt"
# torch.testing.assert_close: absolute and relative tolerance by dtype; 0 for integers and bool.
TOLERANCES = {
    "float16": (1e-5, 1e-3),
    "bfloat16": (1e-5, 1.6e-2),
    "float32": (1e-5, 1.3e-6),
    "float64": (1e-7, 1e-7),
    "complex64": (1e-5, 1.3e-6),
    "complex128": (1e-7, 1e-7),
}
# An error may be of a type that is caught with PyTorch's; this one has no counterpart on a CPU.
ERRORS = {"AcceleratorError": RuntimeError, "LinAlgError": facula.linalg.LinAlgError}
MEMORY = 8 << 30  # what a process may take
# Numbers of an error's text that are no sizes: which argument it was, and what other arguments were given.
NO_SIZES = re.compile(r"#\d+|position \d+|\b\w+ ?= ?-?\d+")
C_NAMES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}


WIDER = {facula.bfloat16: facula.float32, facula.complex32: facula.complex64}
WIDER |= {getattr(facula, name): facula.float32 for name in FLOAT8}


def numpy(x):
    x = x.detach()
    x = x.to(WIDER.get(x.dtype, x.dtype))
    return x.resolve_conj().numpy()


def dtype_of(x):
    return str(x.dtype).split(".")[1]


def one_line(e, n=160):
    return f"{type(e).__name__}: {' '.join(str(e).split())[:n]}"


def near(got, want, tolerance):
    if not np.issubdtype(got.dtype, np.inexact):
        return got == want
    with np.errstate(all="ignore"):
        return np.isclose(got, want, atol=tolerance[0], rtol=tolerance[1], equal_nan=True)


class Failure(Exception):
    """What differs."""


class Nearer(Failure):
    """Values that differ, each of them no further from the exact result than PyTorch's, or than that moves
    with the last digits of the operands.
    """


def values(x):
    return x if x.layout == facula.strided else parts(x)[-1]


def unchanged(a, b):
    if a.layout != facula.strided:
        return all(map(unchanged, parts(a), parts(b)))
    return near(numpy(a), numpy(b), (0, 0)).all()


def strides_of_interest(strides, shape):
    return [s for s, n in zip(strides, shape) if n > 1]


class Call:
    """One recorded call of one entry: `check(form)` raises Failure."""

    def __init__(self, record, case, data):
        self.record, self.case, self.data = record, case, data
        self.name = case.get("function", record["name"])
        self.f = find(facula, self.name)

    def forms(self):
        c = self.case
        out = ["function"]
        out += ["method"] if "method" in c else []
        out += ["in-place"] if "inplace" in c else []
        out += ["operator"] if "operator" in c else []
        out += ["out"] if "out" in c else []
        out += ["alias"] if c.get("first") and self.record["aliases"] else []
        for form, key in (("gradient", "gradients"), ("gradgrad", "second"), ("jvp", "tangents")):
            out += [form] if key in c else []
        return out

    def check(self, form):
        self.nearer = None  # the first value that is; what comes behind it is looked at all the same
        getattr(self, "check_" + form.replace("-", "_"))()
        if self.nearer:
            raise self.nearer

    def attempt(self, f, of_leaf=None, own=False, **extra):
        """With `own`, of the arguments that the method takes."""
        r, case = Reader(facula, self.data, of_leaf), self.case
        case = case.get("own", case) if own else case
        args, kwargs = r.value(case["args"]), r.value(case["kwargs"])
        facula.manual_seed(0)
        return args, f(*args, **kwargs, **extra), r

    def tolerance(self, *dtypes):
        """The largest of these dtypes: a result may be computed in one and written in another."""
        defaults = [TOLERANCES.get(d, (0, 0)) for d in dtypes]
        granted = [self.record["tolerances"].get(d, (0, 0)) for d in dtypes]
        return tuple(map(max, *defaults, *granted))

    def compare(self, what, got, t, exact=None, computed=None, absolute=False):
        if "type" in t:
            if type(got).__name__ != t["type"]:
                raise Failure(f"{what}a {type(got).__name__} for a {t['type']}")
            return
        if "value" in t:
            want = Reader(facula, self.data).value(t["value"])
            if not (got == want or (got != got and want != want)) or type(got) is not type(want):
                raise Failure(f"{what}{got!r:.40} for {want!r:.40}")
            return
        if not isinstance(got, facula.Tensor):
            raise Failure(f"{what}a {type(got).__name__} for a tensor")
        if "layout" in t:
            self.compare_sparse(what, got, t, exact)
            return
        dtype = dtype_of(got)
        if dtype != t["T"]:
            raise Failure(f"{what}dtype {dtype} for {t['T']}")
        if list(got.shape) != t["shape"]:
            raise Failure(f"{what}shape {list(got.shape)} for {t['shape']}")
        if "at" not in t:
            return
        if t.get("view") and got.numel() > 1:
            a, b = (strides_of_interest(x, t["shape"]) for x in (got.stride(), t["strides"]))
            if a != b:
                raise Failure(f"{what}strides {list(got.stride())} for {t['strides']}")
        self.compare_values(what, numpy(got), t, exact, computed, absolute)

    def compare_sparse(self, what, got, t, exact):
        given = (layout(got), list(got.shape), got.layout == facula.sparse_coo and got.is_coalesced())
        wanted = (t["layout"], t["shape"], bool(t.get("coalesced")))
        if given != wanted:
            raise Failure(f"{what}{given} for {wanted}")
        truths = exact["parts"] if exact else [None] * len(t["parts"])
        for k, (x, y, e) in enumerate(zip(parts(got), t["parts"], truths)):
            self.compare(f"{what}part {k}: ", x, y, e)

    def exact(self, t, k=0):
        """The result in double precision, where it was recorded and is what `t` stands for."""
        exact = (self.case.get("exact") or [None] * (k + 1))[k]
        return exact if exact and exact["shape"] == t["shape"] else None

    def array(self, t):
        return widened(t["T"], Reader(facula, self.data).array(t)).reshape(t["shape"])

    def values(self, t):
        return self.array(t["parts"][-1] if "layout" in t else t)

    def compare_values(self, what, got, t, exact=None, computed=None, absolute=False):
        want = self.array(t)
        if absolute:
            got, want = np.abs(got), np.abs(want)
        good = near(got, want, self.tolerance(t["T"], computed or t["T"]))
        if good.all():
            return
        at = tuple(int(i) for i in np.argwhere(~good)[0])
        digits = 4 if t["T"] in ("float16", "bfloat16") else 6
        show = f"{{:.{digits}g}}" if np.issubdtype(got.dtype, np.inexact) else "{}"
        where = f" at {list(at)}" if at else ""
        nearer = False
        if exact is not None:
            truth = np.abs(self.array(exact)) if absolute else self.array(exact)
            allowed = distance(want, truth)
            if "spread" in exact:
                allowed = np.maximum(allowed, self.array(exact["spread"]))
            nearer = (distance(got, truth) <= allowed)[~good].all()
        found = f"{what}value {show.format(got[at])} for {show.format(want[at])}{where}"
        if not nearer:
            raise Failure(found)
        self.nearer = self.nearer or Nearer(found)

    def absolute(self, k):
        return k in ABSOLUTE.get(self.record["name"], ())

    def compare_all(self, what, got, wanted, exact=()):
        if len(got) != len(wanted):
            raise Failure(f"{what}{len(got)} results for {len(wanted)}")
        exact = exact or [None] * len(wanted)
        for k, (x, t, e) in enumerate(zip(got, wanted, exact)):
            self.compare(
                f"{what}result {k}: " if len(wanted) > 1 else what, x, t, e, absolute=self.absolute(k)
            )

    def check_function(self):
        args, result, r = self.attempt(self.f)
        self.compare_all("", flat(result), self.case["results"], self.case.get("exact"))
        written, exact = (dict(map(tuple, self.case.get(k, ()))) for k in ("written", "exact written"))
        if not written and self.name.endswith("_"):
            return  # without values
        before = tensors(facula, Reader(facula, self.data).value(self.case["args"]))
        for k, (a, b) in enumerate(zip(tensors(facula, args), before)):
            if k in written:
                self.compare(f"argument {k} afterwards: ", a, written[k], exact.get(k))
            elif a.numel() and not unchanged(a, b):
                raise Failure(f"argument {k} is changed")

    def check_method(self):
        name = self.case["method"]
        if not hasattr(facula.Tensor, name):
            raise Failure(f"no method Tensor.{name}")
        got = flat(self.attempt(getattr(facula.Tensor, name), own=True)[1])
        self.compare_all("", got, self.case["results"], self.case.get("exact"))

    def check_operator(self):
        result = self.attempt(getattr(operator, self.case["operator"]))[1]
        self.compare_all("", flat(result), self.case["results"], self.case.get("exact"))

    def check_in_place(self):
        form = self.case["inplace"]
        f = getattr(facula.Tensor, form["name"], None)
        if f is None:
            raise Failure(f"no method Tensor.{form['name']}")
        memory = []

        def call(self_, *args, **kwargs):
            memory.append(self_.untyped_storage().data_ptr())
            return f(self_, *args, **kwargs)

        if "error" in form:
            self.expect_error("", form, lambda: self.attempt(call, own=True))
            return
        args, result, _ = self.attempt(call, own=True)
        if result is not args[0]:
            raise Failure("the result is not the tensor itself")
        self.compare("", args[0], form["result"], self.exact(form["result"]))
        if args[0].numel() and args[0].untyped_storage().data_ptr() != memory[0]:
            raise Failure("the tensor has another memory")
        if list(args[0].stride()) != form["result"]["strides"] and args[0].numel() > 1:
            raise Failure(f"strides {list(args[0].stride())} for {form['result']['strides']}")

    def expect_error(self, what, want, call):
        try:
            call()
        except Exception as e:  # noqa: BLE001
            wanted = ERRORS.get(want["error"]) or getattr(builtins, want["error"], None)
            if type(e).__name__ == want["error"] or (wanted and isinstance(e, wanted)):
                return e
            raise Failure(f"{what}{one_line(e, 70)} for {want['error']} ({want['text'][:70]})") from e
        raise Failure(f"{what}no error for {want['error']} ({want['text'][:90]})")

    def check_out(self):
        kinds = [(tuple(t["shape"]), getattr(facula, t["T"])) for t in self.case["results"]]
        for form, want in self.case["out"].items():
            out, what = out_tensors(facula, form, kinds), f"{form}: "
            outs = flat(out)
            if "error" in want:
                self.expect_error(what, want, lambda out=out: self.attempt(self.f, out=out))
                continue
            before = [o.data_ptr() for o in outs]
            try:
                result = self.attempt(self.f, out=out)[1]
            except Exception as e:  # noqa: BLE001
                raise Failure(f"{what}{one_line(e)}") from e
            if any(a is not b for a, b in zip(flat(result), outs)):
                raise Failure(f"{what}the result is not `out`")
            for k, (o, w, t, address) in enumerate(zip(outs, want, self.case["results"], before)):
                what = f"{form}: result {k}: " if k else f"{form}: "
                wanted = {**(w if "at" in w else t), "view": 1, "strides": w["strides"]}
                exact = self.exact(t, k) or t  # what the function gives is what `out` is to hold
                self.compare(what, o, wanted, exact, t["T"], self.absolute(k))
                if form in ("right", "strided") and o.numel() and o.data_ptr() != address:
                    raise Failure(f"{what}`out` has another memory")
                if form == "strided" and o.numel():
                    rest = o.as_strided(o.shape, o.stride(), o.storage_offset() + 1)
                    if numpy(rest).any():
                        raise Failure(f"{what}writes beside `out`")

    def check_alias(self):
        for name, method in self.record["aliases"]:
            short = name.split(".")[-1]
            for f, what in (
                (find(facula, name), name),
                (getattr(facula.Tensor, short, None), f"Tensor.{short}"),
            ):
                if what.startswith("Tensor.") and not (method and "method" in self.case):
                    continue
                if f is None:
                    raise Failure(f"no {what}")
                got = flat(self.attempt(f, own=what.startswith("Tensor."))[1])
                self.compare_all(f"{what}: ", got, self.case["results"], self.case.get("exact"))

    def compare_gradients(self, got, wanted, exact=()):
        got = got or [None] * len(wanted)
        for k, (g, t, e) in enumerate(zip(got, wanted, exact or [None] * len(wanted))):
            if t is not None and g is not None:
                self.compare(f"of {k}: " if len(wanted) > 1 else "", g, t, e)
                continue
            if not (t is None or not self.values(t).any()) or not (g is None or not numpy(values(g)).any()):
                given, theirs = ("none" if x is None else "one" for x in (g, t))
                raise Failure(f"{given} where PyTorch has {theirs}")

    def check_gradient(self):
        _, result, r = self.attempt(self.f, leaf)
        got = gradients(facula, determined(facula, self.record["name"], flat(result)), r.leaves)
        self.compare_gradients(got, self.case["gradients"], self.case.get("exact gradients"))

    def check_gradgrad(self):
        _, result, r = self.attempt(self.f, leaf)
        got = second_derivatives(facula, determined(facula, self.record["name"], flat(result)), r.leaves)
        self.compare_gradients(got, self.case["second"], self.case.get("exact second"))

    def check_jvp(self):
        def run(r):
            args, kwargs = r.value(self.case["args"]), r.value(self.case["kwargs"])
            facula.manual_seed(0)
            return determined(facula, self.record["name"], flat(self.f(*args, **kwargs)))

        got = tangents(facula, self.data, self.record["name"], self.case, run)
        self.compare_gradients(got, self.case["tangents"], self.case.get("exact tangents"))

    def check_error(self):
        e = self.expect_error("", self.case, lambda: self.attempt(self.f))
        text = str(e)
        if " ".join(text.split())[:300] == self.case["text"]:
            return  # Python's own, of both
        names = [self.record["name"], *(a[0] for a in self.record["aliases"])]
        if not any(n.split(".")[-1].strip("_") in text for n in names):
            raise Failure(f"the error does not name the operator: {one_line(e, 90)}")
        given = tensors(facula, Reader(facula, self.data).value(self.case["args"]))
        theirs = self.case["text"]
        words = set(re.findall(r"\w+", theirs))
        dtypes = {dtype_of(x) for x in given} & (words | {v for k, v in C_NAMES.items() if k in words})
        if dtypes and not any(d in text for d in (*dtypes, *map(dtype_of, given))):
            raise Failure(f"the error shows no dtype ({theirs[:60]}): {one_line(e, 80)}")
        numbers = set(re.findall(r"\d+", NO_SIZES.sub("", theirs)))
        sizes = {str(n) for x in given for n in (*x.shape, x.dim())}
        shown = set(re.findall(r"\d+", text)) & sizes or ("[]" in text and any(not x.dim() for x in given))
        if numbers & sizes and not shown:
            raise Failure(f"the error shows no size ({theirs[:60]}): {one_line(e, 80)}")


def calls(record, data):
    """(Call, where, forms) of an entry."""
    seen = set()
    for case in record["cases"]:
        case["first"] = case["dtype"] not in seen
        seen.add(case["dtype"])
        c = Call(record, case, data)
        yield c, (case["dtype"], f"sample {case['sample']}"), c.forms()
    for k, case in enumerate(record["errors"]):
        yield Call(record, case, data), ("", f"{k}"), ["error"]


def without_calls(record):
    """The answer for an entry that has nothing to call, or None."""
    cases = record["cases"]
    if not cases and not record["errors"]:
        reasons = list(record["skipped"]) or ["no samples on a CPU"]
        return {"status": "unrecordable", "reason": reasons[0], "skipped": record["skipped"]}
    names = {c.get("function", record["name"]) for c in cases} or {record["name"]}
    if not any(find(facula, n) for n in names):
        return {"status": "absent", "calls": len(cases) + len(record["errors"]), "skipped": record["skipped"]}
    return None


def labelled(record, data):
    """(Call, form, what it is counted as, what it is called) of every call, in a fixed order."""
    for c, (dtype, which), forms in calls(record, data):
        for form in forms:
            call = f"{dtype} {which} {form}" if dtype else f"{form} {which}"
            yield c, form, f"{dtype} {form}".strip(), call


def outcome(c, form):
    """None, or what fails or is nearer."""
    try:
        if c.f is None:
            raise Failure(f"no {c.name}")
        c.check(form)
    except Exception as e:  # noqa: BLE001  any error is a finding
        line = str(e) if isinstance(e, Failure) else one_line(e)
        return {"line": line, "nearer": isinstance(e, Nearer)}


def summary(record, data, answers):
    """{"counts": calls by dtype and form, "nearer": of these, "failures": [...]}."""
    counts, nearer, failures = collections.Counter(), collections.Counter(), []
    skipped = collections.Counter(record["skipped"])
    for (c, form, key, call), answer in zip(labelled(record, data), answers):
        if answer and form in c.case.get("refuted", ()) and not answer.get("nearer"):
            skipped[f"{form}: differs, and PyTorch's own test expects it to be wrong"] += 1
            continue
        counts[key] += 1
        if answer and "crash" in answer:
            answer = {"line": answer["crash"], "nearer": False}
        if answer and answer["nearer"]:
            nearer[key] += 1
        elif answer:
            failures.append({"call": call, "line": answer["line"]})
    return {
        "status": "present",
        "counts": counts,
        "nearer": nearer,
        "failures": failures,
        "skipped": skipped,
    }


def replay(path, names, jobs, limit):
    """Yields (name, answer). A call that ends its process or takes more than `limit` seconds has failed."""

    def read(name):
        with zipfile.ZipFile(path) as z:
            return unpack(z.read(name))

    def work(name, done):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        facula.set_num_threads(1)
        for k, (c, form, _, _) in enumerate(labelled(*read(name))):
            if k >= done:
                yield outcome(c, form)

    present = []
    for name in names:
        answer = without_calls(read(name)[0])
        if answer is None:
            present.append(name)
        else:
            yield name, answer
    for name, answers in processes.run(work, present, jobs, limit):
        yield name, summary(*read(name), answers)


def differences(path):
    """{(entry, call, what Facula gives): reason} of a file of differences."""
    lines = [line.split(" | ") for line in path.read_text().splitlines() if line and line[0] != "#"]
    return {(entry, call, given): reason for entry, call, given, reason in lines}


def identity(name, failure):
    return name, failure["call"], " ".join(failure["line"].replace("|", "/").split())


def write(path, known, header):
    lines = [" | ".join((*key, reason)) for key, reason in sorted(known.items())]
    path.write_text("\n".join([*header, *lines]) + "\n")


def header_of(path):
    return [line for line in path.read_text().splitlines() if line.startswith("#")] if path.exists() else []


def chosen(failure, a):
    return not a.match or re.search(a.match, f"{failure['call']}: {failure['line']}")


def options():
    p = argparse.ArgumentParser()
    p.add_argument("recording")
    p.add_argument("--only", default="", help="a regular expression that entries must match as a whole")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--limit", type=float, default=120, help="seconds for a call")
    p.add_argument("--save", help="keep what was found in this file; it can be given as RECORDING.json")
    p.add_argument("--report", help="the file to write, in Markdown")
    p.add_argument("--open", help="write the unexplained failures there, grouped by class")
    p.add_argument("--known", help="a file of failures that are still open: only others count")
    p.add_argument("--write-known", action="store_true", help="write that file")
    p.add_argument("--excuse", metavar="REASON", help="add the chosen failures to differences.txt")
    p.add_argument(
        "--match", help="a regular expression for failures: 'float32 sample 3 function: value ...'"
    )
    p.add_argument("--prune", action="store_true", help="take out of differences.txt what does not happen")
    p.add_argument("--peer", action="store_true", help="replay in PyTorch itself, to test this program")
    p.add_argument("--verbose", action="store_true", help="print every failure")
    return p.parse_args()


def replay_all(a):
    """{entry: answer}, of the recording or as --save left them."""
    if a.recording.endswith(".json"):
        results = json.loads(Path(a.recording).read_text())
        return {n: r for n, r in results.items() if not a.only or re.fullmatch(a.only, n)}
    started, results = time.time(), {}
    with zipfile.ZipFile(a.recording) as z:
        names = [n for n in z.namelist() if not a.only or re.fullmatch(a.only, n)]
    for name, r in replay(a.recording, names, a.jobs, a.limit):
        results[name] = r
        if len(results) % 100 == 0:
            print(f"{len(results)} of {len(names)} entries, {time.time() - started:.0f} s", flush=True)
    return {n: results[n] for n in names}


def main():
    a = options()
    started = time.time()
    results = replay_all(a)
    if a.save:
        Path(a.save).write_text(json.dumps(results))
    stay, known = differences(DIFFERENCES), Path(a.known) if a.known else None
    still_open = []
    for name, r in results.items():
        for failure in r.get("failures", ()):
            failure["reason"] = stay.get(identity(name, failure))
            if not failure["reason"]:
                still_open.append((name, failure))
    if a.excuse:
        added = {identity(n, f): a.excuse for n, f in still_open if chosen(f, a)}
        write(DIFFERENCES, stay | added, header_of(DIFFERENCES))
        print(f"{len(added)} differences added")
        return 0
    if a.write_known:
        header = [
            "# Written by Facula: failures that are still open: entry | call | what Facula gives | open"
        ]
        others = {k: v for k, v in differences(known).items() if k[0] not in results}
        write(known, others | {identity(n, f): "open" for n, f in still_open}, header)
    if a.report:
        Path(a.report).write_text(report.page(results))
    if a.open:
        Path(a.open).write_text(report.classes(still_open))
    print("\n".join(report.tables(results)))
    listed = differences(known) if known else {}
    fresh = [(n, f) for n, f in still_open if identity(n, f) not in listed]
    for name, f in fresh if a.verbose else fresh[:200]:
        print(f"{name} {f['call']}: {f['line']}")
    seen = {identity(n, f) for n, r in results.items() for f in r.get("failures", ())}
    needless = [k for k in [*listed, *([] if known else stay)] if k[0] in results and k not in seen]
    print(f"{len(fresh)} unexplained failures, {len(needless)} listed ones that do not happen")
    print("\n".join("listed, but passes or fails in another way: " + " | ".join(k) for k in needless[:20]))
    if a.prune:
        write(DIFFERENCES, {k: v for k, v in stay.items() if k not in needless}, header_of(DIFFERENCES))
    print(f"{time.time() - started:.0f} s")
    return bool(fresh)


if __name__ == "__main__":
    sys.exit(main())
