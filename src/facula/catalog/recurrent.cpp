// Recurrent networks: one step of each cell is a fused body; a layer is a product for all steps at once and a walk
// over them, which float32 and float64 take in one call (_recurrence).
#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/catalog/differences.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

constexpr const char* kFewGates =
    "\\w+ error: RuntimeError .*first dim must be .* for a result with one element";
constexpr const char* kReadBeyond = "weights of too few gates; PyTorch reads beyond them, and may crash";
constexpr const char* kSteppedSizes = "\\w+ (shape|value|value \\d|gradient of \\S+): .* with stepped #";
constexpr const char* kSizesUnread = "PyTorch reads what lies between the elements of `batch_sizes`";
constexpr const char* kUnstable =
    "(complex\\d+ (value|gradient)|float16 value|bfloat16 value).*: [^a-z]*(for -?1|for \\(?-?\\d\\S*,? ?[^a-z]*|for -?\\d\\S*) with (input|params|hx|data): (all|0 at)";
constexpr const char* kNearPoles =
    "complex sigmoid and tanh near their poles, or saturated sums of the largest numbers: a last digit becomes the first";
constexpr const char* kSquashed =
    "complex\\d+ (value|value \\d|gradient of \\S+): \\((finite|-?0), (finite|-?0)\\) for \\(nan, nan\\) with \\S+: "
    "(all )?(-?inf|max|1 and|lowest)";
const SymInt kOne = int64_t(1), kZero = int64_t(0);

// By step: the number of sequences that are not over. It may be symbolic where all sequences are equally long.
using StepSizes = std::vector<SymInt>;

enum class Cell { lstm, gru, tanh, relu };
struct State {
  Tensor h, c;  // c: of an LSTM
};
State step(Cell cell, const Tensor& of_input, const Tensor& of_state, const State& s) {
  switch (cell) {
    case Cell::lstm: {
      auto [h, c] = _lstm_step(of_input, of_state, s.c);
      return {h, c};
    }
    case Cell::gru: return {_gru_step(of_input, of_state, s.h), {}};
    case Cell::tanh: return {tanh(add(of_input, of_state)), {}};
    case Cell::relu: return {relu(add(of_input, of_state)), {}};
  }
  return s;
}

int64_t gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }
// A step reads each gate of each hidden element, so there must be as many.
void check_rows(const char* name, Cell cell, const SymInt& hidden, const Tensor& input, const Tensor& state) {
  for (auto& [weights, which] : {std::pair(input, "ih"), std::pair(state, "hh")})
    runtime_check(weights.dim() == 2 && weights.size(0) == hidden * SymInt(gates_of(cell)), name)
        << "weight_" << which << " first dim must be " << gates_of(cell)
        << " * hidden_size = " << hidden * SymInt(gates_of(cell)) << ", but it has shape "
        << to_string(weights.sizes());
}

// The parameters of a layer in one direction.
struct Weights {
  Tensor input, state, input_bias, state_bias, projection;
};
StepSizes numbers_of(const Tensor& t) {
  Tensor plain = contiguous(t).on_host();
  return {plain.data<int64_t>(), plain.data<int64_t>() + plain.numel().guard_int()};
}
MaybeTensor maybe(const Tensor& t) { return t.defined() ? MaybeTensor(t) : MaybeTensor(); }

State rows_of(const State& s, SymInt from, SymInt to) {
  auto part = [&](const Tensor& t) {
    return t.defined() ? narrow(t, 0, SymInt(from), SymInt(to - from)) : t;
  };
  return State{part(s.h), part(s.c)};
}
Tensor joined(const std::vector<Tensor>& parts) { return parts.size() == 1 ? parts[0] : cat(parts, 0); }
State joined(const std::vector<State>& parts) {
  State s;
  for (auto member : {&State::h, &State::c}) {
    std::vector<Tensor> items;
    for (auto& p : parts)
      if ((p.*member).defined()) items.push_back(p.*member);
    if (!items.empty()) s.*member = joined(items);
  }
  return s;
}

// Runs f over the steps of sequences that are sorted by length: step t has the first sizes[t] of them, and the rows of packed
// tensors are ordered by step. f(t, states before) returns the states after step t.
template <class F>
State walk(const StepSizes& sizes, const State& start, bool reverse, F&& f) {
  std::vector<State> ended;  // last first
  SymInt held = reverse ? sizes.back() : sizes.front();
  State s = held == sizes.front() ? start : rows_of(start, 0, held);
  for (size_t k = 0; k < sizes.size(); ++k) {
    size_t t = reverse ? sizes.size() - 1 - k : k;
    if (sizes[t] < held) {  // sequences that are over
      ended.push_back(rows_of(s, sizes[t], held));
      s = rows_of(s, 0, sizes[t]);
    } else if (sizes[t] > held) {  // longer ones, which begin
      s = joined({s, rows_of(start, held, sizes[t])});
    }
    held = sizes[t];
    s = f(t, s);
  }
  ended.push_back(s);
  std::reverse(ended.begin(), ended.end());
  return joined(ended);
}
std::vector<Tensor> by_steps(const Tensor& rows, const StepSizes& sizes) {
  Dims parts;
  for (auto n : sizes) parts.push_back(n);
  return sizes.size() == 1 ? std::vector<Tensor>{rows} : split(rows, parts, 0);
}

