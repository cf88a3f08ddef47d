"""Results of a compiled function, or of a part of it, in the history of other results: gradients with respect
to them, hooks on them and their retained gradients are those of eager mode."""

import pytest

import facula
from facula.autograd import functional


def grad(y, *wrt, create_graph=False):
    return facula.autograd.grad(y, wrt, retain_graph=True, create_graph=create_graph, allow_unused=True)


def divide():
    print(end="")  # a call that divides a capture


def an_intermediate(x):
    h = x * 2
    y = (h * h).sum()
    divide()
    return grad(y, h, x)


def one_behind_the_other(x):
    h = x * 2
    k = h.sin()
    y = (k * h).sum()
    divide()
    return grad(y, h, k, x) + grad(k.sum(), h)


def views(x):
    h = x * 2
    t = h.t()
    row = t[0]
    y = (row * row).sum()
    divide()
    return grad(y, h, t, row, x) + grad(row.sum(), t)


def a_view_of_an_argument(x):
    v = x.view_as(x)
    y = (v * v).sum()
    divide()
    return grad(y, v, x)


def several_views(x):
    a, b = x.chunk(2)
    y = (a * a * b).sum()
    divide()
    return grad(y, a, b, x)


def written_in_place(x):
    h = x * 2
    h.mul_(x)
    row = h[0]
    row.mul_(3)
    y = (h * h).sum() + (row**3).sum()
    divide()
    return grad(y, h, row, x)


def written_from_outside(x):
    z = x * 1
    divide()
    z.mul_(x)
    y = (z**2).sum()
    divide()
    return grad(y, z, x)


def a_hook(x):
    h = x * 2
    y = (h * h).sum()
    divide()
    h.register_hook(lambda g: g * 10)
    return grad(y, x)


def a_retained_gradient(x):
    h = x * 2
    y = (h * h).sum()
    divide()
    h.retain_grad()
    y.backward()
    return h.grad, x.grad


def gradients_of_gradients(x):
    h = x * 2
    y = (h**3).sum()
    divide()
    (g,) = grad(y, h, create_graph=True)
    return (g, *grad(g.sum(), h, x))


def detached_on_one_way(x):
    h = x * 2
    y = (h.detach() * h).sum()
    divide()
    return grad(y, h, x)


def random_numbers(x):
    facula.manual_seed(3)
    h = facula.dropout(x * 2, 0.5, True)
    y = (facula.dropout(h, 0.5, True) * h).sum()
    divide()
    return grad(y, h, x)


def a_size_that_elements_decide(x):
    h = x * 2
    k = h[h > 2.5]
    y = (k * k).sum() + h.sum()
    divide()
    return grad(y, h, k, x)


CASES = [
    an_intermediate,
    one_behind_the_other,
    views,
    a_view_of_an_argument,
    several_views,
    written_in_place,
    written_from_outside,
    a_hook,
    a_retained_gradient,
    gradients_of_gradients,
    detached_on_one_way,
    random_numbers,
    a_size_that_elements_decide,
]


def matrix():
    return facula.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


def numbers(tensors):
    return [None if t is None else t.tolist() for t in tensors]


@pytest.mark.parametrize("f", CASES, ids=lambda f: f.__name__)
def test_gradients_pass_through_results_behind_a_break(f):
    expected = numbers(f(matrix()))
    compiled = facula.compile(f)
    for _ in range(3):
        assert numbers(compiled(matrix())) == expected


def test_gradients_pass_through_one_result_of_a_function_to_another():
    @facula.compile(fullgraph=True)
    def f(x):
        h = x * 2
        return h, (h * h).sum()

    for n in (2, 2, 3, 4):  # with free sizes in the end
        x = facula.ones(n, 2, requires_grad=True)
        h, y = f(x)
        assert numbers(grad(y, h, x)) == [[[4, 4]] * n, [[8, 8]] * n]


def test_a_history_is_not_divided_where_nobody_records_it():
    def f(x):
        h = x * 2
        return h, (h * h).sum()

    compiled = facula.compile(f)
    with facula.no_grad():
        h, y = compiled(matrix())
    assert not h.requires_grad and not y.requires_grad and y.item() == 120


@pytest.mark.parametrize("product", [functional.hvp, functional.vhp])
def test_products_with_a_hessian_have_the_gradients_that_differences_give(product):
    v = facula.tensor([2.0, 3.0], dtype=facula.float64)

    @facula.compile
    def f(x):
        return product(lambda s: (s**4).sum(), x, v, create_graph=True)[1]

    for numbers in ([0.5, -1.0], [2.0, 1.5]):
        x = facula.tensor(numbers, dtype=facula.float64, requires_grad=True)
        assert facula.allclose(f(x), 12 * x**2 * v)
        assert facula.autograd.gradcheck(f, x)
