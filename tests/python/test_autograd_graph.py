"""Hooks on saved tensors and on several gradients, nodes and edges, checkpoints, derivatives of functions."""

import gc
import threading
import weakref

import pytest
from facula.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

import facula
from facula import nn
from facula.autograd import functional, graph

# ---- hooks on saved tensors


def test_hooks_see_what_is_saved_and_give_it_back():
    packed, unpacked = [], []

    def pack(t):
        packed.append(t)
        return len(packed) - 1

    def unpack(k):
        unpacked.append(k)
        return packed[k]

    x = facula.tensor([1.0, 2.0], requires_grad=True)
    with graph.saved_tensors_hooks(pack, unpack):
        y = x.exp() * x
    y.sum().backward()
    assert len(packed) == 3  # exp keeps its result, mul both operands
    assert sorted(unpacked) == [0, 1, 2]
    assert [t is x for t in packed] == [
        False,
        False,
        True,
    ]  # of an input itself, so that hooks can tell parameters
    assert facula.allclose(x.grad, x.detach().exp() * (x.detach() + 1))


def test_the_innermost_hooks_win_and_can_change_the_gradient():
    x = facula.tensor([1.0, 2.0], requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t * 100):
        with graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2):
            y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 8.0]


def test_gradients_of_gradients_pass_through_hooks():
    x = facula.tensor([2.0], requires_grad=True, dtype=facula.float64)
    with graph.save_on_cpu():
        y = x.exp() * x**3
        (g,) = facula.autograd.grad(y, x, create_graph=True)
    (h,) = facula.autograd.grad(g, x)
    e = x.detach().exp()
    assert facula.allclose(h, e * (8 + 2 * 12 + 12))


def test_hooks_reach_composites_and_custom_functions():
    class Square(facula.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    count = 0

    def pack(t):
        nonlocal count
        count += 1
        return t.clone()

    x = facula.randn(4, 8, requires_grad=True)
    w = facula.randn(8, requires_grad=True)

    def f():
        x.grad = w.grad = None
        nn.functional.layer_norm(Square.apply(x), (8,), w).exp().sum().backward()
        return x.grad, w.grad

    plain = f()
    with graph.saved_tensors_hooks(pack, lambda t: t):
        hooked = f()
    assert count >= 3
    assert all((a == b).all() for a, b in zip(plain, hooked))


def test_an_unpacked_tensor_must_be_like_the_packed_one():
    x = facula.ones(3, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t[:2]):
        y = x.exp()
    with pytest.raises(RuntimeError, match=r"must give a tensor like the one that was packed.*\[3\].*\[2\]"):
        y.sum().backward()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: None):
        y = x.exp()
    with pytest.raises(TypeError, match="expected to be a Tensor"):
        y.sum().backward()


def test_a_pack_hook_may_not_write():
    x = facula.ones(3, requires_grad=True)
    with (
        graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t),
        pytest.raises(RuntimeError, match="in place"),
    ):
        x * x


def test_hooks_can_be_disabled():
    with graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"), graph.save_on_cpu():
            pass
    with graph.save_on_cpu(), pytest.raises(RuntimeError, match="sorry"):
        with graph.disable_saved_tensors_hooks("sorry"):
            pass
    with graph.save_on_cpu():
        pass


def test_an_error_of_a_hook_arrives_as_itself():
    class Mine(Exception):
        pass

    def fail(t):
        raise Mine

    x = facula.ones(3, requires_grad=True)
    with graph.saved_tensors_hooks(fail, lambda t: t), pytest.raises(Mine):
        x.exp()
    with graph.saved_tensors_hooks(lambda t: t, fail):
        y = x.exp()
    with pytest.raises(Mine):
        y.sum().backward()


# ---- nodes


def test_a_node_shows_what_it_saved():
    x = facula.tensor([1.0, 2.0], requires_grad=True)
    y = facula.tensor([3.0, 4.0])
    node = (x * y).grad_fn
    assert isinstance(node, graph.Node)
    assert node._saved_other.tolist() == [3.0, 4.0]
    assert x.exp().grad_fn._saved_result.tolist() == x.exp().tolist()
    with pytest.raises(AttributeError):
        node._saved_nothing
    z = x.exp()
    z.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        z.grad_fn._saved_result


