#include "trampoline.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <stdexcept>
#include <unordered_map>

#include "facula/autograd/autograd.h"
#include "facula/base/warning.h"
#include "facula/op/registry.h"
#include "override.h"
#include "symint.h"
#include "tensor.h"

namespace facula::bind {

using op::Form;
using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

namespace {

constexpr int kTable = 2048;
// Operands below this are done before another thread would have woken.
constexpr size_t kFreeBytes = 64 << 10;

Entry* entries[kTable];
int entry_count = 0;
std::deque<Entry> all_entries;
std::unordered_map<std::string, Entry*> by_name;  // functional and in-place names, full ("linalg_solve")
PyObject* operator_modules[6];
const char* const module_names[6] = {"functions", "nn_functional", "fft", "linalg", "special", "ops"};
const char* const public_names[6] = {"facula",        "facula.nn.functional", "facula.fft",
                                     "facula.linalg", "facula.special",       "facula.ops"};
const uint32_t module_bits[6] = {op::function, op::nn_functional, op::fft, op::linalg, op::special, 0};

template <int I>
PyObject* function_entry(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return dispatch(*entries[I], nullptr, args, n, kwnames);
}
template <int I>
PyObject* method_entry(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return dispatch(*entries[I], self, args, n, kwnames);
}
using FastCall = _PyCFunctionFastWithKeywords;
template <int... I>
constexpr std::array<FastCall, sizeof...(I)> function_table(std::integer_sequence<int, I...>) {
  return {&function_entry<I>...};
}
template <int... I>
constexpr std::array<FastCall, sizeof...(I)> method_table(std::integer_sequence<int, I...>) {
  return {&method_entry<I>...};
}
const auto function_calls = function_table(std::make_integer_sequence<int, kTable>());
const auto method_calls = method_table(std::make_integer_sequence<int, kTable>());

bool is_big(const Operator& o, std::span<const Value> args, std::span<const Tensor> out) {
  if (o.is<op::View>()) return false;
  auto big = [](const TensorImpl* t) {
    return t && t->storage && t->storage->bytes() > kFreeBytes &&
           product(t->sizes).hint() * itemsize(t->dtype) > int64_t(kFreeBytes);
  };
  for (auto& v : args) {
    if (v.tag == Tag::tensor) {
      if (big(v.tensor)) return true;
    } else if (v.tag == Tag::tensors) {
      for (auto* t : v.tensors())
        if (big(t)) return true;
    } else if (v.tag == Tag::ints && v.list.count) {  // zeros(1000, 1000)
      int64_t n = 1;
      for (auto i : v.ints())
        if (__builtin_mul_overflow(n, std::max<int64_t>(i.hint(), 1), &n)) return true;
      if (n > int64_t(kFreeBytes) / 4) return true;
    }
  }
  for (auto& t : out)
    if (big(t.impl())) return true;
  return false;
}

// torch.return_types.max(
// values=...,
// indices=...)
PyObject* named_repr(PyObject* o) {
  PyRef lines = checked(PyUnicode_FromFormat("%s(\n", Py_TYPE(o)->tp_name));
  Py_ssize_t n = PyTuple_GET_SIZE(o);
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyRef value = checked(PyObject_Repr(PyTuple_GET_ITEM(o, i)));
    const char* name = Py_TYPE(o)->tp_members[i].name;
    lines =
        checked(PyUnicode_FromFormat("%U%s=%U%s", lines.get(), name, value.get(), i + 1 < n ? ",\n" : ")"));
  }
  return lines.detach();
}

// The class of results that have names, of the operator's name.
PyTypeObject* result_type_of(const Overload& o) {
  auto& returns = o.op->schema.returns;
  if (!o.result_type) {
    std::vector<PyStructSequence_Field> fields;
    for (auto& ret : returns) fields.push_back({ret.name.c_str(), nullptr});
    fields.push_back({nullptr, nullptr});
    static std::deque<std::string> names;
    PyStructSequence_Desc desc{
        names.emplace_back(std::string(package_name()) + ".return_types." + o.op->schema.name).c_str(),
        nullptr, fields.data(), int(returns.size())};
    o.result_type = PyStructSequence_NewType(&desc);
    if (!o.result_type) throw PythonError();
    o.result_type->tp_repr = [](PyObject* o) { return guarded([&] { return named_repr(o); }); };
  }
  return o.result_type;
}

PyObject* named_results(const Overload& o, const Results& r) {
  PyRef tuple = checked(PyStructSequence_New(result_type_of(o)));
  for (size_t i = 0; i < r.size(); ++i) PyStructSequence_SetItem(tuple.get(), Py_ssize_t(i), wrap(r[i]));
  return tuple.detach();
}

PyObject* wrap_results(const Overload& o, Results& r, PyTypeObject* sub) {
  auto& returns = o.op->schema.returns;
  if (sub) {  // wrapped as the subclass first, so that the containers below find the objects
    std::vector<PyRef> made;
    for (size_t i = 0; i < r.size(); ++i) {
      if (!r[i].defined()) continue;
      made.emplace_back(wrap_as(r[i], sub));
      r[i] = tensor_of(made.back().get());
    }
    return wrap_results(o, r, nullptr);
  }
  if (returns.size() == 1 && !returns[0].list) return wrap(std::move(r[0]));
  if (returns.empty() && r.size() == 0) Py_RETURN_NONE;
  if (returns.size() > 1 && returns.size() == r.size() && !returns[0].name.empty())
    return named_results(o, r);
  PyRef tuple = checked(PyTuple_New(Py_ssize_t(r.size())));
  for (size_t i = 0; i < r.size(); ++i) PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), wrap(std::move(r[i])));
  return tuple.detach();
}

