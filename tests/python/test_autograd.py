"""facula.autograd from Python: modes, functions, checks, anomaly detection."""

import pytest

import facula as torch

autograd = torch.autograd


def leaf(*shape, dtype=torch.float64):
    torch.manual_seed(sum(shape) + 1)
    return torch.randn(list(shape), dtype=dtype, requires_grad=True)


# ---- modes


@pytest.mark.parametrize("mode, inside", [(torch.no_grad, False), (torch.enable_grad, True)])
def test_modes_as_contexts_and_decorators(mode, inside):
    @mode()
    def f():
        return torch.is_grad_enabled()

    @mode
    def g():
        "documented"
        return torch.is_grad_enabled()

    @mode()
    def generate():
        for _ in range(2):
            yield torch.is_grad_enabled()

    outside = not inside
    with torch.set_grad_enabled(outside):
        with mode():
            assert torch.is_grad_enabled() is inside
        assert f() is inside and g() is inside and g.__doc__ == "documented"
        for value in generate():
            assert value is inside and torch.is_grad_enabled() is outside
        with pytest.raises(ZeroDivisionError), mode():
            1 / 0
        assert torch.is_grad_enabled() is outside
    assert torch.is_grad_enabled()


def test_decorated_generators_pass_values_both_ways():
    @torch.no_grad()
    def echo():
        received = []
        try:
            while True:
                try:
                    received.append((yield len(received)))
                except KeyError:
                    received.append("error")
        finally:
            received.append(torch.is_grad_enabled())
            closed.append(received)

    closed = []
    g = echo()
    assert next(g) == 0 and g.send("a") == 1 and g.throw(KeyError()) == 2
    g.close()
    assert closed == [["a", "error", False]] and torch.is_grad_enabled()


def test_set_grad_enabled_switches_at_once():
    torch.set_grad_enabled(False)
    try:
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    assert torch.is_grad_enabled()

    @torch.set_grad_enabled(False)
    def f():
        return torch.is_grad_enabled()

    assert torch.is_grad_enabled() and not f()


def test_inference_mode():
    x = leaf(2)
    with torch.inference_mode():
        y = x * 2
        assert torch.is_inference_mode_enabled() and y.is_inference() and not y.requires_grad
    with torch.inference_mode(False):
        assert (x * 2).requires_grad

    @torch.inference_mode()
    def f():
        return x * 2

    assert f().is_inference() and not torch.is_inference_mode_enabled()
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        y.mul_(x).sum().backward()


# ---- grad and backward


def test_grad_leaves_grad_alone():
    x = leaf(3)
    (g,) = autograd.grad((x**3).sum(), x)
    assert x.grad is None and torch.allclose(g, 3 * x.detach() ** 2)


def test_unused_inputs():
    x, y = leaf(2), leaf(2)
    with pytest.raises(RuntimeError, match="unused|not have been used"):
        autograd.grad((x * 2).sum(), [x, y])
    a, b = autograd.grad((x * 2).sum(), [x, y], allow_unused=True)
    assert a.tolist() == [2, 2] and b is None
    a, b = autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)
    assert b.tolist() == [0, 0]


def test_higher_derivatives():
    x = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    y = x**5
    for expected in (5 * 1.5**4, 20 * 1.5**3, 60 * 1.5**2, 120 * 1.5):
        (y,) = autograd.grad(y, x, create_graph=True)
        assert y.item() == pytest.approx(expected)


def test_backward_with_weights_and_chosen_inputs():
    x, y = leaf(2), leaf(2)
    autograd.backward(
        [x * y, x * 3],
        [torch.tensor([1.0, 2.0], dtype=torch.float64), torch.ones(2, dtype=torch.float64)],
        inputs=[x],
    )
    assert y.grad is None
    assert torch.allclose(x.grad, y.detach() * torch.tensor([1.0, 2.0], dtype=torch.float64) + 3)
    with pytest.raises(RuntimeError, match="cannot be empty"):
        autograd.backward((x * 1).sum(), inputs=[])


# ---- functions


class Cube(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class Separate(autograd.Function):
    @staticmethod
    def forward(x, scale):
        return x * scale, x + scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx, a, b):
        return a * ctx.scale + b, None


def test_a_function_with_its_own_gradient():
    x = leaf(4)
    assert autograd.gradcheck(Cube.apply, x) and autograd.gradgradcheck(Cube.apply, x)
    assert type(Cube.apply(x).grad_fn.name()) is str and "CubeBackward" in Cube.apply(x).grad_fn.name()


def test_forward_apart_from_its_context():
    assert autograd.gradcheck(lambda x: Separate.apply(x, 3.0), leaf(4))


