"""Subclasses of Tensor, objects with ``__torch_function__``, and tensors as indices in compiled functions."""

import facula.nn.functional as F
import pytest
from facula.utils._pytree import tree_map

import facula


class Logged(facula.Tensor):
    """Notes the functions that are called with it."""

    log = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Plain(facula.Tensor):
    extra = 3

    @property
    def twice(self):
        return self.extra * 2


class Scaled:
    """No tensor, but taken by functions of tensors."""

    def __init__(self, data, scale):
        self.data, self.scale = data, scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(
            *tree_map(lambda a: a.data * a.scale if isinstance(a, Scaled) else a, args), **(kwargs or {})
        )


class Wrapped(facula.Tensor):
    """Has no data of its own: its operators compute on another tensor."""

    calls = 0

    @staticmethod
    def __new__(cls, inner):
        return facula.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.calls += 1
        args, kwargs = tree_map(lambda t: t.inner if isinstance(t, Wrapped) else t, (args, kwargs or {}))
        return tree_map(lambda t: Wrapped(t) if isinstance(t, facula.Tensor) else t, func(*args, **kwargs))


MAKERS = {
    "Logged": lambda: facula.arange(4.0).as_subclass(Logged),
    "Plain": lambda: facula.arange(4.0).as_subclass(Plain),
    "Scaled": lambda: Scaled(facula.arange(4.0), 2.0),
    "Wrapped": lambda: Wrapped(facula.arange(4.0)),
}


def in_the_middle(t):
    y = (facula.ones(4) * 3).cos()
    return (y * t).relu(), y + 1


def in_a_loop(t):
    total = 0
    for row in t:
        total = total + row
    return total


def written(t):
    t.add_(1)
    t[0] = 5.0
    return t * 2


FUNCTIONS = {
    "operator": lambda t: t + 1,
    "reflected": lambda t: 1 - facula.eye(4) @ t,
    "methods": lambda t: t.sin().sum(),
    "function": lambda t: facula.cat([facula.add(t, 2), t]),
    "functional": lambda t: F.linear(t, facula.eye(4)),
    "index": lambda t: t[1:3],
    "attributes": lambda t: (t.shape, t.dtype, isinstance(t, Plain), type(t).__name__),
    "own attribute": lambda t: (getattr(t, "twice", None), getattr(t, "extra", 1)),
    "elements": lambda t: (t * 2).sum().item(),
    "middle": in_the_middle,
    "loop": in_a_loop,
    "written": written,
}


def shown(x):
    if isinstance(x, tuple):
        return tuple(map(shown, x))
    if isinstance(x, Wrapped):
        return "Wrapped", x.inner.tolist()
    if isinstance(x, facula.Tensor):
        return type(x).__name__, x.as_subclass(facula.Tensor).tolist()
    return x


def calls(f, make):
    Logged.log.clear()
    Wrapped.calls, seen = 0, []
    for _ in range(3):
        try:
            seen.append(shown(f(make())))
        except Exception as e:
            seen.append((type(e), str(e)))
    return seen, list(Logged.log), Wrapped.calls


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("maker", MAKERS)
def test_what_a_class_decides_is_decided_as_in_eager_mode(maker, name):
    f, make = FUNCTIONS[name], MAKERS[maker]
    assert calls(facula.compile(f), make) == calls(f, make)


# ---- indices


def assigned(x, t):
    y = x * 1
    y[t] = 5.0
    return y


def written_part(x, t):
    y = x * 1
    y[t].add_(1)
    return y


INDICES = {
    "index": lambda x, t: x[t] * 2,
    "tuple": lambda x, t: x[0, t] * 2,
    "list": lambda x, t: x[[0, t]] * 2,
    "with a slice": lambda x, t: x[1:, t] * 2,
    "of a result": lambda x, t: x[t + 0] * 2,
    "assigned": assigned,
    "written part": written_part,
}


@pytest.mark.parametrize("name", INDICES)
def test_a_tensor_with_one_element_indexes_within_the_program(name):
    f, x = INDICES[name], facula.arange(12.0).view(3, 4)
    compiled, t = facula.compile(f, fullgraph=True), facula.tensor(1)
    for number in (1, 2, 0, -1):
        for index in (facula.tensor(number), t.fill_(number)):
            assert compiled(x, index).tolist() == f(x, index).tolist()
    assert compiled.report()["captures"] == 1
    with pytest.raises(IndexError) as error:
        f(x, facula.tensor(4))
    with pytest.raises(IndexError) as compiled_error:
        compiled(x, facula.tensor(4))
    assert str(compiled_error.value) == str(error.value)


def test_a_view_at_the_place_of_an_element_is_a_view_behind_a_break():
    def f(x, t):
        return x[t]

    compiled = facula.compile(f)
    for number in (1, 2, 1):
        x = facula.zeros(3)
        compiled(x, facula.tensor(number)).add_(1)
        assert x[number] == 1 and x.sum() == 1
    assert not compiled.report()["plain_runs"]


def test_gradients_pass_an_index_that_is_an_element():
    compiled = facula.compile(lambda x, t: x[t] * x[t], fullgraph=True)
    for number in (1, 0, 2):
        x = facula.tensor([1.0, 2.0, 3.0], requires_grad=True)
        compiled(x, facula.tensor(number)).backward()
        assert x.grad.tolist() == [2 * v * (k == number) for k, v in enumerate((1.0, 2.0, 3.0))]