// One direction of one layer, step by step. Of `given`, the products of the input.
struct Walked {
  Tensor given, output;
  State ended;
  // If they are wanted: the states that came into the steps, the cell states after them, and states that are projected.
  Tensor before, cells, hidden;
};
Walked forward(Cell cell, const Tensor& x, const StepSizes& sizes, const State& start, Weights w,
               bool reverse, bool wanted) {
  auto &first = w.input_bias, &second = w.state_bias;
  // Added once for all steps, where both fit (else the products say what is wrong).
  if (cell != Cell::gru && first.defined() &&
      std::ranges::equal(first.sizes(), second.sizes(), SymInt::surely_equal)) {
    w.input_bias = add(w.input_bias, w.state_bias);
    w.state_bias = {};
  }
  Walked r;
  r.given = linear(x, w.input, maybe(w.input_bias));
  auto given = by_steps(r.given, sizes);
  std::vector<Tensor> outputs(sizes.size()), before(sizes.size()), cells(sizes.size()), hidden(sizes.size());
  r.ended = walk(sizes, start, reverse, [&](size_t t, const State& s) {
    before[t] = s.h;
    State next = step(cell, given[t], linear(s.h, w.state, maybe(w.state_bias)), s);
    hidden[t] = next.h, cells[t] = next.c;
    if (w.projection.defined()) next.h = linear(next.h, w.projection);
    outputs[t] = next.h;
    return next;
  });
  r.output = joined(outputs);
  if (!wanted) return r;
  r.before = joined(before);
  if (cell == Cell::lstm) r.cells = joined(cells);
  if (w.projection.defined()) r.hidden = joined(hidden);
  return r;
}

// The values of all steps that the gradient reads: activated gates of each unit, projected states, and the states after the step
// (backend/cpu/recurrent_nest.h).
Tensor kept_of(Cell cell, const Walked& r, const Weights& w) {
  if (gates_of(cell) == 1) return r.output;
  if (cell == Cell::lstm) {  // both biases are in r.given
    Tensor of_state = linear(r.before, w.state, {});
    auto gate = chunk(add(r.given, of_state), 4, -1);
    std::vector<Tensor> kept{sigmoid(gate[0]), sigmoid(gate[1]), tanh(gate[2]), sigmoid(gate[3]), r.cells};
    if (r.hidden.defined()) kept.push_back(r.hidden);
    kept.push_back(r.output);
    return cat(kept, -1);
  }
  auto x = chunk(r.given, 3, -1), h = chunk(linear(r.before, w.state, maybe(w.state_bias)), 3, -1);
  Tensor reset = sigmoid(add(x[0], h[0])), update = sigmoid(add(x[1], h[1]));
  return cat({reset, update, tanh(add(x[2], mul(reset, h[2]))), h[2], r.output}, -1);
}

// The gradient of a direction: of the products of the input and of the states, of all steps, and of the first states.
struct Gradient {
  Tensor of_input, of_state;  // the latter only where it is another
  Tensor of_output;           // where states are projected: what arrives at the projection
  State start;
};
Tensor through_sigmoid(const Tensor& y, const Tensor& grad) { return mul(mul(grad, y), rsub(y, 1)); }
Tensor through_tanh(const Tensor& y, const Tensor& grad) { return mul(grad, rsub(mul(y, y), 1)); }

// One step: gives the gradients of its products, and leaves in `s` what reaches the states before it past them.
std::pair<Tensor, Tensor> step_gradient(Cell cell, const Tensor& kept, const State& before, State& s) {
  if (cell == Cell::tanh) return {through_tanh(kept, s.h), {}};
  if (cell == Cell::relu) return {where(le(kept, 0), zeros_like(s.h), s.h), {}};
  if (cell == Cell::lstm) {
    auto k = split(kept, before.c.size(-1), -1);
    Tensor squashed = tanh(k[4]), c = add(s.c, through_tanh(squashed, mul(s.h, k[3])));
    Tensor gates = cat({through_sigmoid(k[0], mul(c, k[2])), through_sigmoid(k[1], mul(c, before.c)),
                        through_tanh(k[2], mul(c, k[0])), through_sigmoid(k[3], mul(s.h, squashed))},
                       -1);
    s.c = mul(c, k[1]);
    return {gates, {}};
  }
  auto k = split(kept, s.h.size(-1), -1);
  Tensor fresh = through_tanh(k[2], sub(s.h, mul(s.h, k[1])));
  Tensor reset = through_sigmoid(k[0], mul(fresh, k[3])),
         update = through_sigmoid(k[1], mul(s.h, sub(before.h, k[2])));
  s.h = mul(s.h, k[1]);
  return {cat({reset, update, fresh}, -1), cat({reset, update, mul(fresh, k[0])}, -1)};
}
Gradient backward(Cell cell, const StepSizes& sizes, bool reverse, const Tensor& grad_output,
                  const State& of_ended, const Tensor& kept, const Tensor& before, const State& start,
                  const Tensor& weight, const Tensor& projection) {
  auto given = by_steps(grad_output, sizes), each = by_steps(kept, sizes), states = by_steps(before, sizes);
  std::vector<Tensor> of_input(sizes.size()), of_state(sizes.size()), of_output(sizes.size()),
      cells(sizes.size());
  if (cell == Cell::lstm) {
    // The cell states before the steps: those after the steps before.
    walk(sizes, start, reverse, [&](size_t t, const State& s) {
      cells[t] = s.c;
      return State{s.h, split(each[t], s.c.size(-1), -1)[4]};
    });
  }
  Gradient g;
  g.start = walk(sizes, of_ended, !reverse, [&](size_t t, State s) {
    s.h = of_output[t] = add(s.h, given[t]);
    if (projection.defined()) s.h = mm(s.h, projection);
    std::tie(of_input[t], of_state[t]) = step_gradient(cell, each[t], {states[t], cells[t]}, s);
    Tensor arrives = mm(of_state[t].defined() ? of_state[t] : of_input[t], weight);
    s.h = cell == Cell::gru ? add(arrives, s.h) : arrives;
    return s;
  });
  g.of_input = joined(of_input);
  if (cell == Cell::gru) g.of_state = joined(of_state);
  if (projection.defined()) g.of_output = joined(of_output);
  return g;
}

