// Operators by their full names, as facula.ops has them, and those that users define (facula/library.py).
#include "call_arguments.h"
#include "extend.h"
#include "facula/autograd/autograd.h"
#include "facula/extend/native.h"
#include "facula/graph/trace.h"
#include "facula/op/batched.h"
#include "facula/op/operands.h"
#include "facula/op/registry.h"
#include "facula/run/library_call.h"
#include "facula/schedule/fuse.h"
#include "generator.h"
#include "tensor.h"
#include "trampoline.h"
#include "types.h"

namespace facula::bind {

using op::Results;
using op::Tag;
using op::Type;
using op::Value;

namespace {

PyObject* wrap_item(Type type, const Scalar& s) {
  return type == Type::Float  ? PyFloat_FromDouble(s.to_double())
         : type == Type::Bool ? PyBool_FromLong(s.to_bool())
                              : wrap_number(s);
}

template <class Items, class F>
PyRef wrap_items(const Items& items, F wrap_one) {
  PyRef list = checked(PyList_New(Py_ssize_t(items.size())));
  Py_ssize_t k = 0;
  for (auto& x : items) PyList_SET_ITEM(list.get(), k++, checked(wrap_one(x)).detach());
  return list;
}

}  // namespace

PyRef wrap_plain_argument(const op::Parameter& p, const Value& v) {
  supported_check(v.tag != Tag::tensors, p.name) << "is of a type that user's operators do not take yet";
  if (p.list && v.tag != Tag::scalars) return wrap_items(v.ints(), [](SymInt i) { return wrap_int(i); });
  switch (v.tag) {
    case Tag::scalars: return wrap_items(v.scalars(), [&](const Scalar& s) { return wrap_item(p.type, s); });
    case Tag::scalar: return checked(wrap_item(p.type, v.scalar));
    case Tag::integer: return checked(wrap_int(v.integer()));
    case Tag::string: return checked(unicode(v.string()));
    case Tag::dtype: return checked(wrap(v.dtype));
    case Tag::device: return checked(wrap(v.device));
    case Tag::generator: return checked(wrap(v.generator));
    case Tag::object: return checked(wrap_object(Ref<CustomClassHolder>::share(v.object)));
    default: return checked(wrap(v.format));
  }
}

Results results_of(const op::Operator& o, PyObject* given) {
  auto& returns = o.schema.returns;
  Results results;
  auto add = [&](PyObject* x) {
    runtime_check(is_tensor(x), o.name())
        << "expected a Tensor as result " << results.size() << ", but its implementation gave "
        << Py_TYPE(x)->tp_name << hint("the schema is ", o.schema.text);
    results.push_back(tensor_of(x));
  };
  if (returns.empty()) {
    runtime_check(given == Py_None, o.name())
        << "expected None, but its implementation gave " << Py_TYPE(given)->tp_name
        << hint("the schema is ", o.schema.text);
    return results;
  }
  if (returns.size() == 1 && !returns[0].list) {
    add(given);
    return results;
  }
  bool sequence = PyTuple_Check(given) || PyList_Check(given);
  Py_ssize_t n = sequence ? PySequence_Fast_GET_SIZE(given) : 1;
  runtime_check(sequence && (returns[0].list || size_t(n) == returns.size()), o.name())
      << "expected " << (returns[0].list ? "a list" : "a tuple of " + std::to_string(returns.size()))
      << " of Tensors, but its implementation gave " << Py_TYPE(given)->tp_name
      << (sequence ? " of " + std::to_string(n) : "") << hint("the schema is ", o.schema.text);
  for (Py_ssize_t k = 0; k < n; ++k) add(PySequence_Fast_GET_ITEM(given, k));
  return results;
}

namespace {

// An object of Python's with the methods run, record, fake and gradient, and the flag composite.
class PythonFunctions final : public op::ForeignFunctions {
 public:
  explicit PythonFunctions(PyObject* functions) : functions_(functions) {}
  Results run(const op::Call& c) override { return called("run", c); }
  Results record(const op::Call& c) override { return called("record", c); }

  std::vector<op::Meta> infer(const op::Call& c) override {
    return graph::infer_by_calls(c, [this](const op::Call& given) { return called("fake", given); });
  }

