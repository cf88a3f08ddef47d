// Graphs of programs as plain Python values, for fx (facula/fx/_bridge.py), and traces whose sizes are chosen one by one.
//   a reference to a value    ("value", 3), or ("tensor", 3) for an argument that cannot be a number
//   a size                    4, or a tuple: ("symbol", "s0"), ("add", a, b), ("mul", a, b), ("floordiv", a, b), ("mod", a, b),
//                             ("min", a, b), ("max", a, b)
#include "graph.h"

#include "call_arguments.h"
#include "facula/graph/function.h"
#include "facula/graph/passes.h"
#include "facula/graph/recording.h"
#include "facula/io/program.h"
#include "facula/io/region.h"
#include "facula/run/traced.h"
#include "facula/sym/run_time.h"

namespace facula::bind {

namespace {

PyRef size_tree(SymInt s) {
  if (!s.is_symbolic()) return checked(PyLong_FromLongLong(s.concrete()));
  auto* n = s.node();
  const char* kind = "";
  switch (n->kind) {
    case sym::Kind::constant: return checked(PyLong_FromLongLong(n->value));
    case sym::Kind::symbol: return checked(Py_BuildValue("(ss)", "symbol", n->name.c_str()));
    case sym::Kind::add: kind = "add"; break;
    case sym::Kind::mul: kind = "mul"; break;
    case sym::Kind::floordiv: kind = "floordiv"; break;
    case sym::Kind::mod: kind = "mod"; break;
    case sym::Kind::min: kind = "min"; break;
    case sym::Kind::max: kind = "max"; break;
  }
  auto operand = [](const sym::Node* x) {
    return x->kind == sym::Kind::constant ? SymInt(x->value) : SymInt::of(x);
  };
  PyRef a = size_tree(operand(n->a)), b = size_tree(operand(n->b));
  return checked(Py_BuildValue("(sOO)", kind, a.get(), b.get()));
}
template <class Range, class F>
PyRef list_of(const Range& items, F&& f) {
  PyRef list = checked(PyList_New(0));
  for (auto&& x : items) checked(PyList_Append(list.get(), f(x).get()));
  return list;
}
PyRef sizes_list(SymSpan sizes) { return list_of(sizes, size_tree); }

// `kind`: "value", or "tensor" for an argument that cannot be a number.
PyRef reference(const graph::Value* v, const char* kind = "value") {
  if (!v) return PyRef::share(Py_None);
  return checked(Py_BuildValue("(si)", kind, v->id));
}

// (id, dtype, sizes, strides)
PyRef facts_of(const graph::Value* v) {
  auto& t = v->tensor;
  PyRef dtype = checked(wrap(t.dtype())), sizes = sizes_list(t.sizes()), strides = sizes_list(t.strides());
  return checked(Py_BuildValue("(iOOO)", v->id, dtype.get(), sizes.get(), strides.get()));
}

PyRef argument(const op::Parameter& p, const op::Value& v) {
  using op::Tag;
  switch (v.tag) {
    case Tag::none: return PyRef::share(Py_None);
    case Tag::tensor: return reference(v.tensor->traced, p.number ? "value" : "tensor");
    case Tag::tensors:
      return list_of(v.tensors(), [](TensorImpl* t) { return reference(t ? t->traced : nullptr, "tensor"); });
    case Tag::integer: return p.list ? sizes_list(v.ints()) : size_tree(v.integer());
    case Tag::ints: return sizes_list(v.ints());
    default: return wrap_plain_argument(p, v);
  }
}

// (operator, arguments, results, phase, checkpoint, values that the results are equal to or None)
PyRef node(const graph::Node& n) {
  PyRef args = checked(PyList_New(0));
  auto values = n.args.values();
  for (size_t k = 0; k < values.size(); ++k)
    checked(PyList_Append(args.get(), argument(n.op->schema.parameters[k], values[k]).get()));
  PyRef results = list_of(n.results, [](graph::Value* v) { return facts_of(v); });
  PyRef same = PyRef::share(Py_None);
  if (graph::function_of(*n.op)) {
    int k = 0;
    same = list_of(n.results, [&](graph::Value*) { return reference(graph::function_output(n, k++)); });
  }
  std::string name = n.op->schema.full_name();
  return checked(Py_BuildValue("(sOOiiO)", name.c_str(), args.get(), results.get(), n.place.phase,
                               n.place.checkpoint, same.get()));
}

PyRef symbol(SymInt s) {
  auto* n = s.node();
  return checked(Py_BuildValue("(sLLLO)", n->name.c_str(), static_cast<long long>(n->hint),
                               static_cast<long long>(n->low), static_cast<long long>(n->high),
                               sym::is_run_time(s) ? Py_True : Py_False));
}
PyRef guard(const sym::Guard& g) {
  using Relation = sym::Guard::Relation;
  const char* relation = g.relation == Relation::eq   ? "=="
                         : g.relation == Relation::ne ? "!="
                         : g.relation == Relation::lt ? "<"
                                                      : ">=";
  PyRef left = size_tree(g.left), right = size_tree(g.right);
  return checked(Py_BuildValue("(OsO)", left.get(), relation, right.get()));
}

// (argument, leaf, contents before, whether the program relies on them, output, contents after)
PyRef slot(const graph::Capture::Slot& s) {
  PyRef leaf = checked(wrap(s.leaf)), before = checked(wrap(s.before)), after = checked(wrap(s.after));
  return checked(Py_BuildValue("(iOOOiO)", s.argument, leaf.get(), before.get(),
                               s.relied ? Py_True : Py_False, s.output, after.get()));
}

PyRef graph_facts(const graph::Graph& g) {
  PyRef all = checked(PyDict_New());
  auto put = [&](const char* key, const PyRef& x) { checked(PyDict_SetItemString(all.get(), key, x.get())); };
  put("inputs", list_of(g.inputs, [](graph::Value* v) { return facts_of(v); }));
  PyRef constants = checked(PyList_New(0));
  for (auto& v : g.values()) {
    if (!v->constant.defined()) continue;
    PyRef facts = facts_of(v.get()), tensor = checked(wrap(v->constant));
    PyRef number = PyRef::share(v->tensor.impl()->wrapped_number ? Py_True : Py_False);
    checked(PyList_Append(constants.get(),
                          checked(PyTuple_Pack(3, facts.get(), tensor.get(), number.get())).get()));
  }
  put("constants", constants);
  put("nodes", list_of(g.nodes, [](auto& n) { return node(*n); }));
  put("outputs", list_of(g.outputs, [](graph::Value* v) { return reference(v); }));
  put("mutated",
      list_of(g.mutated, [](auto& m) { return checked(Py_BuildValue("(ii)", m.first, m.second->id)); }));
  PyRef symbols = checked(PyList_New(0));
  for (int k = 0; k < g.shapes->symbol_count(); ++k)
    checked(PyList_Append(symbols.get(), symbol(g.shapes->symbol(k)).get()));
  put("symbols", symbols);
  put("guards", list_of(g.shapes->guards(), guard));
  return all;
}

PyObject* program_graph(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    auto& traced = traced_of(o);
    PyRef all = graph_facts(traced.graph());
    auto put = [&](const char* key, const PyRef& x) {
      checked(PyDict_SetItemString(all.get(), key, x.get()));
    };
    put("results", checked(PyLong_FromSize_t(traced.capture().results)));
    put("checks", checked(PyLong_FromSize_t(traced.checks().size())));
    put("slots", list_of(traced.capture().slots, slot));
    put("reads", checked(PyLong_FromSize_t(traced.capture().reads.size())));
    put("differentiates", PyRef::share(traced.capture().differentiates ? Py_True : Py_False));
    put("required",
        list_of(traced.capture().required, [](bool r) { return PyRef::share(r ? Py_True : Py_False); }));
    put("name", checked(unicode(traced.name())));
    put("captured", checked(wrap_list(traced.captured())));
    return all.detach();
  });
}