def test_a_gradient_of_none_stays_none():
    class Half(autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g, None

    x, y = leaf(2), leaf(2)
    Half.apply(x, y).sum().backward()
    assert x.grad is not None and y.grad is None


def test_once_differentiable_refuses_the_second_time():
    from facula.autograd.function import once_differentiable

    class Once(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2

    x = leaf(2)
    (g,) = autograd.grad(Once.apply(x).sum(), x)
    assert g.tolist() == [2, 2]
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (g,) = autograd.grad(Once.apply(x), x, weight, create_graph=True)
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        g.sum().backward()


def test_a_function_without_backward_says_so():
    class Nothing(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    with pytest.raises(NotImplementedError, match="backward"):
        Nothing.apply(leaf(2)).sum().backward()


# ---- checks


@pytest.mark.parametrize(
    "f, shapes",
    [
        (lambda x: x.tanh(), [(3,)]),
        (lambda x, y: x @ y, [(2, 3), (3, 2)]),
        (lambda x: torch.softmax(x, -1), [(2, 3)]),
        (lambda x, y: (x * y, x.sum(), y.exp()), [(2, 3), (3,)]),
        (lambda x: x.t()[1:].contiguous(), [(2, 3)]),
        (lambda x: x.sum(), [()]),
    ],
)
def test_gradcheck_accepts_right_gradients(f, shapes):
    inputs = [leaf(*s) for s in shapes]
    assert autograd.gradcheck(f, inputs) and autograd.gradgradcheck(f, inputs)


def test_gradcheck_of_complex_functions():
    x = torch.tensor([1 + 2j, -0.5 + 0.25j], dtype=torch.complex128, requires_grad=True)
    assert autograd.gradcheck(lambda z: z * z * (2 - 1j), x)
    assert autograd.gradcheck(lambda z: z.abs(), x)


def test_gradcheck_names_the_element_that_is_wrong():
    class Wrong(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * torch.tensor([1.0, 2.0], dtype=torch.float64)

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(
        autograd.GradcheckError,
        match=r"d output\[1\] / d input\[1\] is 2 by finite differences and 1 by backward",
    ) as e:
        autograd.gradcheck(Wrong.apply, leaf(2))
    assert "numerical" in str(e.value) and "analytical" in str(e.value)
    assert autograd.gradcheck(Wrong.apply, leaf(2), raise_exception=False) is False


def test_gradcheck_refuses_what_it_cannot_check():
    with pytest.raises(ValueError, match="requires gradient"):
        autograd.gradcheck(lambda x: x, torch.ones(2, dtype=torch.float64))
    with pytest.warns(UserWarning, match="double precision"), pytest.raises(autograd.GradcheckError):
        autograd.gradcheck(lambda x: x.exp(), leaf(2, dtype=torch.float32), atol=0, rtol=0)


# ---- anomalies


def test_anomaly_detection_names_the_forward_line():
    x = torch.tensor([-1.0], requires_grad=True)
    with autograd.detect_anomaly():
        y = x.sqrt()  # the guilty line
        with pytest.raises(RuntimeError, match="returned nan") as e:
            y.sum().backward()
    assert "the guilty line" in str(e.value)
    x.sqrt().sum().backward()
    with autograd.set_detect_anomaly(True, check_nan=False):
        x.sqrt().sum().backward()
    assert not torch._C.is_anomaly_enabled()


def test_hooks_after_accumulation():
    p = leaf(2)
    seen = []
    handle = p.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    (p * 2).sum().backward()
    handle.remove()
    (p * 2).sum().backward()
    assert seen == [[2, 2]] and p.grad.tolist() == [4, 4]


# ---- what a gradient only steps with


@pytest.mark.parametrize(
    "f, second",
    [
        (lambda x: (x**3).clamp(min=0), [0.0, 12.0, torch.inf]),
        (lambda x: torch.relu(x**3), [0.0, 12.0, torch.inf]),
        (lambda x: (x**3).abs(), [12.0, 12.0, torch.inf]),
        (lambda x: torch.maximum(x**3, torch.zeros(3)), [0.0, 12.0, torch.inf]),
        (lambda x: torch.where(x > 0, x**3, x), [0.0, 12.0, torch.inf]),
    ],
)
def test_masks_of_gradients_do_not_meet_infinite_slopes(f, second):
    x = torch.tensor([-2.0, 2.0, torch.inf], requires_grad=True)
    (g,) = autograd.grad(f(x).sum(), x, create_graph=True)
    (h,) = autograd.grad(g.sum(), x)
    assert h.tolist() == second
    assert torch.func.hessian(lambda x: f(x).sum())(x.detach()).diagonal().tolist() == second


@pytest.mark.parametrize("f", [lambda x: x.clamp(-1, 1), torch.nn.functional.hardtanh, torch.relu])
def test_gradients_that_are_steps_have_none(f):
    x = torch.tensor([-2.0, 0.5, torch.nan], requires_grad=True)
    (g,) = autograd.grad(f(x).sum(), x, create_graph=True)
    assert not g.requires_grad


def test_operators_that_are_steps_have_gradients_of_zeros():
    x = torch.tensor([-2.5, 0.5], requires_grad=True)
    (x.sign() + x.floor() + x.round()).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "view",
    [lambda x: x[1], lambda x: x[:, 1:3], lambda x: x.diagonal(1)],
    ids=["select", "slice", "diagonal"],
)
def test_the_gradient_of_the_inverse_of_a_view_is_that_view(view):
    x = leaf(3, 4)
    y = view(x)
    w = torch.ones(y.shape, dtype=y.dtype, requires_grad=True)
    (g,) = autograd.grad(y, x, w, create_graph=True)
    seen = []
    g.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs[0], outputs[0])))
    v = torch.rand(3, 4, dtype=x.dtype)
    (of_w,) = autograd.grad(g, w, v)
    assert torch.equal(of_w, view(v))
    ((given, arrived),) = seen
    assert given.untyped_storage().data_ptr() == arrived.untyped_storage().data_ptr()


