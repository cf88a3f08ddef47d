"""Operators of users: facula.library and facula.ops."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
import warnings
from collections.abc import Sequence

import numpy as np
import pytest

import facula
from facula import Tensor, library, ops, program

numbers = itertools.count()


def fresh(name: str) -> str:
    """A name that no other test has."""
    return f"tests::{name}_{next(numbers)}"


def cube(**options):
    """x^3 * factor by NumPy, which nobody can look into, with everything registered."""

    @library.custom_op(fresh("cube"), mutates_args=(), **options)
    def f(x: Tensor, factor: float = 1.0) -> Tensor:
        return facula.from_numpy(np.asarray(x.detach().numpy() ** 3 * factor, x.detach().numpy().dtype))

    @f.register_fake
    def _(x, factor=1.0):
        return facula.empty_like(x)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.factor = inputs[1]

    f.register_autograd(
        lambda ctx, g: (3 * ctx.saved_tensors[0] ** 2 * g * ctx.factor, None), setup_context=keep
    )
    return f


# ---- schemas, as PyTorch infers them


def plain(x: Tensor, y: int = 3, z: float = 2.5, b: bool = True, s: str = "q") -> tuple[Tensor, Tensor]: ...


CPU = facula.device("cpu")


def kinds(dt: facula.dtype = facula.float32, dv: facula.device = CPU) -> Tensor: ...
def optional(x: Tensor, n: int | None = None, q: Tensor | None = None, *, k: int | float | bool) -> None: ...
def lists(x: list[Tensor], i: Sequence[int], t: list[Tensor | None]) -> list[Tensor]: ...


SCHEMAS = [
    (plain, (), '(Tensor x, SymInt y=3, float z=2.5, bool b=True, str s="q") -> (Tensor, Tensor)'),
    (kinds, (), '(ScalarType dt=float32, Device dv="cpu") -> Tensor'),
    (optional, ("x", "q"), "(Tensor(a0!) x, SymInt? n=None, Tensor(a1!)? q=None, *, Scalar k) -> ()"),
    (lists, ("x",), "(Tensor(a0!)[] x, SymInt[] i, Tensor?[] t) -> Tensor[]"),
    (lists, "unknown", "(Tensor(a0!)[] x, SymInt[] i, Tensor(a1!)?[] t) -> Tensor[]"),
]


@pytest.mark.parametrize("f, mutates, expected", SCHEMAS)
def test_a_schema_follows_from_annotations(f, mutates, expected):
    assert library.infer_schema(f, mutates_args=mutates) == expected
    assert library.infer_schema(f, mutates_args=mutates, op_name="n") == "n" + expected
    if f is not kinds:
        library.define(fresh("schema"), expected)


def no_annotation(x) -> Tensor: ...
def no_result(x: Tensor): ...
def odd_type(x: dict) -> Tensor: ...
def odd_result(x: Tensor) -> dict: ...
def starred(*x: Tensor) -> Tensor: ...
def a_number(x: Tensor, k: int) -> Tensor: ...
def odd_default(x: Tensor, k: list[int] = (1, 2)) -> Tensor: ...


@pytest.mark.parametrize(
    "f, mutates, text",
    [
        (no_annotation, (), "Parameter x must have a type annotation"),
        (no_result, (), "No return type annotation was provided"),
        (odd_type, (), "Parameter x has unsupported type <class 'dict'>"),
        (odd_result, (), "Return has unsupported type <class 'dict'>"),
        (starred, (), "We do not support positional-only args, varargs, or varkwargs"),
        (
            a_number,
            ("k",),
            "Parameter k is in mutable_args but only Tensors or collections of Tensors can be",
        ),
        (a_number, ("z",), "{'z'} in mutates_args were not found in the custom op's signature"),
        (a_number, "all", "mutates_args must either be a sequence of the names"),
        (odd_default, (), "Parameter k has an unsupported default value type <class 'tuple'>"),
    ],
)
def test_what_has_no_schema_is_refused_as_pytorch_refuses_it(f, mutates, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        library.infer_schema(f, mutates_args=mutates)


# ---- calls


@pytest.mark.parametrize("dtype", [facula.float32, facula.float64, facula.int32])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (4, 5)])
def test_an_operator_computes_what_its_function_does(dtype, shape):
    f = cube()
    x = (facula.arange(int(np.prod(shape)) or 1)[: int(np.prod(shape))] - 3).reshape(shape).to(dtype)
    assert facula.equal(f(x), x**3)
    assert facula.equal(f(x, factor=2.0), 2 * x**3)
    if len(shape) == 2:
        assert facula.equal(f(x.t()), x.t() ** 3)
        assert facula.equal(f(x[:, ::2]), x[:, ::2] ** 3)
    assert facula.equal(f(x=x), f._opoverload(x))


def test_an_operator_is_found_by_its_name():
    f = cube()
    namespace, name = f._qualname.split("::")
    packet = getattr(getattr(ops, namespace), name)
    assert packet.overloads() == ["default"] and packet.default is f._opoverload
    assert packet.default.name() == f._qualname and str(packet) == f"tests.{name}"
    assert repr(packet.default) == f"<OpOverload(op='tests.{name}', overload='default')>"
    schema = packet.default._schema
    assert [a.name for a in schema.arguments] == ["x", "factor"] and not schema.is_mutable
    assert schema.arguments[1].default_value == 1.0 and str(schema).endswith("float factor=1.0) -> Tensor")
    for same in (pickle.loads(pickle.dumps(packet.default)), copy.deepcopy(packet.default)):
        assert same == packet.default
    with pytest.raises(AttributeError, match="'_OpNamespace' 'tests' object has no attribute 'nothing'"):
        _ = ops.tests.nothing
    with pytest.raises(AttributeError, match="has no overload name 'nothing'"):
        _ = packet.nothing


def test_arguments_arrive_as_the_schema_says():
    seen = []

    @library.custom_op(fresh("all"), mutates_args=())
    def f(
        x: Tensor,
        xs: list[Tensor],
        o: Tensor | None = None,
        *,
        i: int,
        r: float,
        flag: bool,
        text: str,
        dims: list[int],
        kind: facula.dtype = facula.float64,
    ) -> list[Tensor]:
        seen.append((o, i, r, flag, text, dims, kind))
        return [x + 1, *(t + i for t in xs)]

    out = f(facula.zeros(2), [facula.zeros(1), facula.ones(3)], i=4, r=2, flag=True, text="t", dims=[1, 2])
    assert isinstance(out, list) and [t.tolist() for t in out] == [[1, 1], [4], [5, 5, 5]]
    assert seen == [(None, 4, 2.0, True, "t", [1, 2], facula.float64)]
    assert type(seen[0][2]) is float and type(seen[0][3]) is bool


@pytest.mark.parametrize(
    "call",
    [lambda f: f(3), lambda f: f(facula.ones(1), "a"), lambda f: f(), lambda f: f(facula.ones(1), 1.0, 2.0)],
)
def test_arguments_that_do_not_fit_the_schema_raise_with_its_name(call):
    f = cube()
    with pytest.raises(RuntimeError, match=f._qualname + r"\(\)"):
        call(f)


def result_is_the_argument(x: Tensor) -> Tensor:
    return x


def result_is_a_view(x: Tensor) -> Tensor:
    return x.view(-1)


def results_are_one(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    return y, y


@pytest.mark.parametrize("f", [result_is_the_argument, result_is_a_view, results_are_one])
def test_results_must_not_share_memory(f):
    op = library.custom_op(fresh("alias"), f, mutates_args=())
    with pytest.raises(
        RuntimeError, match=r"The output of this custom operator \(1\) must not also be an input"
    ):
        op(facula.ones(2))


@pytest.mark.parametrize(
    "schema, value, text",
    [
        ("(Tensor x) -> Tensor", 3, "expected a Tensor as result 0, but its implementation gave int"),
        ("(Tensor x) -> ()", 3, "expected None, but its implementation gave int"),
        ("(Tensor x) -> (Tensor, Tensor)", (), "expected a tuple of 2 of Tensors"),
        ("(Tensor x) -> Tensor[]", None, "expected a list of Tensors, but its implementation gave NoneType"),
    ],
)
def test_results_that_the_schema_does_not_say_are_refused(schema, value, text):
    op = library.custom_op(fresh("bad"), lambda x: value, mutates_args=(), schema=schema)
    with pytest.raises(RuntimeError, match=text):
        op(facula.ones(1))


def test_an_operator_is_defined_anew_by_the_same_name():
    name = fresh("again")
    first = library.custom_op(name, lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    first.register_fake(facula.empty_like)
    traced = program.trace(first, facula.ones(2))
    second = library.custom_op(name, lambda x: x * 3, mutates_args=(), schema="(Tensor x) -> Tensor")
    assert (
        second(facula.ones(1)).tolist() == [3] and ops.tests.__getattr__(name[7:])(facula.ones(1)).item() == 3
    )
    assert traced(facula.ones(2)).tolist() == [2, 2]  # what was traced goes on


def test_exceptions_of_a_kernel_arrive_as_they_are():
    class Mine(Exception):
        pass

    def f(x):
        raise Mine("here")

    op = library.custom_op(fresh("raises"), f, mutates_args=(), schema="(Tensor x) -> Tensor")
    for x in (facula.ones(1), facula.ones(1, requires_grad=True)):
        with pytest.raises(Mine, match="here"):
            op(x)


# ---- gradients


def test_gradients_follow_the_registered_formula():
    f = cube()
    x = facula.tensor([1.0, -2.0, 0.0, float("inf")], requires_grad=True)
    y = f(x, 2.0)
    assert y.grad_fn.name().startswith("GeneratedBackwardFor_tests_cube")
    y.backward(facula.ones(4))
    assert x.grad.tolist() == [6, 24, 0, float("inf")]
    x64 = facula.randn(3, dtype=facula.float64, requires_grad=True)
    assert facula.autograd.gradcheck(lambda x: f(x, 2.0), (x64,))
    assert facula.autograd.gradgradcheck(lambda x: f(x, 2.0), (x64,))
    with facula.no_grad():
        assert not f(x).requires_grad


def test_without_a_formula_backward_raises():
    op = library.custom_op(fresh("none"), lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    y = op(facula.ones(2, requires_grad=True))
    assert y.requires_grad
    with pytest.raises(
        RuntimeError, match="Trying to backward through tests.none.* but no autograd formula was"
    ):
        y.sum().backward()


def test_lists_of_tensors_get_lists_of_gradients():
    @library.custom_op(fresh("lists"), mutates_args=())
    def f(x: Tensor, ys: list[Tensor], k: int) -> tuple[Tensor, Tensor]:
        return x * k, sum(ys, facula.zeros(()))

    seen = []

    def keep(ctx, inputs, output):
        seen.append((len(inputs), type(output), ctx.needs_input_grad))

    f.register_autograd(lambda ctx, g, h: (g * 3, [h, h * 2], None), setup_context=keep)
    x, a, b = (facula.ones((), requires_grad=True) for _ in range(3))
    first, second = f(x, [a, b], 3)
    (first + second).backward()
    assert (x.grad.item(), a.grad.item(), b.grad.item()) == (3, 1, 2)
    assert seen == [(3, tuple, (True, [True, True], False))]
    f.register_autograd(lambda ctx, g, h: (g * 3, h, None))
    with pytest.raises(RuntimeError, match="same structure as the inputs: a list of 2 gradients, got Tensor"):
        f(x, [a, b], 3)[0].backward()
    f.register_autograd(lambda ctx, g, h: (g * 3,))
    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 3, got 1\)"):
        f(x, [a, b], 3)[0].backward()


def test_what_writes_has_no_gradient():
    op = library.custom_op(fresh("w"), lambda x: None, mutates_args=("x",), schema="(Tensor(a!) x) -> ()")
    with pytest.raises(RuntimeError, match="Cannot register autograd formula for non-functional operator"):
        op.register_autograd(lambda ctx: None)


# ---- traced programs


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_program_calls_an_operator_as_one_with_its_gradient(dynamic):
    f = cube()

    def model(x, w):
        return (f(x * w, 2.0) + 1).tanh().sum()

    x, w = facula.linspace(-1, 1, 6), facula.linspace(0.1, 0.7, 6).requires_grad_()
    traced = program.trace(model, x, w, dynamic=dynamic)
    assert f._qualname in str(traced) and any(f"library {f._qualname}" in s for s in traced.steps())
    for n in (6, 9) if dynamic else (6,):
        x = facula.linspace(-1, 1, n)
        a, b = (facula.linspace(0.1, 0.7, n).requires_grad_() for _ in range(2))
        model(x, a).backward()
        traced(x, b).backward()
        facula.testing.assert_close(a.grad, b.grad)
        facula.testing.assert_close(traced(x, b), model(x, a))


def test_a_whole_training_step_holds_an_operator():
    f = cube()

    def step(x, w):
        w.grad = None
        loss = (f(x * w) - 1).square().mean()
        loss.backward()
        with facula.no_grad():
            w.sub_(w.grad * 0.1)
        return loss

    x, w, v = (
        facula.linspace(0.5, 1, 4),
        facula.ones(4, requires_grad=True),
        facula.ones(4, requires_grad=True),
    )
    traced = program.trace(step, x, w)
    for _ in range(3):
        facula.testing.assert_close(traced(x, w), step(x, v))
    facula.testing.assert_close(w, v)


def test_without_a_fake_an_operator_is_not_traced():
    op = library.custom_op(fresh("nofake"), lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    with pytest.raises(
        RuntimeError, match="There was no fake impl registered for <CustomOpDef.*register_fake"
    ):
        program.trace(op, facula.ones(2))
    library.define(name := fresh("nofake2"), "(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="there was no fake impl or Meta kernel registered"):
        program.trace(getattr(ops.tests, name[7:]), facula.ones(2))


def test_a_program_notices_a_fake_that_is_wrong():
    op = library.custom_op(fresh("wrong"), lambda x: x.sum(0), mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(facula.empty_like)
    with pytest.raises(
        RuntimeError, match=r"gave float32\[2\] as result 0, but its fake implementation float32\[3, 2\]"
    ):
        program.trace(op, facula.ones(3, 2))(facula.ones(3, 2))
    with pytest.raises(library.OpCheckError, match="test_faketensor failed with .*Shapes .* are not equal"):
        library.opcheck(op, (facula.ones(3, 2),))


def test_results_of_other_strides_than_the_fake_says_are_laid_as_it_says():
    op = library.custom_op(
        fresh("strides"), lambda x: (x * 2).t(), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    op.register_fake(lambda x: x.new_empty((x.shape[1], x.shape[0])))
    x = facula.arange(6.0).reshape(2, 3)
    assert facula.equal(program.trace(lambda x: op(x) + 1, x)(x), (x * 2).t() + 1)


def test_writes_are_part_of_a_program():
    @library.custom_op(fresh("double"), mutates_args=("x", "ys"))
    def double(x: Tensor, ys: list[Tensor], k: int) -> Tensor:
        x.mul_(k)
        for y in ys:
            y.add_(k)
        return x + 1

    double.register_fake(lambda x, ys, k: facula.empty_like(x))

    def f(x, y):
        t = x * 1
        r = double(t, [y], 2)
        double(x[1:], [y[:1]], 3)
        return r, t + x, y * 2

    x, y = facula.arange(3.0), facula.zeros(3)
    a, b = x.clone(), y.clone()
    expected, found = f(a, b), program.trace(f, x.clone(), y.clone())(x, y)
    for one, other in zip((*expected, a, b), (*found, x, y)):
        assert facula.equal(one, other)
    assert b.tolist() == [5, 2, 2]


def test_an_operator_of_operators_is_traced_as_these():
    lib = library.Library(fresh("ns")[7:], "DEF")
    lib.define("twice(Tensor x) -> Tensor")
    lib.impl("twice", lambda x: x.sin() * 2, "CompositeImplicitAutograd")
    twice = getattr(ops, lib.ns).twice
    x = facula.ones(2, requires_grad=True)
    twice(x).sum().backward()
    facula.testing.assert_close(x.grad, 2 * facula.ones(2).cos())
    assert "sin" in str(program.trace(twice, facula.ones(2)))


def test_sizes_that_depend_on_elements():
    @library.custom_op(fresh("nonzero"), mutates_args=())
    def f(x: Tensor) -> Tensor:
        return x.nonzero()

    @f.register_fake
    def _(x):
        return x.new_empty([library.get_ctx().new_dynamic_size(), x.dim()], dtype=facula.int64)

    assert set(library.opcheck(f, (facula.tensor([1.0, 0.0, 2.0]),)).values()) == {"SUCCESS"}
    with pytest.raises(NotImplementedError, match="the size of a result depends on elements"):
        program.trace(f, facula.ones(3))
    with pytest.raises(RuntimeError, match="only a fake implementation"):
        library.get_ctx()


# ---- libraries


def test_a_library_defines_and_implements():
    ns = fresh("lib")[7:]
    lib = library.Library(ns, "DEF")
    assert (
        lib.define("f(Tensor x) -> Tensor") == "f"
        and lib.define("f.two(Tensor x, Tensor y) -> Tensor") == "f.two"
    )
    f = getattr(ops, ns).f
    with pytest.raises(
        NotImplementedError, match=f"Could not run '{ns}::f' with arguments from the 'CPU' backend"
    ):
        f(facula.ones(1))
    lib.impl("f", lambda x: x * 2, "CPU")
    library.Library(ns, "IMPL", "CPU").impl("f.two", lambda x, y: x - y)
    assert f(facula.ones(1)).item() == 2 and f(facula.ones(1), facula.ones(1)).item() == 0
    assert sorted(f.overloads()) == ["default", "two"] and f.two.name() == f"{ns}::f.two"
    x = facula.ones(1, requires_grad=True)
    f(x).backward()  # no formula: what the kernel does is recorded, as in PyTorch
    assert x.grad.item() == 2
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lib.impl("f", lambda x: x * 5, "CPU")
    assert (
        "Overriding a previously registered kernel" in str(said[0].message) and f(facula.ones(1)).item() == 5
    )
    library.register_autograd(f"{ns}::f", lambda ctx, g: g * 7)
    x.grad = None
    f(x).backward()
    assert x.grad.item() == 7
    lib._destroy()
    with pytest.raises(AttributeError):
        _ = getattr(ops, ns).f


def test_functions_define_and_implement():
    name = fresh("fn")
    library.define(name, "(Tensor x, int k=2) -> Tensor")

    @library.impl(name, "cpu")
    def _(x, k=2):
        return x * k

    library.register_fake(name, lambda x, k=2: facula.empty_like(x))
    library.register_autograd(name, lambda ctx, g: (g * 2, None))
    op = getattr(ops.tests, name[7:])
    assert library.opcheck(op.default, (facula.ones(3, requires_grad=True),)) == dict.fromkeys(
        ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
        "SUCCESS",
    )
    assert callable(library.get_kernel(name, "CPU"))


def test_autograd_kernels_run_in_place_of_the_function():
    name = fresh("own")
    library.define(name, "(Tensor x) -> Tensor")
    op = getattr(ops.tests, name[7:])
    library.impl(name, "CPU", lambda x: x.detach() * 2)

    class Mine(facula.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return op(x)

        @staticmethod
        def backward(ctx, g):
            return g * 11

    library.impl(name, "Autograd", Mine.apply)
    x = facula.ones(1, requires_grad=True)
    op(x).backward()
    assert x.grad.item() == 11


DEFINED = "dup::f"
library.define(DEFINED, "(Tensor x) -> Tensor")
WHOLE = library.Library("whole", "DEF")
ERRORS = [
    # As PyTorch 2.13 raises them: type, and words of its message.
    (lambda: library.Library("whole", "DEF"), RuntimeError, "can be used to register the namespace whole"),
    (lambda: library.Library("aten", "DEF"), RuntimeError, "can be used to register the namespace aten"),
    (lambda: library.Library("x", "FOO"), ValueError, "Unsupported kind: FOO"),
    (
        lambda: library.define(DEFINED, "(Tensor x) -> Tensor"),
        RuntimeError,
        "same name and overload name multiple times",
    ),
    (
        lambda: library.define("dup::g", "Tensor x -> Tensor"),
        ValueError,
        'expected schema to look like e.g. "(Tensor x) -> Tensor"',
    ),
    (
        lambda: library.define("dupg", "(Tensor x) -> Tensor"),
        ValueError,
        'Expected `qualname` to be of the form "namespace::name"',
    ),
    (lambda: library.define("dup::h", "(Tensr x) -> Tensor"), (RuntimeError, ValueError), "unknown type"),
    (lambda: library.impl(DEFINED, "XYZ", len), RuntimeError, "could not parse dispatch key: XYZ"),
    (lambda: library.impl("dup::none", "CPU", len), RuntimeError, "does not exist"),
    (lambda: library.register_fake("dup::none", len), RuntimeError, "does not exist"),
    (lambda: library.register_fake("aten::add", len), NotImplementedError, "is built in"),
    (
        lambda: library.Library("dup", "IMPL", "CPU").define("z(Tensor x) -> Tensor"),
        RuntimeError,
        "Cannot define an operator inside of a",
    ),
    (lambda: library.get_kernel(DEFINED, "cpu"), ValueError, "Invalid dispatch key: cpu"),
    (lambda: library.opcheck(len, ()), ValueError, "op must be instance of"),
    (
        lambda: library.opcheck(ops.aten.sin.default, (facula.ones(1),), test_utils="bad"),
        ValueError,
        "expected test_utils to be subset",
    ),
    (
        lambda: library.custom_op("nocolons", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor"),
        ValueError,
        "namespace::name",
    ),
    (
        lambda: library.custom_op("dup::kw", lambda x: x, mutates_args=(), schema="(*, Tensor x) -> Tensor"),
        NotImplementedError,
        "kwarg-only Tensor args",
    ),
    (
        lambda: library.custom_op("dup::sc", lambda x: x, mutates_args=(), schema="(Tensor x) -> int"),
        NotImplementedError,
        "returns int",
    ),
    (
        lambda: library.custom_op("dup::mu", lambda x: x, mutates_args=(), schema="(Tensor(a!) x) -> ()"),
        ValueError,
        "does not agree",
    ),
]


@pytest.mark.parametrize("call, kind, text", ERRORS)
def test_mistakes_raise_as_in_pytorch(call, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        call()


def test_a_failed_definition_leaves_its_name_free():
    name = fresh("free")
    with pytest.raises(ValueError):
        library.define(name, "(Tensr x) -> Tensor")
    library.define(name, "(Tensor x) -> Tensor")


def test_kernels_by_device():
    f = library.custom_op(
        fresh("dev"), lambda x: x * 1, mutates_args=(), schema="(Tensor x) -> Tensor", device_types="cuda"
    )
    with pytest.raises(NotImplementedError, match="its kernels are for: CUDA"):
        f(facula.ones(1))
    f.register_kernel("cpu", lambda x: x * 2)
    f.register_kernel(None, lambda x: x * 3)
    assert f(facula.ones(1)).item() == 2
    with f.set_kernel_enabled("cpu", False):
        assert f(facula.ones(1)).item() == 3
    assert f(facula.ones(1)).item() == 2


def test_autocast_converts_arguments():
    seen = []

    def kernel(x, n):
        seen.append((x.dtype, n.dtype))
        return x * 1

    f = library.custom_op(fresh("cast"), kernel, mutates_args=(), schema="(Tensor x, Tensor n) -> Tensor")
    f.register_autocast("cpu", facula.bfloat16)
    f(facula.ones(1), facula.ones(1, dtype=facula.int64))
    with facula.autocast("cpu"):
        f(facula.ones(1), facula.ones(1, dtype=facula.int64))
    assert seen == [(facula.float32, facula.int64), (facula.bfloat16, facula.int64)]


# ---- opcheck


def test_opcheck_passes_what_is_right():
    f = cube()
    every = tuple(library._CHECKS)
    for x in (
        facula.randn(3),
        facula.randn(2, 3, requires_grad=True),
        facula.randn(4, 4).t(),
        facula.ones(()),
    ):
        assert library.opcheck(f, (x, 2.0), test_utils=every) == dict.fromkeys(every, "SUCCESS")
    assert library.opcheck(ops.aten.sin.default, (facula.ones(2, requires_grad=True),))


def test_opcheck_finds_writes_that_the_schema_does_not_say():
    op = library.custom_op(
        fresh("w"), lambda x: x.mul_(2) and None, mutates_args=(), schema="(Tensor x) -> ()"
    )
    with pytest.raises(
        library.OpCheckError, match="test_schema failed with Argument x is not defined as mutable"
    ):
        library.opcheck(op, (facula.zeros(()) + 1,))


def test_opcheck_reports_without_raising():
    library.define(name := fresh("unregistered"), "(Tensor x) -> Tensor")
    library.impl(name, "CPU", lambda x: x * 2)
    found = library.opcheck(
        getattr(ops.tests, name[7:]), (facula.ones(2, requires_grad=True),), raise_exception=False
    )
    assert "no autograd formula was registered" in str(found["test_autograd_registration"])
    assert isinstance(found["test_faketensor"], NotImplementedError)


# ---- vmap


def test_vmap_calls_an_operator_one_by_one_or_by_its_rule():
    f = cube()
    x = facula.arange(6.0).view(2, 3)
    assert facula.equal(facula.func.vmap(f)(x), x**3)
    seen = []

    def rule(info, in_dims, x, factor):
        seen.append((info.batch_size, in_dims))
        return f(x, factor).movedim(0, 1), 1

    f.register_vmap(rule)
    assert facula.equal(facula.func.vmap(lambda x: f(x, 2.0), in_dims=1)(x), 2 * x.t() ** 3)
    assert seen == [(3, (0, None))]


# ---- built-in operators


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda: ops.aten.add.Tensor(facula.ones(2), facula.ones(2)), [2, 2]),
        (lambda: ops.aten.add.Scalar(facula.ones(2), 3), [4, 4]),
        (lambda: ops.aten.add_.Tensor(facula.ones(2), 1), [2, 2]),
        (lambda: ops.aten.sum.dim_IntList(facula.ones(2, 2), [0]), [2, 2]),
        (lambda: ops.aten.mm.default(facula.ones(1, 2), facula.ones(2, 1)), [[2]]),
        (lambda: ops.aten.relu(facula.tensor([-1.0, 2.0])), [0, 2]),
        (lambda: ops.aten.exp.out(facula.zeros(2), out=facula.empty(2)), [1, 1]),
        (lambda: ops.aten.max.dim(facula.tensor([[1, 5]]), 1)[1], [1]),
    ],
)
def test_operators_of_the_catalog_are_found(call, expected):
    assert call().tolist() == expected


def test_operators_of_the_catalog_have_names_and_schemas():
    add = ops.aten.add.Tensor
    assert add.name() == "aten::add.Tensor" and str(add) == "aten.add.Tensor" and add is ops.aten.add.Tensor
    assert [a.name for a in add._schema.arguments] == ["self", "other", "alpha"]
    assert add._schema.arguments[2].kwarg_only and ops.aten.view.default.is_view
    assert "out" in ops.aten.exp.overloads()
    x = facula.ones(2, requires_grad=True)
    ops.aten.mul.Tensor(x, 3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    for bad in (lambda: ops.aten.nothing, lambda: ops.aten.add.nothing):
        with pytest.raises(AttributeError):
            bad()


def test_tensors_on_meta_get_the_fake_kernel():
    @library.custom_op("meta_kernels::crop", mutates_args=())
    def crop(x: Tensor, n: int) -> Tensor:
        return facula.from_numpy(x.numpy()[:n].copy())

    with pytest.raises(RuntimeError, match="no fake impl registered"):
        crop(facula.ones(4, device="meta"), 2)
    crop.register_fake(lambda x, n: x.new_empty(n))
    made = crop(facula.ones(4, device="meta"), 2)
    assert made.is_meta and made.shape == (2,) and crop(facula.ones(4), 2).tolist() == [1.0, 1.0]


def test_kernels_of_built_in_operators_compute():
    kernel = library.get_kernel("aten::add.Tensor", "CPU")
    x = facula.ones(2, requires_grad=True)
    made = kernel.call_boxed(None, x, x)
    assert made.tolist() == [2.0, 2.0] and not made.requires_grad
    assert library.get_kernel(facula.ops.aten.sin.default, "CPU").call_boxed(None, x).shape == (2,)
    with pytest.raises(RuntimeError, match="aten::nothing does not exist"):
        library.get_kernel("aten::nothing", "CPU")
    with pytest.raises(ValueError, match="Invalid dispatch key: Nope"):
        library.get_kernel("aten::sin", "Nope")


def test_an_operator_that_may_launch_kernels_of_triton_is_defined():
    from facula.library import triton_op, wrap_triton

    @triton_op("tests::halved", mutates_args={})
    def halved(x: facula.Tensor, there: bool = False) -> facula.Tensor:
        if there:
            wrap_triton(kernel)[(1,)](x, BLOCK=16)
        return x / 2

    def kernel(*args):
        raise AssertionError("kernels are not called as functions")

    x = facula.ones(2)
    assert halved(x).tolist() == [0.5, 0.5] and facula.ops.tests.halved(x).tolist() == [0.5, 0.5]
    assert facula.compile(lambda x: halved(x) + 1)(x).tolist() == [1.5, 1.5]
    with pytest.raises(NotImplementedError, match="kernels of Triton do not run here: 'kernel'"):
        halved(x, True)
