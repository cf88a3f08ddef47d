// Helpers of the families recurrent and recurrent_layers.
#pragma once
#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::recurrent_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

inline const SymInt kOne = int64_t(1), kZero = int64_t(0);
enum class Cell { lstm, gru, tanh, relu };
struct State {
  Tensor h, c;  // c: of an LSTM
};
inline State step(Cell cell, const Tensor& of_input, const Tensor& of_state, const State& s) {
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
inline int64_t gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }
// A step reads each gate of each hidden element, so there must be as many.
inline void check_rows(const char* name, Cell cell, const SymInt& hidden, const Tensor& input,
                       const Tensor& state) {
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
inline std::vector<int64_t> numbers_of(const Tensor& t) {
  Tensor plain = contiguous(t).on_host();
  return {plain.data<int64_t>(), plain.data<int64_t>() + plain.numel().guard_int()};
}
inline MaybeTensor maybe(const Tensor& t) { return t.defined() ? MaybeTensor(t) : MaybeTensor(); }
inline State rows_of(const State& s, int64_t from, int64_t to) {
  auto part = [&](const Tensor& t) {
    return t.defined() ? narrow(t, 0, SymInt(from), SymInt(to - from)) : t;
  };
  return State{part(s.h), part(s.c)};
}
inline Tensor joined(const std::vector<Tensor>& parts) {
  return parts.size() == 1 ? parts[0] : cat(parts, 0);
}
inline State joined(const std::vector<State>& parts) {
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
State walk(const std::vector<int64_t>& sizes, const State& start, bool reverse, F&& f) {
  std::vector<State> ended;  // last first
  int64_t held = reverse ? sizes.back() : sizes.front();
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
inline std::vector<Tensor> by_steps(const Tensor& rows, const std::vector<int64_t>& sizes) {
  Dims parts;
  for (auto n : sizes) parts.push_back(SymInt(n));
  return sizes.size() == 1 ? std::vector<Tensor>{rows} : split(rows, parts, 0);
}
// One direction of one layer, step by step. Of `given`, the products of the input.
struct Walked {
  Tensor given, output;
  State ended;
  // If they are wanted: the states that came into the steps, the cell states after them, and states that are projected.
  Tensor before, cells, hidden;
};
inline Walked forward(Cell cell, const Tensor& x, const std::vector<int64_t>& sizes, const State& start,
                      Weights w, bool reverse, bool wanted) {
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
  std::vector<int64_t> sizes() const { return sizes_of(x, start.h, batch_sizes); }
  static std::vector<int64_t> sizes_of(const Tensor& x, const Tensor& h, const Tensor& batch_sizes) {
    if (batch_sizes.defined()) return numbers_of(batch_sizes);
    int64_t each = h.size(0).guard_int();
    return std::vector<int64_t>(size_t(x.size(0).guard_int() / each), each);
  }
};
inline constexpr DTypeSet kReal =
    dtypes_where([](DType t) { return t == DType::Float32 || t == DType::Float64; });
// The gates of a cell's two products.
inline std::pair<Tensor, Tensor> gates(const Call& c, Cell cell, const Tensor& h) {
  Tensor input = c.tensor("input"), wi = c.tensor("w_ih"), wh = c.tensor("w_hh");
  runtime_check(input.size(-1) == wi.size(-1) && h.size(-1) == wh.size(-1), c.name())
      << "input and hidden state must have the last sizes " << wi.size(-1) << " and " << wh.size(-1)
      << ", got " << to_string(input.sizes()) << " and " << to_string(h.sizes());
  check_rows(c.name(), cell, h.size(-1), wi, wh);
  return {linear(input, wi, maybe(c.tensor("b_ih"))), linear(h, wh, maybe(c.tensor("b_hh")))};
}

}  // namespace facula::catalog::recurrent_helpers
