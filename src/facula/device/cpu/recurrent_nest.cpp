#include "facula/device/cpu/recurrent_nest.h"

#include "facula/device/cpu/nest_builder.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;
using P = StepParam;

constexpr int64_t kTermBits = 6, kTerms = 1 << kTermBits;  // terms of a partial sum

Expr scaled(Expr i, int64_t by) { return i * Scalar(by); }

class Step : public NestBuilder {
 public:
  explicit Step(const StepVariant& v) : NestBuilder(v.dtype), v_(v) {}

  void run() {
    int64_t width = int64_t(v_.vectors) * lanes();
    each(param(P::strips), [&](Expr strip) {
      Expr first = let(scaled(strip, width));
      each(param(P::blocks), [&](Expr block) {
        rows_.clear();
        for (int r = 0; r < v_.rows; ++r) rows_.push_back(let(scaled(block, v_.rows) + Scalar(int64_t(r))));
        Expr units = v_.tail ? min(param(P::units) - first, number(lanes())) : number(lanes());
        vector(units, [&](Expr lane) {
          auto sums = v_.backward ? arriving(strip, first, lane) : gates(strip, first, lane);
          for (int r = 0; r < v_.rows; ++r)
            for (int c = 0; c < v_.vectors; ++c) apply(r, unit(first, c, lane), &sums[place(r, c, 0)]);
        });
      });
    });
  }

 private:
  int width() const { return v_.backward ? 1 : gates_of(v_.cell); }
  size_t place(int row, int vector, int gate) const {
    return size_t((row * v_.vectors + vector) * width() + gate);
  }
  Expr unit(Expr first, int vector, Expr lane) const {
    return first + Scalar(int64_t(vector) * lanes()) + lane;
  }
  Expr at(int r, int stride, Expr column) const { return rows_[size_t(r)] * param(stride) + column; }
  Expr gate(int k, Expr unit) const { return scaled(param(P::units), k) + unit; }
  bool scales_state(int gate) const { return v_.cell == Cell::gru && gate == 2; }

  // sums[row, vector, gate] += sum over k of left(row, k) * weight[strip, k, gate, unit], summed by blocks of terms, so
  // that rounding errors are those of short sums.
  template <class Left>
  void add_products(std::vector<Expr>& sums, Expr strip, Expr lane, int weight, Left left) {
    int64_t step = int64_t(v_.vectors) * lanes() * width();
    Expr origin = let(scaled(strip * param(P::inner), step));
    each(shr(param(P::inner) + number(kTerms - 1), number(kTermBits)), [&](Expr block) {
      Expr first = let(scaled(block, kTerms));
      std::vector<Expr> parts;
      for (size_t k = 0; k < sums.size(); ++k) parts.push_back(variable(real(0)));
      each(min(param(P::inner) - first, number(kTerms)), [&](Expr term) {
        Expr k = let(first + term);
        std::vector<Expr> from;
        for (int g = 0; g < width(); ++g)
          for (int c = 0; c < v_.vectors; ++c)
            from.push_back(let(read(weight, origin + scaled(k, step) +
                                                Scalar(int64_t(g * v_.vectors + c) * lanes()) + lane)));
        for (int r = 0; r < v_.rows; ++r) {
          Expr x = let(left(r, k));
          for (int g = 0; g < width(); ++g)
            for (int c = 0; c < v_.vectors; ++c) {
              Expr part = parts[place(r, c, g)];
              set(part, call(Fn::fma, {x, from[size_t(g * v_.vectors + c)], part}));
            }
        }
      });
      for (size_t k = 0; k < sums.size(); ++k) set(sums[k], sums[k] + parts[k]);
    });
  }
  std::vector<Expr> gates(Expr strip, Expr first, Expr lane) {
    using B = StepForward;
    std::vector<Expr> sums;
    for (int r = 0; r < v_.rows; ++r)
      for (int c = 0; c < v_.vectors; ++c)
        for (int g = 0; g < width(); ++g) {
          Expr j = unit(first, c, lane);
          sums.push_back(variable(scales_state(g) ? read(B::bias, j)
                                                  : read(B::external, at(r, P::external, gate(g, j)))));
        }
    add_products(sums, strip, lane, B::weight,
                 [&](int r, Expr k) { return read(B::state, at(r, P::state, k)); });
    return sums;
  }
  std::vector<Expr> arriving(Expr strip, Expr first, Expr lane) {
    using B = StepBackward;
    std::vector<Expr> sums;
    for (int r = 0; r < v_.rows; ++r)
      for (int c = 0; c < v_.vectors; ++c) {
        Expr j = unit(first, c, lane);
        sums.push_back(
            variable(read(B::external, at(r, P::external, j)) + read(B::carried, at(r, P::carried, j))));
      }
    add_products(sums, strip, lane, B::weight,
                 [&](int r, Expr k) { return read(B::later, at(r, P::later, k)); });
    return sums;
  }

