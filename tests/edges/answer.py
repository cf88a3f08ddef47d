"""Answers calls with the peer: runs where PyTorch is installed.

    .peer/bin/python tests/edges/answer.py CALLS.zip RECORDING.zip [--jobs 2] [--limit 60]
        answers every call.
    .peer/bin/python tests/edges/answer.py RECORDING.zip LARGER.zip --again CALLS.json --processor NAME
        answers calls ({operator: their numbers}) once more, in each layout of ways.py, on what the
        environment makes of the processor; adds what differs from the answers that are there.

An operator's calls run in a process of their own: where the peer crashes, that is the answer.
"""

import argparse
import base64
import contextlib
import json
import os
import re
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "conformance"))
from bind import STYLES, function, perform  # noqa: E402
from part import bytes_of, tensors  # noqa: E402
from processes import run  # noqa: E402
from record import Reader, Unrecordable, Writer, gradients, pack, unpack, weights  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from ways import (  # noqa: E402
    PROCESSORS,
    Beside,
    Decomposed,
    ForwardMode,
    GradientGraph,
    Layout,
    Mapped,
    WithoutOneDNN,
    layouts,
    named,
    operands,
)

UNINITIALISED = re.compile(r"(new_)?empty|resize|_view_dtype|view\.dtype")
LARGEST = 20000  # elements of a result


class Recorder(Writer):
    """A Writer whose tensors travel through a pipe: their bytes as text."""

    def array(self, x):
        return base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()


class Operands(Reader):
    """Tensors of a call in a layout."""

    def __init__(self, data, layout, with_gradient):
        super().__init__(torch, data)
        self.layout, self.with_gradient = layout, with_gradient

    def tensor(self, t):
        x = self.layout.operand(super().tensor(t)).detach()
        if isinstance(self.layout, Along) and t.get("g"):
            self.leaves.append(x)
            return self.layout.tangent(x) if len(self.leaves) - 1 == self.layout.leaf else x
        if self.with_gradient and t.get("g"):
            self.leaves.append(x.requires_grad_(True))
        return x


def same(a, b):
    def both(x, y):
        if not isinstance(x, torch.Tensor):
            return x == y or x != x
        if x.dtype == y.dtype == torch.complex32:  # which has no nan_to_num
            x, y = torch.view_as_real(x), torch.view_as_real(y)
        return (
            x.shape == y.shape
            and x.dtype == y.dtype
            and torch.equal(torch.nan_to_num(x), torch.nan_to_num(y))
        )

    return len(a) == len(b) and all(both(x, y) for x, y in zip(a, b))


class Decomposition(TorchDispatchMode):
    """Calls the parts that torch.compile takes an operator apart into."""

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        from torch._inductor.decomposition import decompositions

        out = NotImplemented
        if f in decompositions:
            with self:
                out = decompositions[f](*args, **(kwargs or {}))
        return f(*args, **(kwargs or {})) if out is NotImplemented else out


@contextlib.contextmanager
def path(layout):
    """Which of the peer's libraries answers."""
    with contextlib.ExitStack() as stack:
        if issubclass(layout, WithoutOneDNN):
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        if issubclass(layout, Decomposed):
            stack.enter_context(Decomposition())
        yield


class Along(Layout):
    """A tangent at one of the operands that have gradients: `unit` at its element `k`."""

    def __init__(self, call, leaf, k, unit):
        self.leaf, self.k, self.unit = leaf, k, unit

    def tangent(self, x):
        out = torch.zeros(x.numel(), dtype=x.dtype)
        out[self.k] = self.unit
        return torch.autograd.forward_ad.make_dual(x, out.reshape(x.shape))


def mapped(plan, args, positional):
    """What the call gives as the only one of a batch."""
    tensors = {n: x for n, x in args.items() if isinstance(x, torch.Tensor)}

    def one(batched):
        return tuple(perform(torch, plan, "call", {**args, **batched}, positional))

    results = torch.vmap(one)({n: x.unsqueeze(0) for n, x in tensors.items()})
    return [x.squeeze(0) for x in results]


def along_weights(duals):
    """The derivative of the weighted results; None if no result depends on the direction."""
    total = None
    for y, t in duals:
        if t is not None:
            total = (total or 0) + (t.cdouble() * weights(torch, y).cdouble().conj()).sum().real.item()
    return total


