#include "generator.h"

#include <cstring>
#include <random>

#include "facula/catalog/torch_random.h"
#include "tensor.h"
#include "types.h"

namespace facula::bind {

namespace {

struct GeneratorObject {
  PyObject_HEAD Generator* value;
};
PyTypeObject* GeneratorType;
Generator& generator(PyObject* o) { return *reinterpret_cast<GeneratorObject*>(o)->value; }

PyObject* make(PyTypeObject* type, Generator* steal) {
  PyObject* o = type->tp_alloc(type, 0);
  if (!o) throw PythonError();
  reinterpret_cast<GeneratorObject*>(o)->value = steal;
  return o;
}
constexpr uint64_t kDefaultSeed = 67280421310721ull;  // PyTorch's

PyObject* generator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* keywords[] = {"device", nullptr};
    PyObject* device = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", const_cast<char**>(keywords), &device))
      return nullptr;
    Device d;
    type_check(!device || device == Py_None || to_device(device, d), "Generator")
        << "device must be a device, not " << Py_TYPE(device)->tp_name;
    supported_check(d.type == DeviceType::cpu, "Generator")
        << "no backend has random numbers on " << to_string(d);
    return make(type, new Generator(kDefaultSeed));
  });
}
void dealloc(PyObject* o) {
  generator(o).release();
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}

// A seed of Python's: any 64 bits, negative ones as their complement.
uint64_t seed_of(PyObject* o) {
  PyRef whole = checked(PyFloat_Check(o) ? PyNumber_Long(o) : PyNumber_Index(o));  // as PyTorch, int(seed)
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(whole.get(), &overflow);
  if (!overflow) return uint64_t(value);
  unsigned long long wide = overflow > 0 ? PyLong_AsUnsignedLongLong(whole.get()) : 0;
  bool bad = overflow < 0 || PyErr_Occurred();
  if (bad) PyErr_Clear();
  value_check(!bad, "manual_seed") << "Overflow when unpacking a seed: it must lie in [-2**63, 2**64)";
  return wide;
}
uint64_t random_seed() {
  std::random_device device;
  return uint64_t(device()) << 32 | device();
}

PyObject* manual_seed(PyObject* o, PyObject* seed) {
  return guarded([&] {
    generator(o).manual_seed(seed_of(seed));
    return Py_NewRef(o);
  });
}
PyObject* seed(PyObject* o, PyObject*) {
  return guarded([&] {
    generator(o).manual_seed(random_seed());
    return PyLong_FromUnsignedLongLong(generator(o).seed());
  });
}
PyObject* initial_seed(PyObject* o, PyObject*) { return PyLong_FromUnsignedLongLong(generator(o).seed()); }

// The state: seed and offset, 16 bytes.
PyObject* get_state(PyObject* o, PyObject*) {
  return guarded([&] {
    Tensor t = Tensor::empty(IntSpan(Ints{16}), DType::UInt8);
    uint64_t words[] = {generator(o).seed(), generator(o).offset()};
    std::memcpy(t.data_ptr(), words, 16);
    return wrap(std::move(t));
  });
}
PyObject* set_state(PyObject* o, PyObject* state) {
  return guarded([&] {
    Tensor t = tensor_argument("set_state", "new_state", state);
    type_check(t.dtype() == DType::UInt8, "set_state")
        << "expected a ByteTensor, but got " << name(t.dtype());
    runtime_check(t.numel() == 16 && t.is_contiguous(), "set_state")
        << "a generator's state is 16 bytes, as get_state() gives, not " << to_string(t.sizes());
    uint64_t words[2];
    std::memcpy(words, t.data_ptr(), 16);
    generator(o).set_state(words[0], words[1]);
    return Py_NewRef(o);
  });
}
PyObject* clone_state(PyObject* o, PyObject*) {
  return guarded([&] {
    auto* copy = new Generator(generator(o).seed());
    copy->set_state(generator(o).seed(), generator(o).offset());
    return make(Py_TYPE(o), copy);
  });
}
PyObject* get_device(PyObject*, void*) {
  return guarded([] { return wrap(Device{}); });
}
PyObject* get_offset(PyObject* o, void*) { return PyLong_FromUnsignedLongLong(generator(o).offset()); }
PyObject* reduce(PyObject* o, PyObject*) {
  return guarded([&] {
    PyRef state = checked(Py_BuildValue("(KK)", (unsigned long long)generator(o).seed(),
                                        (unsigned long long)generator(o).offset()));
    return Py_BuildValue("O()O", Py_TYPE(o), state.get());
  });
}
PyObject* restore(PyObject* o, PyObject* state) {
  unsigned long long s, offset;
  if (!PyArg_ParseTuple(state, "KK:__setstate__", &s, &offset)) return nullptr;
  generator(o).set_state(s, offset);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"manual_seed", manual_seed, METH_O, "manual_seed(seed) -> self"},
                         {"seed", seed, METH_NOARGS, "Seeds from the machine's entropy; gives the seed."},
                         {"initial_seed", initial_seed, METH_NOARGS, "The seed."},
                         {"get_state", get_state, METH_NOARGS, "The state, a uint8 tensor."},
                         {"set_state", set_state, METH_O, "Restores a state."},
                         {"clone_state", clone_state, METH_NOARGS, "Another generator in the same state."},
                         {"__reduce__", reduce, METH_NOARGS, nullptr},
                         {"__setstate__", restore, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyGetSetDef getset[] = {{"device", get_device, nullptr, "The generator's device.", nullptr},
                        {"offset", get_offset, nullptr, "Counters used since it was seeded.", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(generator_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, getset},
                       {0, nullptr}};
PyType_Spec spec = {"facula.Generator", sizeof(GeneratorObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                    slots};

PyObject* default_object;
PyObject* seed_default(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static const char* const spec[] = {"seed", nullptr};
  PyObject* seed;
  if (!take_arguments("manual_seed", spec, 1, args, n, kwnames, &seed)) return nullptr;
  return manual_seed(default_object, seed);
}
PyObject* use_torch_random(PyObject*, PyObject* on) {
  return guarded([&] {
    catalog::torch_random::use(is_true(on));
    Py_RETURN_NONE;
  });
}
PyMethodDef functions[] = {
    {"_use_torch_random", use_torch_random, METH_O,
     "_use_torch_random(on): should a seed give the numbers that it gives in PyTorch?"},
    {"manual_seed", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(seed_default)),
     METH_FASTCALL | METH_KEYWORDS, "Seeds the default generator and gives it."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

Generator* to_generator(PyObject* o) {
  return GeneratorType && PyObject_TypeCheck(o, GeneratorType) ? &generator(o) : nullptr;
}

PyObject* wrap(Generator* g) {
  if (g == &default_generator()) return Py_NewRef(default_object);
  g->retain();
  return make(GeneratorType, g);
}

void add_generator(PyObject* module) {
  GeneratorType = add_type(module, &spec);
  Generator& d = default_generator();
  d.retain();
  default_object = make(GeneratorType, &d);
  add_object(module, "default_generator", Py_NewRef(default_object));
  add_functions(module, functions);
}

}  // namespace facula::bind