# ---- writes in place


@pytest.mark.parametrize(
    "write",
    [
        lambda z: z.lt_(0.0),
        lambda z: z.eq_(1.0),
        lambda z: z.ge_(z.detach() * 0),
        lambda z: z.logical_not_(),
        lambda z: z.logical_and_(z.detach().clone()),
        lambda z: z.bernoulli_(0.5),
        lambda z: z.normal_(),
        lambda z: z.fill_(3.0),
        lambda z: z.zero_(),
    ],
)
def test_what_overwrites_a_tensor_ends_its_gradient(write):
    y = leaf(3)
    z = torch.outer(y, y)
    write(z)
    assert z.requires_grad
    (z * torch.arange(9.0).reshape(3, 3)).sum().backward()
    assert y.grad.tolist() == [0.0] * 3
    y.grad = None
    z = torch.outer(y, y)
    write(z[1:])  # the rest keeps its own
    z.sum().backward()
    expected = torch.zeros(3, dtype=torch.float64)
    expected += y.detach()[0]
    expected[0] += y.detach().sum()
    assert torch.allclose(y.grad, expected)


@pytest.mark.parametrize(("rows", "wrap"), [(3, False), (7, True)])
def test_a_filled_diagonal_has_no_gradient(rows, wrap):
    y = leaf(rows, 3)
    z = y * 2
    z.fill_diagonal_(0, wrap=wrap)
    z.sum().backward()
    assert torch.equal(y.grad, (z != 0).double() * 2)


@pytest.mark.parametrize(
    ("in_place", "apart"),
    [
        (
            lambda x, s, i: x.scatter_reduce_(0, i, s, "amax"),
            lambda x, s, i: x.scatter_reduce(0, i, s, "amax"),
        ),
        (
            lambda x, s, i: x.scatter_reduce_(0, i, s, "prod"),
            lambda x, s, i: x.scatter_reduce(0, i, s, "prod"),
        ),
        (lambda x, s, i: x.index_reduce_(0, i, s, "amin"), lambda x, s, i: x.index_reduce(0, i, s, "amin")),
        (lambda x, s, i: x.index_reduce_(0, i, s, "prod"), lambda x, s, i: x.index_reduce(0, i, s, "prod")),
        (lambda x, s, i: x.polygamma_(1) * s.sum(), lambda x, s, i: torch.polygamma(1, x) * s.sum()),
    ],
)
def test_in_place_forms_keep_the_value_that_they_overwrite(in_place, apart):
    x, s, i = leaf(5), leaf(3), torch.tensor([0, 3, 3])
    want = torch.autograd.grad(apart(x * 1, s, i).sin().sum(), (x, s))
    got = torch.autograd.grad(in_place(x * 1, s, i).sin().sum(), (x, s))
    assert all(torch.allclose(a, b) for a, b in zip(got, want))


@pytest.mark.parametrize(
    "parts",
    [
        lambda x: x.tensor_split(2),
        lambda x: x.tensor_split((1, 3)),
        lambda x: torch.hsplit(x, 2),
        lambda x: torch.vsplit(x, 2),
        lambda x: torch.dsplit(x, [1]),
        lambda x: torch.unsafe_chunk(x, 2),
    ],
)
def test_parts_that_are_slices_may_be_written(parts):
    x = leaf(4, 4, 4)
    a = parts(x * 1)
    a[0].mul_(3)
    a[0].sum().backward()
    b = parts(torch.ones(4, 4, 4))
    b[0].mul_(0)
    assert x.grad.sum() == 3 * b[0].numel()
    y = x * 1
    with pytest.raises(RuntimeError, match="returns multiple views"):
        y.chunk(2)[0].mul_(2)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a / b,
        lambda a, b: a * b,
        torch.atan2,
        torch.logaddexp,
        torch.pow,
        torch.fmod,
    ],
)
def test_results_of_operators_on_two_tensors_may_be_written(f):
    a, b = leaf(3).detach().abs().requires_grad_(), leaf(3).detach().abs().add(1).requires_grad_()
    want = torch.autograd.grad(f(a, b).sum() * 2, (a, b), allow_unused=True)
    y = f(a, b)
    y.mul_(2)
    got = torch.autograd.grad(y.sum(), (a, b), allow_unused=True)
    assert all(torch.allclose(g, w) for g, w in zip(got, want))


def test_retained_gradients_have_memory_of_their_own():
    x = leaf(3)
    y = x * 2
    y.retain_grad()
    z = y + 1
    z.retain_grad()
    z.sum().backward()
    z.grad.mul_(7)
    assert y.grad.tolist() == [1.0] * 3 and x.grad.tolist() == [2.0] * 3
