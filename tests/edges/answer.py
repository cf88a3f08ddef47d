"""Answers calls with the peer: runs where PyTorch is installed.

    .peer/bin/python tests/edges/answer.py CALLS.zip RECORDING.zip [--jobs 2] [--limit 60]

An operator's calls run in a process of their own: where the peer crashes, that is the answer.
"""

import argparse
import base64
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
from processes import run  # noqa: E402
from record import Reader, Unrecordable, Writer, gradients, leaf, pack, unpack  # noqa: E402

UNINITIALISED = re.compile(r"(new_)?empty|resize|_view_dtype|view\.dtype")
LARGEST = 20000  # elements of a result


class Recorder(Writer):
    """A Writer whose tensors travel through a pipe: their bytes as text."""

    def array(self, x):
        return base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()


def arguments(call, data, with_gradient=False):
    r = Reader(torch, data, leaf if with_gradient else None)
    return {n: r.value(v) for n, v in call["args"].items()}, r


def same(a, b):
    def both(x, y):
        if not isinstance(x, torch.Tensor):
            return x == y or x != x
        return (
            x.shape == y.shape
            and x.dtype == y.dtype
            and torch.equal(torch.nan_to_num(x), torch.nan_to_num(y))
        )

    return len(a) == len(b) and all(both(x, y) for x, y in zip(a, b))


class Operator:
    def __init__(self, blob):
        self.record, self.data = unpack(blob)
        self.groups, self.last = {}, None

    def attempt(self, plan, call, with_gradient=False, seed=0):
        torch.manual_seed(seed)
        args, r = arguments(call, self.data, with_gradient)
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
        try:
            results, _ = self.attempt(plan, call)
        except Exception as e:  # noqa: BLE001
            if call["form"] == "out" and isinstance(e, TypeError):
                return {"absent": 1}
            return {"plan": plan, **failure(e)}
        w = Recorder()
        try:
            out = {"plan": plan, "results": [self.encode(w, x, fixed) for x in results]}
        except Unrecordable:
            return {"absent": 1}
        if call["form"] == "call" and fixed:
            try:
                results, r = self.attempt(plan, call, with_gradient=True)
                grads = gradients(torch, results, r.leaves)
            except Exception as e:  # noqa: BLE001
                return {**out, "gradient error": type(e).__name__, "text": text_of(e)}
            if grads is not None:
                try:
                    out["gradients"] = [
                        None if g is None else w.tensor(torch, dense(g), span=False) for g in grads
                    ]
                except Unrecordable:
                    pass
        return out

    def encode(self, w, x, fixed):
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
        return w.tensor(torch, x, span=False)


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

    def __init__(self, start):
        self.bytes, self.known = bytearray(start), {}

    def put(self, raw):
        if raw not in self.known:
            self.known[raw] = len(self.bytes)
            self.bytes += raw
        return self.known[raw]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("calls")
    p.add_argument("out")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--limit", type=float, default=60, help="seconds for one call")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started = time.time()
    with zipfile.ZipFile(a.calls) as z, zipfile.ZipFile(a.out, "w", zipfile.ZIP_DEFLATED) as out:
        blobs = {n: z.read(n) for n in z.namelist()}

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
    print(f"answered in {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
