// Variables, constants, arithmetic, comparisons.
#include <opcode.h>
#include <array>

#include "interpreter.h"

namespace facula::bind::capture {

namespace {

PyObject* name_of_slot(const Frame& f, int slot) {
  return PyTuple_GET_ITEM(f.code->get()->co_localsplusnames, slot);
}

}  // namespace

PyObject* binary_of(int kind, PyObject* a, PyObject* b) {
  if (kind == kContains) {
    int has = PySequence_Contains(a, b);
    return has < 0 ? nullptr : PyBool_FromLong(has);
  }
  if (kind >= kComparison) return PyObject_RichCompare(a, b, kind - kComparison);
  switch (kind) {
    case NB_ADD: return PyNumber_Add(a, b);
    case NB_AND: return PyNumber_And(a, b);
    case NB_FLOOR_DIVIDE: return PyNumber_FloorDivide(a, b);
    case NB_LSHIFT: return PyNumber_Lshift(a, b);
    case NB_MATRIX_MULTIPLY: return PyNumber_MatrixMultiply(a, b);
    case NB_MULTIPLY: return PyNumber_Multiply(a, b);
    case NB_REMAINDER: return PyNumber_Remainder(a, b);
    case NB_OR: return PyNumber_Or(a, b);
    case NB_POWER: return PyNumber_Power(a, b, Py_None);
    case NB_RSHIFT: return PyNumber_Rshift(a, b);
    case NB_SUBTRACT: return PyNumber_Subtract(a, b);
    case NB_TRUE_DIVIDE: return PyNumber_TrueDivide(a, b);
    case NB_XOR: return PyNumber_Xor(a, b);
    case NB_INPLACE_ADD: return PyNumber_InPlaceAdd(a, b);
    case NB_INPLACE_AND: return PyNumber_InPlaceAnd(a, b);
    case NB_INPLACE_FLOOR_DIVIDE: return PyNumber_InPlaceFloorDivide(a, b);
    case NB_INPLACE_LSHIFT: return PyNumber_InPlaceLshift(a, b);
    case NB_INPLACE_MATRIX_MULTIPLY: return PyNumber_InPlaceMatrixMultiply(a, b);
    case NB_INPLACE_MULTIPLY: return PyNumber_InPlaceMultiply(a, b);
    case NB_INPLACE_REMAINDER: return PyNumber_InPlaceRemainder(a, b);
    case NB_INPLACE_OR: return PyNumber_InPlaceOr(a, b);
    case NB_INPLACE_POWER: return PyNumber_InPlacePower(a, b, Py_None);
    case NB_INPLACE_RSHIFT: return PyNumber_InPlaceRshift(a, b);
    case NB_INPLACE_SUBTRACT: return PyNumber_InPlaceSubtract(a, b);
    case NB_INPLACE_TRUE_DIVIDE: return PyNumber_InPlaceTrueDivide(a, b);
    case NB_INPLACE_XOR: return PyNumber_InPlaceXor(a, b);
  }
  PyErr_SetString(PyExc_SystemError, "unknown binary operator");
  return nullptr;
}

namespace {

PyObject* unary_of(int kind, PyObject* a) {
  switch (kind) {
    case '+': return PyNumber_Positive(a);
    case '-': return PyNumber_Negative(a);
    default: return PyNumber_Invert(a);
  }
}

// A variable gets another value than that from outside.
void touch_variable(Frame& f, int slot) {
  if (!f.untouched.empty()) f.untouched[size_t(slot)] = false;
}

bool is_number(PyObject* o) {
  return PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyBool_Check(o) || PyComplex_CheckExact(o);
}
bool is_operand(PyObject* o) { return is_plain(Py_TYPE(o)) || is_number(o); }

std::string kinds(PyObject* a, PyObject* b) {
  return std::string(Py_TYPE(a)->tp_name) + " and " + Py_TYPE(b)->tp_name;
}

// The names of the methods of binary operators, without underscores, and their signs, in the order of NB_ADD and following.
struct OperatorName {
  const char *method, *sign;
};
const OperatorName kOperators[] = {{"add", "+"},    {"and", "&"},     {"floordiv", "//"}, {"lshift", "<<"},
                                   {"matmul", "@"}, {"mul", "*"},     {"mod", "%"},       {"or", "|"},
                                   {"pow", "**"},   {"rshift", ">>"}, {"sub", "-"},       {"truediv", "/"},
                                   {"xor", "^"}};
const OperatorName kComparisons[] = {{"lt", "<"},  {"le", "<="}, {"eq", "=="},
                                     {"ne", "!="}, {"gt", ">"},  {"ge", ">="}};

// An operator whose operands are instances of classes of Python: their methods decide.
bool is_decided_by_python(PyObject* a, PyObject* b) {
  if (is_tensor(a)) return false;
  return is_tensor(b) ? is_python_instance(a) : is_python_instance(a) || is_python_instance(b);
}
PyRef special_name(const char* prefix, const char* name) {
  return checked(PyUnicode_FromFormat("__%s%s__", prefix, name));
}
Outcome operate_in_python(Interpreter& in, Frame& f, PyObject* a, PyObject* b, int kind) {
  bool in_place = kind >= NB_INPLACE_ADD;
  auto& o = kOperators[in_place ? kind - NB_INPLACE_ADD : kind];
  PyRef name = special_name("", o.method), reflected = special_name("r", o.method),
        own = in_place ? special_name("i", o.method) : PyRef::share(Py_None),
        sign = checked(PyUnicode_FromFormat(in_place ? "%s=" : "%s", o.sign));
  return call_polyfill(in, f, "operate_", {a, b, name.get(), reflected.get(), own.get(), sign.get()}, 2);
}
Outcome compare_in_python(Interpreter& in, Frame& f, PyObject* a, PyObject* b, int kind) {
  static constexpr int reflections[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
  auto& o = kComparisons[kind];
  PyRef name = special_name("", o.method),
        reflected = special_name("", kComparisons[reflections[kind]].method),
        sign = checked(PyUnicode_FromString(o.sign));
  return call_polyfill(in, f, "compare_", {a, b, name.get(), reflected.get(), sign.get()}, 2);
}

}  // namespace

void note_variable(Interpreter& in, Frame& f, int slot) {
  if (!in.recorder || f.untouched.empty() || !f.untouched[size_t(slot)]) return;
  PyObject* o = f.locals[size_t(slot)].get();
  PyRef number;
  if (o) in.recorder->root(f.first_root + slot, o, &number);
  if (number) f.locals[size_t(slot)] = std::move(number);
}

namespace {

// `a += b` for a list, dict or set from outside: a call of the method that does the same, which leaves a.
Outcome extend_outside(Interpreter& in, Frame& f, int kind) {
  PyRef a = f.top(2), b = f.top();
  const char* name = PyList_Check(a.get()) && kind == NB_INPLACE_ADD          ? "extend"
                     : !PyList_Check(a.get()) && kind == NB_INPLACE_OR        ? "update"
                     : PyAnySet_Check(a.get()) && kind == NB_INPLACE_SUBTRACT ? "difference_update"
                     : PyAnySet_Check(a.get()) && kind == NB_INPLACE_AND      ? "intersection_update"
                                                                              : nullptr;
  bool same_kind = PyList_Check(a.get()) || PyAnySet_Check(a.get()) == PyAnySet_Check(b.get());
  if (!name || !same_kind || PyIter_Check(b.get()))
    return in.breaks("an operator that writes to a container from outside", "call its method");
  in.recorder->before_write(a.get());
  in.recorder->contents(b.get());
  PyRef key = checked(PyUnicode_InternFromString(name)), now = snapshot(b.get()),
        args = checked(PyTuple_Pack(1, now.get()));
  PyRef done(PyObject_CallMethodOneArg(a.get(), key.get(), b.get()));
  if (!done) return Outcome::raised;
  in.recorder->write(Write::Kind::call, a.get(), key.get(), args.get());
  return in.give(f, 2, a.detach());
}

}  // namespace

Outcome do_nop(Interpreter&, Frame&, const MicroOp&) { return Outcome::next; }
Outcome do_unsupported(Interpreter&, Frame&, const MicroOp&) {
  PyErr_SetString(PyExc_SystemError, "an instruction that is not interpreted");
  return Outcome::raised;
}
Outcome do_load_const(Interpreter& in, Frame& f, const MicroOp& op) {
  if (in.recorder && !is_atom(op.object)) in.recorder->constant(op.object);
  f.push(PyRef::share(op.object));
  return Outcome::next;
}

Outcome do_load_fast(Interpreter& in, Frame& f, const MicroOp& op) {
  auto& slot = f.locals[size_t(op.arg)];
  note_variable(in, f, op.arg);
  if (!slot) {
    PyErr_Format(PyExc_UnboundLocalError,
                 "cannot access local variable '%U' where it is not associated with a value",
                 name_of_slot(f, op.arg));
    return Outcome::raised;
  }
  f.push(slot);
  return Outcome::next;
}
Outcome do_store_fast(Interpreter&, Frame& f, const MicroOp& op) {
  touch_variable(f, op.arg);
  f.locals[size_t(op.arg)] = f.pop();
  return Outcome::next;
}
// Around an inlined comprehension, whose variables hide those of the function. An unbound variable is null on the stack.
Outcome do_load_and_clear(Interpreter& in, Frame& f, const MicroOp& op) {
  note_variable(in, f, op.arg);
  touch_variable(f, op.arg);
  f.push(std::exchange(f.locals[size_t(op.arg)], {}));
  return Outcome::next;
}
Outcome do_delete_fast(Interpreter&, Frame& f, const MicroOp& op) {
  touch_variable(f, op.arg);
  auto& slot = f.locals[size_t(op.arg)];
  if (!slot) {
    PyErr_Format(PyExc_UnboundLocalError,
                 "cannot access local variable '%U' where it is not associated with a value",
                 name_of_slot(f, op.arg));
    return Outcome::raised;
  }
  slot = {};
  return Outcome::next;
}

Outcome do_load_global(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* value = PyDict_GetItemWithError(f.globals.get(), op.object);
  if (!value && PyErr_Occurred()) return Outcome::raised;
  auto* r = in.recorder;
  PyRef number;
  bool fixed = value && (PyType_Check(value) || PyCallable_Check(value) || PyModule_Check(value)) &&
               !is_module(value) && is_our_module(f.globals.get());
  if (r && fixed) {
    r->constant(value);  // of this package
  } else if (r) {
    r->constant(f.globals.get());
    r->dict_item(f.globals.get(), op.object, value, &number);
    if (number) value = number.get();
  }
  if (!value) {
    value = PyDict_Check(f.builtins.get()) ? PyDict_GetItemWithError(f.builtins.get(), op.object) : nullptr;
    if (!value) {
      if (!PyErr_Occurred()) PyErr_Format(PyExc_NameError, "name '%U' is not defined", op.object);
      return Outcome::raised;
    }
    if (r) {
      r->constant(f.builtins.get());
      r->dict_item(f.builtins.get(), op.object, value);
    }
  }
  if (op.arg) f.push({});
  f.push(PyRef::share(value));
  return Outcome::next;
}
Outcome do_store_global(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef value = f.pop();
  if (in.recorder) {
    in.recorder->constant(f.globals.get());
    in.recorder->remember(f.globals.get(), op.object);
  }
  checked(PyDict_SetItem(f.globals.get(), op.object, value.get()));
  if (in.recorder) {
    in.recorder->write(Write::Kind::set_item, f.globals.get(), op.object, value.get(), true);
  }
  return Outcome::next;
}
Outcome do_delete_global(Interpreter& in, Frame& f, const MicroOp& op) {
  if (in.recorder) return in.breaks("`del` of a global");
  if (PyDict_DelItem(f.globals.get(), op.object) < 0) {
    PyErr_Format(PyExc_NameError, "name '%U' is not defined", op.object);
    return Outcome::raised;
  }
  return Outcome::next;
}

Outcome do_make_cell(Interpreter& in, Frame& f, const MicroOp& op) {
  note_variable(in, f, op.arg);
  touch_variable(f, op.arg);
  auto& slot = f.locals[size_t(op.arg)];
  slot = checked(PyCell_New(slot.get()));
  return Outcome::next;
}
Outcome do_copy_free_vars(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* closure = PyFunction_GET_CLOSURE(f.function.get());
  for (int k = 0; k < op.arg; ++k) {
    PyObject* cell = PyTuple_GET_ITEM(closure, k);
    touch_variable(f, f.code->free_begin + k);
    f.locals[size_t(f.code->free_begin + k)] = PyRef::share(cell);
    if (!in.recorder) continue;
    SourceId function = in.recorder->source_of(f.function.get());
    if (function != kNoSource) in.recorder->note({Source::Kind::closure, function, {}, k}, cell);
  }
  return Outcome::next;
}
Outcome do_load_closure(Interpreter& in, Frame& f, const MicroOp& op) {
  note_variable(in, f, op.arg);
  f.push(f.locals[size_t(op.arg)]);
  return Outcome::next;
}
Outcome do_load_deref(Interpreter& in, Frame& f, const MicroOp& op) {
  note_variable(in, f, op.arg);
  PyObject* cell = f.locals[size_t(op.arg)].get();
  PyRef value(PyCell_Get(cell));
  if (!value) {
    bool is_free = op.arg >= f.code->free_begin;
    PyErr_Format(
        is_free ? PyExc_NameError : PyExc_UnboundLocalError,
        is_free
            ? "cannot access free variable '%U' where it is not associated with a value in enclosing scope"
            : "cannot access local variable '%U' where it is not associated with a value",
        name_of_slot(f, op.arg));
    return Outcome::raised;
  }
  PyRef number;
  if (in.recorder) in.recorder->cell(cell, &number);
  f.push(number ? std::move(number) : std::move(value));
  return Outcome::next;
}
Outcome do_store_deref(Interpreter& in, Frame& f, const MicroOp& op) {
  note_variable(in, f, op.arg);
  PyRef value = f.pop();
  PyObject* cell = f.locals[size_t(op.arg)].get();
  if (in.recorder) in.recorder->remember(cell, nullptr);
  checked(PyCell_Set(cell, value.get()));
  if (in.recorder && in.recorder->is_outside(cell))
    in.recorder->write(Write::Kind::set_cell, cell, nullptr, value.get());
  return Outcome::next;
}
Outcome do_delete_deref(Interpreter& in, Frame& f, const MicroOp& op) {
  note_variable(in, f, op.arg);
  PyObject* cell = f.locals[size_t(op.arg)].get();
  if (in.recorder && in.recorder->is_outside(cell))
    return in.breaks("`del` of a variable of an outer function");
  checked(PyCell_Set(cell, nullptr));
  return Outcome::next;
}

Outcome do_pop_top(Interpreter&, Frame& f, const MicroOp&) {
  f.pop();
  return Outcome::next;
}
Outcome do_push_null(Interpreter&, Frame& f, const MicroOp&) {
  f.push({});
  return Outcome::next;
}
Outcome do_copy(Interpreter&, Frame& f, const MicroOp& op) {
  f.push(PyRef(f.top(size_t(op.arg))));
  return Outcome::next;
}
Outcome do_swap(Interpreter&, Frame& f, const MicroOp& op) {
  std::swap(f.top(1), f.top(size_t(op.arg)));
  return Outcome::next;
}

Outcome do_unary(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* a = f.top().get();
  if (op.arg == '!') {
    if (has_python_truth(in, a)) return replace_by_truth(in, f);
    int t = in.truth(a);
    if (t < 0) return t == -1 ? Outcome::raised : Outcome::breaks;
    return in.give(f, 1, Py_NewRef(t ? Py_False : Py_True));
  }
  if (in.recorder && is_plain(Py_TYPE(a))) return in.give_recorded(f, 1, unary_of(op.arg, a), "operator");
  if (in.recorder && is_python_instance(a)) {
    const char* name = op.arg == '+' ? "__pos__" : op.arg == '-' ? "__neg__" : "__invert__";
    if (PyObject* method = python_method(a, name)) {
      PyRef key = checked(PyUnicode_InternFromString(name));
      in.recorder->member(a, key.get(), method);
      return call(in, f, {method, {a}, 1, nullptr, 1});
    }
  }
  if (in.recorder && !is_atom(a)) return in.breaks(std::string("an operator of a ") + Py_TYPE(a)->tp_name);
  return in.give(f, 1, unary_of(op.arg, a));
}

namespace {

// One of the operands is a number that may change.
Outcome binary_of_free(Interpreter& in, Frame& f, const MicroOp& op) {
  auto* r = in.recorder;
  PyRef a = f.top(2), b = f.top();
  int kind = op.arg % NB_INPLACE_ADD;
  bool simple = kind == NB_ADD || kind == NB_SUBTRACT || kind == NB_MULTIPLY || kind == NB_TRUE_DIVIDE;
  bool gives_number = simple || kind == NB_FLOOR_DIVIDE || kind == NB_REMAINDER || kind == NB_POWER;
  if (is_changeable(a.get()) && is_changeable(b.get()) && gives_number) {
    PyRef result(binary_of(op.arg, a.get(), b.get()));
    if (!result) {
      r->pin(a.get());
      r->pin(b.get());
      return Outcome::raised;
    }
    return in.give(f, 2, r->computed(op.arg, a.get(), b.get(), std::move(result)).detach());
  }
  bool operand = simple && (is_plain(Py_TYPE(a.get())) || is_plain(Py_TYPE(b.get())));
  PyObject* result = nullptr;
  if (operand) {
    auto handle = [&](PyRef& o) { return r->is_free(o.get()) ? r->operand_of(o.get()) : o.get(); };
    PyObject *x = handle(a), *y = handle(b);
    if (x && y) result = binary_of(op.arg, x, y);
  }
  if (result) return in.give_recorded(f, 2, result, "operator");
  PyErr_Clear();
  r->pin(a.get());
  r->pin(b.get());
  return do_binary(in, f, op);
}

}  // namespace

Outcome do_binary(Interpreter& in, Frame& f, const MicroOp& op) {
  if (in.recorder && (in.recorder->is_free(f.top(2).get()) || in.recorder->is_free(f.top().get())))
    return binary_of_free(in, f, op);
  PyObject *a = f.top(2).get(), *b = f.top().get();
  if (!in.recorder) return in.give(f, 2, binary_of(op.arg, a, b));
  bool in_place = op.arg >= NB_INPLACE_ADD;
  bool tensors = is_plain(Py_TYPE(a)) || is_plain(Py_TYPE(b));
  if (tensors && is_operand(a) && is_operand(b))
    return in.give_recorded(f, 2, binary_of(op.arg, a, b), "operator");
  if (is_atom(a) && is_atom(b)) return in.give(f, 2, binary_of(op.arg, a, b));
  bool text = PyUnicode_CheckExact(a) && op.arg == NB_REMAINDER && is_data(b, false);
  if (text) {
    in.recorder->pin(b);
    in.recorder->deep_contents(b);
    return in.give(f, 2, binary_of(op.arg, a, b));
  }
  bool containers = (is_container(a) || is_atom(a)) && (is_container(b) || is_atom(b));
  if (containers) {
    if (in_place && in.recorder->is_outside(a) && !PyTuple_Check(a) && !PyFrozenSet_Check(a))
      return extend_outside(in, f, op.arg);
    in.recorder->contents(a);
    in.recorder->contents(b);
    if (PyAnySet_CheckExact(a) && PyAnySet_CheckExact(b)) in.recorder->tell_apart(std::array{a, b});
    return in.give(f, 2, binary_of(op.arg, a, b));
  }
  if (is_decided_by_python(a, b)) return operate_in_python(in, f, a, b, op.arg);
  return in.breaks("an operator of " + kinds(a, b));
}

Outcome do_compare(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject *a = f.top(2).get(), *b = f.top().get();
  auto compared = [&] {
    if (!in.recorder || !in.recorder->has_free()) return PyObject_RichCompare(a, b, op.arg);
    if (is_changeable(a) && is_changeable(b) && !in.recorder->are_sizes(a, b))
      return in.recorder->computed(kComparison + op.arg, a, b, checked(PyObject_RichCompare(a, b, op.arg)))
          .detach();
    PyRef x = in.recorder->with_symbols(a),
          y = in.recorder->with_symbols(b);  // a comparison is a guard of the trace
    return PyObject_RichCompare(x.get(), y.get(), op.arg);
  };
  if (!in.recorder || (is_atom(a) && is_atom(b))) return in.give(f, 2, compared());
  bool tensors = is_plain(Py_TYPE(a)) || is_plain(Py_TYPE(b));
  if (tensors && is_operand(a) && is_operand(b)) return in.give_recorded(f, 2, compared(), "comparison");
  if ((is_data(a, false) || is_container(a)) && (is_data(b, false) || is_container(b)) && is_data(a, false) &&
      is_data(b, false)) {
    in.recorder->deep_contents(a);
    in.recorder->deep_contents(b);
    return in.give(f, 2, compared());
  }
  bool by_identity = !is_tensor(a) && !is_tensor(b) && (op.arg == Py_EQ || op.arg == Py_NE) &&
                     is_plain_key(a) && is_plain_key(b);
  if (by_identity) {
    in.recorder->identity(a);
    in.recorder->identity(b);
    return in.give(f, 2, compared());
  }
  if (is_decided_by_python(a, b)) return compare_in_python(in, f, a, b, op.arg);
  return in.breaks("a comparison of " + kinds(a, b));
}

Outcome do_is_op(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef b = f.pop(), a = f.pop();
  bool same = a.get() == b.get();
  if (in.recorder && !same) in.recorder->distinct(a.get(), b.get());
  f.push(PyRef::share(same != bool(op.arg) ? Py_True : Py_False));
  return Outcome::next;
}

// Whether no item of a list or tuple is a tensor or compares itself by code of Python.
static bool are_plain_keys(PyObject* sequence) {
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(sequence); ++k) {
    PyObject* o = PySequence_Fast_GET_ITEM(sequence, k);
    if (is_tensor(o) || !is_plain_key(o)) return false;
  }
  return true;
}

Outcome do_contains(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject *item = f.top(2).get(), *all = f.top().get();
  if (in.recorder) {
    bool is_own_view = PyDictKeys_Check(all) && !in.recorder->is_outside(all);
    if (is_own_view) all = reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(all)->dv_dict);
    bool mapping = is_dict(all) || takes_method_of_dict(in.recorder, all, "__contains__");
    bool keyed = mapping || PyAnySet_CheckExact(all);
    bool sequence = PyList_CheckExact(all) || PyTuple_CheckExact(all);
    bool by_identity = sequence && are_plain_keys(all);  // items that are compared as keys of a dict are
    bool listed = by_identity || (sequence && is_data(all, false));
    bool plain = is_atom(item) || (is_plain_key(item) && (keyed || by_identity)) ||
                 (is_data(item, false) && PyTuple_Check(item));
    if (PyUnicode_CheckExact(all) || PyRange_Check(all)) plain = plain && is_atom(item);
    else if (!keyed && !listed) return in.breaks(std::string("`in` of a ") + Py_TYPE(all)->tp_name);
    if (!plain) return in.breaks(std::string("`in` of a ") + Py_TYPE(item)->tp_name);
    if (in.recorder->is_free(item)) {
      PyRef has = checked(binary_of(kContains, all, item));
      PyRef container = in.recorder->is_outside(all) ? PyRef::share(all) : snapshot(all);
      has = in.recorder->contains(container.get(), item, std::move(has));
      return in.give(f, 2, Py_NewRef((has.get() == Py_True) != bool(op.arg) ? Py_True : Py_False));
    }
    if (PyAnySet_CheckExact(all)) in.recorder->tell_apart(item, all, false);
    else if (!is_atom(item)) in.recorder->identity(item);
    in.recorder->deep_contents(item);
    if (mapping && in.recorder->is_outside(all)) {
      PyObject* value = PyDict_GetItemWithError(all, item);
      in.recorder->dict_item(all, item, value);
    } else {
      in.recorder->contents(all);
    }
    for (Py_ssize_t k = 0; by_identity && k < PySequence_Fast_GET_SIZE(all); ++k)
      if (!is_atom(PySequence_Fast_GET_ITEM(all, k))) in.recorder->identity(PySequence_Fast_GET_ITEM(all, k));
  }
  int looked_up = PySequence_Contains(all, item);
  if (looked_up < 0) return Outcome::raised;
  return in.give(f, 2, Py_NewRef(bool(looked_up) != bool(op.arg) ? Py_True : Py_False));
}

