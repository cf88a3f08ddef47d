"""Operators and classes from users' shared libraries, and facula.utils.cpp_extension."""

import copy
import gc
import inspect
import io
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from facula.utils import cpp_extension

import facula

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(facula._C.__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (BUILD / "CMakeCache.txt").exists(), reason="needs the build folder")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture(scope="session")
def mine(folder):
    """The example's library, as its CMakeLists.txt builds it."""

    def run(*command):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    run("cmake", "--install", BUILD, "--prefix", folder / "prefix")
    run(
        "cmake",
        "-S",
        ROOT / "examples/extension",
        "-B",
        folder / "mine",
        f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}",
    )
    run("cmake", "--build", folder / "mine")
    path = folder / "mine" / "mine.so"
    facula.ops.load_library(path)
    assert str(path) in facula.ops.loaded_libraries
    return path


# ---- a definition


def test_a_definition_of_a_library_is_an_operator_like_those_of_the_catalog(mine):
    x = facula.randn(5, 3, dtype=facula.float64, requires_grad=True)
    op = facula.ops.mine.silu2
    expected = x * facula.sigmoid(2 * x)
    assert facula.allclose(op(x), expected, rtol=1e-14)
    assert facula.equal(op(x.t()), op(x).t()) and op(facula.empty(0, 3)).shape == (0, 3)
    assert facula.autograd.gradcheck(op, (x,)) and facula.autograd.gradgradcheck(op, (x,))
    assert facula.equal(facula.vmap(op)(x), op(x))
    assert str(op.default._schema) == "mine::silu2(Tensor self) -> Tensor"
    with pytest.raises(RuntimeError, match="silu2"):
        op(facula.ones(2, dtype=facula.int64))  # .dtypes(floating)
    traced = facula.program.trace(lambda x: op(x).sum(), x)
    traced(x).backward()
    (eager,) = facula.autograd.grad(op(x).sum(), x)
    assert facula.allclose(x.grad, eager, rtol=1e-14)
    assert facula.library.opcheck(op, (x,)) == dict.fromkeys(
        ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"],
        "SUCCESS",
    )


@pytest.mark.parametrize("dtype", [facula.float16, facula.bfloat16, facula.float32])
def test_a_definition_has_kernels_for_all_its_dtypes_and_extremes(mine, dtype):
    x = facula.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 3.0], dtype=dtype)
    given, expected = facula.ops.mine.silu2(x), x * facula.sigmoid(x + x)
    assert given.dtype == dtype
    assert facula.testing.assert_close(given, expected, equal_nan=True) is None


# ---- functions


def test_a_function_made_of_operators_is_differentiated_and_traced_by_them(mine):
    x = facula.randn(4, 3, dtype=facula.float64, requires_grad=True)
    op = facula.ops.mine.scaled_sum
    assert facula.allclose(op(x, 2.5, [0]), (x * 2.5).sum(0))
    assert facula.equal(op(x, by=2.5, dim=[-1]), op.default(x, 2.5, [-1]))
    assert facula.autograd.gradcheck(lambda x: op(x, 2.5, [1]), (x,))
    facula.library.opcheck(op, (x, 2.5, [0]))


def test_a_function_that_computes_has_the_gradient_and_shapes_that_it_says(mine):
    x = facula.tensor([[-2.0, 0.5], [3.0, 1.0]], requires_grad=True)
    op = facula.ops.mine.clipped_ramp
    y = op(x, -1.0, 1.0)
    assert y.tolist() == [[-1.0, 0.5], [1.0, 1.0]]
    y.backward(facula.full((2, 2), 3.0))
    assert x.grad.tolist() == [[0.0, 3.0], [0.0, 3.0]]
    facula.library.opcheck(op, (x, -1.0, 1.0))
    traced = facula.program.trace(lambda x: op(x.t() * 2, -1.0, 1.0) + 1, x)
    assert facula.equal(traced(x), op(x.t() * 2, -1.0, 1.0) + 1)
    assert facula.equal(facula.vmap(lambda x: op(x, -1.0, 1.0))(x), y)


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ((facula.ones(2), 2.0, 1.0), ValueError, "clipped_ramp: low 2 is above high 1"),
        ((facula.ones(2, dtype=facula.float64), 0.0, 1.0), TypeError, "expected float32, got float64"),
        ((facula.ones(2), "a", 1.0), RuntimeError, "clipped_ramp.*low"),
        ((facula.ones(2), 0.0), RuntimeError, "clipped_ramp.*high"),
    ],
)
def test_errors_of_a_function_are_those_that_it_raises_or_name_the_argument(mine, arguments, error, text):
    with pytest.raises(error, match=text):
        facula.ops.mine.clipped_ramp(*arguments)


