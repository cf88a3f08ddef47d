"""Checks of derivatives that hold for every operator on its samples: forward mode, reverse mode and
differences of values agree around writes in place, for in-place forms, and for Jacobians and Hessians of all
elements at once.

A check gives True if the sample has something to compare, and raises AssertionError where derivatives differ.
"""

from __future__ import annotations

import random

import numpy as np

import facula as F
from facula import func
from facula.autograd import forward_ad

from .operators import UNDEFINED, Case, arguments, call, dtype_of, largest, tensors, to_numpy

STEP = 1e-6
SMALL = 64  # elements of a sample
# The results of the first share memory with their operand, which autograd is not told; the second is refused
# for what requires gradients.
APART = {"unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "resize_as_", *UNDEFINED}
FEW = 12  # elements of the inputs and results of Jacobians
DTYPE = "float64"


def has_derivative(case: Case) -> bool:
    return bool(
        case.samples
        and case.differentiable
        and not case.random
        and not case.writes
        and not {case.base, case.name} & APART
        and DTYPE in case.dtypes
    )


def has_in_place_form(case: Case) -> bool:
    if not case.samples or case.random or {case.base, case.name} & APART or DTYPE not in case.dtypes:
        return False
    if case.writes:
        return case.base.endswith("_") and "self" in case.samples[0]
    return hasattr(F.Tensor, case.base + "_")


def sizes_fit(case: Case, number: int, limit: int = SMALL) -> bool:
    sample = case.samples[number]
    rounds = sample.get("dtype", {}).get("literal") in ("float16", "int32")
    return largest(sample) <= limit and not rounds


class Sample:
    """One sample of an operator as a function of its floating-point tensors."""

    def __init__(self, case: Case, number: int, seed: int) -> None:
        self.case, self.number, self.args = case, number, arguments(case, number, DTYPE)
        self.inputs = [t for t in tensors(self.args) if dtype_of(t) == DTYPE]
        self.rng = np.random.default_rng(seed)
        self.directions = [self.random_like(x) for x in self.inputs]
        variables = [x.clone().requires_grad_() for x in self.inputs]
        found = call(case, self.args_with(variables)) if not case.writes else []
        self.carrying = [r.requires_grad for r in found]  # by result: does it carry a derivative?
        self.relative = 1e-9 if all(dtype_of(r) in (DTYPE, "complex128") for r in found) else 1e-6

    def random_like(self, t):
        x = self.rng.uniform(-1, 1, tuple(t.shape))
        if t.is_complex():
            x = x + 1j * self.rng.uniform(-1, 1, tuple(t.shape))
        return F.tensor(np.ascontiguousarray(x)).reshape(t.shape).to(t.dtype)

    def args_with(self, inputs: list) -> dict:
        given = iter(inputs)

        def replaced(v):
            if isinstance(v, (list, tuple)):
                return type(v)(replaced(x) for x in v)
            return next(given) if isinstance(v, F.Tensor) and dtype_of(v) == DTYPE else v

        return {name: replaced(v) for name, v in self.args.items()}

    def results(self, *inputs) -> list:
        """The results that carry derivatives."""
        found = call(self.case, self.args_with(list(inputs)))
        return [r for r, carries in zip(found, self.carrying) if carries]


def weighted(sample: Sample, results: list, weights: list):
    """One real number that depends on every element."""
    while len(weights) < len(results):
        weights.append(sample.random_like(results[len(weights)]))
    total = F.zeros((), dtype=F.float64)
    for r, w in zip(results, weights):
        product = (r * w.conj()).sum()
        total = total + (product.real if product.is_complex() else product).to(F.float64)
    return total


def pushed(f, inputs: list, directions: list):
    """The derivative of f along the directions by forward mode, which must not write over them."""
    before = [d.clone() for d in directions]
    with forward_ad.dual_level():
        y = f(*(forward_ad.make_dual(x.clone(), d) for x, d in zip(inputs, directions)))
        tangent = forward_ad.unpack_dual(y).tangent
    for d, b in zip(directions, before):
        assert F.equal(d, b), "forward mode has written over the tangent that was given"
    return 0.0 if tangent is None else tangent.item()


def pulled(f, inputs: list, directions: list):
    """The same by reverse mode."""
    variables = [x.clone().requires_grad_() for x in inputs]
    y = f(*variables)
    if not y.requires_grad:
        return 0.0
    grads = F.autograd.grad(y, variables, allow_unused=True)
    return sum((float((g * d).sum()) for g, d in zip(grads, directions) if g is not None), 0.0)


def difference(f, inputs: list, directions: list):
    """The same by the central difference."""
    with F.no_grad():
        above = f(*(x + d * STEP for x, d in zip(inputs, directions))).item()
        below = f(*(x - d * STEP for x, d in zip(inputs, directions))).item()
    return (above - below) / (2 * STEP)


def close(a: float, b: float, rel: float, scale: float = 1.0) -> bool:
    if np.isnan(a) or np.isnan(b):
        return np.isnan(a) == np.isnan(b)
    return a == b or abs(a - b) <= rel * max(abs(a), abs(b), scale)


def has_two_gradients(sample: Sample) -> bool:
    """Is the gradient of the operator, for a stated reason, another linear function than its derivative?"""
    if not sample.case.undifferenced:
        return False
    weights: list = []

    def f(*inputs):
        return weighted(sample, sample.results(*inputs), weights)

    reverse = pulled(f, sample.inputs, sample.directions)
    return not close(pushed(f, sample.inputs, sample.directions), reverse, sample.relative)


def compare(what: str, f, sample: Sample) -> bool:
    """Whether f could be differentiated by forward mode."""
    forward = reverse = None
    try:
        reverse = pulled(f, sample.inputs, sample.directions)
    except NotImplementedError:
        return False
    except RuntimeError as e:
        if "inplace" not in str(e):
            raise
        # The tape refuses the write.
    try:
        forward = pushed(f, sample.inputs, sample.directions)
    except NotImplementedError:
        return False
    if reverse is not None:
        assert close(forward, reverse, sample.relative), (
            f"{what}: forward mode {forward}, reverse mode {reverse}"
        )
    if not sample.case.undifferenced:
        numeric = difference(f, sample.inputs, sample.directions)
        assert close(forward, numeric, 2e-5), f"{what}: forward mode {forward}, differences {numeric}"
    return True


def write_into(results: list) -> None:
    """Writes in place into the whole of each result, and into a part."""
    for r in results:
        if r.numel() == 0 or any(n > 1 and s == 0 for n, s in zip(r.shape, r.stride())):
            continue
        r.mul_(1.5)
        if r.dim():
            r.select(0, 0).fill_(0.25)


def check_write_after(case: Case, number: int, seed: int) -> bool:
    """Writes into what an operator gave for copies of its inputs change these derivatives and no others."""
    sample = Sample(case, number, seed)
    if not any(x.numel() for x in sample.inputs) or has_two_gradients(sample):
        return False
    weights: list = []

    def f(*inputs):
        copies = [x * 1 for x in inputs]
        results = sample.results(*copies)
        whole = [r for r in results if not any(r is x for x in inputs)]
        write_into(whole)
        return weighted(sample, [*results, *copies, *(x * x for x in inputs)], weights)

    return compare("a write after it", f, sample)


def check_write_before(case: Case, number: int, seed: int) -> bool:
    """An operator on tensors that were written in place, and are written again afterwards."""
    sample = Sample(case, number, seed)
    if not any(x.numel() for x in sample.inputs) or has_two_gradients(sample):
        return False
    weights: list = []

    def f(*inputs):
        copies = [(x + 0).mul_(1) for x in inputs]
        results = sample.results(*copies)
        kept = [r * 1 for r in results]
        write_into(copies)
        return weighted(sample, [*kept, *copies], weights)

    return compare("a write to its operands", f, sample)


def check_in_place_form(case: Case, number: int, seed: int) -> bool:
    """An in-place form has the derivatives of the function, in both modes."""
    sample = Sample(case, number, seed)
    me = sample.args.get("self")
    if not isinstance(me, F.Tensor) or dtype_of(me) != DTYPE:
        return False
    method = case.base if case.writes else case.base + "_"
    if not hasattr(me, method):
        return False
    weights: list = []

    def in_place(*inputs):
        args = sample.args_with([x * 1 for x in inputs])
        self = args.pop("self")
        getattr(self, method)(**args)
        return weighted(sample, [self], weights)

    def apart(*inputs):
        result = call(case, sample.args_with([x * 1 for x in inputs]))[0]
        return weighted(sample, [result.to(me.dtype)], weights)

    try:
        with F.no_grad():
            in_place(*sample.inputs)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return False  # of another size or dtype
    if case.writes:
        return compare(method, in_place, sample)
    try:
        want = pulled(apart, sample.inputs, sample.directions)
    except NotImplementedError:
        return False
    got = pulled(in_place, sample.inputs, sample.directions)
    assert close(got, want, 1e-9), f"{method}: reverse mode {got}, that of {case.name} {want}"
    got = pushed(in_place, sample.inputs, sample.directions)
    assert close(got, want, 1e-9), f"{method}: forward mode {got}, reverse mode of {case.name} {want}"
    return True


def arrays(tree) -> list:
    return [to_numpy(t) for t in tensors(tree)]


def agree(what: str, a, b, rel: float = 1e-9) -> None:
    a, b = arrays(a), arrays(b)
    assert len(a) == len(b), f"{what}: {len(a)} and {len(b)} results"
    for x, y in zip(a, b):
        assert x.shape == y.shape, f"{what}: shapes {x.shape} and {y.shape}"
        scale = max(1.0, np.abs(np.nan_to_num(y)).max(initial=0))
        np.testing.assert_allclose(x, y, rtol=rel, atol=rel * scale, err_msg=what)


def check_jacobians(case: Case, number: int, seed: int) -> bool:
    """jacfwd, jacrev and the Hessians in both orders agree."""
    sample = Sample(case, number, seed)
    if not any(x.numel() for x in sample.inputs) or has_two_gradients(sample):
        return False
    results = sample.results(*sample.inputs)
    if not results or any(r.is_complex() for r in results):
        return False
    if sum(x.numel() for x in sample.inputs) > FEW or sum(r.numel() for r in results) > FEW:
        return False
    all_of = tuple(range(len(sample.inputs)))

    def f(*inputs):
        return tuple(sample.results(*inputs))

    try:
        reverse = func.jacrev(f, all_of)(*sample.inputs)
    except NotImplementedError:
        return False
    agree("jacfwd and jacrev", func.jacfwd(f, all_of)(*sample.inputs), reverse)
    weights: list = []

    def number_of(*inputs):
        found = sample.results(*inputs)
        return weighted(sample, [r * r for r in found], weights)

    twice = func.jacrev(func.jacrev(number_of, all_of), all_of)(*sample.inputs)
    agree("hessian and jacrev of jacrev", func.hessian(number_of, all_of)(*sample.inputs), twice, 1e-8)
    agree(
        "jacrev of jacfwd", func.jacrev(func.jacfwd(number_of, all_of), all_of)(*sample.inputs), twice, 1e-8
    )
    return True


CHECKS = {
    "write_after": (check_write_after, has_derivative, SMALL),
    "write_before": (check_write_before, has_derivative, SMALL),
    "in_place": (check_in_place_form, has_in_place_form, SMALL),
    "jacobians": (check_jacobians, has_derivative, FEW),
}


def run(check: str, case: Case, seed: int) -> int:
    """How many samples of the operator had something to compare."""
    f, _, limit = CHECKS[check]
    done = 0
    for number in range(len(case.samples)):
        if not sizes_fit(case, number, limit):
            continue
        try:
            done += f(case, number, seed + number)
        except NotImplementedError:  # a derivative that the operator does not have
            if check == "in_place":
                raise
        except Exception as e:
            e.add_note(f"{check} of {case.name}, sample {number}, seed {seed}")
            raise
    return done


def fresh_seed() -> int:
    return random.SystemRandom().randrange(10**6)