// The operator `_recurrence`: a direction of a layer, in one call.
struct Direction {
  Cell cell;
  bool reverse;
  Tensor x, batch_sizes;
  State start;
  Weights w;
  template <class Given>
  Direction(const Call& c, const Given& given) : cell(cell_of(c)), reverse(c.flag("reverse")) {
    auto optional = [&](const char* name) { return c.has(name) ? given(name) : Tensor(); };
    x = given("input"), batch_sizes = optional("batch_sizes");
    start = {given("hx"), optional("cx")};
    w = {given("w_ih"), given("w_hh"), optional("b_ih"), optional("b_hh"), optional("w_hr")};
  }
  explicit Direction(const Call& c) : Direction(c, [&](const char* name) { return c.tensor(name); }) {}
  explicit Direction(const Vjp& v) : Direction(v.call(), [&](const char* name) { return v[name]; }) {}

  static Cell cell_of(const Call& c) {
    auto name = c.str("cell");
    for (Cell cell : {Cell::lstm, Cell::gru, Cell::tanh, Cell::relu})
      if (name == kNames[size_t(cell)]) return cell;
    value_check(false, c.name()) << "cell must be lstm, gru, tanh or relu, got " << name;
    return Cell::lstm;
  }
  static constexpr const char* kNames[] = {"lstm", "gru", "tanh", "relu"};
  StepSizes sizes() const { return sizes_of(x, start.h, batch_sizes); }
  static StepSizes sizes_of(const Tensor& x, const Tensor& h, const Tensor& batch_sizes) {
    if (batch_sizes.defined()) return numbers_of(batch_sizes);
    int64_t each = h.size(0).guard_int();
    return StepSizes(size_t(x.size(0).guard_int() / each), each);
  }
};
constexpr DTypeSet kReal = dtypes_where([](DType t) { return t == DType::Float32 || t == DType::Float64; });

// Whether one library call computes the direction. Everything else goes step by step: operands that the call does not take, which
// the steps report if they are wrong, and calls under a mode (a trace, vmap, forward mode).
bool fits(Cell cell, const Tensor& x, const StepSizes& sizes, const State& start, const Weights& w) {
  DType d = x.dtype();
  if (op::Mode::current() || !kReal.has(d)) return false;
  SymInt size = start.h.size(-1), units = start.c.defined() ? start.c.size(-1) : size,
         gates = units * SymInt(gates_of(cell));
  auto is = [&](const Tensor& t, Dims expected) {
    return t.dtype() == d && std::ranges::equal(t.sizes(), expected, SymInt::surely_equal);
  };
  SymInt rows = int64_t(0);
  for (size_t t = 0; t < sizes.size(); rows += sizes[t++])
    if (sizes[t] <= kZero || (t && sizes[t] > sizes[t - 1])) return false;
  SymInt first = sizes.front();
  if (units == kZero || size == kZero || !is(x, {rows, w.input.size(-1)}) || !is(start.h, {first, size}) ||
      !is(w.input, {gates, x.size(-1)}) || !is(w.state, {gates, size}))
    return false;
  if (start.c.defined() && !is(start.c, {first, units})) return false;
  if (w.projection.defined() ? !is(w.projection, {size, units}) : !SymInt::surely_equal(size, units))
    return false;
  return !w.input_bias.defined() || (is(w.input_bias, {gates}) && is(w.state_bias, {gates}));
}

std::pair<Tensor, State> one_direction(Cell cell, const Tensor& x, const StepSizes& sizes,
                                       const Tensor& batch_sizes, const State& start, const Weights& w,
                                       bool reverse) {
  if (!fits(cell, x, sizes, start, w)) {
    auto walked = forward(cell, x, sizes, start, w, reverse, false);
    return {walked.output, walked.ended};
  }
  bool wanted = false;
  if (autograd::grad_enabled())
    for (auto* t : {&x, &start.h, &start.c, &w.input, &w.state, &w.input_bias, &w.state_bias, &w.projection})
      wanted |= t->defined() && t->requires_grad();
  auto [y, h, c, kept] =
      _recurrence(x, start.h, maybe(start.c), w.input, w.state, maybe(w.input_bias), maybe(w.state_bias),
                  maybe(w.projection), maybe(batch_sizes), Direction::kNames[size_t(cell)], reverse, wanted);
  return {y, {h, cell == Cell::lstm ? c : Tensor()}};
}