  op::Grads gradient(const op::Vjp& v) override {
    auto& c = v.call();
    auto& returns = c.op().schema.returns;
    size_t count = returns.size() == 1 && returns[0].list ? infer(c).size() : returns.size();
    WithGil gil;
    try {
      auto [args, kwargs] = wrap_call(c, [&](const op::Parameter& p, int item) {
        return p.list ? v.item(p.name, item) : v[p.name];
      });
      std::vector<Tensor> results, grads;
      for (size_t k = 0; k < count; ++k) {
        results.push_back(v.result(int(k)));
        grads.push_back(v.grad(int(k)));
      }
      PyRef needs = checked(PyList_New(0));
      op::each_operand(c, [&](const op::Operand& x) {
        if (x.tensor >= 0)
          checked(PyList_Append(needs.get(), v.needs(x.name, std::max(x.item, 0)) ? Py_True : Py_False));
      });
      PyRef found =
          checked(PyObject_CallMethod(functions_.get(), "gradient", "OONNO", args.get(), kwargs.get(),
                                      wrap_list(results), wrap_list(grads), needs.get()));
      return tensor_list_argument(c.name(), "gradients", found.get(), true);
    } catch (const PythonError&) { throw_carried(); }
  }

  // By the function that was registered for it; none if there is none.
  Results batched(const op::Batched& b) const {
    WithGil gil;
    try {
      PyRef rule = checked(PyObject_GetAttrString(functions_.get(), "vmap"));
      if (rule.get() == Py_None) return {};
      auto& c = b.physical();
      auto [args, kwargs] =
          wrap_call(c, [&](const op::Parameter& p, int item) { return tensor_of_call(c, p, item); });
      PyRef flags = checked(PyList_New(0));
      for (bool batched : b.batched()) checked(PyList_Append(flags.get(), batched ? Py_True : Py_False));
      PyRef size = checked(wrap_int(b.size()));
      PyRef given = checked(PyObject_CallMethod(functions_.get(), "batched", "OOOO", args.get(), kwargs.get(),
                                                flags.get(), size.get()));
      return results_of(c.op(), given.get());
    } catch (const PythonError&) { throw_carried(); }
  }

  bool is_composite() const override {
    WithGil gil;
    PyRef flag(PyObject_GetAttrString(functions_.get(), "composite"));
    if (!flag) throw_carried();
    return flag.get() == Py_True;
  }

  void set_kernel(const std::string& key, op::CompositeBody kernel) override {
    WithGil gil;
    try {
      PyRef done = checked(PyObject_CallMethod(functions_.get(), "set_native_kernel", "sN", key.c_str(),
                                               wrap_kernel(*operator_, std::move(kernel))));
    } catch (const PythonError&) { throw_carried(); }
  }
  void belongs_to(const op::Operator& o) { operator_ = &o; }

 private:
  Results called(const char* method, const op::Call& c) const {
    WithGil gil;
    try {
      auto [args, kwargs] =
          wrap_call(c, [&](const op::Parameter& p, int item) { return tensor_of_call(c, p, item); });
      PyRef f = checked(PyObject_GetAttrString(functions_.get(), method));
      PyRef given = checked(PyObject_Call(f.get(), args.get(), kwargs.get()));
      return results_of(c.op(), given.get());
    } catch (const PythonError&) { throw_carried(); }
  }
  AnyThreadRef functions_;
  const op::Operator* operator_ = nullptr;
};

// ---- facula._C.Operators: overloads that one name calls

struct OperatorsObject {
  PyObject_HEAD vectorcallfunc call;
  Entry* entry;  // lives as long as the process, as operators do
};

bool fits(const Entry& e, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  Frame f;
  for (auto& o : e.overloads)
    if (parse(o, nullptr, args, n, kwnames, true, false, f)) return true;
  return false;
}

PyObject* call_operators(PyObject* self, PyObject* const* args, size_t flags, PyObject* kwnames) {
  const Entry& e = *reinterpret_cast<OperatorsObject*>(self)->entry;
  Py_ssize_t n = PyVectorcall_NARGS(flags);
  if (!e.overloads[0].op->is<op::Foreign>()) return dispatch(e, nullptr, args, n, kwnames);
  return guarded([&]() -> PyObject* {
    if (!fits(e, args, n, kwnames)) {
      raise_mismatch(e.name.c_str(), e.overloads, nullptr, args, n, kwnames, false);
      PyObject *type, *value, *trace;
      PyErr_Fetch(&type, &value, &trace);
      PyRef t(type), v(value), tb(trace);
      PyErr_SetObject(PyExc_RuntimeError, v.get());  // as PyTorch: arguments are checked by the schema
      return nullptr;
    }
    PyObject* result = dispatch(e, nullptr, args, n, kwnames);
    auto& returns = e.overloads[0].op->schema.returns;
    if (!result || returns.size() != 1 || !returns[0].list || !PyTuple_Check(result)) return result;
    PyRef tuple(result);
    return PySequence_List(result);
  });
}

void operators_dealloc(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(t);
}
PyMemberDef operators_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(OperatorsObject, call),
                                    READONLY, nullptr},
                                   {nullptr, 0, 0, 0, nullptr}};
