"""Operators over lists: `_foreach_x` is x of each item, in every overload, in its place too."""

import math

import pytest

import facula

A, B, C = ([2.0, 3.0], [0.5, 1.0, 4.0]), ([4.0, 1.0], [2.0, 2.0, 8.0]), ([1.0, 2.0], [3.0, 4.0, 5.0])


def lists(*data):
    return [[facula.tensor(x) for x in d] for d in data]


def numbers(tensors):
    return [t.tolist() for t in tensors]


# What follows the first list, and the operator on one number of item k.
CASES = {
    "add": [
        (lambda b, c: (b,), {"alpha": 2}, lambda k, a, b, c: a + 2 * b),
        (lambda b, c: (3.0,), {}, lambda k, a, b, c: a + 3),
        (lambda b, c: ([1.0, 2.0],), {}, lambda k, a, b, c: a + [1, 2][k]),
        (lambda b, c: (facula.tensor(5.0),), {"alpha": 2}, lambda k, a, b, c: a + 10),
    ],
    "sub": [(lambda b, c: (b,), {"alpha": 0.5}, lambda k, a, b, c: a - 0.5 * b)],
    "mul": [
        (lambda b, c: (b,), {}, lambda k, a, b, c: a * b),
        (lambda b, c: (facula.tensor(4.0),), {}, lambda k, a, b, c: a * 4),
    ],
    "div": [(lambda b, c: ([2.0, 4.0],), {}, lambda k, a, b, c: a / [2, 4][k])],
    "maximum": [
        (lambda b, c: (b,), {}, lambda k, a, b, c: max(a, b)),
        (lambda b, c: (1.5,), {}, lambda k, a, b, c: max(a, 1.5)),
    ],
    "clamp_max": [(lambda b, c: ([1.0, 2.0],), {}, lambda k, a, b, c: min(a, [1, 2][k]))],
    "pow": [
        (lambda b, c: (2,), {}, lambda k, a, b, c: a**2),
        (lambda b, c: ([2.0, 3.0],), {}, lambda k, a, b, c: a ** [2, 3][k]),
    ],
    "lerp": [
        (lambda b, c: (b, 0.25), {}, lambda k, a, b, c: a + 0.25 * (b - a)),
        (lambda b, c: (b, [0.0, 1.0]), {}, lambda k, a, b, c: [a, b][k]),
    ],
    "addcmul": [
        (lambda b, c: (b, c), {"value": 2}, lambda k, a, b, c: a + 2 * b * c),
        (lambda b, c: (b, c, [1.0, 3.0]), {}, lambda k, a, b, c: a + [1, 3][k] * b * c),
        (lambda b, c: (b, c, facula.tensor([1.0, 3.0])), {}, lambda k, a, b, c: a + [1, 3][k] * b * c),
    ],
    "addcdiv": [(lambda b, c: (b, c, 3.0), {}, lambda k, a, b, c: a + 3 * (b / c))],
}


@pytest.mark.parametrize("name, case", [(n, k) for n, cases in CASES.items() for k in range(len(cases))])
def test_an_overload_gives_each_item_and_writes_it(name, case):
    given, options, of = CASES[name][case]
    expected = [[of(k, *x) for x in zip(*item)] for k, item in enumerate(zip(A, B, C))]
    a, b, c = lists(A, B, C)
    result = getattr(facula, f"_foreach_{name}")(a, *given(b, c), **options)
    assert isinstance(result, tuple) and numbers(a) == list(map(list, A))
    assert getattr(facula, f"_foreach_{name}_")(a, *given(b, c), **options) is a
    for got in (numbers(result), numbers(a)):
        for x, y in zip(got, expected):
            assert x == pytest.approx(y, rel=1e-6)


def test_what_is_made_of_one_list():
    (a,) = lists(A)
    assert numbers(facula._foreach_norm(a)) == pytest.approx([math.sqrt(13), math.sqrt(17.25)])
    assert numbers(facula._foreach_norm(a, float("inf"), dtype=facula.float64)) == [3.0, 4.0]
    assert numbers(facula._foreach_powsum(a, 3)) == pytest.approx([35.0, 65.125])
    assert numbers(facula._foreach_max(a)) == [3.0, 4.0]
    assert numbers(facula._foreach_pow(2.0, a)) == [[4.0, 8.0], pytest.approx([2**0.5, 2.0, 16.0])]
    copies = facula._foreach_clone(a)
    assert facula._foreach_zero_(self=a) is a and facula._foreach_zero_(input=a) is a
    assert numbers(a) == [[0.0] * 2, [0.0] * 3] and numbers(copies) == list(map(list, A))
    facula._foreach_copy_(a, copies)
    assert numbers(a) == list(map(list, A))
    assert facula._foreach_mm([facula.ones(2, 3)], [facula.ones(3, 1)])[0].tolist() == [[3.0], [3.0]]