// The same of the graph in which calls of composites are replaced by those of their bodies.
PyObject* expanded_graph(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    auto& g = traced_of(o).graph();
    return graph_facts(graph::expanded(g, g.shapes)).detach();
  });
}

// A size of an input: a number, or (name, value during the trace, least, most); equal names are one symbol.
SymInt input_size(sym::Shapes& shapes, PyObject* o) {
  if (PyLong_Check(o)) {
    int64_t n = PyLong_AsLongLong(o);
    if (PyErr_Occurred()) throw PythonError();
    return n;
  }
  const char* name;
  long long hint, low, high;
  if (!PyArg_ParseTuple(o, "sLLL:trace_sizes", &name, &hint, &low, &high)) throw PythonError();
  for (int k = 0; k < shapes.symbol_count(); ++k)
    if (shapes.symbol(k).node()->name == name) return shapes.symbol(k);
  return shapes.fresh(name, hint, low, high);
}

graph::InputSpec input_spec(sym::Shapes& shapes, const Tensor& t, PyObject* sizes) {
  PyRef list = checked(PySequence_Fast(sizes, "trace_sizes expects a list of sizes for each tensor"));
  value_check(PySequence_Fast_GET_SIZE(list.get()) == t.dim(), "trace_sizes")
      << "expects " << t.dim() << " sizes of a tensor";
  Dims dims;
  for (int64_t d = 0; d < t.dim(); ++d)
    dims.push_back(input_size(shapes, PySequence_Fast_GET_ITEM(list.get(), d)));
  auto spec = graph::spec_with(t, std::move(dims));
  spec.requires_grad = t.requires_grad();
  return spec;
}