Tensor or_zeros(const Tensor& t, const Tensor& like) { return t.defined() ? t : zeros_like(like); }

Results backward_reference(const Call& c) {
  Cell cell = Direction::cell_of(c);
  bool reverse = c.flag("reverse"), lstm = cell == Cell::lstm;
  State start{c.tensor("hx"), c.tensor("cx")};
  Tensor kept = c.tensor("kept"), none = zeros({kZero}, kept.dtype());
  Tensor output = narrow(kept, 1, kept.size(1) - start.h.size(1), start.h.size(1));
  auto sizes = Direction::sizes_of(c.tensor("input"), start.h, c.tensor("batch_sizes"));
  auto outputs = by_steps(output, sizes);
  std::vector<Tensor> before(sizes.size());
  walk(sizes, {start.h, {}}, reverse, [&](size_t t, const State& s) {
    before[t] = s.h;
    return State{outputs[t], {}};
  });
  State ended{or_zeros(c.tensor("grad_h"), start.h), lstm ? or_zeros(c.tensor("grad_c"), start.c) : Tensor()};
  Tensor states = joined(before);
  Gradient g = backward(cell, sizes, reverse, or_zeros(c.tensor("grad_output"), output), ended, kept, states,
                        start, c.tensor("w_hh"), c.tensor("w_hr"));
  return {g.of_input,
          cell == Cell::gru ? g.of_state : none,
          c.flag("needs_h") ? g.start.h : zeros_like(start.h),
          lstm ? g.start.c : none,
          states,
          c.has("w_hr") ? g.of_output : none};
}

// The gradients of _recurrence: those of the walk by one call, or, where they have gradients themselves, step by step.
Grads recurrence_gradients(const Vjp& v) {
  auto& c = v.call();
  internal_check(c.flag("keep")) << "the gradient of a _recurrence that kept nothing";
  Direction d(v);
  // Read here, so that both ways find it saved. The output is not, which users may write to.
  Tensor kept = v.result(3), before;
  bool lstm = d.cell == Cell::lstm;
  Gradient g;
  if (autograd::grad_enabled() && !d.x.is_traced()) {
    auto sizes = d.sizes();
    Walked r = forward(d.cell, d.x, sizes, d.start, d.w, d.reverse, true);
    State ended{or_zeros(v.grad(1), d.start.h), lstm ? or_zeros(v.grad(2), d.start.c) : Tensor()};
    before = r.before;
    kept = kept_of(d.cell, r, d.w);
    g = backward(d.cell, sizes, d.reverse, or_zeros(v.grad(0), r.output), ended, kept, before, d.start,
                 d.w.state, d.w.projection);
  } else {
    auto [of_input, of_state, h, cell, states, of_output] =
        _recurrence_backward(maybe(v.grad(0)), maybe(v.grad(1)), lstm ? maybe(v.grad(2)) : MaybeTensor(),
                             kept, d.x, d.start.h, maybe(d.start.c), d.w.state, maybe(d.w.projection),
                             maybe(d.batch_sizes), c.str("cell"), d.reverse, v.needs("hx"));
    g = {of_input, d.cell == Cell::gru ? of_state : Tensor(), of_output, {h, cell}};
    before = states;
  }
  Tensor of_state = g.of_state.defined() ? g.of_state : g.of_input;
  Grads out(size_t(c.tensor_slot("w_hr")) + 1);
  auto set = [&](const char* name, auto&& f) {
    if (c.has(name) && v.needs(name)) out[size_t(c.tensor_slot(name))] = f();
  };
  set("input", [&] { return mm(g.of_input, d.w.input); });
  set("hx", [&] { return g.start.h; });
  set("cx", [&] { return g.start.c; });
  set("w_ih", [&] { return mm(transpose(g.of_input, 0, 1), d.x); });
  set("w_hh", [&] { return mm(transpose(of_state, 0, 1), before); });
  Tensor of_bias;
  auto bias = [&](const Tensor& t) {
    return t.is_same(g.of_input) && of_bias.defined() ? of_bias : of_bias = sum(t, 0);
  };
  set("b_ih", [&] { return bias(g.of_input); });
  set("b_hh", [&] { return bias(of_state); });
  set("w_hr", [&] {
    SymInt units = d.start.c.size(-1);
    return mm(transpose(g.of_output, 0, 1), narrow(kept, 1, units * SymInt(int64_t(5)), units));
  });
  return out;
}

