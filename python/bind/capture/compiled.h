// facula._C.Compiled: a function that is captured when it is called, and whose later calls run what was captured.
#pragma once
#include <memory>

#include "../python.h"

namespace facula::bind::capture {

// The function of an object that compile() returned; null for all others. Borrowed.
PyObject* function_of_compiled(PyObject* o);
// Whether this thread captures.
bool is_capturing();
// A call that C++ code makes of a user's callable: a hook, a method of a custom function. A new reference, or null with an
// exception. While a function is captured, the call is interpreted as a part of it, and what cannot be captured raises a
// RuntimeError. `pure`: so does a write, because the order or the number of such calls differs from eager mode. `is_inner`: the
// callable was given while this function is captured, so that it may be an object of this call alone. `is_late`: gradient
// slots have been changed before.
struct UserCall {
  bool pure = false, is_inner = false, is_late = false;
};
PyObject* call_user(PyObject* callable, PyObject* const* args, size_t n, UserCall kind);

// Lives while a capture calls C++ code that may call users' callables. If that fails, take_back() takes the writes of these
// callables to Python objects back; where they have written tensors too, the capture has failed.
class UserCalls {
 public:
  UserCalls();
  ~UserCalls();
  UserCalls(const UserCalls&) = delete;
  void take_back();
  struct State;

 private:
  std::unique_ptr<State> state_;
};
// Emits a warning of the call that is being recorded, and again at each run of what is captured. False: nothing is recorded,
// or the filters made it an exception, which is set.
bool take_warning(const char* text);
void add_generator_type(PyObject* module);
void add_capture(PyObject* module);  // the types of this folder

}  // namespace facula::bind::capture
