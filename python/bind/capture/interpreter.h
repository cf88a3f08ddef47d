// The interpreter of micro-operations. It runs a user's bytecode on the real objects; CPython computes containers, attributes
// and exceptions. With a recorder it leaves guards and a journal of writes, calls operators under an open trace, and stops in front
// of what a capture cannot repeat; without one it runs plainly.
#pragma once
#include <string>

#include "frame.h"
#include "recorder.h"

namespace facula::bind::capture {

enum class Outcome : uint8_t { next, raised, breaks, returned };

// Why a capture stopped.
struct BreakReport {
  std::string reason, fix, file;
  int line = 0;
  bool quiet = false;      // not the user's: an iterator from before an earlier break
  bool is_behind = false;  // the capture stopped behind an instruction, and the next one can be captured
};

class Interpreter {
 public:
  Frames frames;
  Recorder* recorder = nullptr;
  PyObject* backend = nullptr;  // a function of Python that makes the runners of programs, or null
  BreakReport report;
  bool met_sizes = false;    // the capture failed by sizes that are known only when the program has run
  bool has_effects = false;  // of the segment that was captured last, besides its program
  bool program_failed =
      false;  // the program of the segment that was captured last raised an error when it ran
  PyRef result;
  size_t depth_limit = 150;
  // The function cannot run again from its begin: an error of the program is raised where the capture has stopped, so
  // that calls that may refuse elements divide a block with handlers.
  bool is_later_segment = false;
  bool reraises = false;  // the exception that is set has this frame in its traceback already

  enum class Stop : uint8_t { returned, raised, broke };
  // Runs until the outermost frame is left or, with a recorder, a break. An exception is set if it was raised.
  Stop run();
  // Runs the next micro-operation without recording it.
  Stop step();
  // Goes on without recording in the handler of the exception that is set.
  Stop handle();
  Frame& frame() { return *frames.back(); }

  // Runs the frame of a generator for C code; a new reference, or null.
  static PyObject* run_alone(std::unique_ptr<Frame> frame, bool raises = false);

  // ---- for the operations
  Outcome breaks(std::string reason, std::string fix = "");
  // The result of C code: pushed in place of `drop` slots, or the exception.
  Outcome give(Frame& f, size_t drop, PyObject* owned);
  // The same for a call that an open trace recorded: an exception becomes a break, and the call is repeated plainly.
  Outcome give_recorded(Frame& f, size_t drop, PyObject* owned, const char* name);
  // Whether the capture stops in front of an instruction that gives `value`: a size that is known only when the program has run, or a
  // tuple with one.
  bool stops_at_size(PyObject* value);
  // Enters a frame whose value replaces `drop` slots of f.
  Outcome enter(Frame& f, size_t drop, std::unique_ptr<Frame> callee, Role role = Role::call);
  Outcome leave(PyRef value);  // the innermost frame returns
  Outcome yields(PyRef value);
  // A condition for Python: -1: an exception, -2: a break
  int truth(PyObject* o);

 private:
  Stop loop(bool once);
  bool has_handlers()
      const;      // some frame is within `try`, or `with` of something else than a mode of this package
  bool unwind();  // an exception is set: the innermost handler, or false
  void add_traceback(Frame& f);
  void end_generator(Frame& f);
};

using Operation = Outcome (*)(Interpreter&, Frame&, const MicroOp&);
#define FACULA_MICRO_OP(name) Outcome do_##name(Interpreter&, Frame&, const MicroOp&);
FACULA_MICRO_OPS(FACULA_MICRO_OP)
#undef FACULA_MICRO_OP

// ops_control.cpp: whether Python code decides the truth of `o`. The second replaces the uppermost slot by its truth and repeats
// the instruction.
bool has_python_truth(Interpreter& in, PyObject* o);
Outcome replace_by_truth(Interpreter& in, Frame& f);

// ops_values.cpp: before the variable in this slot is read, which may still have its value from outside.
void note_variable(Interpreter& in, Frame& f, int slot);

// calls.cpp: a call of `callable` whose operands are the `drop` uppermost slots of f.
struct Call {
  PyObject* callable;
  std::vector<PyObject*> args;  // positional ones, then those of `kwnames`
  size_t positional;
  PyObject* kwnames;  // may be null
  size_t drop;
  Role role = Role::call;
  PyRef created = {};
  std::shared_ptr<const NamedCall> named = {};  // of the frame that a call of its function enters