struct Result {
  Tensor output, h, c;
};
// All layers of a call. `h` and `c` are [layers * directions, N, size], `x` and the output rows as walk() has them.
Result run(const Call& call, Cell cell, Tensor x, const StepSizes& sizes, const Tensor& batch_sizes,
           const Tensor& h, const Tensor& c) {
  const char* name = call.name();
  auto params = call.tensors("params");
  int64_t layers = call.integer("num_layers").guard_int(), directions = call.flag("bidirectional") ? 2 : 1;
  bool biased = call.flag("has_biases"), projected = c.defined() && !(c.size(-1) == h.size(-1));
  size_t each = (biased ? 4 : 2) + size_t(projected);
  runtime_check(params.size() == each * size_t(layers * directions), name)
      << "expected " << each << " parameters for each of " << layers << " layers in " << directions
      << " directions, got " << params.size();
  runtime_check(!sizes.empty(), name) << "expected sequence length to be larger than 0";
  runtime_check(h.dim() == 3 && h.size(0) == SymInt(layers * directions) &&
                    h.size(1) == SymInt(sizes.front()),
                name)
      << "expected hidden state of shape [" << layers * directions << ", " << sizes.front() << ", size], got "
      << to_string(h.sizes());
  std::vector<Tensor> hs = unbind(h, 0), cs = c.defined() ? unbind(c, 0) : std::vector<Tensor>(hs.size());
  std::vector<Tensor> last_h, last_c;
  double p = call.real("dropout");
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      size_t k = size_t(layer * directions + direction), at = k * each;
      Weights w{params[at], params[at + 1]};
      if (biased) w.input_bias = params[at + 2], w.state_bias = params[at + 3];
      if (projected) w.projection = params[at + each - 1];
      runtime_check(x.size(-1) == w.input.size(-1), name)
          << "input has inconsistent input_size: got " << x.size(-1) << " expected " << w.input.size(-1);
      check_rows(name, cell, (c.defined() ? c : h).size(-1), w.input, w.state);
      auto [y, s] = one_direction(cell, x, sizes, batch_sizes, {hs[k], cs[k]}, w, direction == 1);
      outputs.push_back(y);
      last_h.push_back(s.h);
      if (s.c.defined()) last_c.push_back(s.c);
    }
    x = outputs.size() == 1 ? outputs[0] : cat(outputs, -1);
    if (p > 0 && call.flag("train") && layer + 1 < layers) x = dropout(x, p, true);
  }
  return {x, stack(last_h, 0), last_c.empty() ? Tensor() : stack(last_c, 0)};
}
// `input` [T, N, ...], or [N, T, ...] where batch_first says so.
// By the last step that PyTorch takes with the outputs; its float32 LSTMs run in oneDNN.
std::string output_name(const Call& c) {
  bool lstm = c.op().schema.name == "lstm", padded = c.op().schema.index_of("batch_first") >= 0;
  if (padded && c.flag("batch_first")) return grad_name("Transpose", lstm ? 0 : 1);
  if (!padded || c.flag("bidirectional")) return grad_name("Cat");
  return grad_name(lstm && c.dtype("input") == DType::Float32 ? "MkldnnRnnLayer" : "Stack");
}

Result run_padded(const Call& call, Cell cell, const Tensor& h, const Tensor& c) {
  Tensor input = call.tensor("input");
  bool first = call.flag("batch_first");
  index_check(input.dim() > 0, call.name()) << "input must have 3 dimensions, got none";
  runtime_check(input.dim() == 3, call.name()) << "input must have 3 dimensions, got " << input.dim();
  Tensor x = first ? transpose(input, 0, 1) : input;
  SymInt steps = x.size(0), batch = x.size(1);
  Result r = run(call, cell, reshape(x, Dims{steps * batch, x.size(2)}),
                 StepSizes(size_t(steps.guard_int()), batch), {}, h, c);
  r.output = view(r.output, Dims{steps, batch, r.output.size(-1)});
  if (first) r.output = transpose(r.output, 0, 1);
  return r;
}
Result run_packed(const Call& call, Cell cell, const Tensor& h, const Tensor& c) {
  Tensor data = call.tensor("data"), batches = call.tensor("batch_sizes");
  index_check(batches.dim() > 0, call.name()) << "batch_sizes must have 1 dimension, got none";
  runtime_check(batches.dim() == 1 && batches.dtype() == DType::Int64, call.name())
      << "batch_sizes must be a 1-D int64 tensor, got " << batches.dtype() << " of shape "
      << to_string(batches.sizes());
  return run(call, cell, data, numbers_of(batches), batches, h, c);
}
std::pair<Tensor, Tensor> two(const Call& c) {
  auto hx = c.tensors("hx");
  runtime_check(hx.size() == 2, c.name()) << "expects two hidden states, got " << hx.size();
  return {hx[0], hx[1]};
}

// The gates of a cell's two products.
std::pair<Tensor, Tensor> gates(const Call& c, Cell cell, const Tensor& h) {
  Tensor input = c.tensor("input"), wi = c.tensor("w_ih"), wh = c.tensor("w_hh");
  runtime_check(input.size(-1) == wi.size(-1) && h.size(-1) == wh.size(-1), c.name())
      << "input and hidden state must have the last sizes " << wi.size(-1) << " and " << wh.size(-1)
      << ", got " << to_string(input.sizes()) << " and " << to_string(h.sizes());
  check_rows(c.name(), cell, h.size(-1), wi, wh);
  return {linear(input, wi, maybe(c.tensor("b_ih"))), linear(h, wh, maybe(c.tensor("b_hh")))};
}