class Operator:
    def __init__(self, blob):
        self.record, self.data = unpack(blob)
        self.groups, self.last = {}, None

    def attempt(self, plan, call, with_gradient=False, seed=0, layout=None):
        torch.manual_seed(seed)
        layout = layout or Layout(call)
        r = Operands(self.data, layout, with_gradient)
        args = {n: r.value(layout.argument(n, v)) for n, v in call["args"].items()}
        if isinstance(layout, Mapped):
            return mapped(plan, args, self.record["positional"]), r
        return perform(torch, plan, call["form"], args, self.record["positional"]), r

    def plan(self, call):
        """For a call's group: how it is called, whether its values are fixed, the ordinary call's error."""
        group = call["group"]
        if group not in self.groups:
            ordinary = next(c for c in self.record["calls"] if c["group"] == group)
            self.groups[group] = self.search(ordinary)
        return self.groups[group]

    def search(self, ordinary):
        plans = [(n, s) for n in self.record["names"] if function(torch, n, "call") for s in STYLES]
        if not plans:
            return None, False, None
        if self.last in plans:
            plans.insert(0, self.last)
        refused = None
        for plan in plans:
            try:
                results, _ = self.attempt(plan, ordinary)
            except (TypeError, AttributeError) as e:
                refused = refused or (plan, False, e)
                continue
            except Exception as e:  # noqa: BLE001  refused by the function meant
                if refused is None or isinstance(refused[2], (TypeError, AttributeError)):
                    refused = plan, False, e
                continue
            self.last = plan
            again = [self.attempt(plan, ordinary, seed=k)[0] for k in range(1, 5)]
            fixed = all(same(results, r) for r in again) and not UNINITIALISED.match(self.record["op"])
            return plan, fixed, None
        return refused

    def answer(self, call, ordinary):
        plan, fixed, error = self.plan(call)
        if plan is None:
            return {"absent": 1}
        if error is not None:
            return {"refused": 1} if not ordinary else {"plan": plan, **failure(error)}
        if call["form"] != "call" and function(torch, plan[0], call["form"]) is None:
            return {"absent": 1}
        return self.answer_by(plan, fixed, call, Layout(call))

    def answer_by(self, plan, fixed, call, layout):
        try:
            results, _ = self.attempt(plan, call, layout=layout)
        except Exception as e:  # noqa: BLE001
            if call["form"] == "out" and isinstance(e, TypeError):
                return {"absent": 1}
            return {"plan": plan, **failure(e)}
        w = Recorder()
        try:
            out = {"plan": plan, "results": [self.encode(w, x, fixed, layout) for x in results]}
        except Unrecordable:
            return {"absent": 1}
        if call["form"] == "call" and fixed:
            try:
                if isinstance(layout, ForwardMode):
                    grads = self.forward_gradients(plan, call)
                else:
                    results, r = self.attempt(plan, call, with_gradient=True, layout=layout)
                    grads = gradients(torch, results, r.leaves, graph=isinstance(layout, GradientGraph))
            except Exception as e:  # noqa: BLE001
                return {**out, "gradient error": type(e).__name__, "text": text_of(e)}
            if grads is not None:
                try:
                    out["gradients"] = [
                        None if g is None else w.tensor(torch, layout.result(dense(g)), span=False)
                        for g in grads
                    ]
                except Unrecordable:
                    pass
        return out

    def forward_gradients(self, plan, call):
        """The gradients that `gradients` gives, from a derivative along each element of each leaf."""
        forward, out = torch.autograd.forward_ad, []
        for leaf, t in enumerate(t for t in operands(call) if "g" in t):
            along = []
            for k in range(t["n"]):
                for unit in (1, 1j) if t["T"].startswith("complex") else (1,):
                    with forward.dual_level():
                        results, _ = self.attempt(plan, call, layout=Along(call, leaf, k, unit))
                        along.append(
                            along_weights(
                                forward.unpack_dual(y) for y in results if isinstance(y, torch.Tensor)
                            )
                        )
            if any(x is None for x in along):
                out.append(None)
                continue
            x = torch.tensor(along, dtype=torch.float64)
            if t["T"].startswith("complex"):
                x = torch.view_as_complex(x.reshape(-1, 2))
            out.append(x.to(getattr(torch, t["T"])).reshape(t["shape"]))
        return None if all(x is None for x in out) else out

    def elsewhere(self, call, answer, processor):
        """Answers to the call in each layout: those that are of the first's kind, with the way."""
        out = []
        if "plan" not in answer or any("T" in x and "at" not in x for x in answer.get("results", ())):
            return out  # it crashed, or gave no values
        for make in layouts(processor, call):
            with path(make):
                other = self.answer_by(answer["plan"], True, call, make(call))
            if other.keys() == answer.keys() - {"elsewhere", "unset"}:
                out.append({**other, "way": named(processor, make.name)})
        return out

    def unset(self, call, answer):
        """Places in each result that hold what was in memory, as two calls show; None without any."""
        if "results" not in answer or not Beside.fits(call):
            return None
        both = []
        for number in Beside.NUMBERS:
            layout = Beside(call, number)
            results, _ = self.attempt(answer["plan"], call, layout=layout)
            both.append([layout.result(x) for x in results])
        out = [
            (~torch.isclose(a, b, rtol=0, atol=0, equal_nan=True)).nonzero().reshape(-1).tolist()
            for a, b in zip(*both)
        ]
        return out if any(out) else None

    def encode(self, w, x, fixed, layout):
        if isinstance(x, (tuple, list)):
            raise Unrecordable("a list in a list")
        if not isinstance(x, torch.Tensor):
            if isinstance(x, (torch.dtype, torch.Size)):
                raise Unrecordable("no value")
            return {"value": w.value(torch, x)} if fixed else {"any": 1}
        if x.numel() > LARGEST:
            raise Unrecordable("large")
        if not fixed:
            return {"T": str(x.dtype).split(".")[1], "shape": list(x.shape)}
        return w.tensor(torch, layout.result(x), span=False)