Outcome do_load_assertion_error(Interpreter& in, Frame& f, const MicroOp&) {
  if (in.recorder) in.recorder->constant(PyExc_AssertionError);
  f.push(PyRef::share(PyExc_AssertionError));
  return Outcome::next;
}
Outcome do_load_attr(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* o = f.top().get();
  if (in.recorder) return load_attribute(in, f, o, op.object, 1, false);
  return in.give(f, 1, PyObject_GetAttr(o, op.object));
}
Outcome do_load_method(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef o = f.top();
  if (in.recorder) return load_attribute(in, f, o.get(), op.object, 1, true);
  PyObject* value = PyObject_GetAttr(o.get(), op.object);
  if (!value) return Outcome::raised;
  f.top() = {};
  f.push(PyRef(value));
  return Outcome::next;
}
Outcome do_store_attr(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject *o = f.top().get(), *value = f.top(2).get();
  if (in.recorder) return store_attribute(in, f, o, op.object, value, 2);
  if (PyObject_SetAttr(o, op.object, value) < 0) return Outcome::raised;
  f.drop(2);
  return Outcome::next;
}
Outcome do_delete_attr(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* o = f.top().get();
  if (in.recorder) return delete_attribute(in, f, o, op.object);
  if (PyObject_SetAttr(o, op.object, nullptr) < 0) return Outcome::raised;
  f.drop(1);
  return Outcome::next;
}

Outcome do_import_name(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject *level = f.top(2).get(), *names = f.top().get();
  PyObject* created =
      PyImport_ImportModuleLevelObject(op.object, f.globals.get(), Py_None, names, int(PyLong_AsLong(level)));
  if (created && in.recorder) in.recorder->constant(created);
  return in.give(f, 2, created);
}
Outcome do_import_from(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* module = f.top().get();
  PyObject* value = PyObject_GetAttr(module, op.object);
  if (!value) {
    PyErr_Clear();
    PyErr_Format(PyExc_ImportError, "cannot import name %R from %R", op.object, module);
    return Outcome::raised;
  }
  if (in.recorder) in.recorder->attribute(module, op.object, value);
  f.push(PyRef(value));
  return Outcome::next;
}

}  // namespace facula::bind::capture
