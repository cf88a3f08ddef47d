"""Operators that refuse elements (indices out of range, probabilities above 1, divisors of 0): compiled
functions raise eager's errors, whether or not anybody reads the results, and leave what eager leaves.

Every run draws other operators. FACULA_REFUSALS=all takes all of them, and prints what differs.
"""

import os
import random
import re

import facula.nn.functional as F
import pytest
from facula.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions
from support import operators

import facula
from facula import _C, linalg

seed = int(os.environ.get("FACULA_SEED") or random.SystemRandom().randrange(1 << 32))
print(f"FACULA_SEED={seed}")
COUNT = 20


def spoiled(argument, rng):
    """A copy of a tensor, one of whose elements is replaced."""
    bad = rng.choice([-1000003, 1000003, -1, 0, 2])
    if argument.dtype in (facula.bool, facula.uint8) or not argument.numel() or argument.is_complex():
        return argument
    if argument.dtype in (facula.int8, facula.int16):
        bad = max(-120, min(bad, 120))
    copied = argument.clone()
    copied.view(-1)[rng.randrange(argument.numel())] = bad
    return copied


def wrong_arguments(case, rng):
    """Arguments that eager accepts, and the same with an element that it refuses; None if there are none."""
    dtypes = [d for d in ("float32", "int64") if d in case.dtypes] or [operators.usual_dtype(case)]
    dtype, number = rng.choice(dtypes), rng.randrange(len(case.samples))
    good = operators.arguments(case, number, dtype)
    if not isinstance(outcome(lambda: operators.call(case, good)), list):
        return None
    names = [k for k, a in good.items() if isinstance(a, facula.Tensor)]
    for _ in range(4):
        bad = dict(good)
        for name in rng.sample(names, min(len(names), rng.randint(1, 2))):
            bad[name] = spoiled(good[name], rng)
        if not isinstance(outcome(lambda: operators.call(case, bad)), list):
            return good, bad
    return None


def outcome(f):
    """The results, or type and text of the exception."""
    try:
        return f()
    except Exception as e:
        return type(e).__name__, str(e)


def whole(case, args, state):
    state.add_(1)
    results = operators.call(case, args)
    state.mul_(2)
    return [r.clone() for r in operators.tensors(results)]


def unread(case, args, state):
    noise = facula.rand(1)
    operators.call(case, args)
    return state.add_(noise)


def in_part(case, args, state):
    state.add_(1)
    return [r.flatten()[:1] + 1 for r in operators.tensors(operators.call(case, args))]


def masked(case, args, state):
    results = operators.tensors(operators.call(case, args))
    state.add_(1)
    return [facula.where(facula.zeros_like(r, dtype=facula.bool), r, facula.zeros_like(r)) for r in results]


def step(case, args, state):
    """A training step, which resets the gradient behind the operator."""
    scaled = {
        k: a * state if isinstance(a, facula.Tensor) and a.is_floating_point() else a for k, a in args.items()
    }
    scaled = {
        k: a.clamp(a.detach().min(), a.detach().max()) if a is not args[k] else a for k, a in scaled.items()
    }
    loss = (state * state).sum()
    for r in operators.tensors(operators.call(case, scaled)):
        if r.requires_grad and not r.is_complex():
            loss = loss + r.sum()
    state.grad = None
    loss.backward()
    with facula.no_grad():
        state.sub_(0.1 * state.grad)


FORMS = (whole, unread, in_part, masked, step)


def run(function, case, args, form):
    """What a call gives, and the state that it leaves."""
    facula.manual_seed(1)
    state = facula.ones(1, requires_grad=form is step)
    if form is step:
        state.grad = facula.full((1,), 7.0)
    got = outcome(lambda: function(case, args, state))
    grad = None if state.grad is None else state.grad.tolist()
    return got, state.tolist(), grad, _C.default_generator.get_state().tolist()


def same(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b)
    return a == b if not isinstance(a, facula.Tensor) else isinstance(b, facula.Tensor)


