"""Forward mode: tangents through views, in-place writes, modules, custom functions, and over reverse mode.
That every operator's tangent is right is test_operators.py's; Jacobians are held against those in closed form
or against reverse mode.
"""

import threading

import pytest

import facula as F
from facula import func, nn
from facula.autograd import forward_ad as fw


def push(f, *pairs):
    with fw.dual_level():
        y = f(*(fw.make_dual(x, t) for x, t in pairs))
        return fw.unpack_dual(y).tangent


def double(*sizes):
    F.manual_seed(sum(sizes) + 1)
    return F.randn(*sizes, dtype=F.float64)


def test_unpack_gives_the_tensor_and_its_tangent():
    x, t = double(3), double(3)
    with fw.dual_level():
        dual = fw.make_dual(x, t)
        value, tangent = fw.unpack_dual(dual)
        assert tangent is not None and F.equal(tangent, t) and F.equal(value, x)
        assert value.data_ptr() == x.data_ptr()
        assert fw.unpack_dual(value).tangent is None
        assert fw.unpack_dual(x).tangent is None
        assert fw.unpack_dual(dual.detach()).tangent is None
    assert fw.unpack_dual(dual).tangent is None


def test_a_tangent_ends_with_its_level():
    x = double(3)
    with fw.dual_level():
        old = fw.make_dual(x, x)
    with fw.dual_level():
        assert fw.unpack_dual(old * 2).tangent is None


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda x: fw.make_dual(x, x), RuntimeError, "not inside of a dual level"),
        (lambda x: push(lambda y: y, (x, x[:1])), RuntimeError, "different size"),
        (lambda x: push(lambda y: y, (x, x.float())), RuntimeError, "dtype"),
        (lambda x: push(lambda y: y, (x.long(), x.long())), RuntimeError, "floating point or complex"),
        (lambda x: push(lambda y: y, (x, 1.0)), ValueError, "expected tangent to be a tensor"),
        (
            lambda x: push(lambda y: F.add(y, y, out=F.empty(3, dtype=F.float64)), (x, x)),
            RuntimeError,
            "out=",
        ),
    ],
)
def test_wrong_use_says_so(make, error, text):
    with pytest.raises(error, match=text):
        make(double(3))


def test_levels_do_not_nest():
    with fw.dual_level(), pytest.raises(RuntimeError, match="Nested forward mode"):
        fw.enter_dual_level()
    with pytest.raises(RuntimeError, match="no level is entered"):
        fw.exit_dual_level()


def test_views_and_writes_share_tangents():
    x, t, v = double(4, 3), double(4, 3), double(3)

    def f(x):
        y = x * 1
        y[1] = y[0] * y[2]  # a write through a view
        y.t()[0].mul_(2)
        return y

    want = t.clone()
    want[1] = t[0] * x[2] + x[0] * t[2]
    want[:, 0] *= 2
    assert F.allclose(push(f, (x, t)), want)

    def into_a_constant(v):  # the written tensor, and views of it, had no tangent before
        y = F.zeros(2, 3, dtype=F.float64)
        y[1].copy_(v.exp())
        return y

    got = push(into_a_constant, (v, v))
    assert F.allclose(got[1], v * v.exp()) and not got[0].any()


def test_a_write_of_a_constant_ends_the_tangent_there():
    x = double(3)
    assert push(lambda x: (x * 2).zero_() + x, (x, x)).equal(x)
    assert push(lambda x: (x * 2).fill_(1.0), (x, x)).equal(F.zeros(3, dtype=F.float64))


def test_no_grad_does_not_stop_tangents():
    x = double(3)
    with F.no_grad():
        assert F.allclose(push(lambda x: x.sin(), (x, x)), x * x.cos())


def test_results_are_not_on_the_tape_unless_inputs_are():
    x, t = double(3), double(3)
    with fw.dual_level():
        y = fw.make_dual(x, t).exp()
        assert not y.requires_grad and not fw.unpack_dual(y).tangent.requires_grad
        z = fw.make_dual(x.requires_grad_(), t).exp()
        tangent = fw.unpack_dual(z).tangent
        assert z.requires_grad and tangent.requires_grad
        # reverse over forward
        assert F.allclose(F.autograd.grad(tangent.sum(), x)[0], t * x.exp())


