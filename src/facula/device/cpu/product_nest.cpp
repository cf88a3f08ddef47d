#include "facula/device/cpu/product_nest.h"

#include "facula/device/cpu/product_task.h"
#include "facula/schedule/product_tiles.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;
using P = ProductParam;
using B = ProductBuffer;

// The distance between rows of a packed tile. It is a constant, so that the places of a tile's rows cost no additions, and no
// multiple of the cache line, so that rows use different banks of the first cache.
constexpr int64_t kRowStride = schedule::kMostTerms + 2;
constexpr int kUnroll = 4;  // steps of a tile's loop between two tests of its counter

class VectorTask : public ProductTask {
 public:
  explicit VectorTask(const ProductVariant& v)
      : ProductTask(v.form, v.scaled, v.lanes,
                    {v.rows, int64_t(v.vectors) * lanes_of(v), B::count, P::count}),
        v_(v) {}

 private:
  static int lanes_of(const ProductVariant& v) { return v.lanes ? v.lanes : codegen::vector_lanes(); }
  int64_t width() const { return layout_.columns; }
  Expr origin_of(Expr tile) { return tile * n_of(v_.rows * kRowStride); }

  void pack_left(Expr tile) override { v_.left == Adjacent::row ? pack_rows(tile) : pack_columns(tile); }
  // left[tile][row][term]; rows beyond the last repeat it.
  void pack_rows(Expr tile) {
    Expr to = let(origin_of(tile));
    for (int r = 0; r < v_.rows; ++r) {
      Expr row = let(min(first_row_ + tile * n_of(v_.rows) + n_of(r), param(P::m) - n_of(1)));
      Expr from = let(a_ + row * param(P::a_stride) + k0_), into = let(to + n_of(r * kRowStride));
      vector(terms_, [&](Expr k) { store(B::left, into + k, read(B::a, from + k, v_.form.operands)); });
    }
  }
  // left[tile][term][row]. Whole vectors are copied, and the next term overwrites what is not the tile's.
  void pack_columns(Expr tile) {
    int vectors = (v_.rows + lanes() - 1) / lanes();
    Expr to = let(origin_of(tile)), row = let(first_row_ + tile * n_of(v_.rows));
    Expr from = let(a_ + row + k0_ * param(P::a_stride));
    Expr full = let(row + n_of(vectors * lanes()) <= param(P::m));
    when(full, [&] {
      each(terms_, [&](Expr k) {
        vector(number(vectors * lanes()), [&](Expr lane) {
          store(B::left, to + k * n_of(v_.rows) + lane,
                read(B::a, from + k * param(P::a_stride) + lane, v_.form.operands));
        });
      });
    });
    when(bit_not(full), [&] {
      each(terms_, [&](Expr k) {
        each(number(v_.rows), [&](Expr r) {
          Expr at = min(r, param(P::m) - n_of(1) - row);
          store(B::left, to + k * n_of(v_.rows) + r,
                read(B::a, from + k * param(P::a_stride) + at, v_.form.operands));
        });
      });
    });
  }

  void compute(Expr tile, const Part& part) override {
    Expr full = let(eq(part.rows, number(v_.rows)) & eq(part.columns, number(width())));
    Expr left = let(origin_of(tile));
    std::vector<Expr> right;
    Expr strip = let(floordiv(part.column, n_of(lanes())));
    for (int c = 0; c < v_.vectors; ++c)
      right.push_back(let(b_ + ((strip + n_of(c)) * param(P::k) + k0_) * n_of(lanes())));
    vector(number(lanes()), [&](Expr lane) {
      auto sums = multiply(left, right, lane);
      when(full, [&] {
        finish(sums, [&](int k) {
          int r = k / v_.vectors, c = k % v_.vectors;
          return Element{part.row + n_of(r), part.column + n_of(c * lanes()) + lane};
        });
      });
      when(bit_not(full), [&] {
        for (int r = 0; r < v_.rows; ++r)
          for (int c = 0; c < v_.vectors; ++c)
            store(B::tile, number(r * width() + c * lanes()) + lane, sums[size_t(r * v_.vectors + c)]);
      });
    });
    when(bit_not(full), [&] { finish_stored(part); });
  }

