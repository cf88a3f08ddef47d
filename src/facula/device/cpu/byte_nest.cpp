#include "facula/device/cpu/byte_nest.h"

#include "facula/loop/tiles.h"
#include "facula/schedule/flatten.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;
using P = ByteParam;
using B = ByteBuffer;

constexpr int kUnroll = 4;  // steps of a tile's loop between two tests of its counter

class ByteTask : public NestBuilder {
 public:
  explicit ByteTask(const ByteVariant& v) : NestBuilder(DType::Float32, v.lanes), v_(v) {}
  int64_t width() const { return v_.width(); }

  void run() {
    if (v_.tiles) return run_by_unit();
    each(ceil_div(param(P::columns), width()), [&](Expr panel) {
      Expr column = let(panel * n_of(width()));
      Expr columns = let(min(param(P::columns) - column, number(width())));
      each(ceil_div(param(P::rows), v_.rows), [&](Expr tile) {
        Expr row = let(tile * n_of(v_.rows));
        multiply(let(row * param(P::words)), let(column * param(P::words)));
        each(min(param(P::rows) - row, number(v_.rows)),
             [&](Expr r) { finish(let(r * n_of(width())), row + r, column, columns); });
      });
    });
  }

 private:
  Expr word(int buffer, Expr offset) const { return read(buffer, offset, DType::Int32); }

  // Stores the sums of a tile in B::tile, row by row.
  void multiply(Expr left, Expr right) {
    std::vector<Expr> strips;
    for (int c = 0; c < v_.vectors; ++c) strips.push_back(let(right + n_of(c * lanes()) * param(P::words)));
    vector(number(lanes()), [&](Expr lane) {
      std::vector<Expr> sums;
      for (int k = 0; k < v_.rows * v_.vectors; ++k)
        sums.push_back(variable(constant(Scalar(int64_t(0)), DType::Int32)));
      auto step = [&](Expr k) {
        std::vector<Expr> from;
        for (Expr strip : strips) from.push_back(let(word(B::right, strip + k * n_of(lanes()) + lane)));
        Expr term = let(left + k * n_of(v_.rows));
        for (int r = 0; r < v_.rows; ++r) {
          Expr x = let(word(B::left, term + n_of(r)));
          for (int c = 0; c < v_.vectors; ++c) {
            Expr sum = sums[size_t(r * v_.vectors + c)];
            set(sum, call(Fn::dot_bytes, {x, from[size_t(c)], sum}));
          }
        }
      };
      Expr groups = let(floordiv(param(P::words), n_of(kUnroll)));
      each(groups, [&](Expr g) {
        for (int u = 0; u < kUnroll; ++u) step(let(g * n_of(kUnroll) + n_of(u)));
      });
      each(param(P::words) - groups * n_of(kUnroll), [&](Expr k) { step(let(groups * n_of(kUnroll) + k)); });
      for (int r = 0; r < v_.rows; ++r)
        for (int c = 0; c < v_.vectors; ++c)
          store(B::tile, number(r * width() + c * lanes()) + lane, sums[size_t(r * v_.vectors + c)]);
    });
  }

  // While the unit multiplies, vectors finish the tile before, whose sums are in the other half of B::tile.
  void run_by_unit() {
    Expr steps = let(floordiv(param(P::words), n_of(kStepWords)));
    Expr rows_of_step = let(floordiv(steps + n_of(kTileBlock - 1), steps));
    const Pending before{variable(number(0)), variable(number(0)), variable(number(0)), variable(number(0)),
                         variable(number(0))};
    each(ceil_div(param(P::columns), kTileBlock), [&](Expr panel) {
      Expr column = let(panel * n_of(kTileBlock));
      each(ceil_div(param(P::rows), kTileBlock), [&](Expr tile) {
        Expr row = let(tile * n_of(kTileBlock)), place = let(n_of(kTileBlock * kTileBlock) - before.place);
        Statement s{Statement::Kind::tiles};
        s.buffer = B::tile;
        s.offset = place;
        s.values = {let(row * param(P::words)), let(column * param(P::words)), steps};
        s.product = std::make_shared<const TileProduct>(
            TileProduct{B::left, B::right, 1, {{{0, 0}}}, TileWords::bytes});
        s.var = fresh();
        Expr step = index(s.var);
        within(std::move(s), [&] { finish(before, let(step * rows_of_step), rows_of_step); });
        set(before.place, place), set(before.row, row), set(before.column, column);
        set(before.rows, min(param(P::rows) - row, number(kTileBlock)));
        set(before.columns, min(param(P::columns) - column, number(kTileBlock)));
      });
    });
    finish(before, number(0), number(kTileBlock));
  }
  // A tile that is to be finished.
  struct Pending {
    Expr place, row, column, rows, columns;
  };
  // Finishes `count` rows from `first` on, as far as the tile has them.
  void finish(const Pending& t, Expr first, Expr count) {
    Expr rows = let(min(t.rows - first, count)), column = let(t.column), columns = let(t.columns);
    Expr from = let(t.place + first * n_of(kTileBlock)), row = let(t.row + first);
    Expr is_full = let(eq(columns, number(kTileBlock)));
    when(is_full, [&] { finish_full(rows, from, row, column); });
    when(bit_not(is_full), [&] {
      each(rows, [&](Expr r) { finish(let(from + r * n_of(kTileBlock)), row + r, column, columns); });
    });
  }
  // The same for all columns of a tile: the numbers of columns stay in registers for all rows.
  void finish_full(Expr rows, Expr from, Expr row, Expr column) {
    vector(number(lanes()), [&](Expr lane) {
      std::vector<OfColumn> of_column;
      for (int64_t c = 0; c < kTileBlock; c += lanes())
        of_column.push_back(of_column_at(let(column + n_of(c)) + lane));
      each(rows, [&](Expr r) {
        Expr at = let(from + r * n_of(kTileBlock)), to = let((row + r) * param(P::out_stride) + column);
        for (size_t k = 0; k < of_column.size(); ++k) {
          Expr c = number(int64_t(k) * lanes()) + lane;
          store(B::out, to + c, finished(word(B::tile, at + c), of_column[k]));
        }
      });
    });
  }

