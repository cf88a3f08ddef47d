// Recurrent networks: one step of each cell is a fused body; a layer is a product for all steps at once and a walk
// over them, which float32 and float64 take in one call (_recurrence).
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
// The values of all steps that the gradient reads: activated gates of each unit, projected states, and the states after the step
// (device/cpu/recurrent_nest.h).
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
      .non_differentiable({3}, "it serves the gradient of the others alone")
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
      .non_differentiable("gradients of gradients go step by step, by other operators")
      .library("recurrence_backward")
      .reference(backward_reference)
      .samples(
          {"grad_output[6, 3], grad_h[2, 3], grad_c[2, 3], kept[6, 18], input[6, 4], hx[2, 3], cx[2, 3], w_hh[12, 3], w_hr=None, batch_sizes=None, cell='lstm', reverse=True, needs_h=True",
           "grad_output[6, 3], grad_h[2, 3], grad_c=None, kept[6, 15], input[6, 4], hx[2, 3], cx=None, w_hh[9, 3], w_hr=None, batch_sizes=None, cell='gru', reverse=False, needs_h=True",
           "grad_output[6, 3], grad_h=None, grad_c=None, kept[6, 3], input[6, 4], hx[2, 3], cx=None, w_hh[3, 3], w_hr=None, batch_sizes=None, cell='relu', reverse=False, needs_h=False",
           "grad_output[6, 2], grad_h[2, 2], grad_c[2, 3], kept[6, 20], input[6, 4], hx[2, 2], cx[2, 3], w_hh[12, 2], w_hr[2, 3], batch_sizes=None, cell='lstm', reverse=False, needs_h=True"});
}
