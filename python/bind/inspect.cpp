// Describes a call from the operator's definition without running its kernel, for tests and documentation. Operators are named by
// full name ("max.dim"), arguments as in facula.ops.
#include <algorithm>

#include "facula/graph/trace.h"
#include "facula/loop/interpret.h"
#include "facula/op/operands.h"
#include "facula/op/registry.h"
#include "facula/schedule/fuse.h"
#include "facula/tensor/change_strides.h"
#include "facula/tensor/derived.h"
#include "parse.h"
#include "tensor.h"
#include "types.h"

namespace facula::bind {

namespace {

const op::Operator& operator_argument(PyObject* name) {
  const op::Operator* o = op::find(text_of(name));
  runtime_check(o, "inspect") << "no operator is named '" << text_of(name) << "'";
  return *o;
}

PyObject* wrap_sample_argument(const op::SampleArg& a) {
  using Kind = op::SampleArg::Kind;
  if (a.kind == Kind::literal)
    return Py_BuildValue("{s:s,s:s}", "kind", "literal", "literal", a.literal.c_str());
  PyRef shapes = checked(PyList_New(0));
  for (auto& sizes : a.sizes) {
    checked(PyList_Append(shapes.get(), checked(wrap_ints(Dims(std::span(sizes)))).get()));
  }
  auto flag = [](bool b) { return b ? Py_True : Py_False; };
  return Py_BuildValue("{s:s,s:O,s:d,s:d,s:O,s:O,s:O,s:O}", "kind",
                       a.kind == Kind::tensor ? "tensor" : "tensors", "sizes", shapes.get(), "low", a.low,
                       "high", a.high, "index", flag(a.index), "boolean", flag(a.boolean), "distinct",
                       flag(a.distinct), "positive_definite", flag(a.positive_definite));
}

// An identifier of the operator's gradient rule: operators may share a function, an operator and its transpose share one rule, and
// so do all transposes of a view. Empty if the gradient is derived.
std::string rule_of(const op::Operator& o) {
  if (!o.vjp) return "";
  std::string own = o.schema.full_name();
  if (!o.transpose.empty() && op::get(o.transpose).is<op::View>()) return "transpose of a view";
  if (!o.transpose.empty())
    return "transpose " + std::min(own, o.transpose) + " " + std::max(own, o.transpose);
  if (auto* f = o.vjp.target<op::Grads (*)(const op::Vjp&)>())
    return "function " + std::to_string(reinterpret_cast<uintptr_t>(*f));
  return o.vjp.target_type().name();
}

PyObject* inspect_operator(PyObject*, PyObject* name) {
  return guarded([&] {
    auto& o = operator_argument(name);
    PyRef samples = checked(PyList_New(0)), dtypes = checked(PyList_New(0)), limited = checked(PyList_New(0)),
          fixed = checked(PyList_New(0));
    for (auto& sample : o.samples()) {
      PyRef one = checked(PyDict_New());
      for (auto& [argument, a] : sample.args)
        checked(PyDict_SetItemString(one.get(), argument.c_str(), checked(wrap_sample_argument(a)).get()));
      checked(PyList_Append(samples.get(), one.get()));
    }
    for (int k = 0; k < kDTypeCount; ++k)
      if (o.dtypes.has(DType(k)))
        checked(
            PyList_Append((is_limited(DType(k)) ? limited : dtypes).get(), checked(wrap(DType(k))).get()));
    for (int k : o.non_differentiable) checked(PyList_Append(fixed.get(), checked(PyLong_FromLong(k)).get()));
    std::string rule = rule_of(o);
    return Py_BuildValue("{s:O,s:O,s:O,s:O,s:s,s:s,s:O,s:O,s:s}", "samples", samples.get(), "dtypes",
                         dtypes.get(), "limited_dtypes", limited.get(), "differentiable",
                         o.differentiable ? Py_True : Py_False, "gradient", o.vjp ? "rule" : "derived",
                         "rule", rule.c_str(), "non_differentiable", fixed.get(), "random",
                         o.effects.draws ? Py_True : Py_False, "undifferenced", o.undifferenced.c_str());
  });
}

// Calls f(operator, values) with what Python gave.
template <class F>
PyObject* with_call(PyObject* const* args, Py_ssize_t n, PyObject* kwnames, F f) {
  return guarded([&]() -> PyObject* {
    type_check(n > 0 && PyUnicode_Check(args[0]), "inspect") << "expected the name of an operator first";
    auto& o = operator_argument(args[0]);
    Overload overload = make_overload(o);
    Frame frame;
    if (!parse(overload, nullptr, args + 1, n - 1, kwnames, true, false, frame)) {
      raise_mismatch(o.name(), {&overload, 1}, nullptr, args + 1, n - 1, kwnames, false);
      return nullptr;
    }
    return f(o, std::span<const op::Value>(frame.values(), o.schema.parameters.size()));
  });
}

PyObject* inspect_meta(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return with_call(args, n, kwnames, [](const op::Operator& o, std::span<const op::Value> values) {
    PyRef list = checked(PyList_New(0));
    for (auto& m : graph::infer(o, values)) {
      PyRef sizes = checked(wrap_ints(m.sizes)), dtype = checked(wrap(m.dtype));
      checked(PyList_Append(list.get(), checked(PyTuple_Pack(2, sizes.get(), dtype.get())).get()));
    }
    return list.detach();
  });
}

bool has_definition(const op::Operator& o) {
  return o.is<op::Pointwise>() || o.is<op::Loop>() || (o.backed() && o.backed()->reference);
}

loop::Definition definition_of(const op::Operator& o, std::span<const op::Value> values) {
  runtime_check(has_definition(o), o.name())
      << "has no scalar definition: it is made of other operators, or only moves what it is given";
  if (!o.backed()) return schedule::lower(o, values);
  loop::Definition d = o.backed()->reference(op::LoopCall(o, values));
  auto metas = graph::infer(o, values);
  if (!d.scatter) d.rank = int(metas.at(0).sizes.size());
  return d;
}

// The numbers that the definition compares with, where a function is likely to change its course.
PyObject* inspect_branches(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return with_call(args, n, kwnames, [](const op::Operator& o, std::span<const op::Value> values) {
    std::vector<double> found;
    auto look = [&](loop::Expr x) {
      using loop::Fn;
      if (x->kind != loop::Kind::call) return;
      constexpr Fn kComparing[] = {Fn::eq, Fn::ne,  Fn::lt,  Fn::le,   Fn::gt,
                                   Fn::ge, Fn::max, Fn::min, Fn::fmax, Fn::fmin};
      if (std::find(std::begin(kComparing), std::end(kComparing), x->fn) == std::end(kComparing)) return;
      for (loop::Expr a : x->args)
        if (a->kind == loop::Kind::constant && !is_complex(a.dtype())) found.push_back(a->value.to_double());
    };
    loop::Definition d = definition_of(o, values);
    for (loop::Expr x : d.values) loop::visit(x, look);
    if (d.scatter) loop::visit(d.scatter->value, look);
    PyRef list = checked(PyList_New(0));
    for (double x : found) checked(PyList_Append(list.get(), checked(PyFloat_FromDouble(x)).get()));
    return list.detach();
  });
}

PyObject* inspect_interpret(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return with_call(args, n, kwnames, [](const op::Operator& o, std::span<const op::Value> values) {
    loop::Definition d = definition_of(o, values);
    auto metas = graph::infer(o, values);
    std::vector<Tensor> operands;  // by slot; one that is absent is never loaded
    op::each_operand(op::Call(o, values), [&](const op::Operand& x) {
      auto& v = x.value;
      operands.push_back(v.is_none()                ? Tensor::scalar(Scalar(int64_t(0)), DType::Int64)
                         : v.tag == op::Tag::tensor ? Tensor(Ref<TensorImpl>::share(v.tensor))
                                                    : Tensor::scalar(v.number(), op::operand_dtype(v)));
    });
    std::vector<Dims> sizes;
    std::vector<DType> dtypes;
    for (auto& m : metas) {
      sizes.push_back(m.sizes);
      dtypes.push_back(m.dtype);
    }
    std::vector<Tensor> results = loop::interpret(d, operands, sizes, dtypes);
    return wrap_list(results);
  });
}

// ---- physical layouts (docs/layouts.md)
PyObject* in_physical_order(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *object, *list;
    if (!PyArg_ParseTuple(args, "OO:in_physical_order", &object, &list)) return nullptr;
    Tensor t = tensor_of(object).detached();
    PyRef order = checked(PySequence_Tuple(list));
    Dims strides(size_t(t.dim()), SymInt(int64_t(0)));
    SymInt next = int64_t(1);
    for (Py_ssize_t k = PyTuple_GET_SIZE(order.get()); k-- > 0;) {
      int d = wrap_dim("in_physical_order", PyLong_AsLongLong(PyTuple_GET_ITEM(order.get(), k)), t.dim());
      strides[size_t(d)] = next;
      next *= max(t.sizes()[size_t(d)], SymInt(int64_t(1)));
    }
    value_check(PyTuple_GET_SIZE(order.get()) == t.dim() &&
                    std::find(strides.begin(), strides.end(), SymInt(int64_t(0))) == strides.end(),
                "in_physical_order")
        << "expected every dimension of " << to_string(t.sizes()) << " once";
    Tensor copy = Tensor::empty_strided(t.sizes(), strides, t.dtype(), t.device());
    op::Value values[] = {copy, t};
    op::call(op::get("copy"), values, op::Form::in_place);
    value_check(change_strides(copy, contiguous_strides(copy.sizes())), "in_physical_order")
        << "a tensor of shape " << to_string(t.sizes()) << " has no such order";
    return wrap(std::move(copy));
  });
}
PyObject* physical_order(PyObject*, PyObject* object) {
  return guarded([&]() -> PyObject* {
    StorageImpl::PhysicalLayout h;
    if (!tensor_of(object).impl()->storage->physical_layout(h)) Py_RETURN_NONE;
    PyRef order = checked(PyTuple_New(h.order.rank));
    for (int k = 0; k < h.order.rank; ++k)
      PyTuple_SET_ITEM(order.get(), k, PyLong_FromLong(h.order.order[k]));
    return order.detach();
  });
}
PyObject* layout_counts_(PyObject*, PyObject*) {
  auto& c = layout_counts();
  return Py_BuildValue("{s:L,s:L,s:L}", "physical", (long long)c.physical, "restored", (long long)c.restored,
                       "reordered", (long long)c.reordered);
}

