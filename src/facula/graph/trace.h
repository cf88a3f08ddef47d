// Records operator calls as a graph. Composites are inlined. No node writes: a write, in place or by out=, also
// through a view, creates the next value of the memory, and every view of that memory is recreated from this value
// when it is read next. Reading data (item, data_ptr) raises an error that names the traced operator.
//   example: y = x.exp(); y.add_(1); return y * 2  ->  %1 = exp(%0), %2 = add(%1, 1), %3 = mul(%2, 2), return %3
#pragma once
#include <functional>
#include <unordered_map>

#include "facula/graph/break.h"
#include "facula/graph/graph.h"

namespace facula::graph {

// The specification of one input: dtype and rank, and sizes that are fresh symbols (with hints) or pinned constants.
struct InputSpec {
  DType dtype;
  Dims sizes, strides;         // concrete entries are pinned; strides empty: contiguous
  bool number = false;         // a scalar operand: 0-d, lowest promotion priority
  bool requires_grad = false;  // for an argument of a user's function
};
InputSpec spec_of(const Tensor& t);  // the tensor's own sizes and strides, including symbols
// The spec of an eager tensor: every size >= 2 is a fresh symbol of `shapes`, sizes 0 and 1 are pinned, and strides
// are expressions over the sizes if the tensor is dense in some order of its dimensions.
InputSpec symbolic_spec(const Tensor& t, sym::Shapes& shapes);
// The same with `sizes`, where each size is a symbol or the tensor's own size.
InputSpec spec_with(const Tensor& t, Dims sizes);

// Traces f on fresh inputs. Pointers to values remain valid as long as the graph lives.
using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
Graph trace(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
            const char* name);

// While a KeepRules lives, calls of composites that have their own gradient rule (.vjp) are recorded as one node
// each, so that `differentiate` finds the rule; `expanded` (passes.h) replaces them by the calls of their bodies. A
// plain trace keeps those that composites call.
class KeepRules {
 public:
  enum Which : uint8_t { none, of_composites, all };
  explicit KeepRules(Which which = all);
  ~KeepRules();
  static Which now();

 private:
  Which outer_;
};

// Lines of the user's program, by call.
using Lines = std::unordered_map<const Node*, SourceLine>;

// The trace of a user's function. Tensors that it reads besides its arguments become further inputs; what it computes
// without recording gradients (no_grad) has none in the graph. Its calls of backward() and grad() become calls of the
// graph. Raises an error for calls that read data.
struct Capture {
  Graph graph;  // outputs: those of the function, then those of `slots`
  size_t results = 0;
  std::vector<Tensor> captured;  // the inputs after the arguments
  // A gradient slot (.grad) that the function read or changed.
  struct Slot {
    int argument;        // number of the input that has the slot, or -1:
    Tensor leaf;         // the tensor outside of the function that has it
    Tensor before;       // the contents before the function
    bool relied;         // the program is only valid for these contents
    int output = -1;     // number of the graph's output that it contains afterwards, or -1:
    Tensor after = {};   // the tensor from outside that it contains, or none
    uint64_t hooks = 0;  // of the leaf (autograd::hooks_digest), which the trace has called
    // The number of the input that `before` is, so that each call has its own contents, or -1.
    int before_input = -1;
    // A call that may raise an error about elements precedes the change; the slot has its contents then.
    bool changes_late = false;
  };
  std::vector<Slot> slots;
  // The elements of a tensor from outside that the function read, as bytes in order. The program is only valid for
  // these.
  struct Read {
    Tensor tensor;
    std::string elements;
  };
  std::vector<Read> reads;
  std::vector<bool> required;  // by argument: it required gradients
  Lines lines;                 // of the user's program, by call
  // Gradients that results have retained: the number of the result, and of the graph's output.
  std::vector<std::pair<size_t, size_t>> retained;
  bool differentiates = false;  // the function called backward(): its results have no history
  Capture without_graph() const {
    return {{}, results, captured, slots, reads, required, {}, retained, differentiates};
  }
};
Capture capture(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
                const char* name);
// The text of the graph with the line of each call that has one.
std::string print(const Graph& g, const Lines* lines);
// Numbers the values of a capture that was recorded piece by piece (recording.h), and checks it.
void complete(Capture& c, size_t argument_count, const char* name);

// While a DeclaredSize lives, a trace uses this size as the first size of a data-dependent call's results, which parsing
// a graph needs. Otherwise the trace of a user's function creates a new symbol for each one.
class DeclaredSize {
 public:
  explicit DeclaredSize(const SymInt* size);
  ~DeclaredSize();
  static const SymInt* now();

 private:
  const SymInt* outer_;
};

std::string elements_of(const Tensor& t);  // bytes in the order of indices

// Applies the writes of `g` after it was interpreted in a trace on `inputs`, which are inputs of that trace: from now
// on these stand for the values `written`. Outputs that are an unchanged input remain that value.
void write_back(const Graph& g, std::span<const Tensor> inputs, std::span<const Tensor> written,
                std::vector<Tensor>& outputs);

// The metadata of a call's results by the operator's rules, without running it; sizes may be symbolic. This is the
// only place that applies shape, dtype and stride rules; eager, tracing and export share it. Raises the user's
// errors.
std::vector<op::Meta> infer(const op::Operator& op, std::span<const op::Value> args);
// The same for a call whose results follow from calls that `f` makes, on tensors without data; concrete sizes remain
// concrete.
std::vector<op::Meta> infer_by_calls(const op::Call& c, const std::function<op::Results(const op::Call&)>& f);
// The compute dtype of a pointwise (or promoting) operator.
DType compute_dtype(const op::Operator& op, std::span<const op::Value> args);

}  // namespace facula::graph
