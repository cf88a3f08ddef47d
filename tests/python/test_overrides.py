"""Tensor-like objects: subclasses of Tensor, and other classes with __torch_function__."""

import copy
import pickle

import pytest
from support.operators import arguments, cases, usual_dtype

import facula
from facula import nn, overrides
from facula.nn import functional as F


class Plain(facula.Tensor):
    """Takes part natively."""


def plain(*sizes):
    facula.manual_seed(0)
    return facula.randn(*sizes).as_subclass(Plain)


class Unit(facula.Tensor):
    """Carries a unit through arithmetic."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        units = [getattr(a, "unit", "") for a in args if isinstance(a, facula.Tensor)]
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Unit) and func in (facula.Tensor.mul, facula.mul):
            result.unit = " ".join(filter(None, units))
        elif isinstance(result, Unit) and units:
            result.unit = units[0]
        return result


class Logged(facula.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(overrides.resolve_name(func))
        return super().__torch_function__(func, types, args, kwargs or {})


SURVIVES = {
    "add": lambda x: x + 1,
    "reflected": lambda x: 1 - x,
    "power": lambda x: 2**x,
    "negative": lambda x: -x,
    "comparison": lambda x: x > 0,
    "row": lambda x: x[0],
    "mask": lambda x: x[x > 0],
    "slice": lambda x: x[..., 1:],
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "H": lambda x: x.H,
    "mH": lambda x: x.mH,
    "data": lambda x: x.data,
    "real": lambda x: x.real,
    "detach": lambda x: x.detach(),
    "iteration": list,
    "reversed": lambda x: reversed(x),
    "dtype": lambda x: x.double(),
    "to": lambda x: x.to(facula.float64),
    "cpu": lambda x: x.cpu(),
    "split": lambda x: x.split(1),
    "named results": lambda x: tuple(x.max(0)),
    "in place": lambda x: x.add_(1),
    "augmented": lambda x: x.__iadd__(1),
    "out": lambda x: facula.add(x, x, out=plain(3, 4)),
    "list": lambda x: facula.cat([x, facula.ones(3, 4)]),
    "module": lambda x: nn.Linear(4, 2)(x),
    "loss": lambda x: F.cross_entropy(x, facula.tensor([0, 1, 2])),
    "like": facula.zeros_like,
    "new": lambda x: (x.new_zeros(3), x.new_tensor([1.0]), x.new_empty(2), x.new_full((2,), 1)),
    "einsum": lambda x: facula.einsum("ij->i", x),
    "requires_grad_": lambda x: x.detach().requires_grad_(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


@pytest.mark.parametrize("name", SURVIVES)
def test_a_subclass_survives(name):
    result = SURVIVES[name](plain(3, 4))
    for r in result if isinstance(result, (tuple, list)) else [result]:
        assert type(r) is Plain


def test_a_subclass_is_seen_by_every_property_and_method():
    Logged.calls.clear()
    x = facula.ones(2, 3).as_subclass(Logged)
    assert x.shape == (2, 3) and x.dim() == 2 and len(x) == 2 and x.requires_grad is False
    x.requires_grad = True
    x.sum().backward()
    assert type(x.grad) is facula.Tensor
    x.size(0)
    assert x.detach()[0, 0].item() == 1.0
    assert Logged.calls == [
        "facula.Tensor.shape.__get__",
        "facula.Tensor.dim",
        "facula.Tensor.__len__",
        "facula.Tensor.requires_grad.__get__",
        "facula.Tensor.requires_grad.__set__",
        "facula.Tensor.sum",
        "facula.Tensor.backward",
        "facula.Tensor.grad.__get__",
        "facula.Tensor.size",
        "facula.Tensor.detach",
        "facula.Tensor.__getitem__",
        "facula.Tensor.item",
    ]


def test_a_unit_travels_through_arithmetic():
    m = facula.tensor([2.0]).as_subclass(Unit)
    s = facula.tensor([3.0]).as_subclass(Unit)
    m.unit, s.unit = "m", "s"
    area = m * s
    assert type(area) is Unit and area.unit == "m s" and area.item() == 6.0
    assert (-m).unit == "m" and (m + 1).unit == "m" and facula.mul(m, 2).unit == "m"


def test_syntax_gives_the_function_as_pytorch_names_it():
    Logged.calls.clear()
    x = facula.ones(2).as_subclass(Logged)
    y = facula.ones(2)
    x + 1, y + x, facula.add(y, x), x.add(y), F.relu(x), F.softmax(x, 0)
    assert Logged.calls[:4] == ["facula.Tensor.add", "facula.Tensor.add", "facula.add", "facula.Tensor.add"]
    assert Logged.calls[4:] == ["facula.nn.functional.relu", "facula.nn.functional.softmax"]


class Metres:
    """No tensor at all."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if not all(issubclass(t, (facula.Tensor, Metres)) for t in types):
            return NotImplemented
        return func, types, args, kwargs


