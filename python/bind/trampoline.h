// Operators in Python: each is a builtin function and a method descriptor, and all run one trampoline that reads the schema. A
// table of template instances distinguishes them, because a builtin carries no user pointer.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "parse.h"

namespace facula::bind {

// A name that users call: an operator's overloads, in one form.
struct Entry {
  std::string name;    // of the operator: add, add_, fft_rfft
  std::string called;  // as users write it, and errors say it: fft.rfft
  std::string doc;
  std::vector<Overload> overloads;
  op::Form form = op::Form::functional;
  bool out = false;         // knows out=
  bool two_passes = false;  // a number could mean a tensor in one overload and something else in another
  int index = 0;
  PyMethodDef function_def{}, method_def{};
  PyObject* function = nullptr;  // builtin
  PyObject* method = nullptr;    // descriptor, if it is a method
};

// Parses, runs and wraps. `self`: the object of a method call.
PyObject* dispatch(const Entry& e, PyObject* self, PyObject* const* args, Py_ssize_t n,
                   PyObject* kwnames) noexcept;

// Operators behind Python's syntax.
#define FACULA_SLOTS(_)                                                                                             \
  _(add) _(sub) _(mul) _(div) _(floor_divide) _(remainder) _(pow) _(matmul) _(neg) _(abs) _(bitwise_not)              \
  _(bitwise_and) _(bitwise_or) _(bitwise_xor) _(bitwise_left_shift) _(bitwise_right_shift) _(eq) _(ne) _(lt) _(le)    \
  _(gt) _(ge)
enum class Slot : int {
#define FACULA_SLOT_NAME(n) n,
  FACULA_SLOTS(FACULA_SLOT_NAME)
#undef FACULA_SLOT_NAME
      count
};
// b null: unary. The operands are tensors, numbers, or objects with __torch_function__.
PyObject* call_slot(Slot s, PyObject* a, PyObject* b, op::Form form) noexcept;

// Calls the operator `name` from the binding's own code; arguments as Python objects or as values (absent
// ones take their defaults). NotImplementedError if the catalog has no such operator.
PyObject* call_method_operator(const char* name, PyObject* self, std::initializer_list<PyObject*> args = {});
const op::Operator& operator_named(std::string_view full_name);
op::Results run_operator(const op::Operator& op, std::initializer_list<op::Value> given,
                         op::Form form = op::Form::functional);

}  // namespace facula::bind