# ---- classes


def test_an_object_of_a_class_has_its_methods_properties_and_defaults(mine):
    Average = facula.classes.mine.Average
    average = Average()
    assert average.decay == 0.9 and len(average) == 0 and average() is None
    average.update(facula.ones(2))
    average.update(x=facula.zeros(2))
    assert len(average) == 2 and facula.allclose(average(), facula.full((2,), 0.9))
    assert Average(decay=0.5).decay == 0.5 and Average(0).decay == 0.0  # an int does for a float
    assert isinstance(average, facula.ScriptObject) and repr(average).startswith(
        "<facula.classes.mine.Average object at"
    )
    assert str(inspect.signature(Average)) == "(decay: 'float' = 0.9)"
    assert Average.update.__doc__ == "Takes another tensor into the average." and Average.__doc__
    with pytest.raises(AttributeError):
        average.decay = 1.0


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda A: A(1.5), ValueError, r"Average: decay must lie in \[0, 1\), got 1.5"),
        (lambda A: A("x"), RuntimeError, r"__init__\(\).*'float' for argument 'decay'.*'str': 'x'"),
        (lambda A: A().update(3), RuntimeError, r"update\(\).*'Tensor' for argument 'x'.*type 'int': 3"),
        (lambda A: A().update(), RuntimeError, r"update\(\).*missing a value for argument 'x'"),
        (lambda A: A().update(facula.ones(1), facula.ones(1)), RuntimeError, r"at most 2 argument"),
        (lambda A: A().update(facula.ones(1), x=facula.ones(1)), RuntimeError, "two values for argument 'x'"),
        (lambda A: A().update(facula.ones(1), y=1), RuntimeError, "Unknown keyword argument 'y'"),
        (lambda A: A().update(object()), TypeError, "C\\+\\+ classes take no object"),
        (lambda A: A.__new__(A).update(facula.ones(1)), RuntimeError, "__init__ was not called"),
    ],
)
def test_errors_of_a_class_name_the_method_the_argument_and_both_types(mine, call, error, text):
    with pytest.raises(error, match=text):
        call(facula.classes.mine.Average)


def test_an_unknown_class_is_a_clear_error():
    with pytest.raises(
        RuntimeError, match="Tried to instantiate class 'nowhere.Thing', but it does not exist"
    ):
        facula.classes.nowhere.Thing(1)


def test_objects_are_copied_and_pickled_by_their_state(mine):
    average = facula.classes.mine.Average(0.5)
    average.update(facula.tensor([1.0, 2.0]))
    again = [copy.copy(average), copy.deepcopy(average), pickle.loads(pickle.dumps(average))]
    file = io.BytesIO()
    facula.save({"weights": facula.ones(2), "average": average}, file)
    file.seek(0)
    again.append(facula.load(file, weights_only=False)["average"])
    for other in again:
        assert type(other) is type(average) and other.decay == 0.5 and len(other) == 1
        assert facula.equal(other(), average()) and other != average
    again[1].update(facula.zeros(2))
    assert average().tolist() == [1.0, 2.0]
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        facula.load(file, weights_only=True)


def test_objects_are_arguments_of_operators_and_of_programs(mine):
    average, x = facula.classes.mine.Average(0.5), facula.tensor([3.0, 4.0], requires_grad=True)
    average.update(facula.tensor([1.0, 1.0]))
    op = facula.ops.mine.centered
    assert str(op.default._schema) == (
        "mine::centered(Tensor _0, __torch__.torch.classes.mine.Average _1) -> Tensor"
    )
    op(x, average).sum().backward()
    assert op(x, average).tolist() == [2.0, 3.0] and x.grad.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="classes.mine.Average"):
        op(x, 3)
    traced = facula.program.trace(lambda x: op(x, average) * 2, x)
    assert traced(x).tolist() == [4.0, 6.0]


# ---- one library and module with PyTorch's names, compiled at run time

