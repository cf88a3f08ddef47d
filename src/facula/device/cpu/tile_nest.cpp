#include "facula/device/cpu/tile_nest.h"

#include <cmath>
#include <limits>

#include "facula/device/cpu/product_task.h"
#include "facula/device/cpu/tile_pack.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;
using P = ProductParam;
using B = ProductBuffer;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kSide = kTileBlock;

// The smallest number whose last part is not subnormal, whatever bits it has: parts have 8 bits.
double least_number(int parts) { return std::ldexp(1.0, -126 + 8 * (parts - 1)); }
// The smallest product of two numbers whose products of parts are not subnormal.
double least_product(int parts) { return std::ldexp(1.0, -126 + 8 * parts); }

// The smallest and the largest absolute value of panel `k`, in a buffer of pairs.
enum RangeEnd { range_least, range_most, range_count };
Expr range_of(NestBuilder& n, int buffer, Expr k, RangeEnd end) {
  return n.read(buffer, k * n_of(range_count) + n_of(end));
}
void store_range(NestBuilder& n, int buffer, Expr k, const PanelRange& r) {
  Expr at = n.let(k * n_of(range_count));
  n.store(buffer, at + n_of(range_least), call(Fn::from_bits, {r.least}));
  n.store(buffer, at + n_of(range_most), call(Fn::from_bits, {r.most}));
}

class TileTask : public ProductTask {
 public:
  explicit TileTask(const TileVariant& v)
      : ProductTask(v.form, v.scaled, v.lanes, {int(kSide), kSide, TileBuffer::count, TileParam::count}),
        v_(v) {}

 private:
  bool checks() const { return v_.form.operands == DType::Float32; }
  Expr steps_of_block() { return ceil_div(terms_, kTileTerms); }
  Expr panel_of(Expr tile) {
    return tile * ceil_div(param(P::terms), kTileTerms) * n_of(v_.parts * kPanelStep);
  }

  void pack_left(Expr tile) override {
    if (v_.windows == Windows::left) return pack_windows(tile);
    bool rows = v_.left == Adjacent::row;
    Expr origin = let(rows ? a_ + k0_ : a_ + k0_ * param(P::a_stride));
    PanelSource source{origin, param(P::a_stride), let(first_row_ + tile * n_of(kSide)), param(P::m), terms_};
    PanelForm form{true, rows, v_.parts, B::a, B::left, form_.operands, checks()};
    PanelRange range = pack_panel(*this, form, source, let(panel_of(tile)));
    if (checks()) store_range(*this, TileBuffer::range_left, tile, range);
  }

  void pack_windows(Expr tile) {
    Expr padded = param(TileParam::padded), first_tap = let(floordiv(k0_, padded));
    Expr first = let(first_row_ + tile * n_of(kSide)), panel = let(panel_of(tile));
    Expr least = variable(constant(n_of(0x7f800000), DType::Int32)),
         most = variable(constant(n_of(0), DType::Int32));
    PanelForm form{true, true, v_.parts, B::a, B::left, form_.operands, checks()};
    each(floordiv(terms_, padded), [&](Expr tap) {
      PanelSource source{number(0), number(0), first, param(P::m), param(TileParam::channels)};
      source.begin = [&](Expr window) { return place(window, first_tap + tap); };
      Expr steps = floordiv(padded, n_of(kTileTerms));
      PanelRange range =
          pack_panel(*this, form, source, let(panel + tap * steps * n_of(v_.parts * kPanelStep)));
      if (!checks()) return;
      set(least, min(least, range.least));
      set(most, max(most, range.most));
    });
    if (checks()) store_range(*this, TileBuffer::range_left, tile, {least, most});
  }
  Expr place(Expr window, Expr tap) {
    return cast(read(TileBuffer::places, window * param(TileParam::taps) + tap, DType::Int32), DType::Int64);
  }
  // The element of a window, `at` among its taps, of `padded` channels each.
  Expr element_of_window(int buffer, Expr window, Expr at) {
    Expr tap = let(floordiv(at, param(TileParam::padded)));
    Expr channel = let(at - tap * param(TileParam::padded)), begin = let(place(window, tap));
    Expr inside = min(channel, param(TileParam::channels) - n_of(1));
    return select((begin >= n_of(0)) & (channel < param(TileParam::channels)),
                  read(buffer, max(begin, number(0)) + inside), real(0));
  }