def test_forward_over_reverse_gives_hessian_products():
    x, t = double(5), double(5)
    f = lambda x: (x.exp() * x.sin()).sum() + (x[:2] * x[1:3]).prod()  # noqa: E731
    product = push(func.grad(f), (x, t))
    assert F.allclose(product, func.hessian(f)(x) @ t)
    x.requires_grad_()
    (g,) = F.autograd.grad(f(x), x, create_graph=True)
    assert F.allclose(product, F.autograd.grad(g, x, t)[0])


def test_a_module_with_normalisation_and_loss():
    F.manual_seed(3)
    net = nn.Sequential(
        nn.Linear(6, 5), nn.BatchNorm1d(5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 4)
    ).double()
    x, t = double(7, 6), double(7, 6)
    target = F.arange(7) % 4
    loss = lambda x: nn.functional.cross_entropy(net(x), target)  # noqa: E731
    got = push(loss, (x, t))
    x.requires_grad_()
    want = (F.autograd.grad(loss(x), x)[0] * t).sum()
    assert F.allclose(got, want)


def test_dropout_draws_one_mask_for_value_and_tangent():
    x = F.ones(1000, dtype=F.float64)
    with fw.dual_level():
        y = nn.functional.dropout(fw.make_dual(x, x * 3), 0.5)
        value, tangent = fw.unpack_dual(y)
    assert 0 < value.count_nonzero() < 1000 and F.equal(tangent, value * 3)


def test_a_custom_function_uses_its_jvp():
    class Cube(F.autograd.Function):
        @staticmethod
        def forward(ctx, x, power):
            ctx.save_for_forward(x)
            ctx.save_for_backward(x)
            ctx.power = power
            return x.detach() ** power

        @staticmethod
        def jvp(ctx, t, _):
            (x,) = ctx.saved_tensors
            return t * ctx.power * x ** (ctx.power - 1)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.power * x ** (ctx.power - 1), None

    x, t = double(4), double(4)
    assert F.allclose(push(lambda x: Cube.apply(x, 3) * 2, (x, t)), 6 * t * x**2)

    class Without(F.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.detach().round()

    with pytest.raises(NotImplementedError, match="implement the jvp"):
        push(Without.apply, (x, t))


def test_a_number_with_a_tangent_is_no_constant():
    x, m, t = double(3), F.tensor(0.1, dtype=F.float64), F.tensor(5.0, dtype=F.float64)
    assert push(lambda m: F.clamp(x, m), (m, t)).tolist() == [5.0 if v < 0.1 else 0.0 for v in x.tolist()]
    m = m.requires_grad_() * 1  # nor is one on the tape
    F.clamp(x, m).sum().backward()


def test_levels_belong_to_their_thread():
    seen = []
    with fw.dual_level():
        thread = threading.Thread(target=lambda: seen.append(F._C.forward_level()))
        thread.start()
        thread.join()
    assert seen == [False]


# ---- facula.func


def test_jacobians_by_both_modes_agree():
    a, b = double(2, 3), double(3)

    def f(a, b):
        return {"product": a @ b, "both": (a.sin() * b, b.prod())}

    for argnums in (0, 1, (0, 1)):
        forward, backward = func.jacfwd(f, argnums)(a, b), func.jacrev(f, argnums)(a, b)
        for x, y in zip(func._leaves(forward), func._leaves(backward), strict=True):
            assert x.shape == y.shape and F.allclose(x, y)
    assert F.allclose(func.jacfwd(f, 1)(a, b)["product"], a)


def test_hessian_of_a_quadratic_form_is_its_matrix():
    m, x = double(4, 4), double(4)
    assert F.allclose(func.hessian(lambda x: x @ m @ x)(x), m + m.t())


def test_vjp_pulls_trees_back():
    x = {"a": double(3), "b": (double(2),)}
    value, pull, aux = func.vjp(lambda x: ((x["a"].sum(), x["b"][0] * 2), "kept"), x, has_aux=True)
    (g,) = pull((F.tensor(3.0, dtype=F.float64), F.ones(2, dtype=F.float64)))
    assert aux == "kept" and not value[0].requires_grad
    assert g["a"].tolist() == [3.0] * 3 and g["b"][0].tolist() == [2.0, 2.0]
    assert len(pull((value[0], value[1]))) == 1  # again


def test_grad_and_value_with_aux():
    x = double(3)
    g, (value, aux) = func.grad_and_value(lambda x: ((x**2).sum(), x.shape), has_aux=True)(x)
    assert F.allclose(g, 2 * x) and F.allclose(value, (x**2).sum()) and aux == (3,)
    assert F.allclose(func.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x + 1)[1], x)
    assert F.allclose(func.grad(lambda x: func.grad(lambda y: (y**3).sum())(x).sum())(x), 6 * x)
    with pytest.raises(RuntimeError, match="scalar tensor"):
        func.grad(lambda x: x)(x)