PyObject* operators_name(PyObject* o, void*) {
  return unicode(reinterpret_cast<OperatorsObject*>(o)->entry->name);
}
PyGetSetDef operators_getset[] = {{"__name__", operators_name, nullptr, nullptr, nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot operators_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(operators_dealloc)},
                                 {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                 {Py_tp_members, operators_members},
                                 {Py_tp_getset, operators_getset},
                                 {0, nullptr}};
PyType_Spec operators_spec = {"facula._C.Operators", sizeof(OperatorsObject), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
                                  Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              operators_slots};
PyTypeObject* OperatorsType;

const op::Operator& known_operator(const char* full_name) {
  const op::Operator* o = op::find(full_name);
  runtime_check(o, "operators") << "no operator is named '" << full_name << "'";
  return *o;
}

// operator_call(name, [full names], in_place, shown): overrides are told `shown` of a call.
PyObject* operator_call(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* name;
    PyObject *names, *shown;
    int in_place;
    if (!PyArg_ParseTuple(args, "sO!pO:operator_call", &name, &PyList_Type, &names, &in_place, &shown))
      return nullptr;
    static std::deque<Entry> entries;
    Entry& e = entries.emplace_back();
    e.name = e.called = name;
    e.form = in_place ? op::Form::in_place : op::Form::functional;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(names); ++k) {
      auto& o = known_operator(std::string(text_of(PyList_GET_ITEM(names, k))).c_str());
      e.overloads.push_back(make_overload(o));
      e.out |= !in_place && o.forms.out;
    }
    auto* made = PyObject_New(OperatorsObject, OperatorsType);
    if (!made) throw PythonError();
    made->call = call_operators;
    made->entry = &e;
    e.function = Py_NewRef(shown);
    return reinterpret_cast<PyObject*>(made);
  });
}

const char* type_name(Type t) {
  switch (t) {
    case Type::Tensor: return "Tensor";
    case Type::Scalar: return "Scalar";
    case Type::Int: return "int";
    case Type::Float: return "float";
    case Type::Bool: return "bool";
    case Type::String: return "str";
    case Type::DType: return "ScalarType";
    case Type::Device: return "Device";
    case Type::Format: return "MemoryFormat";
    case Type::Object: return "__torch__.torch.classes.";
    default: return "Generator";
  }
}

// Null unless a library defined the operator as a function in C++.
extend::NativeFunctions* native_functions(const op::Operator& o) {
  auto* foreign = o.as<op::Foreign>();
  return foreign ? dynamic_cast<extend::NativeFunctions*>(foreign->functions.get()) : nullptr;
}

// operator_facts(full name) -> dict
PyObject* operator_facts(PyObject*, PyObject* full_name) {
  return guarded([&]() -> PyObject* {
    auto& o = known_operator(std::string(text_of(full_name)).c_str());
    auto flag = [](bool b) { return b ? Py_True : Py_False; };
    PyRef parameters = checked(PyList_New(0)), returns = checked(PyList_New(0));
    for (auto& p : o.schema.parameters) {
      std::string type = type_name(p.type) + p.class_name;
      if (p.list) type += (p.optional_items ? "?[]" : "[]");
      if (p.optional) type += "?";
      PyRef fallback = PyRef::share(Py_None);
      if (p.has_default) fallback = wrap_argument(p, p.fallback[0], [](int) { return Tensor(); });
      checked(PyList_Append(parameters.get(),
                            checked(Py_BuildValue("(ssOOOOO)", p.name.c_str(), type.c_str(),
                                                  flag(p.has_default), fallback.get(), flag(p.keyword_only),
                                                  flag(p.alias), flag(p.written)))
                                .get()));
    }
    for (auto& r : o.schema.returns)
      checked(
          PyList_Append(returns.get(),
                        checked(Py_BuildValue("(ssOO)", r.name.c_str(),
                                              (std::string(type_name(r.type)) + (r.list ? "[]" : "")).c_str(),
                                              flag(r.alias), flag(r.written)))
                            .get()));
    PyRef keys = PyRef::share(Py_None);  // of the kernels in C++
    bool has_gradient = false;
    if (auto* native = native_functions(o)) {
      keys = checked(PyList_New(0));
      for (auto& [key, kernel] : native->kernels())
        checked(PyList_Append(keys.get(), checked(unicode(key)).get()));
      has_gradient = native->has_gradient();
    }
    return Py_BuildValue("{s:s,s:s,s:s,s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:O}", "name",
                         o.schema.name.c_str(), "overload", o.schema.overload.c_str(), "schema",
                         o.schema.text.c_str(), "parameters", parameters.get(), "returns", returns.get(),
                         "out", flag(o.forms.out), "in_place", flag(o.forms.in_place), "view",
                         flag(o.is<op::View>()), "composite",
                         flag((o.calls() && !o.vjp) ||
                              (o.is<op::Foreign>() && o.as<op::Foreign>()->functions->is_composite())),
                         "native", keys.get(), "foreign", flag(o.is<op::Foreign>()), "gradient",
                         flag(has_gradient), "repeatable", flag(!o.calls() && o.effects.repeatable()));
  });
}