SOURCE = """
using torch::Tensor;

struct Cube : torch::autograd::Function<Cube> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, double scale) {
    ctx->save_for_backward({x});
    ctx->saved_data["scale"] = scale;
    return x.pow(3) * scale;
  }
  using tensor_list = torch::autograd::tensor_list;
  static tensor_list backward(torch::autograd::AutogradContext* ctx, tensor_list grads) {
    Tensor x = ctx->get_saved_variables()[0];
    return {grads[0] * 3 * x * x * ctx->saved_data["scale"].number(), Tensor()};
  }
};
Tensor cube_cpu(const Tensor& x, double scale) {
  Tensor from = x.contiguous(), out = torch::empty_like(from);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "cube", [&] {
    const scalar_t* p = from.data_ptr<scalar_t>();
    scalar_t* q = out.data_ptr<scalar_t>();
    for (int64_t i = 0; i < from.numel(); ++i) q[i] = p[i] * p[i] * p[i] * scalar_t(scale);
  });
  return out;
}
Tensor cube_autograd(const Tensor& x, double scale) { return Cube::apply(x, scale); }
Tensor& add_one_(Tensor& x) { return x.add_(1); }
std::tuple<Tensor, Tensor> both(const Tensor& x) { return {x.sin(), x.cos()}; }
std::vector<Tensor> halves(std::vector<Tensor> list, std::optional<Tensor> more) {
  if (more) list.push_back(*more);
  for (auto& t : list) t = t / 2;
  return list;
}

struct Stack : torch::CustomClassHolder {
  std::vector<std::string> items;
  explicit Stack(std::vector<std::string> i) : items(std::move(i)) { ++alive; }
  Stack(const Stack& o) : CustomClassHolder(o), items(o.items) { ++alive; }
  ~Stack() override { --alive; }
  std::string size() const { return std::to_string(items.size()); }
  void push(std::string x) { items.push_back(std::move(x)); }
  std::string pop() {
    TORCH_CHECK_VALUE(!items.empty(), "pop from an empty Stack");
    std::string last = items.back();
    items.pop_back();
    return last;
  }
  c10::intrusive_ptr<Stack> clone() const { return c10::make_intrusive<Stack>(*this); }
  void merge(const c10::intrusive_ptr<Stack>& other) { for (auto& x : other->items) items.push_back(x); }
  static int64_t alive;
};
int64_t Stack::alive = 0;
struct Holder : torch::CustomClassHolder {
  c10::intrusive_ptr<Stack> held;
  void hold(c10::intrusive_ptr<Stack> s) { held = s; }
};
using Everything = std::tuple<int64_t, double, bool, std::string, std::optional<Tensor>, std::vector<int64_t>,
                              std::map<std::string, Tensor>, std::pair<bool, double>, torch::ScalarType>;

TORCH_LIBRARY(torchy, m) {
  m.def("cube(Tensor x, float scale) -> Tensor");
  m.def("add_one_(Tensor(a!) x) -> Tensor(a!)");
  m.def("both", both);
  m.def("halves(Tensor[] list, Tensor? more=None) -> Tensor[]", halves);
  m.def("over.Tensor(Tensor x, Tensor y) -> Tensor", [](const Tensor& x, const Tensor& y) { return x - y; });
  m.def("over.int(Tensor x, int y) -> Tensor", [](const Tensor& x, int64_t y) { return x * y; });
  m.def("bare(Tensor x) -> Tensor");
  m.def("late(Tensor x) -> Tensor");
  m.def("shifted(Tensor x, __torch__.torch.classes.torchy.Stack? by=None) -> Tensor");
  m.class_<Stack>("Stack")
      .def(torch::init<std::vector<std::string>>())
      .def("push", &Stack::push)
      .def("pop", &Stack::pop)
      .def("clone", &Stack::clone)
      .def("merge", &Stack::merge)
      .def("top", [](const c10::intrusive_ptr<Stack>& self) { return self->items.back(); })
      .def("__repr__", [](const c10::intrusive_ptr<Stack>& s) { return "Stack of " + s->size(); })
      .def("same", [](const c10::intrusive_ptr<Stack>& self) { return self; })
      .def("echo", [](const c10::intrusive_ptr<Stack>&, Everything x) { return x; })
      .def("any", [](const c10::intrusive_ptr<Stack>&, facula::io::Value x) { return x; })
      .def_static("alive", [] { return Stack::alive; })
      .def_readwrite("items", &Stack::items)
      .def_property("first", [](const c10::intrusive_ptr<Stack>& self) { return self->items.at(0); },
                    [](const c10::intrusive_ptr<Stack>& self, std::string x) { self->items.at(0) = x; });
  m.class_<Holder>("Holder")
      .def(torch::init<>())
      .def("hold", &Holder::hold)
      .def_readonly("held", &Holder::held);
}
TORCH_LIBRARY_IMPL(torchy, CPU, m) {
  m.impl("cube", cube_cpu);
  m.impl("add_one_", add_one_);
  m.impl("shifted", [](const Tensor& x, const std::optional<c10::intrusive_ptr<Stack>>& by) {
    return by ? x + int64_t((*by)->items.size()) : x.clone();
  });
  m.impl("bare", [](const Tensor& x) { return x.detach() * 2; });
}
TORCH_LIBRARY_IMPL(torchy, Autograd, m) { m.impl("cube", cube_autograd); }
TORCH_LIBRARY_IMPL(torchy, Meta, m) {
  m.impl("cube", [](const Tensor& x, double) { return torch::empty_like(x); });
  m.impl("add_one_", [](const Tensor& x) { return x; });
  m.impl("shifted", [](const Tensor& x, std::optional<c10::intrusive_ptr<Stack>>) { return x.clone(); });
}
TORCH_LIBRARY_FRAGMENT(torchy, m) { m.def("extra(Tensor x) -> Tensor", [](const Tensor& x) { return -x; }); }

Tensor lltm(const Tensor& x, torch::ScalarType as, std::vector<Tensor> more, std::optional<double> scale) {
  TORCH_CHECK(x.dim() == 2, "x has ", x.dim(), " dimensions");
  auto a = x.accessor<float, 2>();
  Tensor y = torch::zeros({x.size(0)}, x.options());
  for (int64_t i = 0; i < x.size(0); ++i) y.data_ptr<float>()[i] = a[i][0];
  for (auto& t : more) y = torch::sigmoid(y) + t.sum();
  return (y * scale.value_or(1)).to(as);
}
std::string name() { return "torchy"; }
int64_t count(const c10::intrusive_ptr<Stack>& s) { return int64_t(s->items.size()); }
Tensor bad(const Tensor& x) { return x.matmul(x); }
"""