def test_functional_call_sets_attributes_that_the_module_does_not_have():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.plain = nn.Linear(2, 2), F.ones(2)

        def forward(self, x):
            return x * self.inner.scale + self.plain

    m, x, two = Scaled(), F.ones(2), F.full((2,), 2.0)
    assert func.functional_call(m, {"inner.scale": two, "plain": two}, x).tolist() == [4, 4]
    assert not hasattr(m.inner, "scale") and m.plain.tolist() == [1, 1]
    for names, error, text in (
        ({"inner": two}, TypeError, "attribute `inner`: .* is not an instance of facula.Tensor"),
        ({"inner.bias": [1]}, TypeError, "is not an instance of facula.Tensor"),
        ({"outer.scale": two}, AttributeError, "has no attribute `outer`"),
        (3, ValueError, "to be a dict, or a list/tuple of dicts"),
        (({"plain": two}, {"plain": two}), ValueError, r"\['plain'\] appeared in multiple dictionaries"),
    ):
        with pytest.raises(error, match=text):
            func.functional_call(m, names, x)
    assert m.plain.tolist() == [1, 1]


def test_functional_call_replaces_tied_weights_together():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(F.zeros(1))
            self.b, self.c = self.a, self.a

        def forward(self):
            return self.a + 10 * self.b + 100 * self.c

    def call(names, **options):
        return func.functional_call(m, names, (), **options).item()

    m, one, two = Tied(), F.ones(1), F.full((1,), 2.0)
    assert [call({n: one}) for n in "abc"] == [111] * 3 and call({"a": one, "c": one}) == 111
    with pytest.raises(ValueError, match=r"multiple values for keys \['a', 'c'\], which are tied"):
        call({"a": one, "c": two})
    assert call({"a": one, "c": two}, tie_weights=False) == 201
    assert call({"a": one}, strict=True) == 111
    with pytest.raises(RuntimeError, match=r"missing keys \['b', 'c'\]"):
        call({"a": one}, strict=True, tie_weights=False)
    assert m.a is m.b is m.c and m.a.item() == 0


def test_functional_call_replaces_parameters_for_one_call():
    F.manual_seed(1)
    net = nn.Linear(3, 2)
    x, w = F.randn(4, 3), F.zeros(2, 3)
    got = func.functional_call(net, {"weight": w}, (x,))
    assert F.equal(got, net.bias.expand(4, 2)) and net.weight.any()
    with pytest.raises(
        RuntimeError, match=r"unexpected keys \['nothing'\], missing keys \['weight', 'bias'\]"
    ):
        func.functional_call(net, {"nothing": w}, (x,), strict=True)
    params = {n: p.detach() for n, p in net.named_parameters()}
    grads = func.grad(lambda p: func.functional_call(net, p, (x,)).pow(2).sum())(params)
    net(x).pow(2).sum().backward()
    assert all(F.allclose(grads[n], p.grad) for n, p in net.named_parameters())