class SubMetres(Metres):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "sub"


class Refuses:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def test_an_unrelated_class_takes_calls():
    a, t = Metres(1), facula.ones(2)
    func, types, args, kwargs = facula.add(t, a, alpha=2)
    assert func is facula.add and types == (Metres,) and args == (t, a) and kwargs == {"alpha": 2}
    assert (t + a)[0] is facula.Tensor.add
    assert facula.cat([t, a])[0] is facula.cat
    assert F.cross_entropy(a, t)[0] is F.cross_entropy
    assert F.linear(t, a)[0] is F.linear
    assert facula.allclose(t, a)[0] is facula.allclose


def test_subclasses_are_asked_first_and_then_from_left_to_right():
    assert facula.add(Metres(1), SubMetres(2)) == "sub"
    assert facula.add(Refuses(), SubMetres(2)) == "sub"
    with pytest.raises(TypeError, match="no implementation found for"):
        facula.add(Refuses(), facula.ones(1))
    with pytest.raises(TypeError, match="no implementation found for"):
        facula.add(Metres(1), Refuses())


def test_unrelated_subclasses_do_not_mix():
    class Other(facula.Tensor):
        pass

    with pytest.raises(TypeError, match="no implementation found for"):
        plain(2) + facula.ones(2).as_subclass(Other)


def test_overrides_can_be_switched_off():
    x = facula.ones(2).as_subclass(Logged)
    Logged.calls.clear()
    with overrides.DisableTorchFunctionSubclass():
        assert type(x + 1) is facula.Tensor and x.shape == (2,)
        assert not overrides.has_torch_function((x,))
    assert Logged.calls == []

    class Silent(facula.Tensor):
        __torch_function__ = facula._C._disabled_torch_function_impl

    assert type(facula.ones(2).as_subclass(Silent) + 1) is facula.Tensor


