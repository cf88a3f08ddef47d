// A segment: what one capture leaves. It is found again by its guards, runs its program, repeats its writes and gives either the
// function's result or the state in which the next segment begins.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

#include "facula/run/autocast.h"
#include "facula/run/open_trace.h"
#include "interpreter.h"
#include "stamps.h"

namespace facula::bind::capture {

// ---- programs (program_record.cpp)

// The recorded operators as a program of the tensors that they read.
struct RecordedProgram {
  std::shared_ptr<run::Segment> segment;
  std::vector<SourceId> inputs;  // by input, a tensor or a number; below 0: -1 - the number of a fresh tensor
  std::vector<Tensor> fresh;     // tensors that the recorded function has made without an operator
  std::vector<Tensor> fresh_before;  // what they contained before the program ran
  std::vector<bool> writes;          // by input
  std::vector<Tensor> run(std::span<const Tensor> inputs) const;
  std::string text() const { return segment->text(true); }
  size_t calls() const { return segment->program().graph().nodes.size(); }
};
// Runs `body` under an open trace; handles that somebody still refers to become real tensors, in `results` in the order of
// the program's results. Nothing if no operator was called. Errors of the trace or of the program pass through.
//
// `backend`, if not null, is called with each program, the paths of its inputs, and these; it returns a function that runs it.
std::optional<RecordedProgram> record(const std::function<void()>& body, Recorder& r,
                                      std::vector<PyObject*>& results, const std::string& name,
                                      PyObject* backend = nullptr);

// ---- templates (template.cpp)

// Instructions that create and fill the objects that a segment created.
class Template {
 public:
  struct Instruction {
    enum class Kind : uint8_t {
      constant,
      source,
      result,
      gradient,
      fresh,
      list,
      tuple,
      dict,
      set,
      slice,
      cell,
      function,
      method,
      bound,
      instance,
      named_tuple,
      reduced,
      generator,
      running_generator,
      dict_iterator,
      fill_list,
      fill_dict,
      fill_set,
      fill_cell,
      fill_instance,
      fill_generator,  // that ran when the segment began: its frame, none if it has ended
      place_iterator
    } kind;
    int out = -1;
    PyRef object;
    int64_t number = 0;
    std::vector<int> operands;
    const Frame* frame = nullptr;  // of a generator: the layout, without values; null: it has ended
  };
  std::vector<Instruction> instructions;
  std::vector<std::unique_ptr<Frame>> layouts;
  int size = 0;

  // The values; PythonError if one cannot be made.
  std::vector<PyRef> make(const std::vector<PyRef>& sources, const std::vector<PyRef>& results,
                          const std::vector<PyRef>& fresh) const;
  // Sets the positions of iterators of lists, behind the writes: a list takes no position behind its end.
  void place_iterators(const std::vector<PyRef>& values) const;
};

// Builds a template. An object that cannot be made again fails it, with a reason.
class TemplateBuilder {
 public:
  TemplateBuilder(Recorder& r, std::unordered_map<PyObject*, int> results)
      : recorder_(r), results_(std::move(results)) {}
  int value(PyObject* o);  // -1 for null
  int root(Py_ssize_t slot, PyObject* o);
  void leave(PyObject* generator);  // which ran when the segment began
  bool failed() const { return !reason.empty(); }
  std::string reason;
  Template created;
  std::vector<PyRef> fresh;  // tensors made by the segment that are no results of its program
  int fresh_of(PyObject* o);

 private:
  int add(Template::Instruction i);
  int fill(Template::Instruction::Kind kind, int out, std::vector<int> operands);
  std::vector<int> items(PyObject* sequence);
  bool has_sources(PyObject* tuple) const;
  int container(PyObject* o);
  int function(PyObject* o);
  int instance(PyObject* o);
  int reduced(PyObject* o);
  int dict_iterator(PyObject* o);
  int generator(PyObject* o);
  const Frame* layout(const Frame& f, std::vector<int>& parts);
  int fail(PyObject* o);
  int other(PyObject* o);

  Recorder& recorder_;
  std::unordered_map<PyObject*, int> results_, nodes_, fresh_;
  int depth_ = 0;
};

// ---- segments (segment.cpp)

// Whether a break raises an error (facula.compiler.error_on_graph_break).
enum class BreakErrors : int8_t { by_fullgraph = -1, no, yes };
extern thread_local BreakErrors break_errors;

struct Modes {
  bool grad, inference, autocast, cache, fills_memory;
  DType autocast_dtype, default_dtype;
  Device default_device;
  BreakErrors break_errors;
  bool operator==(const Modes&) const = default;
};
Modes modes_now();
void set_modes(const Modes& m);

// The code, position and stack depths of frames: where a segment begins.
using StateKey = std::vector<int64_t>;
StateKey key_of(const Frames& frames);
std::vector<PyObject*> roots_of(const Frames& frames);  // borrowed
std::vector<std::string> names_of_roots(const Frames& frames);

struct Segment {
  GuardList list;
  Modes modes, modes_after;
  int regions = 0;  // autocast regions that it enters and does not leave; below 0: that it leaves
  std::optional<RecordedProgram> program;
  std::vector<int> inputs;   // of the program: see RecordedProgram, with the numbers of `fresh`
  std::vector<PyRef> fresh;  // contents that fresh tensors begin with
  Template values;
  struct Repeat {
    Write::Kind kind;
    int target, key, value;
  };
  std::vector<Repeat> writes;
  bool returns = true;
  int result = -1;
  Frames layout;                        // of the state behind a break, without values
  std::vector<std::vector<int>> slots;  // by frame: function, made, generator, variables, stack
  BreakReport report;
  size_t runs = 0;
  std::shared_ptr<Stamps> stamps;  // null: all guards are evaluated
  int stamp_failures = 0;
  std::vector<SourceId> used_sources() const;  // whose values a run needs
};
// The first guard that fails, or null. `values`: as many as sources, all null, or none.
const Guard* first_failure(Segment& s, Roots roots, std::vector<PyRef>& values);
// Sets `values` back to what first_failure() expects.
void clear_values(const Segment& s, std::vector<PyRef>& values);

// The program of a segment raised an error before anything was written. `accepts`: although its assumptions hold.
struct ProgramFailed {
  std::string text;
  bool accepts = false;
};
// Runs the segment on the values of its sources. Its result, or the frames of the next state in `frames`.
PyRef run_segment(Segment& s, const std::vector<PyRef>& values, Frames& frames);

struct CaptureResult {
  Interpreter::Stop stop;
  std::shared_ptr<Segment> segment;  // null: it cannot be repeated
  std::string reason;                // why
};
// Interprets from the state of `in` until its frames are left or a break. `changing`: what has changed between calls.
struct Changing {
  std::set<std::string> numbers;              // paths of numbers and generators
  std::map<std::string, ChangedSizes> sizes;  // by path of a tensor
  FreeSizes free_sizes = FreeSizes::related;
  Stops stops;
};
CaptureResult capture_segment(Interpreter& in, const std::string& name, const Changing& changing);

}  // namespace facula::bind::capture