def test_hooks_on_one_saved_tensor():
    x = facula.tensor([1.0, 2.0], requires_grad=True)
    y = x * facula.tensor([3.0, 4.0])
    y.grad_fn._raw_saved_other.register_hooks(lambda t: t, lambda t: t * 10)
    with pytest.raises(RuntimeError, match="already been set"):
        y.grad_fn._raw_saved_other.register_hooks(lambda t: t, lambda t: t)
    y.sum().backward()
    assert x.grad.tolist() == [30.0, 40.0]


def test_gradient_edges_stand_for_tensors():
    x = facula.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    edge = graph.get_gradient_edge(y)
    z = (y * 3).sum()
    leaf = graph.get_gradient_edge(x)
    assert leaf.node.variable is x
    g, h = facula.autograd.grad(z, [edge, leaf], retain_graph=True)
    assert g.tolist() == [3.0, 3.0]
    assert facula.allclose(h, 3 * x.exp().detach())
    assert facula.autograd.grad(edge, x, facula.ones(2))[0].tolist() == x.exp().tolist()
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(facula.ones(2))


def test_hooks_on_several_gradients():
    a, b, c = (facula.ones(2, requires_grad=True) for _ in range(3))
    seen = []
    handle = graph.register_multi_grad_hook([a, b, c], lambda grads: seen.append(grads))
    (a * 2 + b * 3).sum().backward()
    assert len(seen) == 1 and seen[0][0].tolist() == [2.0, 2.0] and seen[0][2] is None
    (a * b * c).sum().backward()
    assert len(seen) == 2 and all(g is not None for g in seen[1])
    handle.remove()
    (a * b).sum().backward()
    assert len(seen) == 2
    first = []
    with graph.register_multi_grad_hook([a, b], first.append, mode="any"):
        (a * b).sum().backward()
        (a * b).sum().backward()
    assert len(first) == 2


def test_a_written_version_is_noticed():
    x = facula.ones(2, requires_grad=True)
    y = x.exp()
    z = y.sum()
    graph.increment_version(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


@pytest.mark.parametrize("kind", ["leaf", "result", "accumulated", "context"])
def test_cycles_through_hooks_are_collected(kind):
    contexts = []

    class Keep(facula.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            contexts.append(ctx)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    class Marker:
        pass

    def make():
        marker = Marker()
        x = facula.ones(2, requires_grad=True)
        y = x * 2
        if kind == "leaf":
            x.register_hook(lambda g: (x, marker) and None)
        elif kind == "result":
            y.register_hook(lambda g: (y, marker) and None)
        elif kind == "accumulated":
            x.register_post_accumulate_grad_hook(lambda t: (x, marker) and None)
        else:
            z = Keep.apply(x)
            ctx_of_z = contexts.pop()
            ctx_of_z.z, ctx_of_z.marker = z, marker
        return weakref.ref(marker)

    gc.collect()
    dead = make()
    gc.collect()
    assert dead() is None


# ---- checkpoints


def blocks():
    facula.manual_seed(3)
    return nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()) for _ in range(4)])


def nested(net, x):
    def outer(z):
        return checkpoint(net[2:], checkpoint(net[:2], z, use_reentrant=False), use_reentrant=False)

    return checkpoint(outer, x, use_reentrant=False)


@pytest.mark.parametrize(
    "run",
    [
        lambda net, x: checkpoint(net, x, use_reentrant=True),
        lambda net, x: checkpoint(net, x, use_reentrant=False),
        lambda net, x: checkpoint_sequential(net, 2, x, use_reentrant=True),
        lambda net, x: checkpoint_sequential(net, 3, x, use_reentrant=False),
        nested,
    ],
    ids=["reentrant", "plain", "sequential reentrant", "sequential", "nested"],
)
def test_a_checkpoint_gives_the_same_gradients(run):
    net = blocks()

    def gradients(f):
        facula.manual_seed(5)
        net.zero_grad()
        x = facula.linspace(-1, 1, 40).reshape(5, 8).requires_grad_()
        (f(net, x) ** 2).sum().backward()
        return [x.grad, *(p.grad.clone() for p in net.parameters())]

    for a, b in zip(gradients(lambda net, x: net(x)), gradients(run)):
        assert (a == b).all()