@pytest.fixture(scope="session")
def torchy(folder, mine):
    pytest.importorskip("pybind11")
    return cpp_extension.load_inline(
        "torchy",
        [SOURCE],
        functions={"lltm": "Of tensors.", "name": "", "count": "", "bad": ""},
        extra_cflags=["-O0"],
        build_directory=str(folder / "torchy"),
    )


def test_a_module_takes_and_gives_tensors(torchy):
    assert torchy.name() == "torchy" and "Of tensors." in torchy.lltm.__doc__
    x = facula.randn(3, 2)
    y = torchy.lltm(x, facula.float64, [facula.ones(2)], 2)
    assert y.dtype == facula.float64
    facula.testing.assert_close(y, ((x[:, 0].sigmoid() + 2) * 2).double())
    with pytest.raises(RuntimeError, match="x has 1 dimensions"):
        torchy.lltm(facula.ones(2), facula.float32, [], None)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        torchy.lltm(3, facula.float32, [], None)
    with pytest.raises(RuntimeError, match="matmul"):
        torchy.bad(facula.ones(2, 3))
    with pytest.raises(TypeError, match="expected scalar type float32 but found float64|accessor"):
        torchy.lltm(x.double(), facula.float32, [], None)
    assert torchy.count(facula.classes.torchy.Stack(["a", "b"])) == 2


def test_a_kernel_for_autograd_is_recorded_and_traced(torchy):
    op, x = facula.ops.torchy.cube, facula.randn(3, dtype=facula.float64, requires_grad=True)
    assert facula.allclose(op(x, 2.0), 2 * x**3)
    assert facula.autograd.gradcheck(lambda x: op(x, 2.0), (x,))
    checks = "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static"
    facula.library.opcheck(op, (x, 2.0), test_utils=checks)
    traced = facula.program.trace(lambda x: op(x, 2.0).sum(), x)
    traced(x).backward()
    facula.testing.assert_close(x.grad, 6 * x.detach() ** 2)
    with facula.no_grad(), pytest.raises(RuntimeError, match="\"cube\" not implemented for 'int64'"):
        op(facula.ones(2, dtype=facula.int64), 1.0)