  void pack_right(Expr panel) override {
    if (!v_.packs_right) return;
    bool rows = v_.right == Adjacent::row;
    Expr stride = param(rows ? TileParam::right_row : TileParam::right_column);
    Expr origin = let(batch_ * param(TileParam::right_batch) + (rows ? k0_ * stride : k0_));
    PanelSource source{origin, stride, let(first_column_ + panel * n_of(kSide)), param(P::n), terms_};
    PanelForm form{false, !rows, v_.parts, TileBuffer::right, B::b, form_.operands, checks()};
    PanelRange range = pack_panel(*this, form, source, number(0));
    if (checks()) store_range(*this, TileBuffer::range_right, number(0), range);
  }

  void compute(Expr tile, const Part& part) override {
    Expr panel = let(v_.packs_right ? number(0) : floordiv(part.column, n_of(kSide)));
    Statement s{Statement::Kind::tiles};
    s.buffer = B::tile;
    s.offset = number(0);
    Expr step = panel * param(TileParam::steps) + floordiv(k0_, n_of(kTileTerms));
    Expr right = v_.packs_right ? number(0) : b_ + step * n_of(v_.parts * kPanelStep);
    s.values = {panel_of(tile), right, steps_of_block()};
    s.product = std::make_shared<const TileProduct>(product());
    block.push_back(std::move(s));
    if (checks()) compute_again(tile, panel, part);
    finish_stored(part);
  }
  TileProduct product() const {
    // Each pair has a part in common with the one before it, whose tiles are then in registers.
    static const std::vector<std::vector<TileProduct::Pair>> phases[] = {
        {{{0, 0}}}, {{{1, 1}, {1, 0}, {0, 0}, {0, 1}}}, {{{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}}, {{0, 0}}}};
    return {B::left, B::b, v_.parts, phases[v_.parts - 1]};
  }

  // Replaces sums that parts did not give, each by one chain over the K block.
  void compute_again(Expr tile, Expr panel, const Part& part) {
    Expr blocks = floordiv(param(P::k) + param(P::terms) - n_of(1), param(P::terms));
    Expr right =
        let(v_.packs_right ? panel : (batch_of_panels() + panel) * blocks + floordiv(k0_, param(P::terms)));
    auto end = [&](RangeEnd e) {
      return std::pair(let(range_of(*this, TileBuffer::range_left, tile, e)),
                       let(range_of(*this, TileBuffer::range_right, right, e)));
    };
    auto [least_left, least_right] = end(range_least);
    auto [most_left, most_right] = end(range_most);
    Expr least = real(least_number(v_.parts)), terms = let(cast(terms_, DType::Float32));
    Expr small = let((least_left < least) | (least_right < least) |
                     (least_left * least_right < real(least_product(v_.parts))));
    // Numbers that the unit takes for zero change a sum by less than 12 terms 2^-126 max(1, most): at most 2^-25 of a sum from here on.
    Expr largest = max(real(1), max(most_left, most_right));
    Expr threshold = let(select(small, terms * real(std::ldexp(1.0, -97)) * largest, real(0)));
    Expr finite = most_left * most_right * terms < real(std::ldexp(1.0, 126));
    when(small | bit_not(finite), [&] {
      auto is_right = [&](Expr sum) { return (abs(sum) >= threshold) & (abs(sum) < real(kInfinity)); };
      each(part.rows, [&](Expr r) {
        Expr wrong = accumulator(Monoid::sum, DType::Float32);
        vector(part.columns, [&](Expr c) {
          Expr sum = read(B::tile, r * n_of(kSide) + c);
          accumulate(wrong, Monoid::sum, select(is_right(sum), real(0), real(1)));
        });
        when(wrong > real(0), [&] {
          vector(part.columns, [&](Expr c) {
            Expr sum = let(read(B::tile, r * n_of(kSide) + c)),
                 again = exact_sum(part.row + r, part.column + c);
            store(B::tile, r * n_of(kSide) + c, select(is_right(sum), sum, again));
          });
        });
      });
    });
  }
  Expr exact_sum(Expr row, Expr column) {
    bool rows = v_.left == Adjacent::row;
    Expr left = let(rows ? a_ + row * param(P::a_stride) + k0_ : a_ + k0_ * param(P::a_stride) + row);
    Expr right = let(batch_ * param(TileParam::right_batch) + k0_ * param(TileParam::right_row));
    Expr sum = variable(real(0));
    each(terms_, [&](Expr k) {
      Expr x = v_.windows == Windows::left ? element_of_window(B::a, row, k0_ + k)
                                           : read(B::a, left + (rows ? k : k * param(P::a_stride)));
      Expr y = v_.windows == Windows::right
                   ? element_of_window(TileBuffer::right, k0_ + k, column + param(P::first_column))
                   : read(TileBuffer::right,
                          right + k * param(TileParam::right_row) + column * param(TileParam::right_column));
      set(sum, fma(x, y, sum));
    });
    return sum;
  }
  Expr batch_of_panels() {
    // One matrix for all has one row of panels.
    return select(eq(param(P::b_batch), number(0)), number(0), batch_ * param(TileParam::panels));
  }

