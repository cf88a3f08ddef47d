"""Autograd from Python: modes, hooks, nodes, custom functions, errors that cross the engine."""

import pytest

from facula import _C

F = _C.functions


def leaf(*values):
    return _C.tensor(list(values), requires_grad=True)


def test_backward_takes_a_sequence_of_one_gradient():
    for gradient in ([_C.tensor(3.0)], (_C.tensor(3.0),)):
        x = leaf(1.0, 2.0)
        (x * 2).sum().backward(gradient)
        assert x.grad.tolist() == [6.0, 6.0]
    (leaf(1.0)[0] * 2).backward((None,))
    for wrong in ([], [_C.tensor(1.0), _C.tensor(1.0)]):
        with pytest.raises(RuntimeError, match=f"got 1 tensors and {len(wrong)} gradients"):
            leaf(1.0).sum().backward(wrong)


def test_modes_nest_and_are_restored():
    x = leaf(1.0)
    with _C.GradMode(False):
        assert not (x * 2).requires_grad
        with _C.GradMode(True):
            assert (x * 2).requires_grad
        assert not _C.is_grad_enabled()
    assert _C.is_grad_enabled()
    with _C.InferenceMode():
        y = x * 2
        assert _C.is_inference_mode_enabled() and y.is_inference() and not y.requires_grad
    assert not _C.is_inference_mode_enabled()


def test_hooks_change_gradients_until_removed():
    x = leaf(1.0, 2.0)
    handle = x.register_hook(lambda g: g * 10)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [20, 20]
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_nodes_are_seen_from_python():
    x = leaf(1.0)
    y = (x * 2).exp()
    node = y.grad_fn
    assert node is y.grad_fn and node.name() == "ExpBackward0"
    inner = node.next_functions[0][0]
    assert inner.name() == "MulBackward0" and inner.next_functions[0][0].variable is x
    seen = []
    inner.register_hook(lambda inputs, outputs: seen.append(outputs[0].item()))
    y.backward()
    assert len(seen) == 1


def test_an_exception_of_a_hook_arrives_as_itself():
    x = leaf(1.0)
    x.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (x * 2).backward()
    x = leaf(1.0)
    x.register_hook(lambda g: "no tensor")
    with pytest.raises(TypeError, match="None or a Tensor"):
        (x * 2).backward()


class Cube(_C.FunctionCtx):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x * ctx.scale, None


def test_a_custom_function():
    x = leaf(1.0, 2.0)
    y = _C.apply_function(Cube, x, 2.0)
    assert y.tolist() == [2, 16] and y.grad_fn.name() == "CubeBackward" and y.grad_fn.scale == 2.0
    y.sum().backward()
    assert x.grad.tolist() == [6, 24]
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    with _C.GradMode(False):
        assert _C.apply_function(Cube, x, 2.0).grad_fn is None


def test_a_custom_function_differentiates_twice():
    x = leaf(2.0)
    (g,) = _C.grad((_C.apply_function(Cube, x, 1.0).sum(),), (x,), create_graph=True)
    (gg,) = _C.grad((g.sum(),), (x,))
    assert gg.tolist() == [12]


class Several(_C.FunctionCtx):
    @staticmethod
    def forward(ctx, a, b):
        ctx.set_materialize_grads(False)
        index = (a > b).to(_C.int64)
        ctx.mark_non_differentiable(index)
        return a + b, a - b, index

    @staticmethod
    def backward(ctx, s, d, i):
        ctx.seen = (s is None, d is None, i is None)
        assert ctx.needs_input_grad == (True, False)
        return s if d is None else s + d, None


def test_several_results_and_gradients_that_are_none():
    a, b = leaf(3.0), _C.tensor([1.0])
    s, d, i = _C.apply_function(Several, a, b)
    assert not i.requires_grad and s.requires_grad and i.tolist() == [1]
    s.sum().backward()
    assert s.grad_fn.seen == (False, True, True) and a.grad.tolist() == [1]


def test_a_function_that_writes_in_place():
    class Double(_C.FunctionCtx):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0)
    y = x * 1
    z = _C.apply_function(Double, y)
    assert z is y
    z.sum().backward()
    assert x.grad.tolist() == [2]


def test_wrong_gradients_of_a_function_are_named():
    class Short(Cube):
        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match="incorrect number of gradients .expected 2, got 1"):
        _C.apply_function(Short, leaf(1.0), 1.0).sum().backward()

    class Wrong(Cube):
        @staticmethod
        def backward(ctx, g):
            return g, g

    with pytest.raises(RuntimeError, match="different from None at position 2"):
        _C.apply_function(Wrong, leaf(1.0), 1.0).sum().backward()


def test_returning_the_input_gives_another_tensor():
    class Same(_C.FunctionCtx):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = leaf(1.0)
    y = _C.apply_function(Same, x)
    assert y is not x and y.data_ptr() == x.data_ptr()
    y.sum().backward()
    assert x.grad.tolist() == [5]


def test_anomaly_mode_keeps_the_forward_stack():
    _C.set_anomaly(True)
    try:
        y = leaf(1.0) * 2
        assert "test_anomaly_mode_keeps_the_forward_stack" in y.grad_fn.created_at
    finally:
        _C.set_anomaly(False)
