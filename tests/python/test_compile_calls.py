"""Compiled functions give what the functions themselves do: rates that a step has set, calls that
nobody reads, histories of several results, places in memory, objects of Python."""

import contextlib
import functools
import itertools

import numpy
import pytest
from test_compile_as_eager import leaf, same_as_eager

import facula
from facula import autograd

# ---- optimizers and schedules


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("by", ["assignment", "schedule"])
def test_steps_take_the_rate_that_the_same_call_has_set(by, calls):
    def parameters_after(compiles):
        facula.manual_seed(1)
        model = facula.nn.Linear(3, 2)
        optimizer = facula.optim.Adam(model.parameters(), lr=0.1)
        schedule = facula.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

        def step(x, rate):
            for k in range(calls):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                if by == "assignment":
                    optimizer.param_groups[0]["lr"] = rate * (k + 1)
                optimizer.step()
                if by == "schedule":
                    schedule.step()

        run = facula.compile(step) if compiles else step
        for rate in (0.1, 0.3, 0.7, 0.05):
            run(facula.ones(4, 3), rate)
        return [p.tolist() for p in model.parameters()]

    assert parameters_after(True) == parameters_after(False)


# ---- random numbers


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: facula.distributions.Gamma(x, x).sample(),
        lambda x: facula.distributions.Dirichlet(x).rsample(),
        lambda x: facula.binomial(x * 20, x / 4),
        facula.poisson,
    ],
)
def test_numbers_that_are_drawn_by_rejection_are_those_of_eager_mode(draw):
    def f():
        facula.manual_seed(0)
        drawn = draw(facula.linspace(0.5, 3, 12).view(3, 4))
        return drawn.tolist(), facula.rand(2).tolist()

    same_as_eager(f)


@pytest.mark.parametrize("traces", [facula.compile, lambda f: f])
def test_slopes_without_a_history_of_their_own(traces):
    x = facula.tensor([0.5, 1.5, -2.0, 0.2])

    def f(x, scale, zero):
        y = facula._C.ops._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -8, 7)
        return autograd.grad(y.sum(), (x, scale, zero))

    tensors = [t.clone().requires_grad_() for t in (x, facula.tensor(0.15), facula.tensor(0.0))]
    grads = traces(f)(*tensors)
    assert grads[0].tolist() == [1.0, 0.0, 0.0, 1.0]
    for a, b in zip(grads, f(*tensors), strict=True):
        assert facula.allclose(a, b)


# ---- calls that are refused


@pytest.mark.parametrize(
    "call",
    [
        lambda x: facula.add(x, x, alpha=True),
        lambda x: facula.sub(x.long(), x.long(), alpha=0.5),
        lambda x: facula.divide(x, 2, rounding_mode="up"),
        lambda x: facula.mean(x.to(facula.complex64), out=facula.empty(())),
    ],
)
def test_a_call_is_refused_although_nobody_reads_its_result(call):
    x = facula.ones(2)

    def f():
        try:
            call(x)
        except RuntimeError as error:
            return str(error)
        return "no error"

    assert "no error" != same_as_eager(f)


def test_an_out_of_a_wider_dtype_decides_how_a_reduction_is_computed():
    x = facula.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 5.0]], dtype=facula.float16)
    for reduce in (facula.std, facula.var, facula.logsumexp):

        def f(reduce=reduce):
            return reduce(x, 1, out=facula.empty(2)).tolist()

        assert same_as_eager(f) == reduce(x.float(), 1).tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda: facula.nn.Conv2d(2, 4, 3, groups=-1),
        lambda: facula.nn.BatchNorm2d(2)(facula.ones(2, 2)),
        lambda: facula.nn.MaxUnpool1d(2.0),
        lambda: facula.nn.CircularPad1d(1)(3),
        lambda: facula.nn.functional.cross_entropy(3, facula.ones(2)),
        lambda: facula.nn.Sequential(facula.nn.Linear(2, 3), facula.nn.BatchNorm1d(4))(
            facula.ones(2, 2, 2, 2)
        ),
    ],
)
def test_errors_of_modules_name_the_class(call):
    def f(breaks):
        if breaks:
            facula._dynamo.graph_break()
        try:
            call()
        except Exception as error:
            return type(error), str(error)

    for breaks in (False, True):
        same_as_eager(lambda breaks=breaks: f(breaks))