def check(case, form, rng):
    """Does the operator refuse some elements? Raises an AssertionError if the compiled form differs."""
    both = wrong_arguments(case, rng)
    if both is None or (case.writes and form is not whole):
        return False
    good, bad = both

    def copied(args):
        return {k: a.clone() if isinstance(a, facula.Tensor) else a for k, a in args.items()}

    refused = False
    for calls in ((bad,), (good, bad, good)):
        compiled = facula.compile(form)
        for args in calls:
            wanted, got = (run(f, case, copied(args), form) for f in (form, compiled))
            if isinstance(wanted[0], tuple):
                refused = True
            elif not isinstance(got[0], tuple):
                continue  # other tests compare values
            name = f"{case.name}, {form.__name__}"
            assert same(wanted[0], got[0]), f"{name}: {got[0]}, eager: {wanted[0]}"
            assert wanted[1:] == got[1:], f"{name}: leaves {got[1:]}, eager {wanted[1:]}"
    return refused


def test_compiled_functions_refuse_what_eager_refuses():
    rng = random.Random(seed)
    cases = [c for c in operators.cases() if c.samples and not {c.name, c.base} & set(operators.UNDEFINED)]
    every = os.environ.get("FACULA_REFUSALS") == "all"
    rng.shuffle(cases)
    refusing, wrong = 0, []
    for case in cases:
        for form in FORMS if every else (rng.choice(FORMS),):
            try:
                refusing += check(case, form, rng)
            except AssertionError as e:
                print(e)
                wrong.append(str(e))
        if wrong and not every or refusing == COUNT and not every:
            break
    assert not wrong, "\n".join(wrong)
    assert refusing >= COUNT


def _leaf(n=3):
    return facula.ones(n, requires_grad=True)


@pytest.mark.parametrize(
    ("write", "make"),
    [
        (lambda x: x.add_(1.5), lambda: facula.ones(3, dtype=facula.int64)),
        (lambda x: x.abs_(), lambda: facula.ones(3, dtype=facula.complex64)),
        (lambda x: x.float_power_(2), lambda: facula.ones(3)),
        (lambda x: facula.sin(facula.ones(3), out=x), lambda: facula.ones(3, dtype=facula.int32)),
        (lambda x: facula.add(_leaf(), 1, out=x), lambda: facula.ones(3)),
        (lambda x: facula.add(x, 1, out=x), _leaf),
        (lambda x: x.mul_(2), _leaf),
        (lambda x: x[1:].zero_(), _leaf),
        (lambda x: facula.zeros(2, device="cuda"), lambda: facula.ones(3)),
    ],
)
@pytest.mark.parametrize("is_handled", [False, True])
def test_compiled_functions_refuse_writes_and_devices_as_eager_does(write, make, is_handled):
    def f(x):
        y = x.detach() * 2
        if not is_handled:
            write(x)
            return y
        try:
            write(x)
        except (RuntimeError, AssertionError) as e:
            return y + 1, type(e)
        return y

    def outcome(function, x):
        try:
            return "gives", function(x)
        except (RuntimeError, AssertionError) as e:
            return "raises", type(e), str(e)

    compiled = facula.compile(f)
    for _ in range(3):
        a, b = make(), make()
        got, want = outcome(compiled, a), outcome(f, b)
        if is_handled:
            assert facula.equal(got[1][0], want[1][0]) and got[1][1] is want[1][1]
        else:
            assert got == want and want[0] == "raises"
        assert facula.equal(a, b)


@pytest.mark.parametrize("values", [[1, 2, 0], [1, 2, 3]])
def test_a_refusal_behind_a_break_is_handled_with_the_writes_before_it(values):
    class Handler:
        def __enter__(self):
            self.seen = []
            return self

        def __exit__(self, kind, error, trace):
            self.seen.append(kind)
            return True

    def f(x, log):
        with Handler() as handler:
            log.append(str(x.sum().item()))
            handler.begun = True
            y = x // x
            log.append("divided")
            handler.quotient = y
        return handler.seen, handler.begun, hasattr(handler, "quotient")

    compiled = facula.compile(f)
    for _ in range(3):
        x = facula.tensor(values)
        got, want = [], []
        assert compiled(x, got) == f(x, want) and got == want


def test_what_a_trace_cannot_record_behind_a_break_runs_plainly():
    def f(a, calls):
        calls.append(float(a.real.sum()))  # a break
        n = a.shape[-1]
        inverse = facula.linalg.inv(a)
        adjoint = a.mH
        calls.append(n)
        return adjoint, (inverse @ a).real.round(), adjoint.is_conj()

    compiled = facula.compile(f)
    for k in range(3):
        a = facula.tensor([[1 + 1j, 2 - 1j], [0.5j, 3 + k]])
        got_calls, want_calls = [], []
        got, want = compiled(a, got_calls), f(a, want_calls)
        assert facula.equal(got[0], want[0]) and facula.equal(got[1], want[1])
        assert got[2] == want[2] and got_calls == want_calls
        a.mul_(2)  # both show the memory of `a`
        assert facula.equal(got[0], want[0]) and facula.equal(got[0], a.mH)