// PyTorch lowers the products alone and adds them to the state, in the wider dtype of both; ours is one call. The layers
// of an LSTM are oneDNN's there, which lowers a state of float32 too.
Autocast by_state(const Call& c, DType lower, bool single_too = false) {
  auto& hx = c["hx"];
  if (hx.tag == Tag::tensors && hx.tensors().empty()) return Autocast::inherit;
  DType t = (hx.tag == Tag::tensors ? hx.tensors().front() : hx.tensor)->dtype;
  return t == lower || (single_too && t == DType::Float32) ? Autocast::lower : Autocast::fp32;
}
Autocast by_state_of_layer(const Call& c, DType lower) { return by_state(c, lower, true); }

// Declarations shared by networks with one state: a layer over padded sequences, one over packed sequences, and one step.
Definer padded(const char* name, Cell cell, const char* doc) {
  return std::move(
      define(
          std::string(name) +
          ".input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)")
          .differs(catalog::kOverflows, catalog::kOrderOfSums)
          .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
          .differs(catalog::kSteps16, catalog::kRoundedOnce)
          .differs(kSquashed, catalog::kByParts)
          .differs(kUnstable, kNearPoles)
          .differs(kFewGates, kReadBeyond)
          .doc(doc)
          .grad_name(output_name)
          .autocast([cell](const Call& c, DType lower) {
            return cell == Cell::gru ? by_state(c, lower) : Autocast::lower;
          })
          .bind(function)
          .dtypes(d::floating)
          .procedure([cell](const Call& c) {
            Result r = run_padded(c, cell, c.tensor("hx"), {});
            return std::tuple(r.output, r.h);
          }));
}
Definer packed(const char* name, Cell cell, const char* doc) {
  return std::move(
      define(
          std::string(name) +
          ".data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)")
          .differs(catalog::kOverflows, catalog::kOrderOfSums)
          .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
          .differs(catalog::kSteps16, catalog::kRoundedOnce)
          .differs(kSquashed, catalog::kByParts)
          .differs(kUnstable, kNearPoles)
          .differs(kFewGates, kReadBeyond)
          .differs(kSteppedSizes, kSizesUnread)
          .doc(doc)
          .grad_name(output_name)
          .autocast([cell](const Call& c, DType lower) {
            return cell == Cell::gru ? by_state(c, lower) : Autocast::lower;
          })
          .bind(function)
          .reads_data()
          .dtypes(d::floating)
          .procedure([cell](const Call& c) {
            Result r = run_packed(c, cell, c.tensor("hx"), {});
            return std::tuple(r.output, r.h);
          }));
}
Definer one_step(const char* name, Cell cell, const char* doc) {
  return std::move(
      define(
          std::string(name) +
          "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor")
          .differs(catalog::kOverflows, catalog::kOrderOfSums)
          .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
          .differs(catalog::kSteps16, catalog::kRoundedOnce)
          .differs(kSquashed, catalog::kByParts)
          .differs(kUnstable, kNearPoles)
          .differs(kFewGates, kReadBeyond)
          .doc(doc)
          .autocast([cell](const Call& c, DType lower) {
            return cell == Cell::gru ? by_state(c, lower) : Autocast::lower;
          })
          .bind(function)
          .no_in_place()
          .dtypes(d::floating)
          .procedure([cell](const Call& c) {
            Tensor h = c.tensor("hx");
            auto [x, y] = gates(c, cell, h);
            return step(cell, x, y, {h, {}}).h;
          }));
}

}  // namespace

