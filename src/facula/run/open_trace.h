// A trace that is recorded call by call, and that can be cut: the calls so far become a program, which runs, and their
// results become real tensors; then the recording goes on. compile() is built on it.
//   OpenTrace t("step");
//   t.input(x, source);
//   { OpenTrace::Active on(t); y = x * 2; z = y + 1; }   // handles: tensors without data
//   auto first = t.cut({y, z});                          // y and z have data from here on
//   (*first)({other_x});                                 // the same calls on another tensor
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "facula/graph/break.h"
#include "facula/graph/recording.h"
#include "facula/run/autocast.h"
#include "facula/run/traced.h"

namespace facula::run {

using SourceId = uint64_t;  // the meaning is the caller's
enum class SizeKind : uint8_t { fixed, symbolic };

// The program of a part of a trace. It does not change, and may outlive the trace.
class Segment {
 public:
  // By input: where the caller finds it.
  std::span<const SourceId> sources() const { return sources_; }
  // Tensors from outside that were never announced; the program always reads these.
  const std::vector<Tensor>& captured() const { return program_->captured(); }
  // By input: whether the program writes it in place.
  std::vector<bool> writes() const;
  size_t results() const { return results_.size(); }
  // Runs the program. Gives the tensors that became results, in order. Views of inputs and of each other are views.
  // Raises ValueError if an assumption of the trace does not hold.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) const;
  // True if the assumptions of the trace hold for these inputs; else `why` says which one does not.
  bool accepts(std::span<const Tensor> inputs, std::string* why = nullptr) const;
  std::string text(bool lines = false) const { return program_->text(lines); }
  Traced& program() const { return *program_; }
  // Another way to compute the program's results, and to write its inputs.
  using Runner = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;
  bool has_runner() const { return bool(runner_); }

 private:
  friend class OpenTrace;
  // A view of a result or an input.
  struct View {
    const op::Operator* op;
    op::Args args;  // the tensors are those of the graph
    int result;
  };
  struct Result {
    enum class Kind : uint8_t { none, input, output, constant, result } kind = Kind::none;
    size_t number = 0;  // of the input, of the program's output, or of another result
    Tensor constant = {};
    std::vector<View> views = {};  // from there to the result, the last one first
    int inside = -1;  // number of the tensor that a divided history gives (Traced::divide_history)
  };
  std::vector<Tensor> views_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                               std::span<const Tensor> inside) const;

  std::unique_ptr<Traced> program_;
  Runner runner_;
  std::vector<SourceId> sources_;
  std::vector<Result> results_;
  std::vector<size_t> order_;  // of results: behind those that they are views of
  bool has_history_ = true;    // some call was recorded while gradients were enabled
  bool gives_outputs_ = true;  // the results are the outputs of the program, in order
  // By result: it required gradients, and the segment called backward().
  std::vector<bool> ended_;
  std::vector<bool> required_;  // by output of the program: whether it requires gradients in eager mode
};

class OpenTrace {
 public:
  explicit OpenTrace(std::string name = "program");
  ~OpenTrace();
  OpenTrace(const OpenTrace&) = delete;

  // While it lives, calls of operators on this thread are recorded.
  class Active {
   public:
    explicit Active(OpenTrace& t);
    ~Active();

   private:
    friend class OpenTrace;
    OpenTrace *trace_, *outer_;
    Active* outer_active_;
    std::optional<graph::Recording::Active> on_;
  };
  // While it lives, calls are made as if no trace was open.
  class Inactive {
   public:
    Inactive();
    ~Inactive();

   private:
    AutocastOff no_autocast_;
    op::Mode::With no_mode_;
    autograd::Tracing::With no_tape_;
    graph::Tracer::Observed no_host_;
    OpenTrace* outer_;
  };
  static OpenTrace* current();  // of the thread; null: none, or an Inactive lives