def test_second_derivatives_of_gathers_and_scatters():
    index = F.tensor([[0, 2], [1, 1]])
    x = double(2, 3).requires_grad_()
    for f in (lambda x: x.gather(1, index), lambda x: x.index_select(1, index[0]), lambda x: x[:, index[0]]):
        assert F.autograd.gradgradcheck(lambda x: f(x) ** 3, (x,))


@pytest.mark.parametrize("zeros", [(), (0,), (2,), (3,), (0, 3), (1, 2), (0, 1, 3)])
def test_second_derivatives_of_products_at_zeros(zeros):
    """Products are polynomials: differences of their gradients are exact but for rounding."""
    for dtype in (F.float64, F.complex128):
        x = double(2, 4).to(dtype)
        for k in zeros:
            x[1, k] = 0
        x.requires_grad_()
        for f in (
            lambda x: x.prod(1),
            lambda x: x.prod(),
            lambda x: x.cumprod(1),
            lambda x: x.cumprod(0) * 2,
        ):
            assert F.autograd.gradgradcheck(f, (x,))


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3])
def test_norms_at_zero_have_the_tangent_0(p):
    for x in (F.zeros(3, dtype=F.float64), F.zeros(0, dtype=F.float64)):
        tangent = push(lambda x: F.linalg.vector_norm(x, p), (x, F.zeros_like(x)))
        assert tangent == 0, (p, x.shape)


def test_results_without_a_gradient_have_no_direction():
    x = double(4, 3)
    with fw.dual_level():
        dual = fw.make_dual(x, F.ones_like(x))
        found = F.native_batch_norm(dual, None, None, None, None, True, 0.1, 1e-5)
        assert [fw.unpack_dual(y).tangent is None for y in found] == [False, True, True]


def test_products_with_jacobians_nest():
    """Within one level the inner product is the gradient of a gradient."""

    def f(x):
        return (x.prod() * x.sin().sum()).exp().log1p()

    def twice(x):
        return func.jvp(lambda y: func.jvp(f, (y,), (v,))[1], (x,), (v,))[1]

    x, v = (F.tensor(t, dtype=F.float64) for t in ([0.5, 1.0, -2.0], [1.0, 2.0, 3.0]))
    h = F.func.hessian(f)(x)
    assert F.allclose(twice(x), v @ h @ v) and not twice(x).requires_grad
    assert F.allclose(F.func.jacfwd(F.func.jacfwd(f))(x), h)
    third = F.func.jacfwd(F.func.jacfwd(F.func.jacfwd(f)))(x)
    assert F.allclose(F.func.grad(twice)(x), F.einsum("ijk,i,j->k", third, v, v))
    with_shape = lambda x: func.jvp(lambda y: (f(y), y.shape), (x,), (v,), has_aux=True)[1:]  # noqa: E731
    _, product, shape = func.jvp(with_shape, (x,), (v,), has_aux=True)
    assert F.allclose(product, v @ h @ v) and shape == (3,)


def test_tangents_lie_as_their_values_do():
    # Attention gives heads side by side, and a view joins them.
    x, t = double(2, 2, 3, 4), double(2, 2, 3, 4)

    def joined(x):
        y = nn.functional.scaled_dot_product_attention(x, x, x)
        return y.transpose(1, 2).reshape(2, 3, 8)

    step = 1e-6
    y, tangent = func.jvp(joined, (x,), (t,))
    slope = (joined(x + step * t) - joined(x - step * t)) / (2 * step)
    assert F.allclose(tangent, slope, 1e-6, 1e-8)
    layer = nn.MultiheadAttention(8, 2, dtype=F.float64)
    y = func.jvp(lambda x: layer(x, x, x, need_weights=False)[0], (double(3, 2, 8),), (double(3, 2, 8),))
    assert y[1].shape == (3, 2, 8)