def test_items_have_gradients_and_promote_by_themselves():
    w = [facula.tensor([2.0], requires_grad=True), facula.tensor([3.0], requires_grad=True)]
    facula.cat(facula._foreach_mul(facula._foreach_exp(w), [1.0, 2.0])).sum().backward()
    assert [x.grad.item() for x in w] == pytest.approx([math.exp(2), 2 * math.exp(3)])
    mixed = facula._foreach_add([facula.arange(2), facula.ones(1, dtype=facula.float64)], 1.5)
    assert [t.dtype for t in mixed] == [facula.float32, facula.float64]


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda a, b: facula._foreach_add(a, b[:1]), "lists of one length: self has 2 tensors, other 1"),
        (lambda a, b: facula._foreach_mul(a, [1.0]), "lists of one length: self has 2 tensors, scalars 1"),
        (lambda a, b: facula._foreach_abs([]), "a list of at least one tensor"),
        (lambda a, b: facula._foreach_addcmul(a, b, b, facula.ones(3)), "self has 2 tensors, scalars 3"),
        (lambda a, b: facula._foreach_addcmul_(a, b, b, facula.ones(2, 1)), "scalars in one dimension"),
        (lambda a, b: facula._foreach_add_([facula.arange(2)], 0.5), "can't be cast"),
    ],
)
def test_lists_that_do_not_fit_are_refused(call, error):
    with pytest.raises(RuntimeError, match=error):
        call(*lists(A, B))


def test_in_place_forms_give_back_the_list_and_overloads_nothing():
    a = [facula.ones(2), facula.ones(3)]
    assert facula._foreach_add_(a, 1) is a
    assert facula._foreach_zero_(self=a) is a
    several = tuple(a)
    assert facula._foreach_copy_(several, a) is several
    assert facula.ops.aten._foreach_add_(a, 1) is None
    assert facula.ops.aten._foreach_add_.Scalar(a, 1) is None


def test_items_that_follow_each_other_are_as_calls_of_their_own():
    """Runs of items that lie alike, and what ends them: other sizes, strides, dtypes, shared memory."""

    def make():
        base = facula.arange(96.0).reshape(8, 12) / 16
        plain = [facula.full((3, 4), float(k)) for k in range(4)]
        views = [base[0:3, 0:4], base[3:6, 0:4], base[0:3, 4:8], base[:, ::2], base[:, 1::2]]
        turned = [facula.full((4, 3), k + 0.5).t() for k in range(3)]
        doubles = [facula.full((3, 4), k - 0.5, dtype=facula.float64) for k in range(3)]
        odd = [facula.ones(()), facula.ones(0), facula.ones(2, 0), facula.full((2,), facula.nan)]
        twice = plain[:2] + plain[:2]
        return plain + views + turned + doubles + odd + twice

    cases = {
        "mul": (lambda x, other: (3.0,), {}),
        "add": (lambda x, other: (other,), {"alpha": 2}),
        "lerp": (lambda x, other: (other, 0.25), {}),
        "sqrt": (lambda x, other: (), {}),
    }
    for name, (arguments, options) in cases.items():
        items, alone = make(), make()
        many, in_place = (getattr(facula, f"_foreach_{name}{suffix}") for suffix in ("", "_"))
        one = getattr(facula, name)
        others = [x.flip(0) if x.dim() else x + 1 for x in items]
        results = many(items, *arguments(items, others), **options)
        for x, other, result in zip(items, others, results, strict=True):
            expected = one(x, *arguments(x, other), **options)
            assert result.dtype == expected.dtype and result.stride() == expected.stride()
            assert facula.equal(result.nan_to_num(7), expected.nan_to_num(7))
        in_place(items, *arguments(items, others), **options)
        for y, other in zip(alone, others, strict=True):
            y.copy_(one(y, *arguments(y, other), **options))
        for x, y in zip(items, alone, strict=True):
            assert facula.equal(x.nan_to_num(7), y.nan_to_num(7))
            assert x._version == y._version
    a = make()
    factors = ([1, 2.5, 0, -1, True] * 5)[: len(a)]
    for x, number, result in zip(a, factors, facula._foreach_mul(a, factors), strict=True):
        assert facula.equal((x * number).nan_to_num(7), result.nan_to_num(7))


def test_an_item_is_the_memory_of_another_one():
    a = facula.arange(12.0)
    x = [a[0:4], a[4:8], a[8:12]]
    facula._foreach_add_(x, [a[0:4], a[0:4], a[4:8]])
    assert a.tolist() == [0, 2, 4, 6, 4, 7, 10, 13, 12, 16, 20, 24]
    with pytest.raises(RuntimeError, match="single memory location"):
        facula._foreach_add_([a[0:4], a[4:8]], [a[4:8], a[5:9]])


def test_integers_refuse_floating_numbers_at_any_item():
    x = [
        facula.ones(2),
        facula.ones(2),
        facula.ones(2, dtype=facula.int64),
        facula.ones(2, dtype=facula.int64),
    ]
    with pytest.raises(RuntimeError, match="can't be cast"):
        facula._foreach_mul_(x, [2, 3, 4, 2.5])
    assert [t.tolist() for t in x] == [[2, 2], [3, 3], [4, 4], [1, 1]]


def test_history_of_some_items_only():
    w = [facula.full((2,), float(k), requires_grad=k % 2 == 1) for k in range(6)]
    results = facula._foreach_mul(w, [x.detach() + 1 for x in w])
    assert [r.requires_grad for r in results] == [False, True] * 3
    sum(r.sum() for r in results).backward()
    assert [x.grad.tolist() if x.grad is not None else None for x in w] == [
        None,
        [2, 2],
        None,
        [4, 4],
        None,
        [6, 6],
    ]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        facula._foreach_mul_(w, 2.0)
    with facula.no_grad():
        facula._foreach_mul_(w, 2.0)
    assert [x[0].item() for x in w] == [0, 2, 4, 6, 8, 10]