def test_a_checkpoint_runs_again_only_as_far_as_it_must():
    calls = []

    def f(x, *, scale):
        calls.append("begin")
        y = (x * scale).exp()
        calls.append("end")
        return y.sum()

    x = facula.ones(3, requires_grad=True)
    y = checkpoint(f, x, scale=2.0, use_reentrant=False)
    assert calls == ["begin", "end"]
    (g,) = facula.autograd.grad(y, x)
    assert facula.allclose(g, 2 * (2 * x.detach()).exp())
    assert calls == ["begin", "end", "begin"]


def test_a_checkpoint_keeps_the_memory_of_its_inputs_only():
    def f(x):
        for _ in range(10):
            x = x.exp().sin().cos()
        return x.sum()

    x = facula.rand(100_000, requires_grad=True)

    def kept(run):
        before = facula.memory_stats()["current_bytes"]
        y = run(x)
        return y, facula.memory_stats()["current_bytes"] - before

    _, plain = kept(f)
    y, less = kept(lambda x: checkpoint(f, x, use_reentrant=False))
    assert less < plain / 20
    y.backward()


def test_a_checkpoint_twice_through_with_retain_graph():
    x = facula.rand(5, requires_grad=True)
    y = checkpoint(lambda x: nn.functional.dropout(x.exp(), 0.5).sum(), x, use_reentrant=False)
    (a,) = facula.autograd.grad(y, x, retain_graph=True)
    (b,) = facula.autograd.grad(y, x)
    assert (a == b).all()


def test_dropout_draws_once_for_all_derivatives():
    x = facula.rand(1000, dtype=facula.float64, requires_grad=True)
    y = nn.functional.dropout(x * x, 0.5)
    (first,) = facula.autograd.grad(y.sum(), x, retain_graph=True)
    state = facula.get_rng_state()
    (again,) = facula.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = facula.autograd.grad(again.sum(), x)
    assert (facula.get_rng_state() == state).all()
    assert (first == again).all() and ((y == 0) == (first == 0)).all()
    assert facula.allclose(second, (y != 0).double() * 4)


def test_a_function_that_changes_is_noticed():
    state = [1]

    def f(x):
        y = x.exp()
        if state[0]:
            y = y.exp()
        return y.sum()

    x = facula.ones(3, requires_grad=True)
    y = checkpoint(f, x, use_reentrant=False)
    state[0] = 0
    with pytest.raises(CheckpointError, match="different number of tensors"):
        y.backward()


def test_what_a_reentrant_checkpoint_refuses():
    x = facula.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: a"):
        checkpoint(lambda x, a: x, x, a=1, use_reentrant=True)
    y = checkpoint(lambda x: x.exp().sum(), x, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"incompatible with .grad\(\)"):
        facula.autograd.grad(y, x)
    with pytest.warns(UserWarning, match="None of the inputs"):
        checkpoint(lambda x: x.exp(), facula.ones(2), use_reentrant=True)
    with pytest.warns(UserWarning, match="passed explicitly"):
        checkpoint(lambda x: x.exp(), x)


# ---- derivatives of functions, against closed forms


def diagonal(v):
    return v * facula.eye(len(v), dtype=v.dtype)


def f(x, y):
    return (x.exp() * y**2).sum()


X = facula.tensor([0.5, -1.0], dtype=facula.float64)
Y = facula.tensor([2.0, 3.0], dtype=facula.float64)


def test_products_with_jacobian_and_hessian():
    ex = X.exp()
    value, grads = functional.vjp(f, (X, Y), facula.tensor(2.0, dtype=facula.float64))
    assert facula.allclose(value, f(X, Y)) and facula.allclose(grads[0], 2 * ex * Y**2)
    assert facula.allclose(grads[1], 4 * ex * Y)
    _, product = functional.jvp(f, (X, Y), (Y, X))
    assert facula.allclose(product, (ex * Y**2 * Y + 2 * ex * Y * X).sum())
    expected = (ex * Y**2 * X + 2 * ex * Y * Y, 2 * ex * Y * X + 2 * ex * Y)
    for product in (functional.vhp, functional.hvp):
        got = product(f, (X, Y), (X, Y))[1]
        assert all(facula.allclose(a, b) for a, b in zip(got, expected))
        assert not got[0].requires_grad