# ---- tangents and writes in place


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.clone(),
        lambda x: x + 2,
        lambda x: x * 1,
        lambda x: x / 1,
        lambda x: x.roll(0),
        lambda x: x.tril(1),
        lambda x: nn.functional.pad(x, (0, 0)),
        lambda x: nn.Identity()(x.clone()),
        lambda x: F.select_scatter(x, F.zeros(2, dtype=x.dtype), 0, 1),
    ],
)
def test_a_write_to_a_copy_leaves_the_tangents_of_its_operand(copy):
    x, t = double(2, 2), double(2, 2)
    given = t.clone()

    def f(x):
        y = copy(x)
        y[0] = 7.0
        return y.sum() + (x * x).sum()

    variable = x.clone().requires_grad_()
    (g,) = F.autograd.grad(f(variable), variable)
    value, product = func.jvp(f, (x,), (t,))
    assert F.allclose(product, (g * t).sum()) and F.equal(t, given)
    assert F.allclose(push(f, (x, t)), product) and F.equal(t, given)


def test_results_of_one_call_do_not_share_a_tangent():
    x, t = double(3), double(3)

    def f(x):
        a, b = F.frexp(x)[0] * 1, x * 1
        b.zero_()
        p, q = F.aminmax(x)
        p.mul_(2)
        return a.sum() + p + q

    variable = x.clone().requires_grad_()
    (g,) = F.autograd.grad(f(variable), variable)
    assert F.allclose(push(f, (x, t)), (g * t).sum())


def test_writes_through_overlapping_windows_take_part_as_often_as_they_are_seen():
    x, t = double(5), double(5)

    def f(x):
        y = x * 1
        y.unfold(0, 3, 1).mul_(2)
        return y

    assert F.allclose(push(f, (x, t)), t * F.tensor([2.0, 4.0, 8.0, 4.0, 2.0], dtype=F.float64))


def test_views_that_take_the_place_of_their_tensor_take_its_tangent_along():
    x, t = double(2, 3), double(2, 3)
    assert F.equal(push(lambda x: (x * 1).transpose_(0, 1), (x, t)), t.t())
    assert F.equal(push(lambda x: (x * 1).t_(), (x, t)), t.t())
    assert F.equal(push(lambda x: (x * 1).unsqueeze_(1), (x, t)), t.unsqueeze(1))
    assert F.equal(
        push(lambda x: (x * 1).as_strided_((2, 2), (1, 2), 1), (x, t)), t.as_strided((2, 2), (1, 2), 1)
    )

    def written(x):
        y = x * 1
        y.t_()
        y[0].mul_(3)
        return y

    want = t.t().clone()
    want[0] *= 3
    assert F.allclose(push(written, (x, t)), want)


def test_in_place_forms_refuse_what_they_refuse_without_tangents():
    x = double(3)
    with pytest.raises(RuntimeError, match="can't be cast"):
        push(lambda x: F.ones(3, dtype=F.int64).add_(x), (x, x))
    with pytest.raises(RuntimeError, match="broadcast shape"):
        push(lambda x: F.ones(1, dtype=F.float64).add_(x), (x, x))
    with pytest.raises(RuntimeError, match="forward grad"):
        push(lambda x: (x * 1).resize_(2), (x, x))


def test_what_is_cut_off_has_no_tangent():
    x, t = double(3), double(3)

    def cut_in_place(x):
        y = x * x
        y.detach_()
        return y

    for cut in (lambda x: F.detach(x * x), cut_in_place, lambda x: (x * x).data, lambda x: (x * x).detach()):
        f = lambda x: x * cut(x)  # noqa: E731
        want = x * x
        assert F.allclose(push(f, (x, t)), want * t)
        assert F.allclose(func.jvp(f, (x,), (t,))[1], want * t)
        assert F.allclose(func.jacfwd(f)(x), F.diag(want))
        assert F.allclose(func.vmap(lambda x, t: func.jvp(f, (x,), (t,))[1])(x[None], t[None])[0], want * t)
        mode = F.autograd.functional.jacobian(f, x, vectorize=True, strategy="forward-mode")
        assert F.allclose(mode, F.diag(want))
        # The Hessian of x^2 c with c held fixed.
        assert F.allclose(func.hessian(lambda x: f(x).sum())(x), F.zeros(3, 3, dtype=F.float64))
        assert F.allclose(func.hessian(lambda y: (y * f(y)).sum())(x), F.diag(2 * want))


