#include "facula/device/cpu/product_nest.h"

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
constexpr int kSimple = 6;  // nodes of an epilogue that is repeated for every vector of a tile

// Whether the epilogue is too much code to repeat for every vector of a tile. It then runs over the whole block of a task, which the
// second cache holds, so that the tables of elementary functions are loaded once a row.
bool is_long(const Epilogue& e) {
  int nodes = 0;
  bool elementary = false;
  if (e.value)
    visit(e.value, [&](Expr x) {
      nodes += x->kind != Kind::constant && x->kind != Kind::local && x->dtype != DType::Int64;
      elementary |= x->kind == Kind::call && ulp(x->fn) > 0;
    });
  return elementary || nodes > kSimple;
}

Scalar n_of(int64_t x) { return Scalar(x); }

class ProductTask : public NestBuilder {
 public:
  explicit ProductTask(const ProductVariant& v)
      : NestBuilder(DType::Float32, v.lanes), v_(v), long_(is_long(v.form.epilogue)) {}

  void run(Expr task) {
    Expr blocks = param(P::row_blocks) * param(P::column_blocks);
    Expr batch = let(floordiv(task, blocks)), block_of_batch = let(task - batch * blocks);
    Expr column_block = let(floordiv(block_of_batch, param(P::row_blocks)));
    first_row_ = let((block_of_batch - column_block * param(P::row_blocks)) * param(P::rows));
    first_column_ = let(column_block * param(P::columns));
    rows_ = let(min(param(P::m) - first_row_, param(P::rows)));
    columns_ = let(min(param(P::n) - first_column_, param(P::columns)));
    a_ = let(batch * param(P::a_batch));
    b_ = let(batch * param(P::b_batch));
    out_ = let(batch * param(P::out_batch));
    batch_row_ = let(batch * param(P::batch_rows));
    Expr k_blocks = let(floordiv(param(P::k) + param(P::terms) - n_of(1), param(P::terms)));
    each(k_blocks, [&](Expr k_block) {
      k0_ = let(k_block * param(P::terms));
      terms_ = let(min(param(P::k) - k0_, param(P::terms)));
      continues_ = let(v_.scaled ? (k_block > zero_) | ne(param(P::adds), zero_) : k_block > zero_);
      begins_ = let(eq(k_block, zero_));
      ends_ = let(eq(k_block, k_blocks - n_of(1)));
      each(ceil_div(rows_, v_.rows),
           [&](Expr tile) { v_.left == Adjacent::row ? pack_rows(tile) : pack_columns(tile); });
      each(ceil_div(columns_, width()),
           [&](Expr panel) { each(ceil_div(rows_, v_.rows), [&](Expr tile) { compute(panel, tile); }); });
    });
    if (long_)
      each(rows_, [&](Expr r) {
        vector(columns_, [&](Expr c) {
          Element at{first_row_ + r, first_column_ + c};
          Expr sum = let(read(B::out_before, offset_of(at)));
          store(v_.form.beside ? B::result : B::out, offset_of(at), value_of(v_.form.epilogue, sum, at));
          if (v_.form.saved.value) store(B::out, offset_of(at), value_of(v_.form.saved, sum, at));
        });
      });
  }

 private:
  struct Element {
    Expr row, column;
  };
  Expr offset_of(const Element& e) const { return out_ + e.row * param(P::out_stride) + e.column; }
  int64_t width() const { return int64_t(v_.vectors) * lanes(); }
  Expr origin_of(Expr tile) { return tile * n_of(v_.rows * kRowStride); }

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

  // The sums of a tile over the K block, and what becomes of them.
  void compute(Expr panel, Expr tile) {
    Expr row = let(first_row_ + tile * n_of(v_.rows)), column = let(first_column_ + panel * n_of(width()));
    Expr rows = let(min(first_row_ + rows_ - row, number(v_.rows)));
    Expr columns = let(min(first_column_ + columns_ - column, number(width())));
    Expr full = let(eq(rows, number(v_.rows)) & eq(columns, number(width())));
    Expr left = let(origin_of(tile));
    std::vector<Expr> right;
    Expr strip = let(floordiv(column, n_of(lanes())));
    for (int c = 0; c < v_.vectors; ++c)
      right.push_back(let(b_ + ((strip + n_of(c)) * param(P::k) + k0_) * n_of(lanes())));
    vector(number(lanes()), [&](Expr lane) {
      auto sums = multiply(left, right, lane);
      when(full, [&] {
        finish(sums, [&](int r, int c) { return Element{row + n_of(r), column + n_of(c * lanes()) + lane}; });
      });
      when(bit_not(full), [&] {
        for (int r = 0; r < v_.rows; ++r)
          for (int c = 0; c < v_.vectors; ++c)
            store(B::tile, number(r * width() + c * lanes()) + lane, sums[size_t(r * v_.vectors + c)]);
      });
    });
    when(bit_not(full), [&] {
      each(rows, [&](Expr r) {
        vector(columns, [&](Expr c) {
          std::vector<Expr> sum{variable(read(B::tile, r * n_of(width()) + c))};
          finish(sum, [&](int, int) { return Element{row + r, column + c}; });
        });
      });
    });
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

  // Adds what is in the result, applies the epilogue after the last K block, and stores.
  template <class Place>
  void finish(const std::vector<Expr>& sums, Place place) {
    auto each_sum = [&](auto&& f) {
      for (size_t k = 0; k < sums.size(); ++k) f(sums[k], place(int(k) / v_.vectors, int(k) % v_.vectors));
    };
    Expr by;
    if (v_.scaled) {
      Expr alpha = let(read(B::numbers, number(product_alpha)));
      each_sum([&](Expr sum, const Element&) { set(sum, alpha * sum); });
      by = let(select(begins_, read(B::numbers, number(product_beta)), real(1)));
    }
    when(continues_, [&] {
      each_sum([&](Expr sum, const Element& e) {
        Expr before = read(B::out_before, offset_of(e));
        set(sum, v_.scaled ? fma(by, before, sum) : sum + before);
      });
    });
    if (!long_ && (v_.form.epilogue.value || v_.form.beside))
      when(ends_, [&] {
        each_sum([&](Expr sum, const Element& e) {
          if (v_.form.beside) store(B::result, offset_of(e), value_of(v_.form.epilogue, sum, e));
          else set(sum, value_of(v_.form.epilogue, sum, e));
          if (v_.form.saved.value) set(sum, value_of(v_.form.saved, sum, e));
        });
      });
    each_sum([&](Expr sum, const Element& e) { store(B::out, offset_of(e), sum); });
  }
  Expr value_of(const Epilogue& e, Expr sum, const Element& at) {
    Expr row = batch_row_ + at.row, column = at.column + param(P::first_column);
    return applied(e, sum, row, column, B::count, P::count);
  }

  const ProductVariant v_;
  const bool long_;  // the epilogue
  Expr zero_ = number(0);
  Expr first_row_, first_column_, rows_, columns_;  // of the block
  Expr a_, b_, out_, batch_row_;                    // origins of the batch's matrices
  Expr k0_, terms_;                                 // of the K block
  Expr continues_, begins_, ends_;
};

}  // namespace

Epilogue bias_epilogue() {
  return {local(schedule::kResultElement, DType::Float32) + load(0, DType::Float32, {index(1)}),
          {DType::Float32},
          0};
}

TaskNest product_nest(const ProductVariant& v) {
  ProductTask t(v);
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
