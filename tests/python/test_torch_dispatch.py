"""Dispatch modes and classes with __torch_dispatch__: what they see, what they change, and that every
operator and its gradient are the same when a mode looks on.
"""

import contextlib
import subprocess
import sys

import facula.nn.functional as F
import pytest
from facula.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
    transform_subclass,
)
from facula.utils._pytree import tree_leaves, tree_map_only
from support.operators import arguments, call, cases

import facula

UNDEFINED = {
    "empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted", "empty.names",
    "new_empty", "resize_", "resize_as_",
}  # fmt: skip
CASES = [c for c in cases() if c.samples and c.base not in UNDEFINED and c.name not in UNDEFINED]


class Passing(TorchDispatchMode):
    """Gives each call on, and remembers it."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


def answers(case, number, dtype, mode):
    """Results of a sample, and the gradients of their sum where they have one."""
    args = arguments(case, number, dtype)
    leaves = [t for t in tree_leaves(args) if isinstance(t, facula.Tensor) and t.dtype.is_floating_point]
    if not case.writes and case.differentiable:
        for t in leaves:
            t.requires_grad_()
    facula.manual_seed(0)
    if mode is not None:
        with mode:
            results = call(case, args)
    else:
        results = call(case, args)
    tensors = [t for t in tree_leaves(results) if isinstance(t, facula.Tensor)]
    roots = [t for t in tensors if t.requires_grad and not t.is_complex()]
    grads = []
    if roots and leaves:
        wanted = [t for t in leaves if t.requires_grad and t.is_leaf]
        grads = facula.autograd.grad(
            [t.sum() for t in roots], wanted, allow_unused=True, materialize_grads=True
        )
    return [t.detach() for t in tensors], list(grads)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_mode_that_looks_on_changes_nothing(case):
    dtype = next((d for d in ("float64", "float32") if d in case.dtypes), case.dtypes[0])
    for number in range(len(case.samples)):
        try:
            expected, expected_grads = answers(case, number, dtype, None)
        except Exception as e:  # a sample that is refused with history is refused by the mode as well
            with pytest.raises(type(e)):
                answers(case, number, dtype, Passing())
            continue
        mode = Passing()
        found, grads = answers(case, number, dtype, mode)
        assert len(found) == len(expected) and len(grads) == len(expected_grads)
        for a, b in zip([*found, *grads], [*expected, *expected_grads]):
            assert a.dtype == b.dtype and a.shape == b.shape
            if not a.is_sparse:
                assert facula.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True), (
                    case.samples[number],
                    mode.calls,
                )


# ---- what modes see, and what they change; answers are PyTorch's


def seen(f):
    mode = Passing()
    with mode:
        f()
    return mode.calls


X = facula.ones(3, 4)


@pytest.mark.parametrize(
    ("call", "calls"),
    [
        (lambda: X + 2, ["add.Tensor"]),
        (lambda: X == 1, ["eq.Scalar"]),
        (lambda: X**2, ["pow.Tensor_Scalar"]),
        (lambda: X.sum(), ["sum.default"]),
        (lambda: X.sum(0), ["sum.dim_IntList"]),
        (lambda: X.max(1), ["max.dim"]),
        (lambda: X[0], ["select.int"]),
        (lambda: X[:, 1:3], ["slice.Tensor"]),
        (lambda: X.view(4, 3), ["view.default"]),
        (lambda: X.to(facula.float64), ["_to_copy.default"]),
        (lambda: facula.ones(2).detach().add_(1), ["ones.default", "detach.default", "add_.Tensor"]),
        (lambda: facula.zeros(2), ["zeros.default"]),
        (lambda: facula.add(X, X, out=facula.ones(3, 4)), ["ones.default", "add.out"]),
        (lambda: X @ X.t(), ["t.default", "mm.default"]),
        (
            lambda: F.linear(X, facula.ones(2, 4), facula.ones(2)),
            ["ones.default"] * 2 + ["t.default", "addmm.default"],
        ),
        (lambda: F.layer_norm(X, (4,)), ["native_layer_norm.default"]),
        (lambda: F.max_pool2d(X.view(1, 1, 3, 4), 2), ["view.default", "max_pool2d_with_indices.default"]),
        (
            lambda: F.conv1d(X.view(1, 3, 4), facula.ones(1, 3, 2)),
            ["view.default", "ones.default", "convolution.default"],
        ),
        (lambda: X.split(2), ["split.Tensor"]),
        (lambda: X.clone(), ["clone.default"]),
        (lambda: facula.stack([X, X]), ["stack.default"]),
        (lambda: facula.linalg.lu(facula.eye(2)), ["eye.default", "linalg_lu.default"]),
        (lambda: facula.linalg.inv_ex(facula.eye(2)), ["eye.default", "linalg_inv_ex.default"]),
        (lambda: facula.histc(X, 3), ["histc.default"]),
        (lambda: facula.count_nonzero(X), ["count_nonzero.default"]),
        (lambda: facula.dist(X, X), ["dist.default"]),
        (lambda: facula.diff(X), ["narrow.default"] * 2 + ["sub.Tensor"]),
        (lambda: F.pixel_shuffle(facula.ones(4, 1, 1), 2), ["ones.default", "pixel_shuffle.default"]),
        (lambda: facula.multinomial(X, 1), ["multinomial.default"]),
        (lambda: facula.poisson(X), ["poisson.default"]),
        (lambda: facula._foreach_add([X, X], 1), ["_foreach_add.Scalar"]),
        (lambda: facula.hann_window(4), ["hann_window.default"]),
        (
            lambda: F.max_pool3d(facula.ones(1, 2, 2, 2), 2),
            ["ones.default", "max_pool3d_with_indices.default"],
        ),
        (
            lambda: F.adaptive_avg_pool3d(facula.ones(1, 4, 4, 4), 2),
            ["ones.default", "_adaptive_avg_pool3d.default"],
        ),
        (lambda: facula.linalg.cross(X[:, :3], X[:, :3]), ["slice.Tensor"] * 2 + ["linalg_cross.default"]),
        (lambda: facula.unique_consecutive(X), ["unique_consecutive.default"]),
        (lambda: facula.permute_copy(X, (1, 0)), ["permute_copy.default"]),
    ],
)
def test_calls_have_pytorchs_names(call, calls):
    assert seen(call) == ["aten." + c for c in calls]


def test_the_backward_pass_is_seen_too():
    x = facula.ones(2, 3, requires_grad=True)
    w = facula.ones(3, 2)
    calls = seen(lambda: (x @ w).sum().backward())
    assert calls[0] == "aten.mm.default" and calls.count("aten.mm.default") == 2
    assert x.grad.tolist() == [[2.0, 2.0, 2.0]] * 2


def test_overloads_are_the_objects_of_ops():
    given = []

    class Kept(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            given.append((func, types, args, kwargs))
            return func(*args, **(kwargs or {}))

    with Kept():
        facula.add(X, X, alpha=2)
        X.t()
    (add, types, args, kwargs), (t, *_) = given
    assert add is facula.ops.aten.add.Tensor and t is facula.ops.aten.t.default
    assert types == () and args[0] is X and len(args) == 2 and kwargs == {"alpha": 2}


def test_what_a_mode_gives_is_the_result_and_the_gradient_stays_the_operators():
    class Rounded(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return (out * 4).round() / 4 if func is facula.ops.aten.mm.default else out

    x = facula.tensor([[0.3, 0.7]], requires_grad=True)
    w = facula.tensor([[1.1], [2.2]], requires_grad=True)
    with Rounded():
        y = x @ w
    y.sum().backward()
    assert y.tolist() == [[1.75]]
    assert facula.equal(x.grad, w.detach().t()) and facula.equal(w.grad, x.detach().t())


def test_a_composite_keeps_its_gradient_when_a_mode_made_its_result():
    class Doubled(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * 2 if func._opname == "mse_loss" else out

    x, y = facula.tensor([1.0, 2.0], requires_grad=True), facula.zeros(2)
    with Doubled():
        loss = F.mse_loss(x, y)
    loss.backward()
    assert loss.item() == 5.0 and x.grad.tolist() == [1.0, 2.0]


def test_calls_inside_a_mode_go_to_the_next_one_out_and_have_no_history():
    log = []

    class Named(TorchDispatchMode):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append((self.name, func._opname))
            out = func(*args, **(kwargs or {}))
            assert not out.requires_grad
            return out + 1 if self.name == "in" else out

    x = facula.ones(2, requires_grad=True)
    with Named("out"), Named("in") as inner:
        assert _get_current_dispatch_mode() is inner and len(_get_current_dispatch_mode_stack()) == 2
        y = x * 3
    assert log == [("in", "mul"), ("out", "mul"), ("out", "add")]
    assert y.tolist() == [4.0, 4.0] and y.requires_grad
    assert _get_current_dispatch_mode() is None


def test_errors_pass_through_and_end_the_mode():
    class Failing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise KeyError(str(func))

    with pytest.raises(KeyError, match="aten.ones.default"), Failing():
        facula.ones(2)
    assert facula.ones(2).tolist() == [1.0, 1.0]


def test_not_implemented_everywhere_is_a_type_error():
    class Declining(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match="Multiple dispatch failed for 'aten.exp.default'"), Declining():
        X.exp()


def test_in_place_writes_count_once_and_give_self():
    x = facula.ones(3, requires_grad=True)
    y = x * 1
    with Passing() as mode:
        assert y.mul_(2) is y
        y[0] = 5
        v = y.view(3, 1)
        v.add_(1)
    y.sum().backward()
    assert y.tolist() == [6.0, 3.0, 3.0] and x.grad.tolist() == [0.0, 2.0, 2.0]
    assert v._base is y and y._version == 3 and "aten.mul_.Tensor" in mode.calls


def test_autocast_and_vmap_come_before_modes():
    w = facula.ones(2, 2, requires_grad=True)
    with facula.autocast("cpu", dtype=facula.bfloat16), Passing() as mode:
        y = facula.ones(2, 2) @ w
    y.sum().backward()
    assert y.dtype == facula.bfloat16 and w.grad.dtype == facula.float32
    assert mode.calls == [
        "aten.ones.default",
        "aten._to_copy.default",
        "aten._to_copy.default",
        "aten.mm.default",
    ]
    with Passing() as mode:
        facula.vmap(lambda a: a * 2)(facula.ones(2, 3))
    assert mode.calls.count("aten.mul.Tensor") == 1


def test_users_operators_are_one_call():
    @facula.library.custom_op("dispatch_tests::twice", mutates_args=())
    def twice(x: facula.Tensor) -> facula.Tensor:
        return x * 2

    twice.register_autograd(lambda ctx, g: g * 2)
    x = facula.ones(2, requires_grad=True)
    with Passing() as mode:
        y = twice(x)
    y.sum().backward()
    assert mode.calls == ["dispatch_tests.twice.default"] and x.grad.tolist() == [2.0, 2.0]


def test_a_module_trains_alike_under_a_mode():
    def trained(mode):
        facula.manual_seed(0)
        model = facula.nn.Sequential(
            facula.nn.Conv2d(1, 2, 3), facula.nn.BatchNorm2d(2), facula.nn.GELU(), facula.nn.Flatten(),
            facula.nn.Linear(8, 3),
        )  # fmt: skip
        optimizer = facula.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, target = facula.randn(4, 1, 4, 4), facula.tensor([0, 1, 2, 0])
        for _ in range(3):
            with mode():
                optimizer.zero_grad()
                F.cross_entropy(model(x), target).backward()
                optimizer.step()
        return list(model.state_dict().values())

    for a, b in zip(trained(Passing), trained(contextlib.nullcontext)):
        assert facula.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "f",
    [
        lambda: facula.nn.LSTM(3, 4)(facula.ones(5, 2, 3))[0],
        lambda: facula.nn.MultiheadAttention(8, 2)(*[facula.ones(3, 2, 8)] * 3)[0],
        lambda: facula.nn.TransformerEncoderLayer(8, 2, dropout=0.0)(facula.randn(3, 2, 8)),
        lambda: facula.nn.TransformerEncoderLayer(8, 2, dropout=0.5)(facula.randn(3, 2, 8)),
        lambda: facula.vmap(facula.func.grad(lambda a: F.mse_loss(a, a.detach() * 2)))(facula.randn(2, 3)),
        lambda: facula.vmap(lambda a: F.layer_norm(a.view(2, 2).sum(0), (2,)))(facula.randn(3, 4)),
        lambda: facula.func.hessian(lambda a: (a**3).sum())(facula.randn(2)),
        lambda: facula.func.jvp(lambda a: a.sin().sum(), (facula.ones(2),), (facula.ones(2),))[1],
    ],
)
def test_modules_and_transforms_compute_alike_under_a_mode(f):
    facula.manual_seed(0)
    expected = f()
    facula.manual_seed(0)
    with Passing():
        found = f()
    assert facula.allclose(found, expected, rtol=1e-4, atol=1e-6)
    facula.manual_seed(0)  # and what was seen leaves nothing behind
    with Passing():
        assert facula.allclose(f(), expected, rtol=1e-4, atol=1e-6)


def test_gradients_of_gradients_are_seen_and_right():
    a = facula.ones(1, 1, 4, 4, requires_grad=True)
    w = facula.ones(1, 1, 3, 3, requires_grad=True)
    with Passing() as mode:
        (g,) = facula.autograd.grad((F.conv2d(a, w) ** 2).sum(), w, create_graph=True)
        (h,) = facula.autograd.grad(g.sum(), a)
    plain_a, plain_w = a.detach().requires_grad_(), w.detach().requires_grad_()
    (g,) = facula.autograd.grad((F.conv2d(plain_a, plain_w) ** 2).sum(), plain_w, create_graph=True)
    assert facula.allclose(h, facula.autograd.grad(g.sum(), plain_a)[0])
    assert "aten.convolution.default" in mode.calls


def test_the_calls_of_a_program_are_seen():
    program = facula.program.trace(lambda a: (a * 2).relu().sum(), X)
    with Passing() as mode:
        assert program(X).item() == 24
    assert mode.calls == ["aten.mul.Tensor", "aten.relu.default", "aten.sum.default"]


# ---- classes


class Wrapper(facula.Tensor):
    """Holds another tensor, and has no memory."""

    @staticmethod
    def __new__(cls, inner):
        return facula.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    __torch_function__ = facula._C._disabled_torch_function_impl

    def __repr__(self):
        return f"Wrapper({self.inner.tolist()})"

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Wrapper(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        bare = tree_map_only(Wrapper, lambda w: w.inner, (args, kwargs))
        out = tree_map_only(facula.Tensor, Wrapper, func(*bare[0], **bare[1]))
        return return_and_correct_aliasing(func, args, kwargs, out)


def test_a_wrapper_takes_every_call_with_it():
    x = Wrapper(facula.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert is_traceable_wrapper_subclass(x) and not is_traceable_wrapper_subclass(X)
    assert repr(x @ x) == "Wrapper([[7.0, 10.0], [15.0, 22.0]])"
    assert repr(facula.ones(1, 2) @ x.t()) == "Wrapper([[3.0, 7.0]])"
    assert repr(F.relu(x - 2)) == "Wrapper([[0.0, 0.0], [1.0, 2.0]])"
    assert x.add_(1) is x and repr(x[0]) == "Wrapper([2.0, 3.0])"
    assert repr(transform_subclass(x, lambda name, t: t * 2)) == "Wrapper([[4.0, 6.0], [8.0, 10.0]])"
    assert x.shape == (2, 2) and x.dtype == facula.float32 and x.stride() == (2, 1)


def test_a_wrapper_has_gradients_that_are_wrappers():
    x = Wrapper(facula.tensor([1.0, 2.0])).requires_grad_()
    (x * x).sum().backward()
    assert repr(x.grad) == "Wrapper([2.0, 4.0])"
    p = facula.nn.Parameter(Wrapper(facula.ones(2, 2)))
    assert (
        isinstance(p, facula.nn.Parameter) and repr(F.linear(facula.ones(1, 2), p)) == "Wrapper([[2.0, 2.0]])"
    )


def test_modes_see_wrappers_first():
    given = []

    class Kept(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            given.append((str(func), types))
            return func(*args, **(kwargs or {}))

    x = Wrapper(facula.ones(2))
    with Kept():
        y = x + x
    assert given == [("aten.add.Tensor", (Wrapper,))] and repr(y) == "Wrapper([2.0, 2.0])"


@pytest.mark.parametrize("read", [lambda x: x.numpy(), lambda x: x.tolist(), lambda x: x.data_ptr()])
def test_a_wrapper_has_no_elements_to_read(read):
    with pytest.raises(RuntimeError, match="doesn't have storage: it is a wrapper of other tensors"):
        read(Wrapper(facula.ones(2)))


def test_without_dispatch_a_wrapper_is_refused():
    x = Wrapper(facula.ones(2))
    with (
        facula._C._DisableTorchDispatch(),
        pytest.raises(RuntimeError, match="only its class's __torch_dispatch__"),
    ):
        x.exp()


def test_only_classes_that_take_calls_wrap():
    class Plain(facula.Tensor):
        pass

    with pytest.raises(TypeError, match="defines __torch_dispatch__"):
        facula.Tensor._make_wrapper_subclass(Plain, (2,))


def test_a_class_takes_calls_in_a_process_that_asked_for_no_operator_by_name():
    program = """