// trace_sizes(function, tensors, name, sizes, inside=False) -> Program
PyObject* trace_sizes(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *function, *list, *sizes;
    const char* name;
    int inside = 0;
    if (!PyArg_ParseTuple(args, "OOsO|p:trace_sizes", &function, &list, &name, &sizes, &inside))
      return nullptr;
    auto tensors = tensor_list_argument("trace_sizes", "tensors", list);
    PyRef by_tensor = checked(PySequence_Fast(sizes, "trace_sizes expects a list of lists of sizes"));
    value_check(size_t(PySequence_Fast_GET_SIZE(by_tensor.get())) == tensors.size(), "trace_sizes")
        << "expects the sizes of " << tensors.size() << " tensors";
    auto shapes = std::make_shared<sym::Shapes>();
    std::vector<graph::InputSpec> specs;
    for (size_t k = 0; k < tensors.size(); ++k)
      specs.push_back(
          input_spec(*shapes, tensors[k], PySequence_Fast_GET_ITEM(by_tensor.get(), Py_ssize_t(k))));
    auto call = [&](std::span<const Tensor> inputs) {
      PyRef arguments = checked(wrap_list(inputs));
      PyObject* results = PyObject_CallOneArg(function, arguments.get());
      if (!results) throw_carried();
      PyRef all(results);
      return tensor_list_argument("trace_sizes", "results", results);
    };
    std::optional<graph::ReadsEnclosing> reads;
    if (inside) reads.emplace();
    auto capture = graph::capture(std::move(shapes), specs, call, name);
    return wrap_program(Program(std::make_shared<run::Traced>(std::move(capture), name)));
  });
}

// A list of ints as numbers of a list of `most` items.
std::vector<size_t> read_numbers(size_t most, PyObject* list) {
  std::vector<size_t> numbers;
  PyRef items = checked(PySequence_Fast(list, "region_function expects lists of numbers"));
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k) {
    size_t n = PyLong_AsSize_t(PySequence_Fast_GET_ITEM(items.get(), k));
    if (PyErr_Occurred()) throw PythonError();
    index_check(n < most, "region_function") << "number " << n << " of " << most;
    numbers.push_back(n);
  }
  return numbers;
}

// region_function(program, inputs, results) -> text
PyObject* region_function(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *program, *inputs, *results;
    if (!PyArg_ParseTuple(args, "OO!O:region_function", &program, &PyList_Type, &inputs, &results))
      return nullptr;
    auto& g = traced_of(program).graph();
    std::vector<graph::InputSpec> specs;
    std::vector<size_t> places(g.inputs.size());
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(inputs); ++k) {
      PyObject* item = PyList_GET_ITEM(inputs, k);
      if (is_tensor(item)) {
        specs.push_back(graph::spec_of(tensor_of(item)));
        continue;
      }
      size_t number = PyLong_AsSize_t(item);
      if (PyErr_Occurred()) throw PythonError();
      index_check(number < places.size(), "region_function") << "has no input " << number;
      specs.push_back(graph::spec_of(g.inputs[number]->tensor));
      places[number] = size_t(k);
    }
    auto chosen = read_numbers(g.outputs.size() + g.mutated.size() + specs.size(), results);
    auto calls = [&](std::span<const Tensor> arguments) {
      graph::KeepRules keep;
      std::vector<Tensor> all, taken;
      for (size_t place : places) all.push_back(arguments[place]);
      auto outputs = graph::interpret(g, all, {}, true);
      outputs.insert(outputs.end(), arguments.begin(), arguments.end());
      for (size_t k : chosen) taken.push_back(outputs[k]);
      return taken;
    };
    graph::Graph arranged = graph::trace(g.shapes, specs, calls, "region");
    arranged.renumber();
    return unicode(graph::print(arranged, nullptr));
  });
}

// define_region(kind, split, functions) -> name
PyObject* define_region(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* kind;
    Py_ssize_t split;
    PyObject* list;
    if (!PyArg_ParseTuple(args, "snO!:define_region", &kind, &split, &PyList_Type, &list)) return nullptr;
    std::vector<std::string> functions;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); ++k) {
      const char* text = PyUnicode_AsUTF8(PyList_GET_ITEM(list, k));
      if (!text) throw PythonError();
      functions.emplace_back(text);
    }
    return unicode(io::define_region(kind, size_t(split), functions));
  });
}

PyObject* is_traced(PyObject*, PyObject* o) { return PyBool_FromLong(is_tensor(o) && impl_of(o)->traced); }

}  // namespace

void add_graph(PyObject* module) {
  static PyMethodDef functions[] = {
      {"program_graph", program_graph, METH_O,
       "program_graph(program) -> inputs, nodes, outputs, sizes and guards of its graph, as plain values"},
      {"expanded_graph", expanded_graph, METH_O,
       "expanded_graph(program) -> the same of the graph in which composites are replaced by the calls of their bodies"},
      {"is_traced", is_traced, METH_O, "is_traced(tensor): whether it belongs to a trace"},
      {"trace_sizes", trace_sizes, METH_VARARGS,
       "trace_sizes(function, tensors, name, sizes, inside=False) -> Program; a function inside of another that is traced "
       "reads values of that one as tensors from outside"},
      {"region_function", region_function, METH_VARARGS,
       "region_function(program, inputs, results) -> text of its graph with other inputs, each the number of one of the "
       "program or a tensor like an input that it does not read, and other results: numbers among its outputs, the "
       "values that it writes, and the new inputs"},
      {"define_region", define_region, METH_VARARGS,
       "define_region(kind, split, functions) -> name of the operator of control flow; functions are texts of graphs"},
      {nullptr, nullptr, 0, nullptr}};
  add_functions(module, functions);
}

}  // namespace facula::bind