# ---- histories


def test_results_that_share_no_calls_have_backward_passes_of_their_own():
    def losses(a, b, w):
        return (a.exp() * w).sum(), (b.sin() * w).pow(2).sum()

    def gradients(f, first, create_graph):
        tensors = [facula.linspace(k, k + 1, 3, dtype=facula.float64).requires_grad_() for k in range(3)]
        both = f(*tensors)
        for loss in (both[first], both[1 - first]):
            loss.backward(create_graph=create_graph)
        unused = autograd.grad(f(*tensors)[0], tensors, allow_unused=True)
        return [t.grad.detach() for t in tensors], [g is None for g in unused]

    compiled = facula.compile(losses)
    for first, create_graph in itertools.product((0, 1), (False, True)):
        (got, unused), (expected, also) = (gradients(f, first, create_graph) for f in (compiled, losses))
        assert unused == also == [False, True, False]
        for a, b in zip(got, expected, strict=True):
            assert facula.allclose(a, b, rtol=1e-12, atol=0)

    def shared(x):
        y = x.exp()
        return y.sum(), y.sin().sum()

    for f in (shared, facula.compile(shared)):
        x = leaf(2)
        first, second = f(x)
        first.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            second.backward()


def test_gradients_of_another_result_are_not_infinity_times_nothing():
    def f(w):
        return w.exp().sum(), w.sqrt().sum()

    for g in (f, facula.compile(f)):
        w = facula.zeros(2, dtype=facula.float64, requires_grad=True)
        (grad,) = autograd.grad(g(w)[0], w, create_graph=True)
        assert grad.tolist() == [1.0, 1.0]


def test_hooks_are_removed_at_each_call():
    def f():
        w = leaf(2)
        handle = w.register_hook(lambda g: g * 2)
        facula._dynamo.graph_break()
        handle.remove()
        facula._dynamo.graph_break()
        w.sum().backward()
        return w.grad.tolist()

    assert same_as_eager(f) == [1.0, 1.0]


def test_writes_to_views_of_results_reach_the_histories_of_these():
    def f(a):
        x = a * 2
        v = x[0]
        facula._dynamo.graph_break()
        v.mul_(3)
        return autograd.grad(x.sum(), a)[0].tolist(), v._base is x

    assert same_as_eager(lambda: f(leaf(2, 2))) == ([[6.0, 6.0], [2.0, 2.0]], True)


# ---- memory


def test_places_in_memory_are_those_of_eager_mode():
    x = facula.arange(12.0).view(3, 4)
    same_as_eager(lambda: [t.storage_offset() for t in (x[1], x.t()[1], (x * 2)[1], facula.ones(3, 4)[2])])
    same_as_eager(lambda: [t._is_view() for t in (x[0], (x + 1)[0], x + 1, facula.ones(3).view(-1))])
    same_as_eager(lambda: [x.is_set_to(x), x.is_set_to(x.view(3, 4)), (x + 1).is_set_to(x)])
    same_as_eager(lambda: facula.ones(3, 4)[1].untyped_storage().nbytes())
    x = facula.ones(3, 3) + facula.eye(3)
    same_as_eager(lambda: facula.linalg.inv(x, out=facula.empty(0)).stride())


