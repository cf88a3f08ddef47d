// Recurrent layers and cells: LSTM, GRU and Elman networks.
#include <algorithm>
#include <optional>

#include "facula/autograd/autograd.h"
#include "facula/catalog/recurrent_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::recurrent_helpers;

namespace {
// The steps of a layer: `count` of `first` sequences each, or of packed sequences, by step.
struct Steps {
  SymInt count, first;
  StepSizes packed = {};
  StepSizes sizes() const { return packed.empty() ? StepSizes(size_t(count.guard_int()), first) : packed; }
  // The rows of all steps. Nothing if a size is 0, or a later step has more sequences.
  std::optional<SymInt> rows() const {
    if (packed.empty()) return first <= kZero ? std::optional<SymInt>() : count * first;
    SymInt rows = int64_t(0);
    for (size_t t = 0; t < packed.size(); rows += packed[t++])
      if (packed[t] <= kZero || (t && packed[t] > packed[t - 1])) return std::nullopt;
    return rows;
  }
};
// Whether one library call computes the direction. Everything else goes step by step: operands that the call does not take, which
// the steps report if they are wrong, and calls under a mode (vmap, forward mode, a trace that knows the number of steps).
bool fits(Cell cell, const Tensor& x, const Steps& steps, const State& start, const Weights& w) {
  DType d = x.dtype();
  auto* mode = op::Mode::current();
  bool is_walked = mode && !(mode->records() && steps.count.is_symbolic());
  if (is_walked || !kReal.has(d)) return false;
  SymInt size = start.h.size(-1), units = start.c.defined() ? start.c.size(-1) : size,
         gates = units * SymInt(gates_of(cell));
  auto is = [&](const Tensor& t, Dims expected) {
    return t.dtype() == d && std::ranges::equal(t.sizes(), expected);
  };
  auto rows = steps.rows();
  if (!rows) return false;
  SymInt first = steps.first;
  if (units == kZero || size == kZero || !is(x, {*rows, w.input.size(-1)}) || !is(start.h, {first, size}) ||
      !is(w.input, {gates, x.size(-1)}) || !is(w.state, {gates, size}))
    return false;
  if (start.c.defined() && !is(start.c, {first, units})) return false;
  if (w.projection.defined() ? !is(w.projection, {size, units}) : size != units) return false;
  return !w.input_bias.defined() || (is(w.input_bias, {gates}) && is(w.state_bias, {gates}));
}
std::pair<Tensor, State> one_direction(Cell cell, const Tensor& x, const Steps& steps,
                                       const Tensor& batch_sizes, const State& start, const Weights& w,
                                       bool reverse) {
  if (!fits(cell, x, steps, start, w)) {
    auto walked = forward(cell, x, steps.sizes(), start, w, reverse, false);
    return {walked.output, walked.ended};
  }
  bool wanted = op::Mode::current();  // a trace is differentiated later
  if (autograd::grad_enabled())
    for (auto* t : {&x, &start.h, &start.c, &w.input, &w.state, &w.input_bias, &w.state_bias, &w.projection})
      wanted |= t->defined() && t->requires_grad();
  auto [y, h, c, kept] =
      _recurrence(x, start.h, maybe(start.c), w.input, w.state, maybe(w.input_bias), maybe(w.state_bias),
                  maybe(w.projection), maybe(batch_sizes), Direction::kNames[size_t(cell)], reverse, wanted);
  return {y, {h, cell == Cell::lstm ? c : Tensor()}};
}
struct Result {
  Tensor output, h, c;
};
// All layers of a call. `h` and `c` are [layers * directions, N, size], `x` and the output rows as walk() has them.
Result run(const Call& call, Cell cell, Tensor x, const Steps& steps, const Tensor& batch_sizes,
           const Tensor& h, const Tensor& c) {
  const char* name = call.name();
  auto params = call.tensors("params");
  int64_t layers = call.integer("num_layers").guard_int(), directions = call.flag("bidirectional") ? 2 : 1;
  bool biased = call.flag("has_biases"), projected = c.defined() && !(c.size(-1) == h.size(-1));
  size_t each = (biased ? 4 : 2) + size_t(projected);
  runtime_check(params.size() == each * size_t(layers * directions), name)
      << "expected " << each << " parameters for each of " << layers << " layers in " << directions
      << " directions, got " << params.size();
  runtime_check(steps.count > kZero, name) << "expected sequence length to be larger than 0";
  runtime_check(h.dim() == 3 && h.size(0) == SymInt(layers * directions) && h.size(1) == steps.first, name)
      << "expected hidden state of shape [" << layers * directions << ", " << steps.first << ", size], got "
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
      auto [y, s] = one_direction(cell, x, steps, batch_sizes, {hs[k], cs[k]}, w, direction == 1);
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
  Result r = run(call, cell, reshape(x, Dims{steps * batch, x.size(2)}), {steps, batch}, {}, h, c);
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
  auto sizes = numbers_of(batches);
  runtime_check(!sizes.empty(), call.name()) << "expected sequence length to be larger than 0";
  return run(call, cell, data, {int64_t(sizes.size()), sizes.front(), sizes}, batches, h, c);
}
std::pair<Tensor, Tensor> two(const Call& c) {
  auto hx = c.tensors("hx");
  runtime_check(hx.size() == 2, c.name()) << "expects two hidden states, got " << hx.size();
  return {hx[0], hx[1]};
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
          .doc(doc)
          .autocast([cell](const Call& c, DType lower) {
            return cell == Cell::gru ? by_state(c, lower) : Autocast::lower;
          })
          .bind(function)
          .dtypes(d::floating)
          .procedure([cell](const Call& c) {
            Tensor h = c.tensor("hx");
            auto [x, y] = gates(c, cell, h);
            return step(cell, x, y, {h, {}}).h;
          }));
}
}  // namespace

FACULA_FAMILY(recurrent_layers) {
  define(
      "lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)")
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
