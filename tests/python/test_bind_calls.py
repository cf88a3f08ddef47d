"""How calls from Python find their operator: arguments, keywords, overloads, numbers, errors,
__torch_function__.
"""

import numpy as np
import pytest

from facula import _C

F = _C.functions
A = [[1.0, 2.0], [3.0, 4.0]]


@pytest.fixture
def a():
    return _C.tensor(A)


def test_numbers_stand_on_either_side_of_an_operator(a):
    assert (2 - a).tolist() == [[1, 0], [-1, -2]]
    assert (a - 2).tolist() == [[-1, 0], [1, 2]]
    assert (2**a).tolist() == [[2, 4], [8, 16]]
    assert (a == 2).tolist() == [[False, True], [False, False]]
    assert (np.float32(2) * a).tolist() == [[2, 4], [6, 8]]
    assert isinstance(np.float64(2) * a, _C.Tensor) and (np.float64(2) * a).dtype is _C.float32


def test_numpy_arrays_take_part_in_arithmetic(a):
    for mixed in (a + np.ones((2, 2)), np.ones((2, 2)) + a):
        assert (
            isinstance(mixed, _C.Tensor) and mixed.dtype is _C.float64 and mixed.tolist() == [[2, 3], [4, 5]]
        )


def test_in_place_operators_keep_the_object(a):
    b = a
    b += 1
    b *= 2
    assert b is a and a.add_(1).mul_(2) is a and a.tolist() == [[10, 14], [18, 22]]


def test_comparison_with_something_else_is_python_s(a):
    assert (a == None) is False and (a != "x") is True  # noqa: E711
    with pytest.raises(TypeError, match="not supported between instances of 'Tensor' and 'str'"):
        assert a < "x"


def test_sizes_come_as_arguments_tuple_list_or_size(a):
    for v in (a.view(4, 1), a.view((4, 1)), a.view([4, 1]), a.view(_C.Size([4, 1])), a.view(np.int64(4), 1)):
        assert v.shape == (4, 1)
    assert F.zeros(2, 3).shape == F.zeros([2, 3]).shape == (2, 3)
    assert a.permute(1, 0).shape == a.permute((1, 0)).shape
    assert F.zeros(_C.tensor(2), 3).shape == (2, 3)


def test_keywords_and_their_other_names(a):
    assert F.sum(input=a, dim=0).tolist() == a.sum(axis=0).tolist() == [4, 6]
    assert a.sum(0, keepdims=True).shape == (1, 2)
    assert F.add(a, a, alpha=2).tolist() == (a * 3).tolist()
    keyword = "".join(["ke", "ep", "dim"])  # not interned
    assert a.sum(0, **{keyword: True}).shape == (1, 2)


def test_overloads_are_chosen_by_the_arguments(a):
    assert a.max().item() == 4
    assert a.max(1).indices.tolist() == [1, 1] and a.max(1)[0].tolist() == [2, 4]
    assert a.max(a.flip(0)).tolist() == [[3, 4], [3, 4]]
    values, indices = a.max(dim=0)
    assert values.tolist() == [3, 4] and indices.dtype is _C.int64


def test_out_is_for_functions(a):
    out = F.zeros(2, 2)
    assert F.add(a, a, out=out) is out and out.tolist() == (a * 2).tolist()
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        a.add(a, out=out)
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not int"):
        F.add(a, a, out=5)


def test_factories_know_requires_grad_and_layout():
    t = F.zeros(2, requires_grad=True, layout=_C.strided, pin_memory=False)
    assert t.requires_grad and t.is_leaf


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda a: a.add("x"), "add(): argument 'other' (position 1) must be Tensor, not str"),
        (lambda a: F.add(a, "x"), "add(): argument 'other' (position 2) must be Tensor, not str"),
        (lambda a: F.exp(2), "exp(): argument 'input' (position 1) must be Tensor, not int"),
        (lambda a: F.zeros(2.5), "zeros(): argument 'size' (position 1) must be tuple of ints, not float"),
        (lambda a: F.zeros([2.5]), "must be tuple of ints, but found element of type float at pos 0"),
        (lambda a: F.zeros(True), "must be tuple of ints, not bool"),
        (lambda a: F.zeros(2, dtype="x"), "zeros(): argument 'dtype' must be facula.dtype, not str"),
        (lambda a: a.transpose(0), 'transpose() missing 1 required positional argument: "dim1"'),
        (lambda a: a.sum(foo=1), "sum() got an unexpected keyword argument 'foo'"),
        (lambda a: a.add(a, other=a), "add() got multiple values for argument 'other'"),
        (lambda a: a.exp(1), "exp() takes 0 positional arguments but 1 was given"),
        (lambda a: a.sum(0, 1), "sum(): argument 'keepdim' (position 2) must be bool, not int"),
        (lambda a: F.cat([a, 1]), "must be tuple of Tensors, but found element of type int at pos 1"),
        (lambda a: a.max("x"), "max() received an invalid combination of arguments - got (str)"),
        (lambda a: 2 @ a, "unsupported operand type(s) for @: 'int' and 'Tensor'"),
        (lambda a: a + None, "unsupported operand type(s) for +: 'Tensor' and 'NoneType'"),
    ],
)
def test_wrong_arguments_are_named(a, call, text):
    with pytest.raises(TypeError) as e:
        call(a)
    assert text in str(e.value)


def test_integers_beyond_64_bits_overflow(a):
    with pytest.raises(OverflowError):
        a * 2**70
    with pytest.raises(TypeError):
        F.zeros(2**70)


def test_builtins_are_real_and_documented():
    assert (
        type(F.add).__name__ == "builtin_function_or_method"
        and type(_C.Tensor.add).__name__ == "method_descriptor"
    )
    assert F.add.__module__ == "facula" and "alpha" in F.add.__doc__

    class Holder:
        f = F.exp  # a builtin does not bind

    assert Holder().f(_C.tensor(0.0)).item() == 1


class Plain(_C.Tensor):
    pass


class Logged(_C.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Duck:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, [t.__name__ for t in types], len(args), kwargs


def test_results_of_a_subclass_are_of_the_subclass(a):
    s = Plain(a)
    assert (
        type(s + 1)
        is type(F.add(a, s))
        is type(s[0])
        is type(s.max(1)[0])
        is type(s.detach())
        is type(s.double())
        is Plain
    )
    assert all(type(p) is Plain for p in s.split(1))


def test_disabled_subclass_gives_tensors(a):
    class Parameter(_C.Tensor):
        __torch_function__ = _C._disabled_torch_function_impl

    assert type(Parameter(a) + 1) is _C.Tensor


def test_torch_function_of_a_subclass_sees_calls(a):
    Logged.calls.clear()
    t = Logged(a)
    assert type(t + 1) is type(F.exp(t)) is Logged
    t[0]
    t[0] = 1
    assert Logged.calls == ["add", "exp", "__getitem__", "__setitem__"]
    with _C.DisableTorchFunctionSubclass():
        t + 1
    assert len(Logged.calls) == 4


def test_torch_function_of_an_unrelated_class(a):
    assert F.add(a, Duck(), alpha=3) == ("add", ["Duck"], 2, {"alpha": 3})
    assert (a + Duck())[0] == (Duck() + a if hasattr(Duck, "__add__") else a + Duck())[0] == "add"
    assert F.cat([a, Duck()])[0] == "cat"


def test_the_more_derived_class_answers_first(a):
    class Later(Logged):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "later"

    assert F.add(Logged(a), Later(a)) == "later"


def test_error_in_an_override_arrives(a):
    class Failing(_C.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Failing(a) + 1