def test_functions_write_and_give_tuples_lists_and_overloads(torchy):
    ops, x = facula.ops.torchy, facula.tensor([1.0, 2.0])
    assert ops.add_one_(x) is x and x.tolist() == [2.0, 3.0] and x._version > 0
    s, c = ops.both(x)
    assert facula.equal(s, x.sin()) and facula.equal(c, x.cos())
    assert [t.tolist() for t in ops.halves([x, x + 1])] == [[1.0, 1.5], [1.5, 2.0]]
    assert len(ops.halves([], more=x)) == 1 and isinstance(ops.halves([x]), list)
    assert ops.over(x, x).tolist() == [0.0, 0.0] and ops.over.int(x, 3).tolist() == [6.0, 9.0]
    assert sorted(ops.over.overloads()) == ["Tensor", "int"] and ops.extra(x).tolist() == [-2.0, -3.0]
    traced = facula.program.trace(lambda x: ops.add_one_(x.clone()) * 2, x)
    assert traced(x).tolist() == [6.0, 8.0]


def test_python_adds_what_a_library_left_out(torchy):
    op, x = facula.ops.torchy.bare, facula.tensor([1.0, 2.0], requires_grad=True)
    assert op(x).tolist() == [2.0, 4.0] and not op(x).requires_grad
    with pytest.raises(NotImplementedError, match="bare.*no fake impl or Meta kernel"):
        facula.program.trace(lambda x: op(x), x)
    facula.library.register_fake("torchy::bare", lambda x: facula.empty_like(x))
    facula.library.register_autograd("torchy::bare", lambda ctx, grad: grad * 2)
    op = facula.ops.torchy.bare
    op(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    facula.library.opcheck(op, (x,))
    with pytest.raises(NotImplementedError, match="late.*no kernel"):
        facula.ops.torchy.late(x)
    facula.library.impl("torchy::late", "CPU", lambda x: x + 1)
    assert facula.ops.torchy.late(x).tolist() == [2.0, 3.0]
    with pytest.raises(RuntimeError, match="Only a single"):
        facula.library.Library("torchy", "DEF")


def test_methods_take_and_give_all_kinds_of_values(torchy):
    stack = facula.classes.torchy.Stack(["a"])
    t = facula.ones(2)
    given = (3, 2.5, True, "é", None, [1, 2], {"k": t}, (False, 1.0), facula.float16)
    echoed = stack.echo(given)
    assert echoed[:6] == given[:6] and echoed[6]["k"] is t and echoed[7:] == given[7:]
    for bad in [given[:-1], list(given), (2.5, *given[1:]), (*given[:5], [1, "x"], *given[6:])]:
        with pytest.raises(
            RuntimeError, match=r"echo\(\).*Expected a value of type '\(int, float, bool, str, Tensor\?"
        ):
            stack.echo(bad)
    nested = {"a": [1, (2.0, None)], 3: {"x": stack}, 1.5: 2j}
    assert stack.any(nested) == nested
    deep = []
    deep.append(deep)
    with pytest.raises(RecursionError):
        stack.any(deep)


def test_objects_are_held_by_python_and_by_cpp_at_once(torchy):
    Stack, Holder = facula.classes.torchy.Stack, facula.classes.torchy.Holder
    gc.collect()
    before = Stack.alive()
    stack = Stack(["a", "b"])
    assert Stack.alive() == before + 1 and stack.same() == stack and hash(stack.same()) == hash(stack)
    copied = stack.clone()
    copied.push("c")
    assert copied != stack and (stack.top(), copied.top()) == ("b", "c") and repr(copied) == "Stack of 3"
    stack.merge(copied)
    assert stack.items == ["a", "b", "a", "b", "c"] and stack.pop() == "c"
    stack.items = ["x"]
    stack.first = "y"
    assert stack.items == ["y"] and stack.first == "y"
    with pytest.raises(RuntimeError, match="Expected a value of type 'str\\[\\]'"):
        stack.items = [1]
    with pytest.raises(ValueError, match="pop from an empty Stack"):
        Stack([]).pop()
    with pytest.raises(
        RuntimeError, match="'__torch__.torch.classes.torchy.Stack' for argument '_1'.*torchy.Holder'"
    ):
        stack.merge(Holder())
    with pytest.raises(RuntimeError, match="__getstate__"):
        pickle.dumps(stack)
    holder = Holder()
    assert holder.held is None
    holder.hold(stack)
    del stack, copied
    gc.collect()
    assert holder.held.items == ["y"] and Stack.alive() == before + 1
    del holder
    gc.collect()
    assert Stack.alive() == before


def test_a_program_calls_a_function_on_the_object_and_is_not_saved_with_it(torchy, tmp_path):
    op, x, stack = facula.ops.torchy.shifted, facula.zeros(2), facula.classes.torchy.Stack(["a"])
    traced = facula.program.trace(lambda x: op(x * 2, stack) + op(x), x)
    assert traced(x).tolist() == [1.0, 1.0]
    stack.push("b")  # what the function reads when it runs
    assert traced(x).tolist() == [2.0, 2.0]
    with pytest.raises(NotImplementedError, match="torchy.Stack, which has no def_pickle"):
        traced.save(tmp_path / "program.pt")
    program = facula.program.trace(lambda x: op(x) + facula.ops.mine.silu2(x), x)
    program.save(tmp_path / "program.pt")
    assert facula.equal(facula.program.load(tmp_path / "program.pt")(x + 1), program(x + 1))
    with pytest.raises(RuntimeError, match="shifted.*classes.torchy.Stack"):
        op(x, facula.classes.torchy.Holder())
    facula.library.opcheck(op, (x, stack))
    facula.library.opcheck(op, (x,), {"by": None})
    facula.library.register_autograd("torchy::shifted", lambda ctx, grad: (grad, None))
    x.requires_grad_()
    facula.ops.torchy.shifted(x, stack).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    with pytest.raises(NotImplementedError, match="mine::silu2 is a definition"):
        facula.library.register_fake("mine::silu2", lambda x: x)


# ---- what goes wrong

FAULTY = """
#include <facula/extension.h>
#include <cstdlib>
using namespace facula;
static bool fault(int which) { return std::getenv("FAULT") && std::atoi(std::getenv("FAULT")) == which; }
static loop::Expr same(loop::Expr x) { return x; }
struct A : CustomClassHolder {};
FACULA_LIBRARY_FRAGMENT(faulty, m) {
  m.def("good(Tensor x) -> Tensor", [](const Tensor& x) { return x; });
  m.define("fine(Tensor self) -> Tensor").pointwise(same);
  if (fault(1)) m.def("bad(Tensor x -> Tensor");
  if (fault(4)) m.def("unfit(Tensor x, int k) -> Tensor", [](const Tensor& x, double) { return x; });
  if (fault(6)) m.def("number(Tensor x) -> int");
  m.class_<A>("A").def(init<>());
  if (fault(7)) m.class_<A>("B").def(init<>());
}
FACULA_LIBRARY_FRAGMENT(mine, m) {
  if (fault(2)) m.define("silu2(Tensor self) -> Tensor").pointwise(same);
}
FACULA_LIBRARY_IMPL(faulty, CPU, m) {
  if (fault(5)) m.impl("nowhere", [](const Tensor& x) { return x; });
}
static void body(extend::Library&) {}
static const extend::Build kOther{"9.9", 0};
static const extend::Registration other({extend::BlockKind::fragment, "faulty", "", body,
                                         fault(3) ? kOther : extend::kBuild, "other.cpp"});
"""
FAULTS = {
    1: (ValueError, r"in the schema at character \d+.*bad\(Tensor x"),
    2: (RuntimeError, "silu2.*same name and overload name multiple times"),
    3: (RuntimeError, r"other.cpp was compiled against Facula 9.9, and this is Facula \d"),
    4: (RuntimeError, "the C\\+\\+ type of the body's parameter for `k` does not fit"),
    5: (RuntimeError, "operator faulty::nowhere does not exist"),
    6: (NotImplementedError, "returns what is no Tensor"),
    7: (RuntimeError, "Custom class with name __torch__.torch.classes.faulty.B is already registered"),
}


@pytest.fixture(scope="session")
def faulty(folder, mine):
    """A library that is faulty in the way that the environment says, and without that is not."""
    source = folder / "faulty.cpp"
    source.write_text(FAULTY)
    try:
        os.environ["FAULT"] = "1"
        with pytest.raises(FAULTS[1][0], match=FAULTS[1][1]):
            cpp_extension.load(
                "faulty", str(source), ["-O0"], is_python_module=False, build_directory=str(folder / "faulty")
            )
    finally:
        del os.environ["FAULT"]
    (library,) = (folder / "faulty").rglob("*.so")
    return library


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_library_is_refused_as_a_whole_each_time(faulty, folder, case, monkeypatch):
    monkeypatch.setenv("FAULT", str(case))
    library = folder / f"faulty{case}.so"
    library.write_bytes(faulty.read_bytes())
    error, text = FAULTS[case]
    for _ in range(2):
        with pytest.raises(error, match=text):
            facula.ops.load_library(library)
        assert not hasattr(facula.ops.faulty, "good") and not hasattr(facula.ops.faulty, "fine")
        with pytest.raises(RuntimeError, match="does not exist"):
            facula.classes.faulty.A()
    assert facula.allclose(facula.ops.mine.silu2(facula.ones(1)), facula.sigmoid(facula.tensor([2.0])))


def test_a_library_whose_fault_is_mended_is_loaded_by_trying_again(faulty, folder, monkeypatch):
    library = folder / "mended.so"
    library.write_bytes(faulty.read_bytes())
    monkeypatch.setenv("FAULT", "7")
    with pytest.raises(RuntimeError):
        facula.ops.load_library(library)
    monkeypatch.delenv("FAULT")
    facula.ops.load_library(library)
    assert facula.ops.faulty.good(facula.ones(1)).item() == 1.0 and facula.classes.faulty.A()


def test_what_is_no_library_is_refused(folder, mine):
    with pytest.raises(OSError, match="Could not load this library: .*nothing.so"):
        facula.ops.load_library(folder / "nothing.so")
    (folder / "text.so").write_text("no library")
    with pytest.raises(OSError, match="Could not load this library: .*text.so"):
        facula.classes.load_library(folder / "text.so")
    facula.ops.load_library(mine)  # once more: nothing happens
    assert facula.ops.mine.silu2(facula.zeros(1)).item() == 0.0
    twin = folder / "twin.so"
    twin.write_bytes(mine.read_bytes())
    with pytest.raises(RuntimeError, match="namespace mine"):
        facula.ops.load_library(twin)
    assert facula.ops.mine.silu2(facula.zeros(1)).item() == 0.0


# ---- compiling


def test_what_was_compiled_is_kept_until_something_of_it_changes(folder, monkeypatch):
    place = folder / "kept"
    place.mkdir()
    (place / "shift.h").write_text("constexpr double kShift = 1;")
    source = place / "kept.cpp"
    text = """
        #include <facula/extension.h>
        #include "shift.h"
        FACULA_LIBRARY(NAMESPACE, m) {{
          m.def("f(Tensor x) -> Tensor", [](const facula::Tensor& x) {{ return x + kShift{more}; }});
        }}
    """
    source.write_text(text.format(more=""))
    runs = []
    original = cpp_extension._run
    monkeypatch.setattr(cpp_extension, "_run", lambda *a: (runs.append(a), original(*a)))

    def build(namespace):
        flags = ["-O0", f"-DNAMESPACE={namespace}"]
        cpp_extension.load(
            "kept", str(source), flags, is_python_module=False, build_directory=str(place / "out")
        )
        return getattr(facula.ops, namespace).f(facula.zeros(1)).item(), len(runs)

    assert build("kept1") == (1.0, 2)  # compiled and linked
    assert build("kept1") == (1.0, 2)
    (place / "shift.h").write_text("constexpr double kShift = 2;")
    assert not cpp_extension._unchanged(next((place / "out").rglob("kept.json")))
    source.write_text("#error nothing else")
    with pytest.raises(
        RuntimeError, match="(?s)Error building extension 'kept'.*nothing else.*The command was"
    ):
        build("kept2")
    assert sorted(p.suffix for p in (place / "out").rglob("*.*")) == [".json", ".so"]  # and nothing half done


def test_requests_for_other_devices_and_missing_things_are_clear(monkeypatch, tmp_path):
    with pytest.raises(NotImplementedError, match="(?s)CUDAExtension.*CppExtension"):
        cpp_extension.CUDAExtension("x", ["x.cu"])
    with pytest.raises(NotImplementedError, match="load_inline"):
        cpp_extension.load_inline("x", "", cuda_sources="x")
    with pytest.raises(NotImplementedError, match="x.cu"):
        cpp_extension.load("x", ["x.cu"])
    with pytest.raises(FileNotFoundError, match="nothing.cpp"):
        cpp_extension.load("x", ["nothing.cpp"])
    (tmp_path / "x.cpp").write_text("")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match="no C\\+\\+ compiler was found: no-such-compiler"):
        cpp_extension.load(
            "x", [str(tmp_path / "x.cpp")], is_python_module=False, build_directory=str(tmp_path)
        )
    monkeypatch.setattr(cpp_extension.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install pybind11"):
        cpp_extension.load("x", [str(tmp_path / "x.cpp")])
    monkeypatch.undo()
    assert cpp_extension.check_compiler_ok_for_platform(cpp_extension.get_cxx_compiler())
    assert cpp_extension.get_compiler_abi_compatibility_and_version(cpp_extension.get_cxx_compiler())[0]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="Ninja is required"):
        cpp_extension.verify_ninja_availability()