def test_a_mode_takes_every_call():
    seen = []

    class Watch(overrides.TorchFunctionMode):
        def __init__(self, name):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((self.name, overrides.resolve_name(func)))
            return func(*args, **(kwargs or {}))

    x = facula.ones(2)
    with Watch("outer"), Watch("inner"):
        y = x + 1
        F.mse_loss(x, y)
    x + 1
    assert seen[:2] == [("inner", "facula.Tensor.add"), ("outer", "facula.Tensor.add")]
    assert seen[2] == ("inner", "facula.nn.functional.mse_loss")
    n = len(seen)
    with Watch("again"), overrides.DisableTorchFunction():
        x + 1
    assert len(seen) == n

    class Fails(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise KeyError(func.__name__)

    with pytest.raises(KeyError, match="exp"), Fails():
        x.exp()
    assert x.exp().shape == (2,)


def test_a_mode_sees_attributes_and_syntax_under_the_names_that_tensor_has():
    before = {facula.Tensor.shape.__get__: "shape", facula.Tensor.item: "item", facula.Tensor.__len__: "len"}
    seen = []

    class Watch(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((overrides.resolve_name(func), before.get(func)))
            return func(*args, **(kwargs or {}))

    class Late(facula.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((overrides.resolve_name(func), "late"))
            return super().__torch_function__(func, types, args, kwargs or {})

    x, one = facula.arange(3.0), facula.tensor(2.0)
    with Watch():
        values = x.shape, len(x), one.item(), float(one), bool(one), [1, 2, 3][facula.tensor(1)], x.dtype
        x.grad = facula.ones(3)
        del x.grad
        assert 1.0 in x and repr(x) == "tensor([0., 1., 2.])"
    assert values == ((3,), 3, 2.0, 2.0, True, 2, facula.float32) and x.grad is None
    names = [name and name.removeprefix("facula.Tensor.") for name, _ in seen]
    wanted = "shape.__get__ __len__ item __float__ __bool__ __index__ dtype.__get__ grad.__set__".split()
    assert [n for n in names if n in wanted] == wanted
    assert {"__contains__", "__repr__"} <= {*names}
    assert [kept for _, kept in seen if kept] == ["shape", "len", "item"]
    assert before[facula.Tensor.shape.__get__] == "shape" and before[facula.Tensor.item] == "item"

    seen.clear()
    late = x.as_subclass(Late)
    assert (late.shape, len(late), (late + 1)[0].item()) == ((3,), 3, 1.0)
    assert {"facula.Tensor.shape.__get__", "facula.Tensor.__len__", "facula.Tensor.item"} <= {
        n for n, _ in seen
    }
    seen.clear()
    assert x.shape == (3,) and one.item() == 2 and not seen
    assert pickle.loads(pickle.dumps(facula.Tensor.item))(one) == 2
    with Watch(), facula._C.DisableTorchFunctionSubclass():
        assert x.shape == (3,) and not seen


def test_helpers_for_functions_of_ones_own():
    @overrides.wrap_torch_function(lambda a, b: (a, b))
    def mine(a, b):
        return "native"

    assert mine(facula.ones(1), 2) == "native"
    assert mine(SubMetres(1), 2) == "sub"
    assert overrides.is_tensor_like(Metres(1)) and overrides.is_tensor_like(facula.ones(1))
    assert not overrides.is_tensor_like(1)
    assert overrides.has_torch_function_unary(Metres(1)) and not overrides.has_torch_function_unary(plain(1))
    assert overrides.handle_torch_function(mine, (SubMetres(1),), 1) == "sub"
    assert overrides.is_tensor_method_or_property(facula.Tensor.add)
    assert not overrides.is_tensor_method_or_property(facula.add)
    everything = overrides.get_overridable_functions()
    assert facula.add in everything[facula] and F.cross_entropy in everything[F]
    assert facula.Tensor.size in everything[facula.Tensor]


def test_a_call_is_given_on_below_the_class_that_took_it():
    overrides = facula.overrides

    class Noting(facula.Tensor):
        names: list = []

        @classmethod
        def __torch_function__(cls, func, types, args, kwargs=None):
            cls.names.append(func.__name__)
            return overrides.redispatch_function(func, types, args, kwargs)

    def scaled(a, b):
        if overrides.has_torch_function((a, b)):
            return overrides.handle_torch_function(scaled, (a, b), a, b)
        return a * b + 1

    x = facula.tensor([3.0]).as_subclass(Noting)
    result = scaled(x, x)
    assert result.tolist() == [10] and type(result) is facula.Tensor
    assert Noting.names == ["scaled", "mul"]  # as recorded from PyTorch; + 1 is of a plain tensor
    facula.nn.functional.gelu(x)
    assert Noting.names[2:] == ["gelu"]
    with pytest.raises(TypeError):
        scaled(x, "a")
    assert overrides.has_torch_function_variadic(1, x) and not overrides.has_torch_function_unary(result)


def test_as_subclass_leaves_a_class_without_asking_it():
    class Asked(facula.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(func)

    class Other(facula.Tensor):
        pass

    t = facula.ones(2).as_subclass(Asked)
    assert type(t.as_subclass(facula.Tensor)) is facula.Tensor and type(t.as_subclass(Other)) is Other


class Taker:
    """Stands for anything; takes every call in which it is."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "taken", func


CALLS = [c for c in cases() if c.samples and "Object" not in c.schema]


@pytest.mark.parametrize("case", CALLS, ids=[c.name for c in CALLS])
def test_an_object_in_the_place_of_any_argument_takes_the_call(case):
    for number in range(len(case.samples)):
        args = arguments(case, number, usual_dtype(case))
        for name, value in args.items():
            places = [Taker()]
            if isinstance(value, (list, tuple)) and value:
                places += [[*value[:k], Taker(), *value[k + 1 :]] for k in range(len(value))]
            for place in places:
                result = getattr(facula._C.ops, case.base)(**{**args, name: place})
                assert result[0] == "taken", (case.name, number, name)


@pytest.mark.parametrize("name", ["uniform_", "normal_", "constant_", "kaiming_uniform_"])
def test_initial_values_may_be_taken_over(name):
    f, own = getattr(nn.init, name), Taker()
    assert f(own, 1.0)[0] == "taken" and f(own, 1.0)[1] == f
    assert f(facula.zeros(2, 2), 1.0).shape == (2, 2)


@pytest.mark.parametrize("name", ["sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "sym_sqrt"])
def test_numbers_that_may_be_symbolic_may_be_taken_over(name):
    f = getattr(facula, name)
    assert f(*[Taker()] * (2 if "m" in name[4:] else 1))[0] == "taken"


class Named(nn.Parameter):
    """A parameter of a program's own class."""


class Watched(nn.Parameter):
    seen: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_what_is_computed_from_a_subclass_of_parameter_is_a_plain_tensor():
    p = Named(facula.ones(2, 3))
    for computed in (p + 1, 2 * p, p.T, p[0], p.detach(), p.data, p.clone(), facula.exp(p), p.double()):
        assert type(computed) is facula.Tensor
    assert type(p + plain(2, 3)) is Plain and type(plain(2, 3) + p) is Plain
    assert type(copy.deepcopy(p)) is Named
    watched = Watched(facula.ones(2))
    assert type(watched + 1) is facula.Tensor and Watched.seen == ["add"]


def test_the_attributes_of_a_tensor_can_be_replaced_together():
    for t in (facula.ones(2), plain(2), nn.Parameter(facula.ones(2))):
        t.old = 1
        t.__dict__ = {"new": t}
        assert t.new is t and not hasattr(t, "old")
        with pytest.raises(TypeError, match="must be set to a dictionary"):
            t.__dict__ = 3
        del t.__dict__["new"]
