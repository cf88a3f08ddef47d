// The tensor IR: a functional graph of operator calls over values with symbolic shapes. Mutation is explicit: an
// in-place call is recorded in its functional form, and the graph lists which values replace which inputs.
//   text form (print/parse_graph):
//   graph(%0: float32[s0, 8], %1: float32[8, 3] strides [1, 8])
//     size s0 = 5                        a symbol, with its value during the trace, and possibly a range
//     size u1 from 0 to 40               a symbol that is known after the call whose result has this size
//     requires s0 < 9                    a guard
//     %2: float64[] number = constant 0.5
//     mul_backward#1 = gradient of mul(float32[5, 8], 0.5) wanted [True] given [float32]
//     %3: float32[s0, 8] = mul(%0, %2, alpha=1)         one line per node
//     %4: bfloat16[s0] held = exp(%1)                   a value that eager mode stores (graphs with 16-bit values)
//     phase 1                            begins a backward pass
//     checkpoint 1                       begins a checkpoint; 0: ends it
//     return %3, None  mutates input 0 = %3
#pragma once
#include <cstdint>
#include <functional>
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
  int result = 0;            // index into the producer's results
  Tensor tensor;             // the traced tensor that represents it: sizes, strides, dtype (no storage)
  Tensor constant;           // an eager tensor captured by the trace
  // Eager mode holds it in memory: in the graph of a user's program an input, a result of a call of the program, or the
  // gradient of such a value. Kernels that contain it round it to its dtype. Other values, inside of a composite or a
  // gradient formula, keep the precision in which they are computed.
  bool held = false;
};

// The part of a user's function that a node belongs to.
struct Place {
  int phase = 0;       // number of backward() calls that had begun
  int checkpoint = 0;  // number of the enclosing checkpoint, which a backward pass recomputes; 0: none
};

struct Node {
  int id = 0;
  Place place;
  // A recomputed copy of another node, which only exists inside of its consumers (rematerialize).
  bool again = false;
  const op::Operator* op = nullptr;
  op::Args args;  // the tensors are traced; value_of gives their values
  std::vector<Value*> results;
};

class Graph {
 public:
  std::vector<Value*> inputs;   // scalar operands are 0-d inputs
  std::vector<Value*> outputs;  // null: no value (a result without gradient)
  // Only the first `results` outputs are returned to a caller, so each of them needs separate memory.
  size_t results = SIZE_MAX;
  std::vector<std::pair<int, Value*>> mutated;  // (number of the input, the value that is written back to it)
  std::vector<std::unique_ptr<Node>> nodes;     // in order of execution
  std::shared_ptr<sym::Shapes> shapes;

  Value* add_value(SymSpan sizes, SymSpan strides, DType dtype, Device device = {});
  Value* add_value_like(const Value& v);  // of v's metadata, which may be of another graph
  Value* add_constant(const Tensor& eager);
  Node* add_node(const op::Operator& op, std::span<const op::Value> args, std::vector<Value*> results);
  const std::vector<std::unique_ptr<Value>>& values() const { return values_; }
  // Replaces every use (arguments, outputs, mutations).
  void replace(Value* old, Value* by);
  // Numbers values in the order of the text: inputs, constants, results. Other values are removed from the graph,
  // although users' handles may still refer to them.
  void renumber();

 private:
  std::vector<std::unique_ptr<Value>> values_, former_;
};

// While an At lives, nodes are added at its place. The static functions apply to all nodes that are added until the
// innermost At ends.
class At {
 public:
  explicit At(Place place);
  ~At();
  static Place now();
  static void next_phase();
  static int enter_checkpoint();  // enters the next checkpoint; gives the number of the former one
  static void leave_checkpoint(int outer);

 private:
  Place outer_;
};

// True if the number of elements, and their size in bytes, fit into 64 bits.
bool is_countable(SymSpan sizes);

inline Value* value_of(const Tensor& t) { return t.defined() ? t.impl()->traced : nullptr; }
std::vector<Value*> operands(const Node& n);  // by slot: its value, or null for None
// Lets the value of t, and those that it is a view of, be held.
void hold(const Tensor& t);
bool is_16_bit_float(DType d);
// Calls f with each operand that is not None.
template <class F>
void each_operand(const Node& n, F&& f) {
  for (auto& t : n.args.tensors())
    if (auto* v = value_of(t)) f(v);
}

std::string print(const Graph& g);
// Reads a printed graph. Its operators are called again, so that their rules apply. ValueError with the line of the
// first mistake; elements of captured tensors are not part of the text, so such graphs are refused.
Graph parse_graph(std::string_view text);
void verify(const Graph& g);  // internal error that names the node

// Calls a node's operator on these arguments, or what stands for it.
using NodeCall = std::function<op::Results(const Node&, std::span<const op::Value>)>;
// Calls the operators of the graph again, in the current mode (eager, or another trace). `available`: values that are
// available already; calls that only compute these are skipped. Gives the outputs and, if `written`, after them the
// values that are written back to inputs (mutated), in order. `call`: if not empty, is called in place of op::call.
std::vector<Tensor> interpret(const Graph& g, std::span<const Tensor> inputs,
                              std::span<const std::pair<const Value*, Tensor>> available = {},
                              bool written = false, const NodeCall& call = {});

}  // namespace facula::graph