// op::call, without the GIL where that pays; an error speaks of `name`, or else of the operator.
Results call_freely(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out,
                    const std::string* name);

void check_differentiable(const Entry& e, const Tensor& t) {
  runtime_check(is_differentiable(t.dtype()), e.called)
      << "only Tensors of floating point and complex dtype can require gradients, not " << t.dtype();
}

PyObject* run(const Entry& e, const Overload& o, PyObject* self, Frame& f) {
  std::span<const Value> args(f.values(), o.params.size());
  bool grad = f.requires_grad || (o.requires_grad >= 0 && args[size_t(o.requires_grad)].number().to_bool());
  if (f.out) {
    std::vector<Tensor> out = tensor_list_argument(e.called.c_str(), "out", f.out);
    // A result's dtype that nobody asked for is that of the memory for it; but not where `dtype` is what self is
    // converted to before anything else (norm, softmax).
    bool of_result =
        !o.op->calls() || o.op->schema.index_of("self") != 0 || o.op->schema.index_of("out_dtype") >= 0;
    if (o.dtype >= 0 && of_result && out.size() == 1 && args[size_t(o.dtype)].tag == Tag::none)
      f.values()[o.dtype] = Value(out[0].dtype());
    auto& returns = o.op->schema.returns;
    type_check(out.size() == returns.size() || returns[0].list, e.called)
        << "expected " << returns.size() << " tensors in out, but got " << out.size();
    if (grad)
      for (auto& t : out) check_differentiable(e, t);
    call_freely(*o.op, args, Form::out, out, &e.called);
    if (grad)
      for (auto& t : out) autograd::set_requires_grad(t, true);
    return Py_NewRef(f.out);
  }
  Results r = call_freely(*o.op, args, e.form, {}, &e.called);
  if (e.form == Form::in_place)
    return self ? Py_NewRef(self) : wrap(Tensor(Ref<TensorImpl>::share(args[0].tensor)));
  for (size_t i = 0; grad && i < r.size(); ++i) {
    check_differentiable(e, r[i]);
    autograd::set_requires_grad(r[i], true);
  }
  return wrap_results(o, r, f.sub);
}

