"""Which calls get an answer of another kind from PyTorch."""

import collections
import math
import re

NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
ROOM = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-3, "complex64": 2e-3}  # of the largest number


def parts(v):
    if isinstance(v, list):
        return [x for y in v[1:] for x in parts(y)]
    return [NUMBERS.get(v, v)]


def close(dtype, ours, theirs):
    a = [x for v in ours for x in parts(v)]
    b = [x for v in theirs for x in parts(v)]
    if len(a) != len(b):
        return False
    room = ROOM.get(dtype, 1e-6 if dtype in ("float64", "complex128") else 0)
    size = max((abs(x) for x in [*a, *b] if math.isfinite(x)), default=0)
    for x, y in zip(a, b):
        if math.isfinite(x) and math.isfinite(y):
            if abs(x - y) > room * max(1, size):
                return False
        elif x != y and not (math.isnan(x) and math.isnan(y)):
            return False
    return True


def other(ours, theirs):
    """How two results differ; None where they do not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, name in (("T", "dtype"), ("shape", "shape"), ("layout", "layout")):
            if ours.get(key) != theirs.get(key):
                return f"{name} {ours.get(key)} for {theirs.get(key)}"
        if "values" in ours and "values" in theirs and not close(ours["T"], ours["values"], theirs["values"]):
            return f"values ({ours['T']})"
        return None
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"{len(ours)} results for {len(theirs)}"
        return next((d for d in map(other, ours, theirs) if d), None)
    return None if type(ours) is type(theirs) else f"{ours!r:.30} for {theirs!r:.30}"


# What code that catches the peer's error catches as well; an IndexError may stand for a RuntimeError.
CAUGHT = {
    ("NotImplementedError", "RuntimeError"),
    ("LinAlgError", "RuntimeError"),
    ("IndexError", "RuntimeError"),
}
ABSENT = re.compile(
    r"module 'torch.*has no attribute|'(Tensor|type)' object has no attribute|type object 'Tensor'"
)


def kind(got):
    if got.get("error") == "AttributeError" and ABSENT.search(got["text"]):
        return "absent"
    return next((k for k in ("unmade", "crash", "error", "unread") if k in got), "answer")


def difference(ours, theirs, random):
    """The class of difference, and what is told of it; None where there is none."""
    a, b = kind(ours), kind(theirs)
    if b in ("crash", "unmade", "unread", "absent") or a in ("unmade", "crash"):
        return None
    if a == "error" and b == "error":
        both = ours["error"], theirs["error"].lstrip("_")
        if both[0] == both[1] or both in CAUGHT:
            return None
        return (
            f"{ours['error']} for {theirs['error']}",
            f"{ours['text'][:140]!r} for {theirs['text'][:140]!r}",
        )
    if a == "error":
        if "not implemented for" in ours["text"]:
            return "not implemented", ours["text"][:160]
        return "refused, answered by the peer", f"{ours['error']}: {ours['text'][:200]}"
    if b == "error":
        return "answered, refused by the peer", f"{theirs['error']}: {theirs['text'][:200]}"
    if a != b:
        return f"{a} for {b}", str(ours)[:200]
    d = other(ours.get("results"), theirs.get("results"))
    if d and not (random and d.startswith("values")):
        return d.split(" ")[0], f"{d}: {str(ours['results'])[:150]} for {str(theirs['results'])[:150]}"
    g, h = ours.get("gradient"), theirs.get("gradient")
    if isinstance(g, dict) != isinstance(h, dict):
        return "gradient: error on one side", f"{str(g)[:200]} for {str(h)[:200]}"
    d = other(g, h) if g and h else None
    if d and not (random and "values" in d):
        return "gradient: " + d.split(" ")[0], f"{d}: {str(g)[:150]} for {str(h)[:150]}"
    return None


def differences(drawn, ours, theirs, lines=6):
    found, counts = collections.defaultdict(list), collections.Counter()
    for (tree, target), a, b in zip(drawn, ours, theirs):
        d = difference(a, b, target.random)
        if d:
            counts[d[0]] += 1
            found[d[0], tree.path.removeprefix("Tensor.").rsplit(".", 1)[-1]].append((tree, d[1]))
    both = sum(
        kind(a) != "unmade" and kind(b) not in ("unmade", "crash", "absent") for a, b in zip(ours, theirs)
    )
    yield f"{both} calls answered by both: " + ", ".join(f"{n} {k}" for k, n in counts.most_common())
    for (what, name), some in sorted(found.items(), key=lambda x: (x[0][0], -len(x[1]))):
        tree, detail = min(some, key=lambda x: len(str(x[0])))
        yield f"{what}, {len(some)} x {name} #{tree.number}: {tree}\n    {detail}"