  std::vector<Expr> multiply(Expr left, const std::vector<Expr>& right, Expr lane) {
    std::vector<Expr> sums;
    for (int k = 0; k < v_.rows * v_.vectors; ++k) sums.push_back(variable(real(0)));
    auto step = [&](Expr k) {
      std::vector<Expr> from;
      for (int c = 0; c < v_.vectors; ++c)
        from.push_back(let(read(B::b, right[size_t(c)] + k * n_of(lanes()) + lane)));
      bool by_rows = v_.left == Adjacent::row;
      Expr term = let(left + (by_rows ? k : k * n_of(v_.rows)));
      for (int r = 0; r < v_.rows; ++r) {
        Expr x = let(read(B::left, term + n_of(by_rows ? r * kRowStride : r)));
        for (int c = 0; c < v_.vectors; ++c) {
          Expr sum = sums[size_t(r * v_.vectors + c)];
          set(sum, fma(x, from[size_t(c)], sum));
        }
      }
    };
    Expr groups = let(floordiv(terms_, n_of(kUnroll)));
    each(groups, [&](Expr g) {
      for (int u = 0; u < kUnroll; ++u) step(let(g * n_of(kUnroll) + n_of(u)));
    });
    each(terms_ - groups * n_of(kUnroll), [&](Expr k) { step(let(groups * n_of(kUnroll) + k)); });
    return sums;
  }

  const ProductVariant v_;
};

}  // namespace

Epilogue bias_epilogue(DType d) {
  return {local(schedule::kResultElement, DType::Float32) + load(0, d, {index(1)}), {d}, 0};
}

TaskNest product_nest(const ProductVariant& v) {
  VectorTask t(v);
  int task_var = t.fresh();
  t.run(index(task_var));
  Nest n = nest_of_product<B, P>("product", v.form, task_var);
  n.buffers[B::left].written = true;
  n.cost = param(P::rows) * param(P::columns) * param(P::k);
  n.body = std::move(t.block);
  int64_t lanes = t.lanes();
  return {std::move(n),
          {{B::left, param(P::rows) * n_of(kRowStride) + n_of(v.rows + 2 * lanes)},
           {B::tile, number(v.rows * v.vectors * lanes)}},
          {{B::out_before, B::out}}};
}

namespace {

using Q = PackParam;

struct PackTask : NestBuilder {
  explicit PackTask(const PackVariant& v) : NestBuilder(DType::Float32, v.lanes), memory(v.memory) {}
  const DType memory;
  Expr from, to;  // of the batch's matrices

  // Columns from `first` on, whose elements of a row are adjacent.
  void copy_strip(Expr strip, Expr k) {
    Expr first = let(strip * n_of(lanes())), into = let(to + (strip * param(Q::k) + k) * n_of(lanes()));
    Expr row = let(from + k * param(Q::stride)), full = let(first + n_of(lanes()) <= param(Q::n));
    when(full, [&] {
      vector(number(lanes()), [&](Expr lane) { store(1, into + lane, read(0, row + first + lane, memory)); });
    });
    when(bit_not(full), [&] {
      each(number(lanes()), [&](Expr lane) {
        Expr column = min(first + lane, param(Q::n) - n_of(1));
        store(1, into + lane, select(first + lane < param(Q::n), read(0, row + column, memory), real(0)));
      });
    });
  }
  // Columns whose elements are adjacent: as many terms as a vector has lanes are turned at once.
  void turn_strip(Expr strip) {
    std::vector<Expr> columns;
    for (int j = 0; j < lanes(); ++j) {
      Expr column = min(strip * n_of(lanes()) + n_of(j), param(Q::n) - n_of(1));
      columns.push_back(let(from + column * param(Q::stride)));
    }
    Expr into = let(to + strip * param(Q::k) * n_of(lanes()));
    vector(param(Q::k), [&](Expr k) {
      std::vector<Expr> row;
      for (int j = 0; j < lanes(); ++j) row.push_back(let(read(0, columns[size_t(j)] + k, memory)));
      for (int j = 0; j < lanes(); ++j) store(1, into + k * n_of(lanes()) + n_of(j), row[size_t(j)]);
    });
  }
};

}  // namespace

loop::Nest pack_nest(const PackVariant& v) {
  PackTask t(v);
  int task_var = t.fresh();
  Expr batch = t.let(floordiv(index(task_var), param(Q::groups)));
  t.from = t.let(batch * param(Q::batch));
  t.to = t.let(batch * param(Q::out_batch));
  Expr first = t.let((index(task_var) - batch * param(Q::groups)) * n_of(kPackedStrips));
  Expr count = t.let(min(param(Q::strips) - first, number(kPackedStrips)));
  if (v.right == Adjacent::row)
    t.each(param(Q::k), [&](Expr k) { t.each(count, [&](Expr s) { t.copy_strip(t.let(first + s), k); }); });
  else t.each(count, [&](Expr s) { t.turn_strip(t.let(first + s)); });
  Nest n;
  n.name = "product_pack";
  n.buffers = {{v.memory}, {DType::Float32, true}};
  n.params = Q::count;
  n.task_var = task_var;
  n.tasks = param(Q::tasks);
  n.cost = param(Q::k) * n_of(kPackedStrips * t.lanes());
  n.body = std::move(t.block);
  return n;
}

}  // namespace facula::device::cpu