@pytest.mark.parametrize(
    "change",
    [
        lambda out: facula.randn(3, out=out, requires_grad=True),
        lambda out: facula.randn(3, out=out, requires_grad="no"),
        lambda out: facula.zeros(3, out=out, requires_grad=True),
    ],
)
def test_a_call_that_fails_behind_the_exchange_of_a_tensor_runs_once(change):
    def f():
        out = facula.empty(0)
        try:
            change(out)
        except TypeError:
            return "refused", out, facula.rand(1)
        return "done", out, facula.rand(1)

    compiled, seen = facula.compile(f), []
    for run in (f, compiled, compiled, compiled):
        facula.manual_seed(0)
        name, out, number = run()
        seen.append((name, out.tolist(), out.requires_grad, number.item()))
    assert all(one == seen[0] for one in seen)


class Holder:
    """An object with an attribute."""


def _kept(x):
    n = x.shape[0]
    float(x.sum())  # a break
    return n + 1


def _kept_in_containers(x):
    holder, sizes = Holder(), [x.shape[0], x.shape]
    holder.size = x.shape[0]
    float(x.sum())
    return sizes[0] + 1, x.shape == sizes[1], holder.size == 2


def _branch(x):
    if x.shape == facula.Size([2]):
        return x + 1
    return x - 1 if x.shape[0] != 0 else None


def _handled(x):
    try:
        return x.sum() / (1 // x.shape[0])
    except ZeroDivisionError:
        return x.shape[0]


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.shape[0],
        lambda x: x.shape,
        lambda x: (x.numel() * 2.0, x.size(), str(x.shape)),
        lambda x: range(x.shape[0]),
        lambda x: [k for k in range(len(x))],
        lambda x: {"n": x.shape[0], "t": (len(x), x.size(0))},
        lambda x: x.reshape(x.shape[0], 1).sum(0) / (x.shape[0] + 1),
        lambda x: x.shape[0] == 2,
        lambda x: x.tolist() if x.shape[0] > 1 else x,
        _kept,
        _kept_in_containers,
        _branch,
        _handled,
    ],
)
def test_sizes_that_elements_decide_are_numbers_for_python(use):
    compiled = facula.compile(lambda x: use(x[x > 0] * 2))
    for values in ([1.0, 2, 3], [1.0, -2, 3], [-1.0, -2, -3], [1.0, 2, 3]):
        x = facula.tensor(values)
        got, want = compiled(x), use(x[x > 0] * 2)
        if isinstance(want, facula.Tensor):
            assert facula.equal(got, want)
        else:
            assert got == want and type(got) is type(want) and str(got) == str(want)


@pytest.mark.parametrize("solve", [linalg.inv, lambda a: linalg.solve(a, a), linalg.cholesky, linalg.eigvals])
def test_matrices_that_eager_refuses_are_refused_although_nobody_reads_the_result(solve):
    def f(a):
        solve(a)
        return a + 1

    def refused(a):
        try:
            solve(a)
        except RuntimeError as e:
            return str(e)
        return None

    wrong = facula.full((2, 2), float("inf") if solve is linalg.eigvals else 0.0)
    compiled, handled = facula.compile(f), facula.compile(refused)
    for a in (facula.eye(2), wrong, facula.eye(2), wrong):
        assert handled(a) == refused(a)
        if a is wrong:
            with pytest.raises(RuntimeError, match=re.escape(refused(a))):
                compiled(a)
        else:
            assert facula.equal(compiled(a), a + 1)


@pytest.mark.parametrize("is_parted", [False, True])
def test_a_second_derivative_that_eager_refuses_is_refused(is_parted):
    w, target = facula.randn(5, 3), facula.tensor([0, 1, 2, 3])

    def f(x):
        loss = F.linear_cross_entropy(x, w, target, options=LinearCrossEntropyOptions(batch_chunk_size=2))
        if is_parted:
            print(end="")
        (g,) = facula.autograd.grad(loss, x, create_graph=True)
        return facula.autograd.grad(g.square().sum() + x.sum(), x)

    x, compiled = facula.randn(4, 3, requires_grad=True), facula.compile(f)
    for run in (f, compiled, compiled):
        with pytest.raises(NotImplementedError, match="no second derivative"):
            run(x)