// A function that writes each of a list `self` gives that list (`_foreach_add_`); an overload that is called by its full
// name gives nothing, as its schema says.
bool gives_its_list(const Entry& e, const Overload& o) {
  return e.function_def.ml_meth && o.op->schema.returns.empty() && !o.params.empty() && o.params[0].is_self &&
         o.params[0].list;
}
PyObject* list_given(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  auto is_list = [&](Py_ssize_t k) {
    auto name = text_of(PyTuple_GET_ITEM(kwnames, k));
    return name == "self" || name == "input";
  };
  Py_ssize_t k = 0;
  while (!n && !is_list(k)) ++k;
  return Py_NewRef(args[k]);
}

bool number_may_be_ambiguous(const Entry& e) {
  if (e.overloads.size() < 2) return false;
  bool number = false, other = false;
  for (auto& o : e.overloads)
    for (auto& p : o.params) {
      number |= p.number;
      other |= !p.keyword_only && p.type != op::Type::Tensor;
    }
  return number && other;
}

void attach(PyObject* target, const std::string& name, PyObject* function) {
  checked(PyObject_SetAttrString(target, name.c_str(), function));
}

std::string public_name(const std::string& name, uint32_t bit) {
  const char* prefix = bit == op::fft       ? "fft_"
                       : bit == op::linalg  ? "linalg_"
                       : bit == op::special ? "special_"
                                            : "";
  return *prefix && name.starts_with(prefix) ? name.substr(strlen(prefix)) : name;
}

// The name of an operator, or of one of its forms, as users write it.
std::string called_by(const Operator& o, const std::string& name) {
  bool hidden = o.namespaces & op::hidden;
  if (!o.called.empty() && (hidden || name[0] == '_')) return o.called;
  if (hidden) {
    size_t from = name.find_first_not_of('_'), to = name.find_last_not_of('_');
    return from == std::string::npos ? name : name.substr(from, to + 1 - from);
  }
  for (auto [bit, space] : {std::pair(op::fft, "fft."), {op::linalg, "linalg."}, {op::special, "special."}}) {
    std::string shorter = public_name(name, bit);
    if (o.namespaces & bit && shorter != name) return space + shorter;
  }
  return name;
}

PyObject* property_get(PyObject* self, void* closure) {
  return dispatch(*static_cast<Entry*>(closure), self, nullptr, 0, nullptr);
}

Entry& entry_of(const std::string& name, Form form) {
  auto it = by_name.find(name);
  if (it != by_name.end()) return *it->second;
  internal_check(entry_count < kTable)
      << "more than " << kTable << " operator names: enlarge kTable in trampoline.cpp";
  Entry& e = all_entries.emplace_back();
  e.name = name;
  e.form = form;
  e.index = entry_count;
  e.function_def = {e.name.c_str(),
                    reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function_calls[size_t(e.index)])),
                    METH_FASTCALL | METH_KEYWORDS, nullptr};
  e.method_def = {e.name.c_str(),
                  reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(method_calls[size_t(e.index)])),
                  METH_FASTCALL | METH_KEYWORDS, nullptr};
  entries[entry_count++] = &e;
  by_name[name] = &e;
  return e;
}