  // Stores the results of a row whose sums stand from `from` on.
  void finish(Expr from, Expr row, Expr column, Expr columns) {
    Expr to = let(row * param(P::out_stride) + column);
    vector(columns, [&](Expr c) {
      store(B::out, to + c, finished(word(B::tile, from + c), of_column_at(column + c)));
    });
  }

  // The numbers of a column of the result.
  struct OfColumn {
    Expr correction, multiplier, bias;
  };
  OfColumn of_column_at(Expr column) {
    OfColumn c{let(word(B::corrections, column)), {}, {}};
    if (v_.result != DType::Int32) c.multiplier = let(read(B::multiplier, column));
    if (v_.bias) c.bias = let(read(B::bias, column));
    return c;
  }
  // The element of the result for a sum, rounded in the order of catalog/quantized.cpp. Rounding and clamping may change places, because
  // the bounds are integers.
  Expr finished(Expr sum, const OfColumn& column) {
    sum = sum + column.correction;
    if (v_.result == DType::Int32) return sum;
    Expr y = cast(sum, DType::Float32) * column.multiplier;
    if (v_.bias) y = y + column.bias;
    if (v_.relu) y = call(Fn::relu, {y});
    if (v_.result == DType::Float32) return y;
    const double low = v_.result == DType::Int8 ? -128 : 0;
    auto bounded = [&](bool beyond, Expr x) {
      Expr bound = real(beyond ? low + 255 : low);
      return select(beyond ? bound < x : x < bound, bound, x);  // one instruction, which NaN passes
    };
    y = let(y + cast(param(P::zero_point), DType::Float32));
    return cast(call(Fn::round, {let(bounded(true, let(bounded(false, y))))}), v_.result);
  }

  const ByteVariant v_;
};

}  // namespace

ByteVariant byte_variant(int64_t rows, int lanes) {
  const int most = lanes >= 16 ? 14 : 5;
  // Nearly equal tiles.
  int64_t tiles = schedule::ceil_div(rows, most);
  return {int(schedule::ceil_div(rows, std::max<int64_t>(tiles, 1))), 2, DType::Int32, false, false, lanes};
}
ByteVariant byte_tile_variant(int lanes) {
  return {int(kTileBlock), int(kTileBlock) / lanes, DType::Int32, false, false, lanes, true};
}

TaskNest byte_nest(const ByteVariant& v) {
  ByteTask t(v);
  int task_var = t.fresh();
  t.run();
  Nest n;
  n.name = v.tiles ? "product_byte_tiles" : "product_bytes";
  n.buffers.resize(B::count);
  for (auto& b : n.buffers) b = {DType::Int32, false, "", true};
  n.buffers[B::multiplier].dtype = n.buffers[B::bias].dtype = DType::Float32;
  n.buffers[B::out].dtype = v.result;
  n.buffers[B::out].written = n.buffers[B::tile].written = true;
  n.params = P::count;
  n.task_var = task_var;
  n.tasks = param(P::tasks);
  n.cost = param(P::rows) * param(P::columns) * param(P::words);
  n.body = std::move(t.block);
  const int64_t tiles = v.tiles ? 2 : 1;
  return {std::move(n), {{B::tile, number(tiles * v.rows * t.width())}}, {}};
}

}  // namespace facula::device::cpu
