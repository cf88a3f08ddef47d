"""Objects of C++ classes in programs: recorded, exported, saved, loaded and packaged."""

import copy
import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from facula.export import Dim, export, load, save
from facula.export.graph_signature import CustomObjArgument, InputKind
from facula.utils import cpp_extension

import facula
from facula import nn

BUILD = Path(facula._C.__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (BUILD / "CMakeCache.txt").exists(), reason="needs the build folder")

SOURCE = """
#include <torch/custom_class.h>
#include <torch/script.h>
#include <deque>
using torch::Tensor;

namespace shelf {  // another library of this process may have types of these names
struct Queue : torch::CustomClassHolder {
  explicit Queue(Tensor t) : empty(t) {}
  void push(Tensor x) { items.push_back(x); }
  Tensor pop() {
    if (items.empty()) return empty;
    Tensor t = items.front();
    items.pop_front();
    return t;
  }
  int64_t size() const { return int64_t(items.size()); }
  std::vector<Tensor> all() const { return {items.begin(), items.end()}; }
  using Named = std::tuple<std::tuple<std::string, Tensor>, std::tuple<std::string, std::vector<Tensor>>>;
  Named flatten() const { return Named({"empty", empty}, {"items", all()}); }
  std::deque<Tensor> items;
  Tensor empty;
};
struct Scale : torch::CustomClassHolder {
  Scale(double f, std::vector<int64_t> n) : factor(f), notes(n) {}
  Tensor apply(const Tensor& x, double more, bool twice) { return x * (factor * more * (twice ? 2 : 1)); }
  std::tuple<Tensor, Tensor> both(const Tensor& x) { return {x * factor, x + factor}; }
  std::string name() const { return "scale"; }
  void take(const c10::intrusive_ptr<Scale>& other) { factor = other->factor; }
  double factor;
  std::vector<int64_t> notes;
};
struct Holder : torch::CustomClassHolder {
  explicit Holder(c10::intrusive_ptr<Scale> s) : scale(s) {}
  Tensor apply(const Tensor& x) { return x * scale->factor; }
  c10::intrusive_ptr<Scale> scale;
};
using ScaleState = std::tuple<int64_t, double, std::vector<int64_t>, std::map<std::string, bool>>;
}  // namespace shelf
using namespace shelf;

TORCH_LIBRARY(shelf, m) {
  m.class_<Queue>("Queue")
      .def(torch::init<Tensor>())
      .def("push", &Queue::push)
      .def("pop", &Queue::pop)
      .def("size", &Queue::size)
      .def("__len__", &Queue::size)
      .def("all", &Queue::all)
      .def("__obj_flatten__", &Queue::flatten)
      .def_pickle(
          [](const c10::intrusive_ptr<Queue>& self) {
            std::vector<Tensor> state = self->all();
            state.push_back(self->empty);
            return state;
          },
          [](std::vector<Tensor> state) {
            auto q = c10::make_intrusive<Queue>(state.back());
            state.pop_back();
            q->items.assign(state.begin(), state.end());
            return q;
          });
  m.class_<Scale>("Scale")
      .def(torch::init<double, std::vector<int64_t>>())
      .def("apply", &Scale::apply, "",
           {torch::arg("x"), torch::arg("more") = 1.0, torch::arg("twice") = false})
      .def("both", &Scale::both)
      .def("name", &Scale::name)
      .def("take", &Scale::take)
      .def("notes", [](const c10::intrusive_ptr<Scale>& s) { return std::map<std::string, int64_t>(); })
      .def("__obj_flatten__",
           [](const c10::intrusive_ptr<Scale>& s) {
             return std::tuple(std::tuple(std::string("factor"), s->factor));
           })
      .def_readwrite("factor", &Scale::factor)
      .def_pickle(
          [](const c10::intrusive_ptr<Scale>& s) {
            return ScaleState(2, s->factor, s->notes, {{"new", true}});  // the second version of the state
          },
          [](ScaleState s) {
            TORCH_CHECK(std::get<0>(s) == 2, "a state of version ", std::get<0>(s));
            return c10::make_intrusive<Scale>(std::get<1>(s), std::get<2>(s));
          });
  m.class_<Holder>("Holder")
      .def(torch::init<c10::intrusive_ptr<Scale>>())
      .def("apply", &Holder::apply)
      .def("__obj_flatten__", [](const c10::intrusive_ptr<Holder>&) { return std::tuple<>(); })
      .def_pickle([](const c10::intrusive_ptr<Holder>& h) { return h->scale; },
                  [](c10::intrusive_ptr<Scale> s) { return c10::make_intrusive<Holder>(s); });
  m.def("scaled(Tensor x, __torch__.torch.classes.shelf.Scale by) -> Tensor",
        [](const Tensor& x, const c10::intrusive_ptr<Scale>& by) { return x * by->factor; });
  m.def("opaque(Tensor x, __torch__.torch.classes.shelf.Scale by) -> Tensor");
}
TORCH_LIBRARY_IMPL(shelf, CPU, m) {
  m.impl("opaque", [](const Tensor& x, const c10::intrusive_ptr<Scale>& by) { return x * by->factor; });
}
TORCH_LIBRARY_IMPL(shelf, Meta, m) {
  m.impl("opaque", [](const Tensor& x, const c10::intrusive_ptr<Scale>&) { return torch::empty_like(x); });
}
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    path = cpp_extension.load_inline(
        "shelf", [SOURCE], extra_cflags=["-O0"], is_python_module=False, build_directory=str(folder)
    )
    register = facula._library.register_fake_class

    @register("shelf::Queue")
    class FakeQueue:
        def __init__(self, empty, items):
            self.empty, self.items = empty, items

        @classmethod
        def __obj_unflatten__(cls, flattened):
            return cls(**dict(flattened))

        def push(self, x):
            self.items.append(x)

        def pop(self):
            return self.items.pop(0) if self.items else self.empty

        def size(self):
            return len(self.items)

        __len__ = size

        def all(self):
            return list(self.items)

    libraries = [p for p in facula.ops.loaded_libraries if "shelf" in p]
    return path or libraries[0]


def queue(*sizes):
    return facula.classes.shelf.Queue(facula.full(sizes, -1.0))


class Delay(nn.Module):
    """Returns twice what it was given two calls before."""

    def __init__(self):
        super().__init__()
        self.lines = nn.ModuleDict({"main": nn.Linear(3, 3)})
        self.q = queue(4, 3)
        self.q.push(facula.zeros(4, 3))
        self.q.push(facula.ones(4, 3))

    def forward(self, x):
        self.q.push(self.lines["main"](x))
        return self.q.pop() * 2


def test_the_tutorial_s_queue_is_called_pickled_and_held_by_a_pickled_module(library):
    q = queue(2)
    q.push(facula.tensor([1.0, 2.0]))
    assert len(q) == q.size() == 1 and q.pop().tolist() == [1.0, 2.0] and q.pop().tolist() == [-1.0, -1.0]
    q.push(facula.zeros(2))
    module = Delay()
    for other in (pickle.loads(pickle.dumps(q)), copy.deepcopy(q)):
        assert other != q and other.size() == 1 and facula.equal(other.pop(), facula.zeros(2))
    assert q.size() == 1
    again, x = pickle.loads(pickle.dumps(module)), facula.randn(4, 3)
    for _ in range(3):
        assert facula.equal(again(x), module(x))


def test_a_program_calls_the_methods_of_the_object_that_it_was_traced_with(library):
    q, x = queue(3), facula.randn(3)
    q.push(facula.ones(3))

    def f(x):
        q.push(x.sin())
        q.push(x.cos())
        return q.pop() + 1, q.all()[-1], q.pop()

    program = facula.program.trace(f, x)
    assert q.size() == 1  # tracing runs no method
    other = copy.deepcopy(q)
    for _ in range(3):
        results = program(x := facula.randn(3))
        other.push(x.sin())
        other.push(x.cos())
        expected = other.pop() + 1, other.all()[-1], other.pop()
        assert all(facula.equal(r, e) for r, e in zip(results, expected, strict=True))
    assert q.size() == other.size() == 1
    q.push(x)  # the lists that `all` returns have another length now
    with pytest.raises(RuntimeError, match="gave 3 tensors, but its fake implementation 2"):
        program(x)


def test_a_module_with_an_object_is_exported_with_a_dynamic_batch_saved_and_loaded(library, tmp_path):
    module, x = Delay().eval(), facula.randn(4, 3)
    state = copy.deepcopy(module.q)
    program = export(module, (x,), dynamic_shapes={"x": {0: Dim("batch")}})
    assert module.q.size() == 2
    signature = program.graph_signature
    assert signature.inputs_to_lifted_custom_objs == {"obj_q": "q"} and signature.lifted_custom_objs == ("q",)
    (spec,) = [s for s in signature.input_specs if s.kind is InputKind.CUSTOM_OBJ]
    assert spec.arg == CustomObjArgument("obj_q", "__torch__.torch.classes.shelf.Queue")
    assert program.constants["q"] == module.q
    assert "facula.ops.shelf.Queue.push(obj_q, linear" in str(program)
    assert str(load_saved := saved(program, tmp_path)).splitlines()[1] == str(program).splitlines()[1]
    module.q = state
    batch = [facula.randn(4, 3) for _ in range(4)]
    expected = [module(b) for b in batch]
    for again in (program.module(), load_saved.module()):
        assert all(facula.equal(again(b), e) for b, e in zip(batch, expected))


def saved(program, folder, name="m.fpt"):
    save(program, folder / name)
    return load(folder / name)


def test_the_size_of_a_result_may_depend_on_the_batch(library, tmp_path):
    q = queue(1, 2)

    class Push(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = q

        def forward(self, x):
            self.q.push(x * 2)
            return self.q.pop() + 1

    again = saved(export(Push(), (facula.randn(4, 2),), dynamic_shapes=({0: Dim("n")},)), tmp_path)
    native, _ = facula._C.load_program(str(tmp_path / "m.fpt"))
    for n in (1, 5):
        x = facula.randn(n, 2)
        assert facula.equal(again.module()(x), x * 2 + 1)
        (result,) = native.run([x])
        assert facula.equal(result, x * 2 + 1)
    native, _ = facula._C.load_program(str(tmp_path / "m.fpt"))
    assert native.text().count("object 0") == 2


def test_a_loaded_program_runs_without_python_from_the_state_that_was_saved(library, tmp_path):
    numpy = pytest.importorskip("numpy")
    module = Delay().eval()
    program = export(module, (facula.randn(4, 3),))
    facula.package(program, path := tmp_path / "m.fpk")
    batch = [facula.randn(4, 3) for _ in range(3)]
    for k, x in enumerate(batch):
        numpy.save(tmp_path / f"{k}.npy", x.numpy())
    code = """