  // Calls `function` instead, with `first` before the other arguments.
  void bind(PyObject* function, PyObject* first) {
    callable = function;
    args.insert(args.begin(), first);
    ++positional;
  }
};
Outcome call(Interpreter& in, Frame& f, Call c);
// The contents of a container now, for a write that is repeated after the container may have changed; others as they are.
PyRef snapshot(PyObject* o);
// A call of a function of facula._dynamo.polyfills, whose value replaces the `drop` uppermost slots of f.
Outcome call_polyfill(Interpreter& in, Frame& f, const char* name, std::vector<PyObject*> args, size_t drop);

// attributes.cpp: with a recorder; `drop` slots are replaced by the value, or by null and the value.
Outcome load_attribute(Interpreter& in, Frame& f, PyObject* o, PyObject* name, size_t drop, bool method);
// The same by object.__getattribute__.
Outcome load_generic(Interpreter& in, Frame& f, PyObject* o, PyObject* name, size_t drop);
Outcome store_attribute(Interpreter& in, Frame& f, PyObject* o, PyObject* name, PyObject* value, size_t drop);
Outcome delete_attribute(Interpreter& in, Frame& f, PyObject* o, PyObject* name);

// policy.cpp: how calls of C functions are treated.
enum class Policy : int {
  unknown = 0,
  recorded = 1,    // an operator: called under the open trace
  structural = 2,  // depends on the types and the first level of its arguments
  values = 3,      // depends on plain data
  mode = 4,        // changes a mode of this thread
  breaks = 5,
  replaced = 6,  // by a function of Python, which is interpreted
  constant = 7,  // gives a fixed object
  inlined = 8,   // a function of this package that is interpreted like the user's
  observed = 9,  // a method of this package that runs under the open trace, and tells what it reads
  folded = 10,   // called once for the same arguments: its result is a constant
  calls = 11,  // a function of C that calls the user's functions by call_user(): called under the open trace
  warns = 13,  // warnings.warn: a journal entry warns again
  hooks =
      12,  // adds a hook to a tensor: called under the open trace if the tensor is computed there, else a break
};
struct Rule {
  Policy policy = Policy::unknown;
  PyObject* detail = nullptr;  // the replacement, the object, or the reason of a break
};
Rule rule_of(PyObject* callable);
// The rule that the user set for a callable by set_rule; null: none.
const Rule* user_rule(PyObject* callable);
void set_rule(PyObject* callable, Policy policy, PyObject* detail);
PyObject* polyfill(const char* name);  // a function of facula._dynamo.polyfills; borrowed
// An instance of a class that Python code defines, not a tensor: its special methods may be functions of Python.
bool is_python_instance(PyObject* o);
// The special method of the class of `o` if that is a function of Python; borrowed, else null.
PyObject* python_method(PyObject* o, const char* name);
// How a method of a builtin container or string treats its object: 0 unknown, 1 reads, 2 writes.
int effect_of_method(PyTypeObject* type, const char* name);
bool is_dict(PyObject* o);  // a dict, OrderedDict or defaultdict
bool is_default_dict(PyObject* o);
bool is_container(PyObject* o);  // an exact list, tuple, dict, OrderedDict, set or frozenset
bool is_deque(PyObject* o);
// Whether an instance of a subclass of dict that Python code defines has dict's or OrderedDict's own method of this name. With a
// recorder, later calls depend on that.
bool takes_method_of_dict(Recorder* r, PyObject* o, const char* name);
// An instance of such a class that C code reads as a dict.
bool is_read_as_dict(Recorder* r, PyObject* o);
// A view of a dict: keys, values or items.
bool is_dict_view(PyObject* o);
// Numbers, strings, containers and slices of such; with `tensors`, also plain tensors.
bool is_data(PyObject* o, bool tensors, int depth = 0);
// An object whose hash and equality are those of C code without effects.
bool is_plain_key(PyObject* o);

}  // namespace facula::bind::capture
