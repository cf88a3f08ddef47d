#include "facula/device/cpu/skinny_nest.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;
using P = SkinnyParam;
using B = SkinnyBuffer;

class SkinnyTask : public NestBuilder {
 public:
  explicit SkinnyTask(const SkinnyVariant& v) : NestBuilder(DType::Float32, v.lanes), v_(v) {}

  void run(Expr task) {
    Expr first = let(task * param(P::columns));
    Expr count = let(min(param(P::n) - first, param(P::columns)));
    each(ceil_div(count, v_.columns), [&](Expr group) {
      Expr column = let(first + group * n_of(v_.columns));
      each(ceil_div(param(P::m), v_.rows), [&](Expr rows) { multiply(let(rows * n_of(v_.rows)), column); });
    });
    if (v_.form.epilogue.value || v_.form.beside)
      each(param(P::m), [&](Expr row) {
        vector(count, [&](Expr c) {
          Expr column = first + c, at = row * param(P::out_stride) + column;
          Expr sum = let(read(B::out_before, at));
          auto value = [&](const Epilogue& e) { return applied(e, sum, row, column, B::count, P::count); };
          store(v_.form.beside ? B::result : B::out, at, value(v_.form.epilogue));
          if (v_.form.saved.value) store(B::out, at, value(v_.form.saved));
        });
      });
  }

 private:
  // Rows and columns beyond the last repeat it, and are not stored.
  void multiply(Expr row, Expr column) {
    std::vector<Expr> left, right;
    for (int r = 0; r < v_.rows; ++r)
      left.push_back(let(min(row + n_of(r), param(P::m) - n_of(1)) * param(P::a_stride)));
    for (int c = 0; c < v_.columns; ++c)
      right.push_back(let(min(column + n_of(c), param(P::n) - n_of(1)) * param(P::b_stride)));
    Expr full_groups = let(floordiv(param(P::k), n_of(lanes())));
    vector(number(lanes()), [&](Expr lane) {
      std::vector<Expr> sums;
      for (int k = 0; k < v_.rows * v_.columns; ++k) sums.push_back(variable(real(0)));
      auto add = [&](auto&& element) {
        std::vector<Expr> x;
        for (Expr from : left) x.push_back(let(element(B::a, from)));
        for (int c = 0; c < v_.columns; ++c) {
          Expr y = let(element(B::b, right[size_t(c)]));
          for (int r = 0; r < v_.rows; ++r) {
            Expr sum = sums[size_t(r * v_.columns + c)];
            set(sum, fma(x[size_t(r)], y, sum));
          }
        }
      };
      each(full_groups, [&](Expr g) {
        Expr k = let(g * n_of(lanes()));
        add([&](int buffer, Expr from) { return read(buffer, from + k + lane, v_.form.operands); });
      });
      Expr done = let(full_groups * n_of(lanes()));
      when(done < param(P::k), [&] {
        Expr inside = let(done + lane < param(P::k));
        add([&](int buffer, Expr from) {
          return select(inside, read(buffer, from + done + lane, v_.form.operands), real(0));
        });
      });
      for (int k = 0; k < v_.rows * v_.columns; ++k)
        store(B::tile, number(k * lanes()) + lane, sums[size_t(k)]);
    });
    each(number(v_.rows), [&](Expr r) {
      each(number(v_.columns), [&](Expr c) {
        Expr to_row = row + r, to_column = column + c;
        when((to_row < param(P::m)) & (to_column < param(P::n)), [&] {
          Expr sum = sum_of_lanes((r * n_of(v_.columns) + c) * n_of(lanes()));
          store(B::out, to_row * param(P::out_stride) + to_column, sum);
        });
      });
    });
  }
  Expr sum_of_lanes(Expr from) {
    Expr total = accumulator(Monoid::sum, dtype());
    vector(number(lanes()), [&](Expr lane) { accumulate(total, Monoid::sum, read(B::tile, from + lane)); });
    return total;
  }

  const SkinnyVariant v_;
};

}  // namespace

SkinnyVariant skinny_variant(int64_t rows, int lanes) {
  // The sums fill the registers that the loads of a step leave.
  bool many = lanes >= 16;
  if (rows == 1) return {1, many ? 8 : 6};
  if (rows == 2) return {2, many ? 8 : 4};
  if (rows <= 4 || !many) return {4, many ? 6 : 2};
  return {8, 3};
}

TaskNest skinny_nest(const SkinnyVariant& v) {
  SkinnyTask t(v);
  int task_var = t.fresh();
  t.run(index(task_var));
  Nest n = nest_of_product<B, P>("product_skinny", v.form, task_var);
  n.buffers[B::b].dtype = v.form.operands;
  n.cost = param(P::m) * param(P::columns) * param(P::k);
  n.body = std::move(t.block);
  int64_t lanes = t.lanes();
  return {std::move(n), {{B::tile, number(v.rows * v.columns * lanes)}}, {{B::out_before, B::out}}};
}

}  // namespace facula::device::cpu
