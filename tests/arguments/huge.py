"""Calls with more elements than 32 bits count, one for each kind of operator of each family, from samples.

    PYTHONPATH=build/python python tests/arguments/huge.py [--only REGEX] [--families REGEX] [--every]

In a sample all dimensions of one size become 2^31 + 5 and the others 1 (or stay); operands are one
element, expanded, of 8 bits, so that what takes memory is the result. The call must give an answer or a
clear error, and far elements of its results must be those that the same call gives for 2^16 + 5: operands
are the same everywhere, so what depends on the position (a running sum) is named and looked at by hand.
One call at a time, at most 6 GiB.
"""

import argparse
import collections
import os
import re
import resource
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance"), str(HERE.parent / "python")]
import judge  # noqa: E402
from processes import run  # noqa: E402
from support.operators import cases, literal  # noqa: E402

MANY, FEW = 2**31 + 5, 2**16 + 5
MEMORY = 6 << 30
DTYPES = ("int8", "uint8", "bool")


def scaled(case, sample, size, others, dtype, n):
    """The sample's arguments with `n` for `size`; None if nothing grows or something is of floats."""
    import facula as F

    out, grown = {}, False
    for name, a in sample.items():
        if a["kind"] == "literal":
            out[name] = literal(a["literal"], F)
            continue
        made = []
        for sizes in a["sizes"]:
            shape = [n if s == size else s if others is None else others for s in sizes]
            grown |= n in shape
            own = "int64" if a["index"] else "bool" if a["boolean"] else dtype
            number = int(max(a["low"], 0)) if a["index"] else 1
            made.append(F.full((), number, dtype=getattr(F, own)).expand(shape))
        out[name] = made[0] if a["kind"] == "tensor" else made
    return out if grown else None


def attempts(case):
    """(number of sample, size, others, dtype) of calls that may fit."""
    for dtype in [d for d in DTYPES if d in case.dtypes]:
        for number, sample in enumerate(case.samples[:4]):
            sizes = {
                s for a in sample.values() if a["kind"] != "literal" for t in a["sizes"] for s in t if s > 1
            }
            for size in sorted(sizes, reverse=True):
                for others in (1, None):
                    yield number, size, others, dtype


def far(t):
    """Elements at the ends of a result and around the 2^31st, as numbers."""
    flat = t.detach().reshape(-1) if t.is_contiguous() else t.detach()
    if not t.is_contiguous():
        return [flat[tuple(0 for _ in t.shape)].item(), flat[tuple(-1 for _ in t.shape)].item()]
    places = {0, 1, t.numel() // 2, t.numel() - 2, t.numel() - 1}
    return [flat[k].item() for k in sorted(p for p in places if 0 <= p < t.numel())]


def perform(case, attempt, n):
    import facula._C as C

    import facula as F

    number, size, others, dtype = attempt
    try:
        args = scaled(case, case.samples[number], size, others, dtype, n)
    except RuntimeError:  # square of it
        return None
    if args is None:
        return None
    F.manual_seed(0)
    r = getattr(C.ops, case.base)(**args)
    results = [x for x in judge.tensors(F, [r]) if x.numel()]
    return {"shapes": [list(x.shape) for x in results], "far": [far(x) for x in results]}


def of_one(case):
    """The first call of an operator that both sizes answer, or why there is none."""
    why = "no sample of 8 bits"
    for attempt in attempts(case):
        try:
            few = perform(case, attempt, FEW)
        except Exception as e:  # noqa: BLE001
            why = f"{type(e).__name__}: {e}".splitlines()[0][:150]
            continue
        if few is None:
            continue
        started = time.time()
        said = {"attempt": attempt}
        try:
            many = perform(case, attempt, MANY)
            if many is None:
                continue
        except Exception as e:  # noqa: BLE001
            error = judge.error(e)
            wrong = judge.clear(None, error, {case.base}, set())
            said.update(
                outcome=f"unclear ({wrong})" if wrong else "refused", text=error["text"].splitlines()[0][:200]
            )
            if "not enough memory" in error["text"]:
                why = error["text"].splitlines()[0][:150]
                continue
            return {**said, "seconds": time.time() - started}
        same = [sorted({str(v) for v in x}) for x in many["far"]] == [
            sorted({str(v) for v in x}) for x in few["far"]
        ]
        return {**said, "outcome": "the same" if same else "other numbers", "seconds": time.time() - started,
                "text": f"{many['shapes']} {many['far']} for {few['far']}"[:300]}  # fmt: skip
    return {"outcome": "none", "text": why}


def chosen(only, families, every):
    """Operators: the first of each kind of each family, or all."""
    sys.path.insert(0, str(HERE.parents[1] / "src" / "facula" / "op"))
    from generate import read_catalog

    family = {o.full_name: o.family for o in read_catalog(HERE.parents[1] / "src" / "facula" / "catalog")[1]}
    groups = collections.defaultdict(list)
    for case in cases():
        of = family.get(case.name, "other")
        fits = any(d in case.dtypes for d in DTYPES) and case.samples
        if fits and re.fullmatch(only or ".*", case.name) and re.fullmatch(families or ".*", of):
            groups[of, case.kind].append(case)
    return groups if not every else {(k, c.name): [c] for k, v in groups.items() for c in v}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="")
    p.add_argument("--families", default="", help="a regular expression")
    p.add_argument("--every", action="store_true", help="every operator instead of one of a kind and family")
    p.add_argument("--limit", type=float, default=180, help="seconds for one call")
    a = p.parse_args()
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < MEMORY:
        sys.exit("needs 6 GiB of free memory")
    groups = chosen(a.only, a.families, a.every)

    def work(name, done):
        import facula

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        facula.set_num_threads(1)
        for case in groups[keys[int(name)]][done:]:
            got = of_one(case)
            yield {**got, "name": case.name}
            if got["outcome"] in ("the same", "other numbers") or got["outcome"].startswith("unclear"):
                return  # one of its kind and family

    keys = sorted(groups, key=str)
    counts = collections.Counter()
    failed = False
    for number, answers in run(work, [str(k) for k in range(len(keys))], 1, a.limit):
        for got in answers[-1:]:
            outcome = got.get("outcome") or ("long" if "took" in got["crash"] else "crash")
            counts[outcome] += 1
            failed |= outcome == "crash" or outcome.startswith("unclear")
            name = got.get("name") or groups[keys[int(number)]][len(answers) - 1].name
            said = got.get("text", got.get("crash", ""))
            took = f"{got.get('attempt', '')} {got.get('seconds', 0):.0f} s"
            print(f"{outcome}: {keys[int(number)]} {name} {took} {said}", flush=True)
    print(f"{len(keys)} kinds and families: " + ", ".join(f"{n} {k}" for k, n in counts.most_common()))
    return failed


if __name__ == "__main__":
    sys.exit(main())