  // Announces a tensor from outside as an input, before a call reads it; gives its number. Sizes are fixed, except for
  // those of 2 and more that are named as symbolic. Equal sizes share a symbol, if they were also equal in an earlier
  // call, where the tensor had the sizes `earlier` (empty: the same sizes).
  size_t input(const Tensor& t, SourceId source, std::span<const SizeKind> sizes = {}, IntSpan earlier = {});
  // A handle with the symbolic sizes of a tensor from outside.
  Tensor handle_of(const Tensor& t);
  // A number as an operand: a handle of rank 0 that promotes like a Python number. Runs take number_input(x) for it.
  Tensor number(const Scalar& value, SourceId source);
  // An integer of 2 or more as a size. Runs take size_input(n) for it.
  SymInt size(int64_t value, SourceId source);

  // Whether t is a handle of the current segment.
  bool is_handle(const Tensor& t) const;
  // The tensors from outside that the current segment reads or writes, or whose gradient slots it uses, and that were
  // not announced.
  std::vector<Tensor> outside() const;
  // The gradient slots of tensors from outside that the current segment uses.
  std::vector<graph::Gradients::Used> slots() const { return recording_->gradients().used(); }
  // Asks for the runner of each segment before it runs for the first time; it may give none.
  using Backend =
      std::function<Segment::Runner(const std::shared_ptr<Segment>&, std::span<const Tensor> inputs)>;
  void compile_by(Backend backend) { backend_ = std::move(backend); }
  // See Gradients.
  void fill_slots_last() { fills_last_ = true, recording_->gradients().fill_slots_last(); }
  bool has_changed_slot(const Tensor& leaf) const { return recording_->gradients().has_changed_slot(leaf); }
  // The sources of the tensors and numbers that were announced, in order.
  std::span<const SourceId> sources() const { return sources_; }
  // The handles that callers got and still refer to.
  std::vector<Tensor> living() const;
  // How often the trace itself refers to each handle that a call returned.
  std::unordered_map<const TensorImpl*, size_t> own_references() const;
  // Whether a program of the trace raised an error when it ran, although its assumptions held.
  bool has_failed() const { return has_failed_; }
  size_t calls() const { return recording_->graph().nodes.size(); }
  size_t values() const { return recording_->graph().values().size(); }
  // Whether one of the calls from number `first` on may raise an error about elements when the program runs.
  bool may_refuse_since(size_t first) const;
  // Takes the calls from number `first` on back, if one of them draws random numbers: a call of the user that has failed, and that
  // has written no memory. What the others compute is not read.
  void take_back_draws(size_t first);
  // See Tracer::writes.
  int writes(size_t values) const { return recording_->tracer().writes(values); }
  // The user's line of the calls that follow. The texts have to live as long as the process (graph::interned).
  void at_line(const char* file, int line, const char* module_path = "");

  // Makes these tensors the results of the calls so far, runs them, and gives the handles among them their data. Other
  // handles can no longer be used. Then a new segment begins. If running raises an error, nothing outside was written,
  // and no handle has data.
  std::shared_ptr<Segment> cut(std::span<const Tensor> results);
  // The same, and the trace ends.
  std::shared_ptr<Segment> close(std::span<const Tensor> results);

 private:
  void begin();
  SymInt symbol_of(int64_t size, int64_t earlier);
  std::shared_ptr<Segment> end_segment(std::span<const Tensor> results);
  std::shared_ptr<Segment> segment_of(std::span<const Tensor> results, std::vector<Tensor>& inputs,
                                      std::vector<graph::Gradients::Filled>& slots);
  class ResultList;
  static void divide_history(Segment& s, std::span<graph::Value* const> values);
  void expire();

  std::string name_;
  Backend backend_;
  std::unique_ptr<graph::Capture> capture_;
  std::unique_ptr<graph::Recording> recording_;
  std::vector<SourceId> sources_;
  struct Symbol {
    SymInt size;
    int64_t earlier;
  };
  std::vector<Symbol> symbols_;
  graph::SourceLine line_;
  Active* active_ = nullptr;
  bool fills_last_ = false, has_failed_ = false;
};

Tensor number_input(const Scalar& value);
Tensor size_input(int64_t n);

}  // namespace facula::run
