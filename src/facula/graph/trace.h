// Records operator calls as a graph. Composites are inlined. No node writes: a write, in place or by out=, also
// through a view, makes the next value of the memory, and whatever is a view of it is made again of that value when it
// is read next. Reading data (item, data_ptr) raises an error that names the operator traced.
#pragma once
#include <functional>

#include "facula/graph/graph.h"

namespace facula::graph {

// One input of a trace: which dtype and rank, sizes fresh symbols (with hints) or pinned constants.
struct InputSpec {
  DType dtype;
  Dims sizes, strides;         // a concrete entry is pinned; strides empty: contiguous
  bool number = false;         // a run-time number: 0-d, lowest promotion priority
  bool requires_grad = false;  // of an argument of a user's function
};
InputSpec spec_of(const Tensor& t);  // as it is, symbols and all
// The spec of an eager tensor with every size >= 2 a fresh symbol of `shapes`, 0 and 1 pinned, and strides
// expressed through sizes where the tensor is dense in some order of its dimensions.
InputSpec symbolic_spec(const Tensor& t, sym::Shapes& shapes);
// The same with these sizes, which are symbols or the tensor's.
InputSpec spec_with(const Tensor& t, Dims sizes);

// Traces f on fresh inputs. Pointers stay valid as long as the graph lives.
using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
Graph trace(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
            const char* name);

// Which calls of composites that have a gradient rule of their own (.vjp) are recorded as one node each while one lives, so
// that `differentiate` finds the rule; `expanded` (passes.h) puts their calls in their place. A trace keeps those that
// composites make.
class KeepRules {
 public:
  enum Which : uint8_t { none, of_composites, all };
  explicit KeepRules(Which which = all);
  ~KeepRules();
  static Which now();

 private:
  Which outer_;
};

// A function of users: what it reads besides its inputs is an input too, behind them, and what it computes without
// recording gradients (no_grad) has none in the graph. backward() and grad() in it are calls of the graph as well.
// Raises what a graph cannot hold: calls that read data.
struct Capture {
  Graph graph;  // outputs: the function's, then those of `slots`
  size_t results = 0;
  std::vector<Tensor> captured;  // the inputs behind the given ones
  // A gradient slot (.grad) that the function looked at or changed.
  struct Slot {
    int argument;       // number of the input whose slot it is, or -1:
    Tensor leaf;        // the tensor outside of the function
    Tensor before;      // what it held
    bool relied;        // does the program hold for that only?
    int output = -1;    // of the graph: what it holds afterwards, or, if -1:
    Tensor after = {};  // a tensor from outside, or none
  };
  std::vector<Slot> slots;
  // Elements of tensors from outside that the function looked at, as bytes in order; the program holds for those only.
  struct Read {
    Tensor tensor;
    std::string elements;
  };
  std::vector<Read> reads;
  std::vector<bool> required;   // by argument: did it require gradients?
  bool differentiates = false;  // backward() was called: its results have no history
};
Capture capture(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
                const char* name);

// What a trace takes the first size of a data-dependent call's results for, while one lives: that of a graph that is made
// again of its text. Else the trace of a user's function makes a new symbol for each.
class GivenSize {
 public:
  explicit GivenSize(const SymInt* size);
  ~GivenSize();
  static const SymInt* now();

 private:
  const SymInt* outer_;
};

std::string elements_of(const Tensor& t);  // bytes in the order of indices

// After `g` was interpreted in a trace on `given`, the inputs of that trace: they stand for what `g` writes to them from
// here on, `written`. Outputs that are an input as it came stay that.
void write_back(const Graph& g, std::span<const Tensor> given, std::span<const Tensor> written,
                std::vector<Tensor>& outputs);

// Results' metas of a call by the operator's rules, without running it; sizes may be symbolic. The one place
// where shape, dtype and stride rules are applied; eager, tracing and export share it. Raises the user's
// errors.
std::vector<op::Meta> infer(const op::Operator& op, std::span<const op::Value> args);
// The same of a call that `f` makes of operators, on tensors without data; sizes that are known stay.
std::vector<op::Meta> infer_by_calls(const op::Call& c, const std::function<op::Results(const op::Call&)>& f);
// The dtype that a pointwise (or promoting) operator computes in.
DType compute_dtype(const op::Operator& op, std::span<const op::Value> args);

}  // namespace facula::graph