import facula
class Diag(facula.Tensor):
    def __new__(cls, d):
        return facula.Tensor._make_wrapper_subclass(cls, (len(d), len(d)), dtype=d.dtype)
    def __init__(self, d):
        self.d = d
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        print(func)
        return cls(args[0].d * args[1])
print((Diag(facula.tensor([1.0, 2.0])) * 2).d.tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "aten.mul.Tensor\n[2.0, 4.0]\n", done.stderr


class Stored(facula.Tensor):
    """A wrapper that says another dtype than that of the tensor inside."""

    seen: list = []

    @staticmethod
    def __new__(cls, inner, dtype=facula.int8):
        return facula.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=dtype, device=inner.device)

    def __init__(self, inner, dtype=None):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.name())

        def inner(x):
            return x.inner if isinstance(x, cls) else [inner(y) for y in x] if isinstance(x, list) else x

        return func(*map(inner, args), **{k: inner(v) for k, v in (kwargs or {}).items()})


@pytest.mark.parametrize("dtype", [facula.int8, facula.bool, facula.float16])
def test_a_wrapper_is_asked_before_dtypes_are_checked(dtype):
    x, w, b = facula.randn(2, 3), facula.randn(4, 3), facula.randn(4)
    stored = Stored(w, dtype)
    calls = {
        "linear": lambda w: facula.nn.functional.linear(x, w, b),
        "mm": lambda w: x.mm(w.t()),
        "addmm": lambda w: facula.addmm(b, x, w.t()),
        "matmul": lambda w: x @ w.T,
        "exp": lambda w: w.exp(),
        "layer_norm": lambda w: facula.nn.functional.layer_norm(w, (3,)),
        "softmax": lambda w: w.softmax(-1),
        "where": lambda w: facula.where(w > 0, w, 0.5),
        "norm": lambda w: facula.linalg.vector_norm(w),
        "in place": lambda w: facula.ones(4, 3).mul_(w),
    }
    for name, f in calls.items():
        Stored.seen.clear()
        got = f(stored)
        assert Stored.seen and type(got) is facula.Tensor and facula.equal(got, f(w)), name


@pytest.mark.parametrize("case", [c for c in CASES if "float64" in c.dtypes], ids=lambda c: c.name)
def test_every_operator_asks_a_wrapper_before_it_checks_the_dtype(case):
    args = arguments(case, 0, "float64")
    wrapped = tree_map_only(
        facula.Tensor, lambda t: Stored(t) if t.dtype.is_floating_point and not t.is_sparse else t, args
    )
    if not any(isinstance(t, Stored) for t in tree_leaves(wrapped)):
        pytest.skip("no floating-point operand")
    Stored.seen.clear()
    try:
        call(case, wrapped)
    except Exception as e:
        assert Stored.seen, e


def test_results_of_a_wrapper_are_what_it_returns():
    assert type(Stored(facula.ones(2)) + 1) is facula.Tensor
    assert type(Stored(facula.ones(2, 3)).t()) is facula.Tensor

    class Own(Stored):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "function"

    assert Own(facula.ones(2)) + 1 == "function"