void attach_name(const Operator& o, const std::string& base, Form form) {
  std::string name = form == Form::in_place ? base + "_" : base;
  Entry& e = entry_of(name, form);
  if (e.called.empty()) e.called = called_by(o, name);
  e.overloads.push_back(make_overload(o));
  Overload& overload = e.overloads.back();
  if (form == Form::in_place)
    overload.params[size_t(overload.self_at)].number = false;  // nothing to write into
  e.out |= form == Form::functional && o.forms.out;
  e.two_passes = number_may_be_ambiguous(e);
  uint32_t bits = o.namespaces;
  e.doc += name + signature_of(overload, false, form == Form::functional && o.forms.out) + "\n\n" +
           (form == Form::in_place ? "In-place form of " + base + ". " : "") + o.doc + "\n\n";
  e.function_def.ml_doc = e.method_def.ml_doc = e.doc.c_str();
  bool hidden = bits & op::hidden;
  if (!e.function) {
    int home = 5;
    for (int i = 0; i < 5 && !hidden; ++i)
      if (bits & module_bits[i]) {
        home = i;
        break;
      }
    PyRef where = checked(PyUnicode_FromString(public_names[home]));
    e.function = checked(PyCFunction_NewEx(&e.function_def, nullptr, where.get())).detach();
  }
  attach(operator_modules[5], name, e.function);
  if (!hidden) {
    if (bits != op::method) attach(operator_modules[0], name, e.function);
    for (int i = 1; i < 5; ++i)
      if (bits & module_bits[i]) attach(operator_modules[i], public_name(name, module_bits[i]), e.function);
  }
  bool takes_tensor = !overload.params.empty() &&
                      overload.params[size_t(overload.self_at)].type == op::Type::Tensor &&
                      !overload.params[size_t(overload.self_at)].list;
  PyRef key = checked(PyUnicode_InternFromString(name.c_str()));
  bool taken = PyDict_Contains(TensorType->tp_dict, key.get()) && !e.method;
  if (!takes_tensor || taken || hidden) return;
  if ((bits & op::method || form == Form::in_place) && !(bits & op::property)) {
    if (!e.method) {
      e.method = checked(PyDescr_NewMethod(TensorType, &e.method_def)).detach();
      checked(PyDict_SetItem(TensorType->tp_dict, key.get(), e.method));
      PyType_Modified(TensorType);
    }
  } else if (bits & op::property) {
    auto* def = new PyGetSetDef{e.name.c_str(), property_get, nullptr, e.doc.c_str(),
                                &e};  // lives as long as the type
    PyRef descriptor = checked(PyDescr_NewGetSet(TensorType, def));
    checked(PyDict_SetItem(TensorType->tp_dict, key.get(), descriptor.get()));
    e.method = checked(PyObject_GetAttrString(descriptor.get(), "__get__")).detach();  // what overrides call
    PyType_Modified(TensorType);
  }
}

void attach_operator(const Operator& o) {
  if (o.is<op::Foreign>()) return;  // called by library.cpp's objects
  std::vector<std::string> names = o.aliases;
  names.insert(names.begin(), o.schema.name);
  for (auto& name : names) {
    bool writes = o.schema.mutates();  // written in its schema: copy_, optimizer steps
    attach_name(o, name, Form::functional);
    if (o.forms.in_place && !writes) attach_name(o, name, Form::in_place);
  }
}

// Syntax slots and calls from the binding: the first overload, found once.
const Entry* slot_entry(Slot s) {
  static const Entry* found[int(Slot::count)];
  static const char* const slot_names[] = {
#define FACULA_SLOT_TEXT(n) #n,
      FACULA_SLOTS(FACULA_SLOT_TEXT)
#undef FACULA_SLOT_TEXT
  };
  const Entry*& e = found[int(s)];
  if (!e) {
    auto it = by_name.find(slot_names[int(s)]);
    supported_check(it != by_name.end(), slot_names[int(s)]) << "this build has no operator of this name";
    e = it->second;
  }
  return e;
}

bool slot_operand(PyObject* o, Value& v) {
  if (is_plain(Py_TYPE(o))) {
    v = Value(impl_of(o));
    return true;
  }
  if (PyFloat_CheckExact(o)) {
    v = Value(Scalar(PyFloat_AS_DOUBLE(o)));
    return true;
  }
  Scalar s;
  if (is_tensor(o) || is_symint(o) || !to_scalar(o, s)) return false;
  v = Value(s);
  return true;
}

// The operands of a sign, `b` if there is one; false where they are not as simple as that.
bool slot_operands(const Entry& e, PyObject* a, PyObject* b, Value* values) {
  try {
    return slot_operand(a, values[0]) && (!b || slot_operand(b, values[1]));
  } catch (const PythonError&) {  // a number beyond 64 bits
    prefix_python_error(e.called + ": ");
    throw;
  }
}

