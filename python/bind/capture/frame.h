// The frames of the interpreter: real Python objects in slots, and the generators whose frames it runs.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "code.h"

namespace facula::bind::capture {

// How the value of a frame reaches its caller.
enum class Role : uint8_t {
  call,       // it is pushed
  construct,  // __init__: the object `made` is pushed
  iterate,    // a generator in a for loop: a value is pushed, the end leaves the loop
  delegate,   // a generator in `yield from`
  next,       // a generator in next(): the end is StopIteration
  discard,    // __setattr__, a setter: nothing is pushed
  predicate,  // __bool__ or __len__ of a condition: the jump is decided by the value (not used before 3.14)
};

// A call whose errors name what was called, as those of C code that calls functions of this package (name_error in ../override.h).
struct NamedCall {
  std::string name;
  PyRef function;  // whose parameters the arguments are
  size_t positional = 0;
  PyRef kwnames = {};  // null: none
  bool method = false, also_of_operators = false;
};

struct Frame {
  const Code* code = nullptr;
  PyRef function;  // null for none
  PyRef globals, builtins;
  std::vector<PyRef> locals, stack;
  int ip = 0;    // the next micro-operation
  int last = 0;  // the one that runs
  Role role = Role::call;
  PyRef created;                           // of Role::construct
  PyRef generator;                         // whose frame this is
  std::shared_ptr<const NamedCall> named;  // null: errors do not name the call
  // Variables that still have the values of the state in which the segment began, by slot; empty: none. `first_root` is the number of
  // the first variable among the roots.
  std::vector<bool> untouched;
  Py_ssize_t first_root = 0;

  PyRef& top(size_t n = 1) { return stack[stack.size() - n]; }
  void push(PyRef o) { stack.push_back(std::move(o)); }
  PyRef pop() {
    PyRef o = std::move(stack.back());
    stack.pop_back();
    return o;
  }
  void drop(size_t n) { stack.resize(stack.size() - n); }
  void jump(int target) { ip = target; }
  int line() const { return code->line_of(last); }
};
using Frames = std::vector<std::unique_ptr<Frame>>;
// The class and the object that super() without arguments takes from the frame of a method; borrowed, null where it has none.
std::pair<PyObject*, PyObject*> arguments_of_super(const Frame& f);

// A generator whose frame is ours. C code that iterates over it has the frame interpreted without capture.
struct GeneratorObject {
  PyObject_HEAD std::unique_ptr<Frame>* frame;  // null while it runs and when it has ended
  bool started, running;
  PyObject *name, *weakrefs;
};
extern PyTypeObject* GeneratorType;
inline bool is_generator(PyObject* o) { return Py_TYPE(o) == GeneratorType; }
inline GeneratorObject* generator_of(PyObject* o) { return reinterpret_cast<GeneratorObject*>(o); }
PyRef make_generator(std::unique_ptr<Frame> frame);
PyRef make_generator_without_frame(PyObject* name, bool running);
// How many generators of this thread were destroyed before their end, so that CPython ran the rest of their code.
size_t closed_generators();
// Moves the frame of a generator that is not running out of it, with `sent` on its stack; null if it has ended.
std::unique_ptr<Frame> resume(GeneratorObject* g, PyObject* sent);

// After an exception that leaves the frame of a named call: lets its text name the call.
void name_error_of(const Frame& f);

// A frame for a call of `function`; null, with or without an exception of Python, if the arguments do not fit. `args`:
// the positional arguments, then the values of `kwnames`.
std::unique_ptr<Frame> frame_of_call(PyObject* function, PyObject* const* args, size_t positional,
                                     PyObject* kwnames);

}  // namespace facula::bind::capture
