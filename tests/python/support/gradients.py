"""What each operator answers to each floating operand that requires a gradient.

There are three states: a gradient, which agrees with finite differences of the operator's values; an error,
in the call or in the backward pass; zero, which the definition lists with its reason. ``entries`` finds the
state of every pair of an operand and a floating result on the operator's samples, and raises AssertionError
for a fourth. Operators that write their arguments are not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import facula as F
from support.operators import SMALL, Case, arguments, call, dtype_of, largest, random_like, to_numpy

STEP = 1e-6
ROUNDED = (
    "float16",
    "bfloat16",
    "float32",
    "int32",
)  # values of a `dtype` argument whose results have no slope


@dataclass(frozen=True)
class Entry:
    """The state of a result's derivative by an operand."""

    operator: str
    operand: str
    result: int
    dtype: str
    state: str  # "gradient", "raises" or "zero"
    why: str  # the error, or the reason for a zero or for a gradient that differences do not show


def operands(args: dict, dtype: str) -> list:
    """(name, item or None) of the tensors of this dtype."""
    found = []
    for name, v in args.items():
        if isinstance(v, list):
            found += [(name, k) for k, t in enumerate(v) if is_of(t, dtype)]
        elif is_of(v, dtype):
            found.append((name, None))
    return found


def is_of(t, dtype: str) -> bool:
    return isinstance(t, F.Tensor) and dtype_of(t) == dtype


def copied(v):
    """Arguments with copies of all tensors."""
    if isinstance(v, dict):
        return {k: copied(x) for k, x in v.items()}
    if isinstance(v, list):
        return [copied(x) for x in v]
    return v.clone() if isinstance(v, F.Tensor) else v


def replaced(args: dict, operand: tuple, by) -> dict:
    """The arguments with another tensor for an operand, and copies of the others."""
    name, item = operand
    out = copied(args)
    if item is None:
        out[name] = by
    else:
        out[name][item] = by
    return out


def floating_results(case: Case, args: dict) -> dict:
    """The floating results by number, of the same random numbers each time."""
    F.manual_seed(5)
    return {k: r for k, r in enumerate(call(case, args))
            if isinstance(r, F.Tensor) and (r.is_floating_point() or r.is_complex())}  # fmt: skip


def takes(case: Case, args: dict) -> bool:
    """Does the operator take these operands at all, which may have a dtype that it refuses?"""
    try:
        with F.no_grad():
            floating_results(case, copied(args))
    except (RuntimeError, ValueError):
        return False
    return True


def entries(case: Case, rng: np.random.Generator) -> list[Entry]:
    found: dict = {}
    if case.writes:
        return []
    independent = []
    for number, sample in enumerate(case.samples):
        if largest(sample) > SMALL or sample.get("dtype", {}).get("literal") in ROUNDED:
            continue
        for dtype in ("float64", "complex128"):
            if dtype not in case.dtypes:
                continue
            args = arguments(case, number, dtype)
            if not takes(case, args):
                continue
            for operand in operands(args, dtype):
                what = f"{case.name}, sample {number}"
                for e in of_operand(case, args, operand, dtype, rng, what):
                    if e.state == "independent":
                        independent.append(e)
                        continue
                    known = found.setdefault((e.operand, e.result, dtype), e)
                    if known.state == "zero" and e.state != "zero":
                        found[e.operand, e.result, dtype] = e
    recorded = any(e.state == "gradient" for e in found.values())
    assert recorded or not independent, f"{case.name}: {independent} have no gradient, and no reason"
    return list(found.values())


def of_operand(case: Case, args: dict, operand: tuple, dtype: str, rng, what: str) -> list[Entry]:
    name, item = operand
    x = args[name] if item is None else args[name][item]
    label = name if item is None else f"{name}[{item}]"
    what += f", {label}, {dtype}"
    if not x.numel():
        return []

    def entry(result, state, why=""):
        return Entry(case.name, name, result, dtype, state, str(why).split("\n")[0])

    leaf = x.clone().requires_grad_()
    try:
        results = floating_results(case, replaced(args, operand, leaf))
    except RuntimeError as e:
        return [entry(0, "raises", e)]
    out = []
    for k, r in results.items():
        weight = random_like(r, rng)
        if not r.requires_grad:
            if not case.undifferenced:  # the result does not depend on the operand: a shape, a target
                compare(case, args, operand, k, (leaf, None, weight), rng, f"{what}, result {k}, no gradient")
                out.append(entry(k, "independent"))
                continue
            out.append(entry(k, "zero", case.undifferenced))
            continue
        try:
            (g,) = F.autograd.grad(r, leaf, weight, allow_unused=True, retain_graph=True)
        except RuntimeError as e:
            said = "not implemented", "not differentiable", "derivative"
            assert x.is_complex() or any(s in str(e) for s in said), (what, e)
            out.append(entry(k, "raises", e))
            continue
        if not case.compared:
            zero = g is None or not g.count_nonzero()
            out.append(entry(k, "zero" if zero else "gradient", case.undifferenced))
            continue
        compare(case, args, operand, k, (leaf, g, weight), rng, f"{what}, result {k}")
        out.append(entry(k, "gradient"))
    return out


def compare(case: Case, args: dict, operand: tuple, result: int, known: tuple, rng, what: str) -> None:
    """<gradient, direction> with the central difference along the direction."""
    leaf, g, weight = known
    along = random_like(leaf, rng, case)
    analytic = 0.0 if g is None else np.vdot(to_numpy(g), to_numpy(along)).real

    def value(step: float) -> float:
        with F.no_grad():
            moved = leaf.detach() + along * step
            r = floating_results(case, replaced(args, operand, moved))[result]
        return np.vdot(to_numpy(weight), to_numpy(r)).real

    numeric = (value(STEP) - value(-STEP)) / (2 * STEP)
    same = np.isclose(analytic, numeric, rtol=5e-5, atol=5e-6, equal_nan=True)
    assert same, f"{what}: the gradient gives {analytic}, differences {numeric}"