PyObject* operators(PyObject*, PyObject*) {
  return guarded([&] {
    static const char* const kinds[] = {"pointwise", "loop",    "view",           "composite",
                                        "procedure", "library", "data_dependent", "foreign"};
    PyRef list = checked(PyList_New(0));
    for (auto* o : op::all()) {
      if (o->is<op::Foreign>()) continue;  // of users
      PyRef aliases = checked(PyList_New(0));
      for (auto& a : o->aliases) checked(PyList_Append(aliases.get(), checked(unicode(a)).get()));
      PyRef one = checked(Py_BuildValue("{s:s,s:s,s:s,s:s,s:s,s:I,s:O,s:O,s:O}", "name",
                                        o->schema.name.c_str(), "overload", o->schema.overload.c_str(),
                                        "schema", o->schema.text.c_str(), "doc", o->doc.c_str(), "kind",
                                        kinds[int(o->kind())], "namespaces", o->namespaces, "aliases",
                                        aliases.get(), "in_place", o->forms.in_place ? Py_True : Py_False,
                                        "out", o->forms.out ? Py_True : Py_False));
      checked(PyList_Append(list.get(), one.get()));
    }
    return list.detach();
  });
}
PyObject* result_class(PyObject*, PyObject* name) {
  return guarded([&]() -> PyObject* {
    auto it = by_name.find(std::string(text_of(name)));
    if (it != by_name.end())
      for (auto& o : it->second->overloads) {
        auto& returns = o.op->schema.returns;
        if (returns.size() > 1 && !returns[0].name.empty())
          return Py_NewRef(reinterpret_cast<PyObject*>(result_type_of(o)));
      }
    Py_RETURN_NONE;
  });
}
PyMethodDef functions[] = {{"operators", operators, METH_NOARGS, "Facts of every operator, as dicts."},
                           {"result_class", result_class, METH_O,
                            "The class of an operator's results, if they have names; else None."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

namespace {
Results call_freely(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out,
                    const std::string* name) {
  try {
    if (!is_big(o, args, out) || op::Mode::current()) return op::call(o, args, form, out);
    // Another thread may drop what a list holds: keep the operands.
    op::Args kept(args);
    WithoutGil free;
    return op::call(o, args, form, out);
  } catch (const Error& e) {
    // Users called this operator, perhaps in place, and not what is inside of it (another operator, the
    // allocator) and found the fault.
    std::string called = name ? *name : called_by(o, o.schema.name + (form == Form::in_place ? "_" : ""));
    if (e.kind() == ErrorKind::internal || e.op() == called) throw;
    bool nameless =
        o.namespaces & op::hidden && o.called.empty();  // an operator that is a part of one speaks for it
    if (nameless && !op::find(e.op())) throw;
    throw e.from(called);
  }
}

// Calls `parse`; errors that it throws (a number beyond 64 bits, an unknown device) get the names of the call and the argument.
bool parse_named(const Entry& e, const Overload& o, PyObject* self, PyObject* const* args, Py_ssize_t n,
                 PyObject* kwnames, bool numbers, Frame& f) {
  try {
    return parse(o, self, args, n, kwnames, numbers, e.out && !self && o.op->forms.out, f);
  } catch (const Error& error) {
    throw Error(error.kind(), error.type(), e.called + "()",
                argument_text(o, f, self) + ": " + error.message());
  } catch (const PythonError&) {
    prefix_python_error(e.called + "(): " + argument_text(o, f, self) + ": ");
    throw;
  }
}
}  // namespace

namespace {

// A deprecated signature, in which the numbers that are keyword arguments today stand between the tensors: add(self, alpha,
// other), or addmm(beta, self, alpha, mat1, mat2), where alpha may be left out.
struct DeprecatedForm {
  std::vector<bool> number;         // by position: a number, or a tensor
  std::vector<PyObject*> keywords;  // of the numbers, in order
};

// The deprecated forms of calls of `o`; empty if PyTorch never had any.
std::vector<DeprecatedForm> deprecated_forms(const Overload& o, bool method) {
  std::vector<PyObject*> numbers;
  size_t tensors = 0;
  for (auto& p : o.params) {
    if (p.keyword_only && p.type == op::Type::Scalar && !p.list) numbers.push_back(p.name);
    if (p.keyword_only) continue;
    if (p.type != op::Type::Tensor || p.list || p.optional) return {};
    ++tensors;
  }
  if (numbers.empty() || numbers.size() > 2 || tensors < 2) return {};
  auto form = [&](bool before, bool behind) {
    DeprecatedForm f;
    if (before) {
      f.number.push_back(true);
      f.keywords.push_back(numbers[0]);
    }
    if (!method) f.number.push_back(false);
    if (behind) {
      f.number.push_back(true);
      f.keywords.push_back(numbers.back());
    }
    f.number.insert(f.number.end(), tensors - 1, false);
    return f;
  };
  if (numbers.size() == 1) return {form(false, true)};
  return {form(true, true), form(true, false)};
}

bool is_number(PyObject* o) { return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o); }

// The last tensors may be given by keyword.
bool fits(const DeprecatedForm& f, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  Py_ssize_t more = Py_ssize_t(f.number.size()) - n, keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (more < 0 || more > keywords || std::find(f.number.begin() + n, f.number.end(), true) != f.number.end())
    return false;
  for (Py_ssize_t k = 0; k < n; ++k)
    if (f.number[size_t(k)] ? !is_number(args[k]) : !PyObject_TypeCheck(args[k], TensorType)) return false;
  return true;
}

// The call in today's form, with PyTorch's warning; null without an error: it has no deprecated form.
PyObject* call_deprecated(const Entry& e, PyObject* self, PyObject* const* args, Py_ssize_t n,
                          PyObject* kwnames) {
  for (auto& o : e.overloads)
    for (auto& form : deprecated_forms(o, self != nullptr)) {
      if (!fits(form, args, n, kwnames)) continue;
      std::vector<PyObject*> all, numbers;
      for (Py_ssize_t k = 0; k < n; ++k) (form.number[size_t(k)] ? numbers : all).push_back(args[k]);
      Py_ssize_t tensors = Py_ssize_t(all.size());
      std::vector<PyObject*> names = form.keywords;
      all.insert(all.end(), numbers.begin(), numbers.end());
      for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
        names.push_back(PyTuple_GET_ITEM(kwnames, k));
        all.push_back(args[n + k]);
      }
      PyRef keywords = checked(PyTuple_New(Py_ssize_t(names.size())));
      for (size_t k = 0; k < names.size(); ++k)
        PyTuple_SET_ITEM(keywords.get(), Py_ssize_t(k), Py_NewRef(names[k]));
      warn_once("This overload of " + e.called + " is deprecated, got " + given_text(args, n, kwnames) +
                ". Consider using this signature instead:\n\t" + e.called +
                signature_of(o, self != nullptr, e.out && !self));
      return dispatch(e, self, all.data(), tensors, keywords.get());
    }
  return nullptr;
}

}  // namespace