@pytest.mark.parametrize(
    "options", [{}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}]
)
def test_a_jacobian_has_the_outputs_shape_before_the_inputs(options):
    def g(x, y):
        return x[:, None] * y, (x * y).sum()

    (xx, xy), (sx, sy) = functional.jacobian(g, (X, Y), **options)
    assert xx.shape == (2, 2, 2) and sx.shape == (2,)
    eye = facula.eye(2, dtype=facula.float64)
    assert facula.allclose(xx, eye[:, None, :] * Y[None, :, None])
    assert facula.allclose(xy, X[:, None, None] * eye[None, :, :])
    assert facula.allclose(sx, Y) and facula.allclose(sy, X)


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_a_hessian_of_several_inputs(strategy):
    h = functional.hessian(f, (X, Y), vectorize=True, outer_jacobian_strategy=strategy)
    ex = X.exp()
    assert facula.allclose(h[0][0], diagonal(ex * Y**2))
    assert facula.allclose(h[0][1], diagonal(2 * ex * Y))
    assert facula.allclose(h[1][1], diagonal(2 * ex))


def test_derivatives_can_be_differentiated_again():
    x = X.clone().requires_grad_()
    j = functional.jacobian(lambda t: t**3, x, create_graph=True)
    (g,) = facula.autograd.grad(j.sum(), x)
    assert facula.allclose(g, 6 * X)
    assert facula.autograd.gradcheck(
        lambda t: functional.hvp(lambda s: (s**4).sum(), t, Y, create_graph=True)[1], x
    )
    assert facula.autograd.gradcheck(lambda t: functional.jvp(lambda s: s**4, t, Y, create_graph=True)[1], x)
    assert facula.autograd.gradcheck(
        lambda t: functional.hessian(lambda s: (s**4).sum(), t, create_graph=True), x
    )


def test_strict_refuses_what_is_independent():
    with pytest.raises(RuntimeError, match="independent of input 1"):
        functional.vjp(lambda x, y: x.sum(), (X, Y), strict=True)
    with pytest.raises(RuntimeError, match="output 0 of the function is independent"):
        functional.jacobian(lambda x: facula.ones(2), X, strict=True)
    with pytest.raises(RuntimeError, match="independent of the inputs"):
        functional.jacobian(lambda x: x * 2, X.clone().requires_grad_(), create_graph=True, strict=True)
    assert functional.vjp(lambda x, y: x.sum(), (X, Y))[1][1].tolist() == [0.0, 0.0]
    assert functional.jacobian(lambda x: facula.ones(2), X).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_wrong_arguments_of_derivatives_are_named():
    with pytest.raises(TypeError, match="inputs must be a Tensor"):
        functional.vjp(f, 1.0)
    with pytest.raises(TypeError, match="index 1 is a float"):
        functional.vjp(f, (X, 1.0))
    with pytest.raises(RuntimeError, match="can be left out only if"):
        functional.vjp(lambda x: x * 2, X)
    with pytest.raises(RuntimeError, match=r"v has size \(3,\)"):
        functional.jvp(lambda x: x * 2, X, facula.ones(3))
    with pytest.raises(RuntimeError, match="single element"):
        functional.vhp(lambda x: x * 2, X, X)


# ---- determinism


def test_determinism_is_remembered_and_fills_memory():
    assert not facula.are_deterministic_algorithms_enabled() and facula.get_deterministic_debug_mode() == 0
    try:
        facula.use_deterministic_algorithms(True)
        assert facula.is_deterministic() and facula.get_deterministic_debug_mode() == 2
        assert facula.empty(3).isnan().all() and facula.empty(2, dtype=facula.bool).all()
        assert facula.empty(2, dtype=facula.int8).tolist() == [127, 127]
        assert facula.empty_like(facula.ones(2, dtype=facula.int64)).tolist() == [2**63 - 1] * 2
        assert facula.utils.deterministic.fill_uninitialized_memory
        facula.utils.deterministic.fill_uninitialized_memory = False
        facula.empty(3)
        facula.set_deterministic_debug_mode("warn")
        assert facula.is_deterministic_algorithms_warn_only_enabled()
        for wrong in ("loud", 3, -1):
            with pytest.raises(RuntimeError, match="debug_mode must be"):
                facula.set_deterministic_debug_mode(wrong)
        with pytest.raises(TypeError):
            facula.use_deterministic_algorithms(1)
    finally:
        facula.utils.deterministic.fill_uninitialized_memory = True
        facula.set_deterministic(False)
    assert not facula.is_deterministic()