PyObject* operator_overloads(PyObject*, PyObject* name) {
  return guarded([&]() -> PyObject* {
    PyRef list = checked(PyList_New(0));
    for (auto* o : op::overloads(text_of(name)))
      checked(PyList_Append(list.get(), checked(unicode(o->schema.full_name())).get()));
    return list.detach();
  });
}

// define_operator(schema, functions)
PyObject* define_operator(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* schema;
    PyObject* functions;
    if (!PyArg_ParseTuple(args, "sO:define_operator", &schema, &functions)) return nullptr;
    op::Schema parsed = op::parse_schema(schema);
    for (auto& r : parsed.returns)
      supported_check(r.type == Type::Tensor, parsed.name)
          << "returns " << type_name(r.type) << ", and operators of users return Tensors and lists of them"
          << hint("return a tensor of one element");
    runtime_check(!op::find(parsed.full_name()), "define")
        << "Tried to register an operator (" << schema
        << ") with the same name and overload name multiple times";
    auto made = std::make_shared<PythonFunctions>(functions);
    op::define_late([&] {
      op::define(schema).bind(op::hidden).foreign(made).batched([f = made.get()](const op::Batched& b) {
        return f->batched(b);
      });
    });
    made->belongs_to(op::get(parsed.full_name()));
    return unicode(parsed.full_name());
  });
}

// adopt_operator(full name, functions): from now on these functions are asked. Its kernels in C++ become theirs.
PyObject* adopt_operator(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* name;
    PyObject* functions;
    if (!PyArg_ParseTuple(args, "sO:adopt_operator", &name, &functions)) return nullptr;
    auto& o = known_operator(name);
    auto* native = native_functions(o);
    runtime_check(native && !native->successor(), "adopt_operator")
        << o.name() << " has its functions from Python";
    auto made = std::make_shared<PythonFunctions>(functions);
    made->belongs_to(o);
    for (auto& [key, kernel] : native->kernels()) made->set_kernel(key, kernel);
    native->set_batch([f = made.get()](const op::Batched& b) { return f->batched(b); });
    native->hand_over(std::move(made));
    Py_RETURN_NONE;
  });
}

PyObject* retire_operator(PyObject*, PyObject* full_name) {
  return guarded([&]() -> PyObject* {
    auto& o = known_operator(std::string(text_of(full_name)).c_str());
    runtime_check(o.is<op::Foreign>(), "retire_operator") << o.name() << " is built in";
    op::retire(o);
    Py_RETURN_NONE;
  });
}

// The shapes, dtypes and strides of results, by the rules or the fake implementation of an operator.
// Parses a call whose first argument is the full name of an operator. Null with an exception if the others do not fit.
const op::Operator* parse_named_call(PyObject* const* args, Py_ssize_t n, PyObject* kwnames, Frame& frame) {
  type_check(n > 0 && PyUnicode_Check(args[0]), "operator") << "expected an operator's name first";
  auto& o = known_operator(std::string(text_of(args[0])).c_str());
  Overload overload = make_overload(o);
  if (parse(overload, nullptr, args + 1, n - 1, kwnames, true, false, frame)) return &o;
  raise_mismatch(o.name(), {&overload, 1}, nullptr, args + 1, n - 1, kwnames, false);
  return nullptr;
}