PyObject* dispatch(const Entry& e, PyObject* self, PyObject* const* args, Py_ssize_t n,
                   PyObject* kwnames) noexcept {
  return guarded([&]() -> PyObject* {
    if (modes_active) [[unlikely]] {
      if (!overrides_disabled())
        return call_override(self && e.method ? e.method : e.function, self, args, n, kwnames);
    }
    Frame f;
    for (int pass = e.two_passes ? 0 : 1; pass < 2; ++pass)
      for (auto& o : e.overloads) {
        if (!parse_named(e, o, self, args, n, kwnames, pass, f)) continue;
        if (f.override_ && !overrides_disabled())
          return call_override(self && e.method ? e.method : e.function, self, args, n, kwnames);
        try {
          PyObject* result = run(e, o, self, f);
          if (result == Py_None && gives_its_list(e, o)) return list_given(args, n, kwnames);
          return result;
        } catch (const std::bad_alloc&) {  // outside of the allocator of tensors, which says how much
          return PyErr_Format(PyExc_MemoryError, "%s: not enough memory", e.called.c_str());
        } catch (const std::length_error&) {
          return PyErr_Format(PyExc_MemoryError, "%s: not enough memory", e.called.c_str());
        }
      }
    if (PyObject* result = call_deprecated(e, self, args, n, kwnames); result || PyErr_Occurred())
      return result;
    raise_mismatch(e.called.c_str(), e.overloads, self, args, n, kwnames, e.out && !self);
    return nullptr;
  });
}