# ---- threads, and backward within backward


def in_threads(f, count=4):
    results, errors = [None] * count, []

    def run(k):
        try:
            results[k] = f(k)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors
    return results


def test_every_thread_has_its_own_backward():
    facula.manual_seed(0)
    w = facula.randn(16, 16)
    xs = [facula.randn(8, 16) for _ in range(4)]

    def f(k):
        v = w.clone().requires_grad_()
        for _ in range(20):
            nn.functional.layer_norm((xs[k] @ v).tanh(), (16,)).pow(2).mean().backward()
        return v.grad

    alone = [f(k) for k in range(4)]
    for a, b in zip(alone, in_threads(f)):
        assert (a == b).all()


def test_threads_share_a_graph():
    x = facula.ones(64, dtype=facula.float64, requires_grad=True)
    y = x.exp().sin().exp()
    z = y.sum()
    (expected,) = facula.autograd.grad(z, x, retain_graph=True)

    def f(_):
        for _ in range(50):
            z.backward(retain_graph=True)
            (g,) = facula.autograd.grad(z, x, retain_graph=True)
            assert (g == expected).all()

    in_threads(f)
    assert facula.allclose(x.grad, 200 * expected, rtol=1e-12)


def test_a_backward_within_backward():
    class Inner(facula.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with facula.enable_grad():
                x = x.detach().requires_grad_()
                x.exp().backward(g)
            return x.grad

    x = facula.tensor([0.5, 1.0], requires_grad=True)
    y = x
    for _ in range(3):
        y = Inner.apply(y)
    y.sum().backward()
    a = x.detach().exp()
    assert facula.allclose(x.grad, a * a.exp() * a.exp().exp())


def test_memory_is_freed_while_backward_runs():
    others = facula.memory_stats()["current_bytes"]  # what earlier tests hold
    x = facula.rand(1_000_000, requires_grad=True)
    y = x
    for _ in range(10):
        y = y.exp().sin()
    loss = y.sum()
    del y
    facula.reset_peak_memory()
    before = facula.memory_stats()["current_bytes"]
    loss.backward()
    assert facula.memory_stats()["peak_bytes"] - before < 4 * x.nbytes
    assert facula.memory_stats()["current_bytes"] - others < (before - others) / 2


# ---- views and in-place writes


def test_operands_may_not_overlap_what_is_written():
    a, b = facula.zeros(6), facula.zeros(4, 4)
    for write in (
        lambda: a[1:].add_(a[:-1]),
        lambda: a[1:].copy_(a[:-1]),
        lambda: facula.exp(a[:-1], out=a[1:]),
        lambda: b.add_(b.t()),
        lambda: b.mul_(b[0]),
    ):
        with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
            write()
    a[:3].add_(a[3:])
    a.add_(a)
    b[::2].add_(b[1::2])
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        facula.zeros(1).expand(3).add_(1)


def test_a_view_knows_its_base():
    for dtype in (facula.float32, facula.int64):
        x = facula.zeros(4, 4, dtype=dtype)
        v = x[1:].t()
        assert v._base is x and v._is_view() and x._base is None and not x._is_view()
        assert not x.clone()._is_view() and not x.detach()._is_view()


def test_a_complex_number_is_no_float():
    assert float(facula.tensor(2 + 0j)) == 2.0 and int(facula.tensor(2 + 0j)) == 2
    for kind in (float, int):
        with pytest.raises(RuntimeError, match="without overflow"):
            kind(facula.tensor(1 + 2j))


def test_hooks_of_a_node_outlive_the_tensor_that_a_collection_takes():
    import gc

    x = facula.ones(1, requires_grad=True)
    y, seen = x * 2, []
    y.register_hook(lambda g: seen.append(g.item()))
    y.me = y  # a cycle, so that the collector finds it
    z = y * 3
    del y
    gc.collect()
    z.backward()
    assert seen == [3.0]


def test_a_node_shows_the_arguments_of_its_call():
    x = facula.arange(6.0).view(2, 3).requires_grad_()
    node = x.sum(1, keepdim=True).grad_fn
    assert node._saved_dim == (1,) and node._saved_keepdim is True and node._saved_self_sym_sizes == (2, 3)
    assert {"_saved_dim", "_saved_keepdim"} <= set(dir(node))
    assert x.transpose(0, 1).grad_fn._saved_dim1 == 1 and x.permute(1, 0).grad_fn._saved_dims == (1, 0)
    assert x[1].grad_fn._saved_index == 1 and x.softmax(-1).grad_fn._saved_dim in (1, -1)
    assert facula.nn.functional.leaky_relu(x, 0.2).grad_fn._saved_negative_slope == 0.2
    assert float((x**3).grad_fn._saved_exponent) == 3 and float((x * 2).grad_fn._saved_other) == 2
    assert (x * 2).grad_fn._saved_self is None  # not needed
    clamped = x.clamp(0, 1).grad_fn
    assert (clamped._saved_min, clamped._saved_max) == (0, 1)
    assert "_saved_self" in dir(x.sin().grad_fn) and "_saved_result" in dir(x.exp().grad_fn)
    assert all(hasattr(node, name) for name in dir(node) if name.startswith("_saved_"))


def test_numbers_of_calls_that_share_a_program_are_not_mixed_up():
    x = facula.rand(2, 3, 8, requires_grad=True)
    for eps in (1e-5, 1e-2):
        node = facula.nn.functional.layer_norm(x, (8,), eps=eps).grad_fn
        assert not hasattr(node, "_saved_eps") or node._saved_eps == eps
    for k in (2, 4):
        node = facula.nn.functional.pixel_shuffle(facula.rand(1, 16, 2, 2, requires_grad=True), k).grad_fn
        assert not hasattr(node, "_saved_upscale_factor") or node._saved_upscale_factor == k


# ---- the dtype of gradients


def test_a_leaf_says_the_dtype_of_its_gradient():
    x = facula.ones(3, dtype=facula.bfloat16, requires_grad=True)
    assert x.grad_dtype is facula.bfloat16
    x.grad_dtype = facula.float32
    seen = []
    x.register_hook(lambda g: seen.append(g.dtype))
    for _ in range(2):
        (x * 2).sum().backward()
    assert x.grad.dtype is facula.float32 and x.grad.tolist() == [4.0] * 3 and seen == [facula.float32] * 2
    with pytest.raises(RuntimeError, match="already a gradient with dtype"):
        x.grad_dtype = facula.float64
    with pytest.raises(RuntimeError, match="grad_dtype is float32"):
        x.grad = facula.ones(3, dtype=facula.bfloat16)
    x.grad = None
    x.grad_dtype = None
    x.grad = facula.ones(3, dtype=facula.float64)
    assert x.grad_dtype is None and x.grad.dtype is facula.float64
    x.grad_dtype = facula.float64
    (x.double() * 2).sum().backward()
    assert x.grad.tolist() == [3.0] * 3


def test_a_dtype_of_gradients_belongs_to_a_leaf():
    y = facula.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="only be set on leaf"):
        y.grad_dtype = facula.float64
    with pytest.raises(RuntimeError, match="only be accessed on leaf"):
        _ = y.grad_dtype
    with pytest.raises(RuntimeError, match="must be a torch.dtype or None, but got str"):
        facula.ones(1).grad_dtype = "float32"
    x = facula.ones(2, requires_grad=True)
    x.grad_dtype = facula.float64
    assert x.clone().detach().grad_dtype is facula.float32 and facula.ones(1).grad_dtype is facula.float32
    x.data = facula.ones(3)
    (x * 1).sum().backward()
    assert x.grad.dtype is facula.float64 and x.grad.shape == (3,)