import importlib.util, pathlib, sys, numpy
spec = importlib.util.spec_from_file_location("packaged", sys.argv[1])
packaged = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packaged)
whole = pathlib.Path(sys.argv[1]).with_name("libfacula.so")
for extensions in ([], [sys.argv[3]]):
    try:
        p = packaged.load_package(sys.argv[2] + "/m.fpk", whole, extensions)
    except RuntimeError as e:
        print(e)
for k in range(3):
    numpy.save(f"{sys.argv[2]}/result{k}.npy", p(numpy.load(f"{sys.argv[2]}/{k}.npy")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, facula.packaged.__file__, str(tmp_path), str(library)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "holds an object of the class shelf.Queue, which this process does not have" in done.stdout
    assert "hint: load the library that defines it first" in done.stdout
    for k, x in enumerate(batch):
        result = facula.from_numpy(numpy.load(tmp_path / f"result{k}.npy"))
        assert facula.allclose(result, module(x), rtol=1e-6, atol=1e-6)
    assert path.exists()


def test_objects_may_be_arguments_and_results(library, tmp_path):
    class Through(nn.Module):
        def forward(self, q, x):
            q.push(x.sin())
            return q.pop(), q

    q, x = queue(3), facula.randn(3)
    program = export(Through(), (q, x))
    assert [type(s.arg).__name__ for s in program.graph_signature.input_specs] == [
        "CustomObjArgument",
        "TensorArgument",
    ]
    for p in (program, saved(program, tmp_path)):
        mine = queue(3)
        mine.push(facula.ones(3))
        popped, same = p.module()(mine, x)
        assert same == mine and mine.size() == 1 and facula.equal(popped, facula.ones(3))
        assert facula.equal(mine.pop(), x.sin())
        with pytest.raises(AssertionError, match="q is 3"):
            p.module()(3, x)
    assert q.size() == 0


def test_states_are_held_with_numbers_lists_dicts_and_other_objects(library, tmp_path):
    Scale, Holder = facula.classes.shelf.Scale, facula.classes.shelf.Holder

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = Scale(2.5, [1, 2])
            self.holder = Holder(self.scale)

        def forward(self, x):
            return facula.ops.shelf.opaque(x, self.scale) + facula.ops.shelf.scaled(x, self.scale)

    x = facula.randn(3)
    program = export(Both(), (x,))
    again = saved(program, tmp_path)
    assert facula.equal(again.module()(x), program.module()(x))
    with zipfile.ZipFile(tmp_path / "m.fpt") as z:
        (entry,) = json.loads(z.read("objects.json"))
        assert json.loads(z.read("facula.json"))["version"] == 2
    items = [2, {"float": "2.5"}, [1, 2], {"dict": [["new", True]]}]
    assert entry == {"class": "shelf.Scale", "state": {"tuple": items}}
    loaded = again.constants["scale"]
    assert type(loaded) is Scale and loaded.factor == 2.5 and loaded.__getstate__()[2] == [1, 2]
    native, _ = facula._C.load_program(str(tmp_path / "m.fpt"))
    assert facula.allclose(native.run([x])[0], program.module()(x))


@facula.no_grad()
def test_an_object_that_holds_another_is_written_after_it(library, tmp_path):
    facula._library.register_fake_class("shelf::Holder", FakeHolder)
    facula._library.register_fake_class("shelf::Scale", FakeScale)
    scale = facula.classes.shelf.Scale(0.5, [])
    holder = facula.classes.shelf.Holder(scale)
    program = facula.program.trace(lambda x: holder.apply(x) + scale.apply(x, twice=True), facula.ones(2))
    assert program(facula.ones(2)).tolist() == [1.5, 1.5]
    program.save(tmp_path / "p.fpt")
    again = facula.program.load(tmp_path / "p.fpt")
    assert again(facula.tensor([1.0, 2.0])).tolist() == [1.5, 3.0]


class FakeHolder:
    @classmethod
    def __obj_unflatten__(cls, flattened):
        return cls()

    def apply(self, x):
        return facula.empty_like(x)


class FakeScale(FakeHolder):
    def apply(self, x, more=1.0, twice=False):
        return x * 1.0

    def both(self, x):
        return facula.empty_like(x), facula.empty_like(x)

    def take(self, other):
        assert isinstance(other, FakeScale)

    def name(self):
        return "scale"


def test_a_number_that_a_method_returns_is_a_constant_that_each_call_checks(library, tmp_path):
    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = queue(2)

        def forward(self, x):
            n = self.q.size()
            self.q.push(x)
            return x * (n + 1)

    x = facula.ones(2)
    program = export(Growing(), (x,))
    assert program.module()(x).tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match=r"shelf.Queue.size\(\) returned 0 when the program was traced"):
        program.module()(x)
    traced = facula.program.trace(lambda x: x * len(program.constants["q"]), x)
    assert traced(x).tolist() == [2.0, 2.0]
    program.constants["q"].push(x)
    with pytest.raises(RuntimeError, match="returned 2 when the program was traced"):
        traced(x)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda s, x: s.apply(), RuntimeError, r"(?s)apply.*missing a value for argument 'x'.*the method is"),
        (lambda s, x: s.apply(x, 1.0, True, 3), RuntimeError, "at most 4 argument"),
        (lambda s, x: s.apply(x, wrong=1), RuntimeError, "Unknown keyword argument 'wrong'"),
        (lambda s, x: s.notes(), NotImplementedError, r"shelf.Scale.notes.*cannot call this method.*Dict"),
        (lambda s, x: s.name(), NotImplementedError, "(?s)it returns str.*hint: methods that programs call"),
        (lambda s, x: s.both(s), RuntimeError, r"both\(\).*'Tensor' for argument '_1'.*Scale"),
    ],
)
def test_errors_of_a_traced_call_name_the_method_and_what_it_takes(library, call, error, text):
    facula._library.register_fake_class("shelf::Scale", FakeScale)
    scale = facula.classes.shelf.Scale(2.0, [])
    with pytest.raises(error, match=text):
        facula.program.trace(lambda x: call(scale, x) or x, facula.ones(2))