def test_jacobians_by_forward_mode_look_at_elements():
    x = double(3).abs() + 1

    def f(x):
        assert (x > 0).all()
        n = 0
        while x.sum().item() < 50:
            x, n = x * 2, n + 1
        y = x * x
        return y * y if y.sum() > 0 else y

    assert F.allclose(func.jacfwd(f)(x), func.jacrev(f)(x))
    assert F.allclose(
        func.hessian(lambda x: f(x).sum())(x), func.jacrev(func.jacrev(lambda x: f(x).sum()))(x)
    )


def test_a_batch_of_tangents_meets_a_batch_of_values():
    x, w, c = double(3), double(3), double(4, 3)
    basis = F.eye(3, dtype=F.float64)

    def f(x, c):
        y = F.zeros_like(x * c)
        y[0] = x[1] * 2
        y[1:] = (x * c)[1:]
        return (y * c).sin() + w * x

    got = func.vmap(lambda c: func.vmap(lambda t: func.jvp(lambda x: f(x, c), (x,), (t,))[1])(basis))(c)
    want = F.stack([F.stack([func.jvp(lambda x: f(x, row), (x,), (t,))[1] for t in basis]) for row in c])
    assert F.allclose(got, want)
    # Both batches are of one level.
    got = func.vmap(lambda c, t: func.jvp(lambda x: f(x, c), (x,), (t,))[1])(c[:3], basis)
    assert F.allclose(
        got, F.stack([func.jvp(lambda x: f(x, row), (x,), (t,))[1] for row, t in zip(c, basis)])
    )
    # A gradient within.
    g = lambda x, c: func.grad(lambda x: f(x, c).sum())(x)  # noqa: E731
    got = func.vmap(lambda c, t: func.jvp(lambda x: g(x, c), (x,), (t,))[1])(c[:3], basis)
    assert F.allclose(
        got, F.stack([func.jvp(lambda x: g(x, row), (x,), (t,))[1] for row, t in zip(c, basis)])
    )


def test_a_tangent_that_differs_is_not_written_over_one_that_does_not():
    x, basis = double(3), F.eye(3, dtype=F.float64)

    def f(t):
        with fw.dual_level():
            a, b = fw.make_dual(x, t), fw.make_dual(x, F.ones_like(x)) * 1
            b.copy_(a)
            return fw.unpack_dual(b).tangent

    with pytest.raises(RuntimeError, match="differs in each call of the batch"):
        func.vmap(f)(basis)


class Sine(F.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, k):
        return (x * k).sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.k = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.k * (x * ctx.k).cos(), None

    @staticmethod
    def jvp(ctx, t, _):
        (x,) = ctx.saved_tensors
        return t * ctx.k * (x * ctx.k).cos()


class SineByRule(Sine):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x, k):
        return F.tensor((x * k).sin().tolist(), dtype=x.dtype), in_dims[0]


@pytest.mark.parametrize("function", [Sine, SineByRule])
def test_custom_functions_have_jacobians_and_batches_of_products(function):
    x, t = double(4, 3), double(4, 3)
    f = lambda x: function.apply(x, 2) * x  # noqa: E731
    plain = lambda x: (2 * x).sin() * x  # noqa: E731
    total, total_plain = (lambda x: f(x).sum()), (lambda x: plain(x).sum())
    assert F.allclose(func.jacfwd(f)(x[0]), func.jacrev(plain)(x[0]))
    assert F.allclose(func.jacrev(f)(x[0]), func.jacrev(plain)(x[0]))
    assert F.allclose(func.hessian(total)(x[0]), func.hessian(total_plain)(x[0]))
    products = func.vmap(lambda x, t: func.jvp(f, (x,), (t,))[1])(x, t)
    assert F.allclose(products, func.jvp(plain, (x,), (t,))[1])
    assert F.allclose(func.vmap(func.grad(total))(x), func.grad(total_plain)(x))
    if function is Sine:  # the rule of the other one reads elements
        assert F.allclose(func.vmap(func.jacfwd(f))(x), func.vmap(func.jacfwd(plain))(x))
        assert F.allclose(func.vmap(func.hessian(total))(x), func.vmap(func.hessian(total_plain))(x))