PyObject* call_slot(Slot s, PyObject* a, PyObject* b, Form form) noexcept {
  return guarded([&]() -> PyObject* {
    const Entry& e = *slot_entry(s);
    const Overload& o = e.overloads[0];
    alignas(Value) char room[6 * sizeof(Value)];
    auto* values = reinterpret_cast<Value*>(room);
    size_t operands = b ? 2 : 1, count = o.params.size();
    if (!modes_active && count <= 6 && slot_operands(e, a, b, values)) {
      for (size_t i = operands; i < count; ++i)
        std::memcpy(static_cast<void*>(values + i), &o.params[i].fallback, sizeof(Value));
      Results r = call_freely(*o.op, {values, count}, form, {}, form == Form::in_place ? nullptr : &e.called);
      return form == Form::in_place ? Py_NewRef(a) : wrap(std::move(r[0]));
    }
    PyRef converted[2];  // NumPy's arrays become tensors that share their memory
    PyObject* args[] = {a, b};
    for (size_t i = 0; i < operands; ++i)
      if (!is_tensor(args[i]) && has_array_interface(args[i]) && !is_numpy_scalar(args[i])) {
        converted[i] = PyRef(wrap(from_array_interface(e.name.c_str(), args[i])));
        args[i] = converted[i].get();
      }
    // For an override x + y is Tensor.add, as in PyTorch.
    if (form == Form::functional && e.method && is_tensor(args[0]))
      return dispatch(e, args[0], args + 1, Py_ssize_t(operands) - 1, nullptr);
    if (form == Form::functional) return dispatch(e, nullptr, args, Py_ssize_t(operands), nullptr);
    auto it = by_name.find(e.name + "_");
    supported_check(it != by_name.end(), e.name) << "has no in-place form";
    return dispatch(*it->second, a, args + 1, Py_ssize_t(operands) - 1, nullptr);
  });
}

PyObject* call_method_operator(const char* name, PyObject* self, std::initializer_list<PyObject*> args) {
  return guarded([&]() -> PyObject* {
    auto it = by_name.find(name);
    supported_check(it != by_name.end(), name) << "this build has no operator of this name";
    return dispatch(*it->second, self, args.begin(), Py_ssize_t(args.size()), nullptr);
  });
}

const Operator& operator_named(std::string_view full_name) {
  const Operator* o = op::find(full_name);
  supported_check(o, std::string(full_name)) << "this build has no operator of this name";
  return *o;
}

Results run_operator(const Operator& o, std::initializer_list<Value> given, Form form) {
  Frame f;
  Value* values = f.values();
  auto& parameters = o.schema.parameters;
  size_t i = 0;
  for (auto& v : given) std::memcpy(static_cast<void*>(values + i++), &v, sizeof(Value));
  for (; i < parameters.size(); ++i) {
    internal_check(parameters[i].has_default)
        << o.schema.full_name() << ": no value for " << parameters[i].name;
    std::memcpy(static_cast<void*>(values + i), &parameters[i].fallback[0], sizeof(Value));
  }
  return call_freely(o, {values, parameters.size()}, form, {}, nullptr);
}

void add_operators(PyObject* module) {
  for (int i = 0; i < 6; ++i) {
    std::string name = std::string("facula._C.") + module_names[i];
    operator_modules[i] = checked(PyModule_New(name.c_str())).detach();
    checked(PyModule_AddObjectRef(module, module_names[i], operator_modules[i]));
  }
  for (auto* o : op::all()) attach_operator(*o);
  op::on_define([](const Operator& o) {
    WithGil gil;
    attach_operator(o);
  });
  add_functions(module, functions);
}

}  // namespace facula::bind