def test_a_setup_script_builds_a_module(folder):
    pytest.importorskip("setuptools")
    place = folder / "setup"
    place.mkdir()
    (place / "setup.py").write_text(
        textwrap.dedent("""
            from setuptools import setup
            from facula.utils.cpp_extension import BuildExtension, CppExtension
            flags = dict(extra_compile_args=["-O0"])
            setup(name="built", ext_modules=[CppExtension("built", ["built.cpp"], **flags)],
                  cmdclass={"build_ext": BuildExtension})
        """)
    )
    (place / "built.cpp").write_text("""
        #include <torch/python.h>
        #include <facula/ops.h>
        using namespace facula::python;
        static PyObject* half(PyObject*, PyObject* x) { return wrap(tensor_of(x) / 2); }
        static PyMethodDef methods[] = {{"half", half, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
        static PyModuleDef module = {PyModuleDef_HEAD_INIT, "built", nullptr, -1, methods};
        PyMODINIT_FUNC PyInit_built() { return PyModule_Create(&module); }
    """)
    there = {"cwd": place, "env": os.environ | {"PYTHONPATH": str(BUILD / "python")}, "text": True}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, capture_output=True, **there)
    assert done.returncode == 0, done.stdout + done.stderr
    code = "import facula, built; print(built.half(facula.ones(1)).item())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, **there)
    assert done.stdout == "0.5\n", done.stderr