def dense(g):
    """The peer has zeros without memory."""
    return torch.zeros(g.shape, dtype=g.dtype) if g._is_zerotensor() else g


def text_of(e):
    return re.sub(r"\s+", " ", str(e))[:160]


def failure(e):
    return {"error": type(e).__name__, "text": text_of(e)}


def decoded(x, data):
    """An answer from the pipe, its tensors' bytes put behind `data`."""
    if isinstance(x, list):
        return [decoded(y, data) for y in x]
    if not isinstance(x, dict):
        return x
    if "T" in x and "at" in x:
        raw = base64.b64decode(x["at"])
        return {**x, "at": data.put(raw)}
    return {k: decoded(v, data) for k, v in x.items()}


class Buffer:
    """Bytes, equal pieces once."""

    def __init__(self, start, held=()):
        """`held`: the encoded tensors whose bytes `start` has."""
        self.bytes, self.known = bytearray(start), {}
        for t in held:
            if "at" in t:
                self.known.setdefault(bytes(bytes_of(t, start)), t["at"])

    def put(self, raw):
        if raw not in self.known:
            self.known[raw] = len(self.bytes)
            self.bytes += raw
        return self.known[raw]


def content(answer):
    """What an answer says: not how its tensors lie in memory, nor how it came about."""
    said = {k: v for k, v in answer.items() if k not in ("way", "text", "elsewhere", "unset")}
    return re.sub(r'"strides": \[[^]]*\], ', "", json.dumps(said))


def answer_all(blobs, out, a):
    def work(name, done):
        o, seen = Operator(blobs[name]), set()
        for k, call in enumerate(o.record["calls"]):
            ordinary = call["group"] not in seen
            seen.add(call["group"])
            if k >= done:
                yield o.answer(call, ordinary)

    for name, answers in run(work, list(blobs), a.jobs, a.limit):
        record, data = unpack(blobs[name])
        buffer = Buffer(data)
        record["answers"] = [decoded(x, buffer) for x in answers]
        kept = [(c, x) for c, x in zip(record["calls"], record["answers"]) if "refused" not in x]
        record["calls"], record["answers"] = [c for c, _ in kept], [x for _, x in kept]
        out.writestr(name, pack(record, buffer.bytes))
        for c, x in kept:
            if "crash" in x:
                print(f"the peer at {name}, {c['group']} {c['label']}: {x['crash']}")


def answer_again(blobs, out, a):
    asked = json.loads(Path(a.again).read_text())
    import torch._inductor.decomposition  # noqa: F401  before the processes are made, which would all do so

    def work(name, done):
        o = Operator(blobs[name])
        for k in asked[name][done:]:
            call, first = o.record["calls"][k], o.record["answers"][k]
            unset = o.unset(call, first) if a.processor == next(iter(PROCESSORS)) else None
            yield {"others": o.elsewhere(call, first, a.processor), "unset": unset}

    for name, found in run(work, [n for n in blobs if n in asked], a.jobs, a.limit):
        record, data = unpack(blobs.pop(name))
        answers = record["answers"]
        buffer = Buffer(data, tensors([[c["args"] for c in record["calls"]], answers]))
        for k, others in zip(asked[name], found):
            have = answers[k].setdefault("elsewhere", [])
            known = {content(x) for x in [answers[k], *have]}
            if "crash" in others:
                print(f"the peer at {name}, in another way: {others['crash']}")
                continue
            if others["unset"]:
                answers[k]["unset"] = others["unset"]
            for x in decoded(others["others"], buffer):
                if content(x) not in known:
                    known.add(content(x))
                    have.append(x)
        out.writestr(name, pack(record, buffer.bytes))
    for name, blob in blobs.items():
        out.writestr(name, blob)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("calls")
    p.add_argument("out")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--limit", type=float, default=60, help="seconds for one call")
    p.add_argument("--again", help="a file that says which calls to answer in other ways")
    p.add_argument("--processor", choices=list(PROCESSORS), help="what the environment is set to")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started = time.time()
    with zipfile.ZipFile(a.calls) as z, zipfile.ZipFile(a.out, "w", zipfile.ZIP_DEFLATED) as out:
        blobs = {n: z.read(n) for n in z.namelist()}
        (answer_again if a.again else answer_all)(blobs, out, a)
    print(f"answered in {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