@pytest.mark.parametrize("ends", ["break", "return"])
@pytest.mark.parametrize("detaches", [False, True])
def test_a_loss_behind_a_backward_pass_keeps_its_history(ends, detaches):
    def parameters_after(compiles):
        facula.manual_seed(0)
        one, two = facula.nn.Linear(2, 2).double(), facula.nn.Linear(2, 1).double()
        optimizer = facula.optim.SGD([*one.parameters(), *two.parameters()], 0.1)

        def step(x):
            optimizer.zero_grad()
            y = one(x)
            first = two(y.detach() if detaches else x).exp().mean()
            first.backward()
            second = two(y).mean()
            if ends == "return":
                return second
            facula._dynamo.graph_break()
            second.backward()
            optimizer.step()

        run = facula.compile(step) if compiles else step
        for k in range(3):
            second = run(facula.ones(4, 2).double() * k)
            if ends == "return":
                second.backward()
                optimizer.step()
        return [p.tolist() for p in (*one.parameters(), *two.parameters())]

    for a, b in zip(parameters_after(True), parameters_after(False), strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_capture_that_begins_again_leaves_no_hooks():
    def f(x):
        x.grad = None
        x.exp().sum().backward()
        with autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = x.sin().sum()
            facula._dynamo.graph_break()
        y.backward()
        return x.grad

    x = leaf(2)
    expected, got = f(x).tolist(), facula.compile(f)(x).tolist()
    assert expected == got
    with autograd.graph.disable_saved_tensors_hooks("there are none"):
        pass


# ---- objects of Python


def test_an_init_that_is_no_function_is_called():
    class Named:
        def __new__(cls, *args, **kwargs):
            return object.__new__(cls)

        def set(self, name, number):
            self.name, self.number = name, number

        __init__ = functools.partialmethod(set, number=3)

    class Plain:
        __init__ = functools.partialmethod(Named.set, number=3)

    def f(x):
        a, b = Named("a"), Plain("b")
        return (x * a.number).tolist(), a.name, b.number

    assert same_as_eager(lambda: f(facula.ones(2))) == ([3.0, 3.0], "a", 3)


def test_classes_of_c_treat_assignments_to_attributes():
    from tensorboard.compat.proto.event_pb2 import Event

    def f(time):
        event = Event()
        event.wall_time = time
        return event.wall_time

    assert same_as_eager(lambda: f(2.0)) == 2.0


def test_as_many_tensors_as_results_are_written():
    x = facula.ones(3, 2)

    def f():
        try:
            facula.unbind_copy(x, out=[facula.empty(2)])
        except RuntimeError as error:
            return str(error)

    assert "3 tensors, but got 1" in same_as_eager(f)


def test_an_explanation_captures_by_itself():
    def f():
        explained = facula.compiler.explain(lambda x: x.sin() if x.sum() > 0 else x, facula.ones(2))
        return explained.graph_count, explained.graph_break_count

    assert same_as_eager(f) == (2, 1)


def test_checkpoints_refuse_warn_and_enter_contexts():
    from facula.utils.checkpoint import checkpoint

    entered = []

    @contextlib.contextmanager
    def region(name):
        entered.append(name)
        yield

    def call(x, **options):
        try:
            return checkpoint(facula.exp, x, **options).tolist()
        except Exception as error:
            return type(error), str(error)

    x = facula.ones(2, requires_grad=True)
    for options in (
        {"use_reentrant": True, "a": 1},
        {"use_reentrant": True, "debug": True},
        {"use_reentrant": False, "determinism_check": "none of these"},
        {"use_reentrant": False},
        {},
    ):
        same_as_eager(lambda options=options: call(x, **options))
    contexts = {"context_fn": lambda: (region("first"), region("again")), "use_reentrant": False}
    same_as_eager(lambda: call(x, **contexts), calls=2)
    assert entered == ["first"] * 3


def test_memory_without_a_value_is_filled_where_that_is_asked_for():
    f = facula.compile(lambda: (facula.empty(2), facula.empty_like(facula.ones(2, dtype=facula.int8))))
    fills = facula.is_deterministic()
    try:
        for on in (False, True, False, True):
            facula.use_deterministic_algorithms(on)
            real, whole = f()
            assert not on or (real.isnan().all() and whole.tolist() == [127, 127])
    finally:
        facula.use_deterministic_algorithms(fills)
