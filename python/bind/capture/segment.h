// A segment: what one capture leaves. It is found again by its guards, runs its program, repeats its writes and gives either the
// function's result or the state in which the next segment begins.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "facula/run/autocast.h"
#include "facula/run/traced.h"
#include "interpreter.h"

namespace facula::bind::capture {

// ---- programs (program_record.cpp)

// The recorded operators as a program of all tensors that it reads.
struct RecordedProgram {
  std::vector<Tensor> inputs;  // those of the capture
  std::vector<bool> writes;    // by input
  std::vector<bool> fresh;     // by input: made inside of the segment, for each run anew
  std::function<std::vector<Tensor>(std::span<const Tensor>)> run;
  std::function<std::string()> text;
  size_t calls = 0;
};
// Runs `body` under an open trace; the living handles among `handles` become real tensors. The result has a run for each later call,
// and `results` becomes the handles in the order of its results. Errors of the trace or of the program pass through.
std::optional<RecordedProgram> record(const std::function<void()>& body, std::vector<PyRef>& handles,
                                      std::vector<PyObject*>& results, const std::string& name);

// The Python object of a handle gets the tensor that a program computed for it.
void set_real(PyObject* handle, const Tensor& t);

// ---- templates (template.cpp)

// How objects that were born inside of a segment are made again: a list of instructions, of which each makes or fills a value.
class Template {
 public:
  struct Instruction {
    enum class Kind : uint8_t {
      constant, source, result, fresh, list, tuple, dict, set, slice, cell, function, method, bound, instance,
      named_tuple, reduced, generator, running_generator, fill_list, fill_dict, fill_set, fill_cell, fill_instance
    } kind;
    int out = -1;
    PyRef object;
    int64_t number = 0;
    std::vector<int> operands;
    const Frame* frame = nullptr;  // of a generator: the layout, without values
  };
  std::vector<Instruction> instructions;
  std::vector<std::unique_ptr<Frame>> layouts;
  int size = 0;

  // The values; PythonError if one cannot be made.
  std::vector<PyRef> make(const std::vector<PyRef>& sources, const std::vector<PyRef>& results,
                          const std::vector<PyRef>& fresh) const;
};

// Builds a template. An object that cannot be made again fails it, with a reason.
class TemplateBuilder {
 public:
  TemplateBuilder(Recorder& r, std::unordered_map<PyObject*, int> results) : recorder_(r), results_(std::move(results)) {}
  int value(PyObject* o);  // -1 for null
  int root(Py_ssize_t slot, PyObject* o);
  bool failed() const { return !reason.empty(); }
  std::string reason;
  Template made;
  std::vector<PyRef> fresh;  // tensors made by the segment that are no results of its program
  int fresh_of(PyObject* o);

 private:
  int add(Template::Instruction i);
  int fill(Template::Instruction::Kind kind, int out, std::vector<int> operands);
  std::vector<int> items(PyObject* sequence);
  int container(PyObject* o);
  int function(PyObject* o);
  int instance(PyObject* o);
  int reduced(PyObject* o);
  int generator(PyObject* o);
  int fail(PyObject* o);
  int other(PyObject* o);

  Recorder& recorder_;
  std::unordered_map<PyObject*, int> results_, known_, fresh_;
  int depth_ = 0;
};

// ---- segments (segment.cpp)

struct Modes {
  bool grad, inference, autocast, cache;
  DType autocast_dtype, default_dtype;
  bool operator==(const Modes&) const = default;
};
Modes modes_now();
void set_modes(const Modes& m);

// The code, position and stack depths of frames: where a segment begins.
using StateKey = std::vector<int64_t>;
StateKey key_of(const Frames& frames);
std::vector<PyRef> roots_of(const Frames& frames);
std::vector<std::string> names_of_roots(const Frames& frames);

struct Segment {
  GuardList list;
  Modes modes, modes_after;
  std::optional<RecordedProgram> program;
  std::vector<int> inputs;         // by input of the program: a source; or, below 0, -1 - the number of a fresh tensor
  std::vector<PyRef> fresh;        // contents that fresh tensors begin with
  Template values;
  struct Repeat {
    Write::Kind kind;
    int target, key, value;
  };
  std::vector<Repeat> writes;
  bool returns = true;
  int result = -1;
  Frames layout;                         // of the state behind a break, without values
  std::vector<std::vector<int>> slots;  // by frame: function, made, generator, variables, stack
  BreakReport report;
  size_t runs = 0;
};

// The program of a segment raised an error before anything was written.
struct ProgramFailed {};
// Runs the segment on the values of its sources. Its result, or the frames of the next state in `frames`.
PyRef run_segment(Segment& s, const std::vector<PyRef>& values, Frames& frames);

struct CaptureResult {
  Interpreter::Stop stop;
  std::shared_ptr<Segment> segment;  // null: it cannot be repeated
  std::string reason;                // why
};
// Interprets from the state of `in` until its frames are left or a break.
CaptureResult capture_segment(Interpreter& in, const std::string& name);

}  // namespace facula::bind::capture