  const TileVariant v_;
};

// The numbers of ProductBuffer and TileBuffer as one list, for nest_of_product.
struct AllBuffers : ProductBuffer {
  enum : int { count = TileBuffer::count };
};
struct AllParams : ProductParam {
  enum : int { count = TileParam::count };
};

}  // namespace

TaskNest tile_nest(const TileVariant& v) {
  TileTask t(v);
  int task_var = t.fresh();
  t.run(index(task_var));
  Nest n = nest_of_product<AllBuffers, AllParams>("product_tiles", v.form, task_var);
  for (int k : {B::left, B::b}) n.buffers[size_t(k)].dtype = DType::Int32;
  n.buffers[size_t(TileBuffer::right)].dtype = v.form.operands;
  n.buffers[size_t(TileBuffer::places)].dtype = DType::Int32;
  for (int k : {int(B::left), int(TileBuffer::range_left)}) n.buffers[size_t(k)].written = true;
  n.cost = param(P::rows) * param(P::columns) * param(P::k);
  n.body = std::move(t.block);
  Expr tiles = ceil_div(param(P::rows), kSide);
  Expr panel = ceil_div(param(P::terms), kTileTerms) * n_of(v.parts * kPanelStep);
  std::vector<WorkBuffer> work{{B::left, tiles * panel},
                               {B::tile, number(kSide * kSide)},
                               {TileBuffer::range_left, tiles * n_of(range_count)}};
  if (v.packs_right)
    for (auto& w : {WorkBuffer{B::b, panel}, WorkBuffer{TileBuffer::range_right, number(range_count)}}) {
      n.buffers[size_t(w.buffer)].written = true;
      work.push_back(w);
    }
  return {std::move(n), std::move(work), {{B::out_before, B::out}}};
}

loop::Nest tile_pack_nest(const TilePackVariant& v) {
  using Q = TilePackParam;
  NestBuilder t(DType::Float32, v.lanes);
  int task_var = t.fresh();
  Expr batch = t.let(floordiv(index(task_var), param(Q::panels)));
  Expr panel = t.let(index(task_var) - batch * param(Q::panels));
  Expr from = t.let(batch * param(Q::batch)), column = t.let(panel * n_of(kSide));
  Expr to = t.let(batch * param(Q::out_batch) + panel * param(Q::steps) * n_of(v.parts * kPanelStep));
  bool checks = v.memory == DType::Float32;
  bool terms_adjacent = v.right == Adjacent::column;
  PanelForm form{false, terms_adjacent, v.parts, 0, 1, v.memory, checks};
  // The range of a K block decides which sums are computed again, so it is that of a panel which a task packs.
  Expr blocks = t.let(floordiv(param(Q::k) + param(Q::terms) - n_of(1), param(Q::terms)));
  t.each(blocks, [&](Expr block) {
    Expr k0 = t.let(block * param(Q::terms)), terms = t.let(min(param(Q::k) - k0, param(Q::terms)));
    Expr origin = t.let(from + (terms_adjacent ? k0 : k0 * param(Q::stride)));
    Expr into = t.let(to + floordiv(k0, n_of(kTileTerms)) * n_of(v.parts * kPanelStep));
    PanelSource source{origin, param(Q::stride), column, param(Q::n), terms};
    if (v.windows) {
      Expr at = t.let((panel + param(Q::first_panel)) * n_of(kSide)),
           tap = t.let(floordiv(at, param(Q::padded)));
      source.first = t.let(at - tap * param(Q::padded)), source.lines = param(Q::channels);
      source.begin = [&, tap](Expr term) {
        return cast(t.read(3, (k0 + term) * param(Q::taps) + tap, DType::Int32), DType::Int64);
      };
    }
    PanelRange range = pack_panel(t, form, source, into);
    if (checks) store_range(t, 2, index(task_var) * blocks + block, range);
  });
  Nest n;
  n.name = "product_tile_pack";
  n.buffers = {{v.memory}, {DType::Int32, true}, {DType::Float32, true}, {DType::Int32}};
  n.params = Q::count;
  n.task_var = task_var;
  n.tasks = param(Q::tasks);
  n.cost = param(Q::k) * n_of(kSide);
  n.body = std::move(t.block);
  return n;
}

}  // namespace facula::device::cpu