def test_a_class_without_a_fake_is_refused_where_a_result_is_needed(library):
    facula._library.fake_class_registry.deregister_fake_class("shelf::Holder")
    holder = facula.classes.shelf.Holder(facula.classes.shelf.Scale(2.0, []))
    with pytest.raises(RuntimeError, match=r"(?s)shelf.Holder.apply.*has no fake.*hint: register one with"):
        facula.program.trace(holder.apply, facula.ones(2))
    with pytest.raises(ValueError, match="expected 'namespace::Class', got 'Holder'"):
        facula._library.register_fake_class("Holder", FakeHolder)
    with pytest.raises(RuntimeError, match="does not exist"):
        facula._library.register_fake_class("shelf::Nothing", FakeHolder)
    with pytest.raises(RuntimeError, match="doesn't define an __obj_unflatten__"):
        facula._library.register_fake_class("shelf::Holder", object)


def test_methods_with_several_results_and_objects_as_arguments_are_recorded(library):
    facula._library.register_fake_class("shelf::Scale", FakeScale)
    a, b = facula.classes.shelf.Scale(2.0, []), facula.classes.shelf.Scale(5.0, [])

    def f(x):
        first = a.both(x)
        a.take(b)
        return *first, *a.both(x)

    x = facula.tensor([1.0, float("nan"), -0.0])
    results = facula.program.trace(f, x)(x)
    expected = [x * 2, x + 2, x * 5, x + 5]
    for r, e in zip(results, expected, strict=True):
        facula.testing.assert_close(r, e, equal_nan=True, rtol=0, atol=0)
    assert a.factor == 5.0