PyObject* derived_counts_(PyObject*, PyObject*) {
  auto c = derived_counts();
  return Py_BuildValue("{s:L,s:L,s:L,s:L}", "bytes", (long long)c.bytes, "retained", (long long)c.retained,
                       "used", (long long)c.used, "dropped", (long long)c.dropped);
}

#define FACULA_FAST(f) reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), METH_FASTCALL | METH_KEYWORDS
PyMethodDef functions[] = {
    {"inspect_operator", inspect_operator, METH_O,
     "inspect_operator(full_name) -> dict: samples, dtypes, differentiable, random ..."},
    {"inspect_meta", FACULA_FAST(inspect_meta),
     "inspect_meta(full_name, *args, **kwargs) -> [(sizes, dtype)] by the operator's rules."},
    {"inspect_branches", FACULA_FAST(inspect_branches),
     "inspect_branches(full_name, *args, **kwargs) -> the numbers that the scalar definition compares with."},
    {"inspect_interpret", FACULA_FAST(inspect_interpret),
     "The results of a call by the loop interpreter: slow, in double."},
    {"in_physical_order", in_physical_order, METH_VARARGS,
     "in_physical_order(tensor, order): a copy whose elements lie in memory with dimension order[0] outermost."},
    {"physical_order", physical_order, METH_O,
     "The order that a tensor's elements lie in, or None: as its strides say."},
    {"layout_counts", layout_counts_, METH_NOARGS,
     "How many tensors were made in a physical layout, restored to the logical one, and copied into another order for a library."},
    {"derived_counts", derived_counts_, METH_NOARGS,
     "Bytes of packed weights that are retained now, and how many were retained, used again and dropped."},
    {nullptr, nullptr, 0, nullptr}};
#undef FACULA_FAST

}  // namespace

void add_inspect(PyObject* module) { add_functions(module, functions); }

}  // namespace facula::bind
