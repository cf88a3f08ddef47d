// The tensor IR: a functional graph of operator calls over values with symbolic shapes. Mutation is explicit:
// an in-place call is recorded as its functional form, and a graph says which outputs replace which inputs.
//   text form (print/parse_graph):
//   graph(%0: float32[s0, 8], %1: float32[8, 3] strides [1, 8])
//     size s0 = 5                        a symbol, with the value it had, and perhaps its range
//     size u1 from 0 to 40               one that is known when the call whose result has it has run
//     requires s0 < 9                    what the graph relies on
//     %2: float64[] number = constant 0.5
//     mul_backward#1 = gradient of mul(float32[5, 8], 0.5) wanted [True] given [float32]
//     %3: float32[s0, 8] = mul(%0, %2, alpha=1)         a line a node
//     phase 1                            a backward pass begins
//     checkpoint 1                       what a checkpoint holds begins; 0: it ends
//     return %3, None  mutates input 0 = %3
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "facula/op/operator.h"
#include "facula/op/value.h"

namespace facula::graph {

struct Node;

struct Value {
  int id = 0;
  Node* producer = nullptr;  // null: an input or a constant
  int result = 0;            // which result of the producer
  Tensor tensor;             // the traced tensor that stands for it: sizes, strides, dtype (no storage)
  Tensor constant;           // an eager tensor captured by the trace
};

// Where in a user's function a node is.
struct Place {
  int phase = 0;  // backward() calls that had begun before it
  int checkpoint =
      0;  // number of the checkpoint that it is inside of, which a backward pass computes again; 0: none
};

struct Node {
  int id = 0;
  Place place;
  bool again = false;  // computes what another node did, inside of its readers alone (rematerialize)
  const op::Operator* op = nullptr;
  op::Args args;  // tensors inside are traced: value_of gives their values
  std::vector<Value*> results;
};

class Graph {
 public:
  std::vector<Value*> inputs;   // in order; run-time numbers are 0-d inputs
  std::vector<Value*> outputs;  // null: no value (a result without gradient)
  size_t results = SIZE_MAX;    // so many of them, at most, are a caller's, each in memory of its own
  std::vector<std::pair<int, Value*>> mutated;  // input number -> the value written back to it
  std::vector<std::unique_ptr<Node>> nodes;     // in order of execution
  std::shared_ptr<sym::Shapes> shapes;

  Value* add_value(SymSpan sizes, SymSpan strides, DType dtype, Device device = {});
  Value* add_constant(const Tensor& eager);
  Node* add_node(const op::Operator& op, std::span<const op::Value> args, std::vector<Value*> results);
  const std::vector<std::unique_ptr<Value>>& values() const { return values_; }
  // Every use replaced (arguments, outputs, mutations).
  void replace(Value* old, Value* by);
  // Numbers values in the order of the text: inputs, constants, results; others are no values of the graph any more,
  // though users' handles may still point to them.
  void renumber();

 private:
  std::vector<std::unique_ptr<Value>> values_, former_;
};

// Nodes that are added while one lives are at its place. What is said of all that is added from here on holds until the
// innermost ends.
class At {
 public:
  explicit At(Place place);
  ~At();
  static Place now();
  static void next_phase();
  static int enter_checkpoint();  // a further one; gives the number that was
  static void leave_checkpoint(int outer);

 private:
  Place outer_;
};

// Fits the number of elements in 64 bits, with room for their size?
bool is_countable(SymSpan sizes);

inline Value* value_of(const Tensor& t) { return t.defined() ? t.impl()->traced : nullptr; }
std::vector<Value*> operands(const Node& n);  // values by slot, null for None
// Calls f with each operand that is not None.
template <class F>
void each_operand(const Node& n, F&& f) {
  for (auto& t : n.args.tensors())
    if (auto* v = value_of(t)) f(v);
}

std::string print(const Graph& g);
// The graph that was printed, made by calling its operators again, so that their rules hold for it. ValueError with the
// line of what is not a graph; elements of tensors that were captured are not part of the text, and refused.
Graph parse_graph(std::string_view text);
void verify(const Graph& g);  // internal error naming the node

// Graph nodes become operator calls again, under whatever mode is current (eager, or another trace). `known`:
// values that are at hand; calls that give nothing else are not made. Gives the outputs; `written`: and behind them what
// is written back to inputs (mutated), in order.
std::vector<Tensor> interpret(const Graph& g, std::span<const Tensor> inputs,
                              std::span<const std::pair<const Value*, Tensor>> known = {},
                              bool written = false);

}  // namespace facula::graph