def test_gradients_do_not_pass_through_objects_and_are_refused(library):
    facula._library.register_fake_class("shelf::Scale", FakeScale)
    scale, x = facula.classes.shelf.Scale(2.0, []), facula.randn(3, requires_grad=True)
    scale.apply(x).sum().backward()  # outside of programs the operators of the method have gradients
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    program = facula.program.trace(lambda x: scale.apply(x), x)
    with pytest.raises(
        NotImplementedError, match=r"(?s)shelf::Scale\.apply: is a method of a C.. class.*hint: detach"
    ):
        program(x)
    with facula.no_grad():
        assert facula.equal(program(x), x * 2)
    detached = facula.program.trace(lambda x: scale.apply(x.detach()) * x, x)
    (g,) = facula.autograd.grad(detached(x).sum(), x)
    assert facula.equal(g, x.detach() * 2)


def test_damaged_objects_of_a_file_are_one_clear_error(library, tmp_path):
    save(export(Delay().eval(), (facula.randn(4, 3),)), tmp_path / "m.fpt")
    with zipfile.ZipFile(tmp_path / "m.fpt") as z:
        parts = {i.filename: z.read(i) for i in z.infolist()}

    def from_c(path):
        return facula._C.load_program(str(path))

    def changed(old, new, name="objects.json", readers=(load, from_c)):
        with zipfile.ZipFile(tmp_path / "bad.fpt", "w") as z:
            for k, v in parts.items():
                z.writestr(k, v.replace(old, new) if k == name else v)
        for read in readers:
            with pytest.raises((RuntimeError, NotImplementedError), match="load: ") as e:
                read(tmp_path / "bad.fpt")
            yield str(e.value)

    assert all("shelf.Nothing, which this process" in e for e in changed(b"shelf.Queue", b"shelf.Nothing"))
    assert all("damaged" in e or "__setstate__" in e for e in changed(b'"tensor": ', b'"tensor": 9'))
    assert all(e for e in changed(b'"tensor"', b'"what"'))
    (native,) = changed(b"object 0", b"object 7", "program.json", [from_c])
    assert "damaged" in native and "object" in native