# ---- a program in C++

PROGRAM = """
#include <facula/extension.h>
#include <cstdio>
using namespace facula;
FACULA_LIBRARY(linked, m) {
  m.define("twice(Tensor self) -> Tensor").pointwise([](loop::Expr x) { return x + x; });
}
int main(int, char** arguments) {
  load_library(arguments[1]);
  Tensor x = requires_grad_(full({2}, 3.0));
  op::Value args[] = {x};
  Tensor y = op::call(op::get("linked::twice"), args)[0] + op::call(op::get("mine::silu2"), args)[0];
  backward(sum(y));
  auto average = extend::find_class("mine", "Average")->make.value()(io::List{0.5});
  Tensor grad = grad_of(x);
  std::printf("%.6f %.6f %s\\n", select(y, 0, 0).item().to_double(), select(grad, 0, 0).item().to_double(),
              extend::class_of(*average.custom_object())->full_name().c_str());
}
"""


def test_a_program_in_cpp_loads_a_library_and_has_operators_of_its_own(mine, folder):
    source = folder / "program.cpp"
    source.write_text(PROGRAM)
    program = cpp_extension.load(
        "program", str(source), ["-O0"], is_standalone=True, build_directory=str(folder / "program")
    )
    done = subprocess.run([program, mine], capture_output=True, text=True)
    x = facula.tensor(3.0, dtype=facula.float64, requires_grad=True)
    y = 2 * x + x * facula.sigmoid(2 * x)
    y.backward()
    assert done.stdout == f"{y.item():.6f} {x.grad.item():.6f} mine.Average\n", done.stderr