  void apply(int r, Expr j, const Expr* sums) {
    switch (v_.cell) {
      case Cell::lstm: return v_.backward ? lstm_backward(r, j, sums[0]) : lstm(r, j, sums);
      case Cell::gru: return v_.backward ? gru_backward(r, j, sums[0]) : gru(r, j, sums);
      default: return v_.backward ? plain_backward(r, j, sums[0]) : plain(r, j, sums[0]);
    }
  }
  void keep(int r, Expr j, int k, Expr x) {
    if (v_.keeps) store(StepForward::saved, at(r, P::saved, gate(k, j)), x);
  }
  void finish(int r, Expr j, Expr state) {
    Expr x = let(state);
    store(StepForward::out, at(r, P::out, j), x);
    keep(r, j, saved_of(v_.cell), x);
  }
  Expr saved(int r, Expr j, int k) { return let(read(StepBackward::saved, at(r, P::saved, gate(k, j)))); }
  // x (1 - x) y: the gradient of a sigmoid's argument, for its value x and the gradient y of its value.
  Expr through_sigmoid(Expr x, Expr y) const { return y * x * (real(1) - x); }
  Expr through_tanh(Expr x, Expr y) const { return y * (real(1) - x * x); }

  void lstm(int r, Expr j, const Expr* sums) {
    using B = StepForward;
    Expr in = let(sigmoid(sums[0])), forget = let(sigmoid(sums[1])), fresh = let(tanh(sums[2])),
         out = let(sigmoid(sums[3]));
    Expr c = let(forget * read(B::cell, at(r, P::cell, j)) + in * fresh);
    Expr saved[] = {in, forget, fresh, out};
    for (int k = 0; k < 4; ++k) keep(r, j, k, saved[k]);
    store(B::cell_next, at(r, P::cell_next, j), c);
    finish(r, j, out * tanh(c));
  }
  void lstm_backward(int r, Expr j, Expr grad) {
    using B = StepBackward;
    Expr in = saved(r, j, 0), forget = saved(r, j, 1), fresh = saved(r, j, 2), out = saved(r, j, 3);
    Expr squashed = let(tanh(saved(r, j, 4)));
    Expr c = let(read(B::cell_grad, at(r, P::cell_grad, j)) + through_tanh(squashed, grad * out));
    Expr of_gates[] = {through_sigmoid(in, c * fresh),
                       through_sigmoid(forget, c * read(B::cell, at(r, P::cell, j))),
                       through_tanh(fresh, c * in), through_sigmoid(out, grad * squashed)};
    for (int k = 0; k < 4; ++k) store(B::out, at(r, P::out, gate(k, j)), of_gates[k]);
    store(B::cell_carry, at(r, P::cell_grad, j), c * forget);
  }
  void gru(int r, Expr j, const Expr* sums) {
    using B = StepForward;
    Expr reset = let(sigmoid(sums[0])), update = let(sigmoid(sums[1])), product = let(sums[2]);
    Expr fresh = let(tanh(read(B::external, at(r, P::external, gate(2, j))) + reset * product));
    Expr saved[] = {reset, update, fresh, product};
    for (int k = 0; k < 4; ++k) keep(r, j, k, saved[k]);
    finish(r, j, (read(B::state, at(r, P::state, j)) - fresh) * update + fresh);
  }
  void gru_backward(int r, Expr j, Expr grad) {
    using B = StepBackward;
    Expr reset = saved(r, j, 0), update = saved(r, j, 1), fresh = saved(r, j, 2), product = saved(r, j, 3);
    Expr of_fresh = let(through_tanh(fresh, grad - grad * update));
    Expr of_gates[] = {let(through_sigmoid(reset, of_fresh * product)),
                       let(through_sigmoid(update, grad * (read(B::state, at(r, P::state, j)) - fresh))),
                       of_fresh};
    for (int k = 0; k < 3; ++k) {
      store(B::out, at(r, P::out, gate(k, j)), of_gates[k]);
      store(B::of_state, at(r, P::out, gate(k, j)), k == 2 ? of_fresh * reset : of_gates[k]);
    }
    store(B::carry, at(r, P::carry, j), grad * update);
  }
  void plain(int r, Expr j, Expr sum) {
    finish(r, j, v_.cell == Cell::tanh ? tanh(sum) : v_.cell == Cell::relu ? relu(sum) : sum);
  }
  void plain_backward(int r, Expr j, Expr grad) {
    if (v_.cell == Cell::none) return store(StepBackward::out, at(r, P::out, j), grad);
    Expr y = saved(r, j, 0);
    store(StepBackward::out, at(r, P::out, j),
          v_.cell == Cell::tanh ? through_tanh(y, grad) : select(y <= real(0), real(0), grad));
  }

  const StepVariant v_;
  std::vector<Expr> rows_;
};

}  // namespace

loop::Nest step_nest(const StepVariant& v) {
  Step step(v);
  Nest n;
  n.name = v.backward ? "recurrent_step_backward" : "recurrent_step";
  int count = v.backward ? int(StepBackward::count) : int(StepForward::count);
  for (int k = 0; k < count; ++k) n.buffers.push_back({v.dtype, false, "", false});
  using F = StepForward;
  using B = StepBackward;
  auto unique = v.backward ? std::vector<int>{B::weight, B::later, B::out, B::of_state}
                           : std::vector<int>{F::external, F::weight, F::bias, F::state};
  auto written = v.backward ? std::vector<int>{B::out, B::of_state, B::carry, B::cell_carry}
                            : std::vector<int>{F::cell_next, F::out, F::saved};
  for (int k : unique) n.buffers[size_t(k)].unique = true;
  for (int k : written) n.buffers[size_t(k)].written = true;
  n.params = P::count;
  n.task_var = step.fresh();
  n.tasks = number(1);
  n.cost = param(P::units) * param(P::inner);
  step.run();
  n.body = std::move(step.block);
  return n;
}

}  // namespace facula::device::cpu