PyObject* infer_operator(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    Frame frame;
    auto* called = parse_named_call(args, n, kwnames, frame);
    if (!called) return nullptr;
    auto& o = *called;
    PyRef list = checked(PyList_New(0));
    for (auto& m : graph::infer(o, std::span<const Value>(frame.values(), o.schema.parameters.size()))) {
      PyRef strides =
          checked(wrap_ints(m.strides.size() == m.sizes.size() ? m.strides : contiguous_strides(m.sizes)));
      PyRef sizes = checked(wrap_sizes(m.sizes)), dtype = checked(wrap(m.dtype));
      checked(
          PyList_Append(list.get(), checked(PyTuple_Pack(3, sizes.get(), dtype.get(), strides.get())).get()));
    }
    return list.detach();
  });
}

// The writes of a loop to computed places: (combine, operand that is copied first or None, domain, targets, value).
PyRef scatter_facts(const loop::Scatter& s) {
  static const char* const combine[] = {"assign", "sum", "prod", "max", "min"};
  PyRef targets = wrap_items(s.target, [](loop::Expr x) { return unicode(loop::print(x)); });
  PyRef domain = checked(wrap_sizes(s.domain)), value = checked(unicode(loop::print(s.value)));
  return checked(
      Py_BuildValue("(siOOO)", combine[size_t(s.combine)], s.base, domain.get(), targets.get(), value.get()));
}

// lower_operator(full_name, *args, **kwargs): the definition of a pointwise, loop or library operator for these operands, in the
// text form of loop/expr.h.
PyObject* lower_operator(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    Frame frame;
    auto* called = parse_named_call(args, n, kwnames, frame);
    if (!called) return nullptr;
    auto& o = *called;
    std::span<const Value> values(frame.values(), o.schema.parameters.size());
    auto* backed = o.backed();
    supported_check(!backed || backed->reference, o.name()) << "has no definition by elements";
    auto definition = schedule::lower(backed ? run::reference_loop(o) : o, values);
    PyRef operands = checked(PyList_New(0));
    op::each_operand(op::Call(o, values), [&](const op::Operand& x) {
      PyRef object = x.value.tag == Tag::tensor
                         ? checked(wrap(Tensor(Ref<TensorImpl>::share(x.value.tensor))))
                     : x.value.tag == Tag::scalar ? checked(wrap_number(x.value.scalar))
                                                  : PyRef::share(Py_None);
      checked(PyList_Append(operands.get(), object.get()));
    });
    PyRef results = checked(PyList_New(0));
    for (auto& m : graph::infer(o, values)) {
      PyRef sizes = checked(wrap_sizes(m.sizes)), dtype = checked(wrap(m.dtype));
      checked(PyList_Append(results.get(), checked(PyTuple_Pack(2, sizes.get(), dtype.get())).get()));
    }
    PyRef texts = wrap_items(definition.values, [](loop::Expr x) { return unicode(loop::print(x)); });
    PyRef scatter = definition.scatter ? scatter_facts(*definition.scatter) : PyRef::share(Py_None);
    return Py_BuildValue("(OOOO)", operands.get(), results.get(), texts.get(), scatter.get());
  });
}

PyMethodDef functions[] = {
    {"lower_operator", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(lower_operator)),
     METH_FASTCALL | METH_KEYWORDS,
     "lower_operator(full_name, *args, **kwargs) -> (operands, [(sizes, dtype)], [text by result], scatter)"},
    {"operator_call", operator_call, METH_VARARGS,
     "operator_call(name, full_names, in_place, shown) -> callable"},
    {"operator_facts", operator_facts, METH_O, "What the schema of an operator says, by its full name."},
    {"operator_overloads", operator_overloads, METH_O, "Full names of the operators of a name."},
    {"define_operator", define_operator, METH_VARARGS, "define_operator(schema, functions) -> full name"},
    {"adopt_operator", adopt_operator, METH_VARARGS, "adopt_operator(full_name, functions)"},
    {"retire_operator", retire_operator, METH_O, "Forgets the name of a user's operator."},
    {"infer_operator", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(infer_operator)),
     METH_FASTCALL | METH_KEYWORDS,
     "infer_operator(full_name, *args, **kwargs) -> [(sizes, dtype, strides)]"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_library(PyObject* module) {
  OperatorsType = add_type(module, &operators_spec);
  add_functions(module, functions);
}

}  // namespace facula::bind