FACULA_FAMILY(recurrent) {
  define("_lstm_step(Tensor of_input, Tensor of_state, Tensor cx) -> (Tensor h, Tensor c)")
      .doc(
          "Hidden and cell state of an LSTM from the gates (input, forget, cell, output) before they are squashed.")
      .grad_name("Mul")
      .bind(hidden)
      .dtypes(d::floating)
      .composite([](const Tensor& of_input, const Tensor& of_state, const Tensor& cx) {
        auto gate = chunk(add(of_input, of_state), 4, -1);
        Tensor c = add(mul(sigmoid(gate[1]), cx), mul(sigmoid(gate[0]), tanh(gate[2])));
        return std::tuple(mul(sigmoid(gate[3]), tanh(c)), c);
      })
      .samples({"of_input[2, 12], of_state[2, 12], cx[2, 3]"});
  define("_gru_step(Tensor of_input, Tensor of_state, Tensor hx) -> Tensor")
      .doc("The hidden state of a GRU from the gates (reset, update, new) of its two products.")
      .grad_name("Add")
      .bind(hidden)
      .no_in_place()
      .dtypes(d::floating)
      .composite([](const Tensor& of_input, const Tensor& of_state, const Tensor& hx) {
        auto x = chunk(of_input, 3, -1), h = chunk(of_state, 3, -1);
        Tensor reset = sigmoid(add(x[0], h[0])), update = sigmoid(add(x[1], h[1]));
        Tensor fresh = tanh(add(x[2], mul(reset, h[2])));
        return add(mul(sub(hx, fresh), update), fresh);
      })
      .samples({"of_input[2, 9], of_state[2, 9], hx[2, 3]"});

  define(
      "_recurrence(Tensor input, Tensor hx, Tensor? cx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor? w_hr, Tensor? batch_sizes, str cell, bool reverse, bool keep) "
      "-> (Tensor output, Tensor h, Tensor c, Tensor kept)")
      .doc(
          "One direction of a recurrent layer over the rows of all steps: its outputs, the last states, and, if `keep`, what its gradient reads. `cell` is lstm, gru, tanh or relu.")
      .bind(hidden)
      .dtypes(kReal)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>(4, c.dtype("input")); })
      .shapes([](const Call& c) {
        SymInt rows = c.size("input", 0);
        Cell cell = Direction::cell_of(c);
        bool lstm = cell == Cell::lstm;
        SymInt units = lstm ? c.size("cx", 1) : c.size("hx", 1);
        Dims none{kZero};
        int64_t kept = lstm ? 5 + c.has("w_hr") : cell == Cell::gru ? 4 : 0;  // and the state
        return std::vector<Dims>{{rows, c.size("hx", 1)},
                                 Dims(c.sizes("hx")),
                                 lstm ? Dims(c.sizes("cx")) : none,
                                 c.flag("keep") ? Dims{rows, units * SymInt(kept) + c.size("hx", 1)} : none};
      })
      .non_differentiable({3})
      .undifferenced("result kept serves the gradient of the others alone")
      .library("recurrence")
      .reference([](const Call& c) {
        Direction d(c);
        auto r = forward(d.cell, d.x, d.sizes(), d.start, d.w, d.reverse, c.flag("keep"));
        Tensor none = zeros({kZero}, d.x.dtype());
        return Results{r.output, r.ended.h, d.cell == Cell::lstm ? r.ended.c : none,
                       c.flag("keep") ? kept_of(d.cell, r, d.w) : none};
      })
      .vjp(recurrence_gradients)
      .samples(
          {"input[6, 4], hx[2, 3], cx[2, 3], w_ih[12, 4], w_hh[12, 3], b_ih[12], b_hh[12], w_hr=None, batch_sizes=None, cell='lstm', reverse=False, keep=True",
           "input[6, 4], hx[2, 3], cx=None, w_ih[9, 4], w_hh[9, 3], b_ih[9], b_hh[9], w_hr=None, batch_sizes=None, cell='gru', reverse=True, keep=True",
           "input[6, 4], hx[2, 3], cx=None, w_ih[3, 4], w_hh[3, 3], b_ih=None, b_hh=None, w_hr=None, batch_sizes=None, cell='tanh', reverse=False, keep=True",
           "input[6, 4], hx[2, 2], cx[2, 3], w_ih[12, 4], w_hh[12, 2], b_ih[12], b_hh[12], w_hr[2, 3], batch_sizes=None, cell='lstm', reverse=True, keep=True"});
  define(
      "_recurrence_backward(Tensor? grad_output, Tensor? grad_h, Tensor? grad_c, Tensor kept, Tensor input, Tensor hx, Tensor? cx, Tensor w_hh, "
      "Tensor? w_hr, Tensor? batch_sizes, str cell, bool reverse, bool needs_h) -> (Tensor of_input, Tensor of_state, Tensor h, Tensor c, Tensor before, Tensor of_output)")
      .doc(
          "The gradients of a _recurrence's products with its input and with its states (where they differ) and, if `needs_h`, of the first states; and the states that came into the steps.")
      .bind(hidden)
      .dtypes(kReal)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>(6, c.dtype("input")); })
      .shapes([](const Call& c) {
        Cell cell = Direction::cell_of(c);
        Dims none{kZero}, states(c.sizes("hx")), states_of_steps{c.size("input", 0), c.size("hx", 1)},
            gates{c.size("input", 0), c.size("w_hh", 0)};
        return std::vector<Dims>{gates,           cell == Cell::gru ? gates : none,
                                 states,          cell == Cell::lstm ? Dims(c.sizes("cx")) : none,
                                 states_of_steps, c.has("w_hr") ? states_of_steps : none};
      })
      .non_differentiable()
      .undifferenced("gradients of gradients go step by step, by other operators")
      .library("recurrence_backward")
      .reference(backward_reference)
      .samples(
          {"grad_output[6, 3], grad_h[2, 3], grad_c[2, 3], kept[6, 18], input[6, 4], hx[2, 3], cx[2, 3], w_hh[12, 3], w_hr=None, batch_sizes=None, cell='lstm', reverse=True, needs_h=True",
           "grad_output[6, 3], grad_h[2, 3], grad_c=None, kept[6, 15], input[6, 4], hx[2, 3], cx=None, w_hh[9, 3], w_hr=None, batch_sizes=None, cell='gru', reverse=False, needs_h=True",
           "grad_output[6, 3], grad_h=None, grad_c=None, kept[6, 3], input[6, 4], hx[2, 3], cx=None, w_hh[3, 3], w_hr=None, batch_sizes=None, cell='relu', reverse=False, needs_h=False",
           "grad_output[6, 2], grad_h[2, 2], grad_c[2, 3], kept[6, 20], input[6, 4], hx[2, 2], cx[2, 3], w_hh[12, 2], w_hr[2, 3], batch_sizes=None, cell='lstm', reverse=False, needs_h=True"});

  define(
      "lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)")
      .differs(catalog::kOverflows, catalog::kOrderOfSums)
      .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
      .differs(catalog::kSteps16, catalog::kRoundedOnce)
      .differs(kSquashed, catalog::kByParts)
      .differs(kUnstable, kNearPoles)
      .differs(kFewGates, kReadBeyond)
      .doc("Long short-term memory over [T, N, features].  Hochreiter, Schmidhuber, 1997.")
      .grad_name(output_name)
      .autocast(by_state_of_layer)
      .bind(function)
      .dtypes(d::floating)
      .procedure([](const Call& c) {
        auto [h, cell] = two(c);
        Result r = run_padded(c, Cell::lstm, h, cell);
        return Results{r.output, r.h, r.c};
      })
      .samples(
          {"input[3, 2, 4], hx{[1, 2, 3], [1, 2, 3]}, params{[12, 4], [12, 3], [12], [12]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False"});
  define(
      "lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)")
      .differs(catalog::kOverflows, catalog::kOrderOfSums)
      .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
      .differs(catalog::kSteps16, catalog::kRoundedOnce)
      .differs(kSquashed, catalog::kByParts)
      .differs(kUnstable, kNearPoles)
      .differs(kFewGates, kReadBeyond)
      .differs(kSteppedSizes, kSizesUnread)
      .differs("float16 value 2: -?\\d\\S* for -?\\d\\S* with hx: lowest",
               "rounded once; PyTorch rounds every gate to 16 bits")
      .doc("lstm over packed sequences.")
      .grad_name(output_name)
      .autocast(by_state_of_layer)
      .bind(function)
      .reads_data()
      .dtypes(d::floating)
      .procedure([](const Call& c) {
        auto [h, cell] = two(c);
        Result r = run_packed(c, Cell::lstm, h, cell);
        return Results{r.output, r.h, r.c};
      })
      .samples(
          {"data[3, 4], batch_sizes<2>[3](1, 2), hx{[1, 1, 3], [1, 1, 3]}, params{[12, 4], [12, 3], [12], [12]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False"});
  padded("gru", Cell::gru, "Gated recurrent units over [T, N, features].  Cho et al., 2014.")
      .samples(
          {"input[3, 2, 4], hx[1, 2, 3], params{[9, 4], [9, 3], [9], [9]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False"});
  packed("gru", Cell::gru, "gru over packed sequences.")
      .samples(
          {"data[3, 4], batch_sizes<2>[3](1, 2), hx[1, 1, 3], params{[9, 4], [9, 3], [9], [9]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False"});
  padded("rnn_tanh", Cell::tanh,
         "tanh(input w_ih^T + b_ih + state w_hh^T + b_hh), step by step over [T, N, features].")
      .samples(
          {"input[3, 2, 4], hx[1, 2, 3], params{[3, 4], [3, 3], [3], [3]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False"});
  packed("rnn_tanh", Cell::tanh, "rnn_tanh over packed sequences.")
      .samples(
          {"data[3, 4], batch_sizes<2>[3](1, 2), hx[1, 1, 3], params{[3, 4], [3, 3], [3], [3]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False"});
  padded("rnn_relu", Cell::relu, "rnn_tanh with relu instead of tanh.")
      .samples(
          {"input[3, 2, 4], hx[1, 2, 3], params{[3, 4], [3, 3], [3], [3]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False"});
  packed("rnn_relu", Cell::relu, "rnn_relu over packed sequences.")
      .samples(
          {"data[3, 4], batch_sizes<2>[3](1, 2), hx[1, 1, 3], params{[3, 4], [3, 3], [3], [3]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False"});
  define(
      "lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, Tensor)")
      .differs(catalog::kOverflows, catalog::kOrderOfSums)
      .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
      .differs(catalog::kSteps16, catalog::kRoundedOnce)
      .differs(kSquashed, catalog::kByParts)
      .differs(kUnstable, kNearPoles)
      .differs(kFewGates, kReadBeyond)
      .differs("complex\\d+ (value|value \\d|gradient of \\S+): .*nan.* for .* with w_hh: (-?infj?|inf and)",
               "sigmoid and tanh have no limit at complex infinity; PyTorch takes one")
      .doc("One step of an LSTM: the next hidden and cell states.")
      .autocast([](const Call& c, DType lower) { return by_state(c, lower); })
      .bind(function)
      .dtypes(d::floating)
      .procedure([](const Call& c) {
        auto [h, cell] = two(c);
        auto [x, y] = gates(c, Cell::lstm, h);
        return _lstm_step(x, y, cell);
      })
      .samples({"input[2, 4], hx{[2, 3], [2, 3]}, w_ih[12, 4], w_hh[12, 3], b_ih[12], b_hh[12]"});
  one_step("gru_cell", Cell::gru, "One step of a GRU: the next hidden state.")
      .samples({"input[2, 4], hx[2, 3], w_ih[9, 4], w_hh[9, 3], b_ih[9], b_hh[9]"});
  one_step("rnn_tanh_cell", Cell::tanh, "tanh(input w_ih^T + b_ih + hx w_hh^T + b_hh).")
      .samples({"input[2, 4], hx[2, 3], w_ih[3, 4], w_hh[3, 3], b_ih[3], b_hh[3]"});
  one_step("rnn_relu_cell", Cell::relu, "relu(input w_ih^T + b_ih + hx w_hh^T + b_hh).")
      .samples({"input[2, 4], hx[2, 3], w_ih[3, 4], w_hh[3, 3], b_ih[3], b_hh[3]"});
}
