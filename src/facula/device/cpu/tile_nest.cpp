#include "facula/device/cpu/tile_nest.h"

#include <cmath>
#include <limits>

#include "facula/device/cpu/product_task.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;
using P = ProductParam;
using B = ProductBuffer;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kRows = kTileRows, kSide = kTileBlock;
static_assert(kTileRows == kTilePairs && kTilePairs == kTileColumns);

// The smallest number whose last part is not subnormal, whatever bits it has: parts have 8 bits.
double least_number(int parts) { return std::ldexp(1.0, -126 + 8 * (parts - 1)); }
// The smallest product of two numbers whose products of parts are not subnormal.
double least_product(int parts) { return std::ldexp(1.0, -126 + 8 * parts); }

// A tile [16][16][2] that is packed.
struct PackedTile {
  int buffer;
  Expr into;  // its first element; those of other parts are kPanelStep elements apart
  int parts;
};

// Packs load(first, second, half) for all elements of a tile. `least` gets the smallest absolute value that is not 0. `turned`: elements
// along the first index are adjacent in the operand, so whole vectors are loaded and turned in registers.
template <class Load>
void pack_tile(NestBuilder& n, const PackedTile& t, bool turned, Expr least, Load load) {
  // Neighbouring elements are stored by neighbouring statements.
  auto put = [&](const std::vector<std::pair<Expr, Expr>>& elements) {  // offset and value
    std::vector<Expr> rest;
    for (auto& [offset, x] : elements) {
      rest.push_back(n.let(x));
      if (least) n.accumulate(least, Monoid::min, select(ne(x, n.real(0)), abs(x), n.real(kInfinity)));
    }
    for (int part = 0; part < t.parts; ++part)
      for (size_t k = 0; k < rest.size(); ++k) {
        Expr rounded = n.let(round_to(rest[k], DType::BFloat16));
        n.store(t.buffer, elements[k].first + n_of(part * kPanelStep), rounded);
        if (part + 1 < t.parts) rest[k] = n.let(rest[k] - rounded);
      }
  };
  if (!turned)
    n.each(number(kRows), [&](Expr u) {
      Expr row = n.let(t.into + u * n_of(kTileTerms));
      n.vector(number(kRows), [&](Expr v) {
        put({{row + v * n_of(2), load(u, v, 0)}, {row + v * n_of(2) + n_of(1), load(u, v, 1)}});
      });
    });
  else
    n.vector(number(kRows), [&](Expr u) {
      std::vector<std::pair<Expr, Expr>> row;
      for (int64_t v = 0; v < kRows; ++v)
        for (int64_t half = 0; half < 2; ++half)
          row.push_back({t.into + u * n_of(kTileTerms) + n_of(2 * v + half), load(u, number(v), int(half))});
      put(row);
    });
}
// The term of a step that is half `half` of a pair.
Expr term_of(Expr pair, int half) { return half ? pair + n_of(kTilePairs) : pair; }

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

  // Rows and terms beyond the last are zero.
  void pack_left(Expr tile) override {
    Expr to = let(panel_of(tile)), row = let(first_row_ + tile * n_of(kSide));
    Expr least = checks() ? accumulator(Monoid::min, DType::Float32) : Expr();
    each(steps_of_block(), [&](Expr step) {
      Expr k = let(step * n_of(kTileTerms));
      Expr full = let((row + n_of(kSide) <= param(P::m)) & (k + n_of(kTileTerms) <= terms_));
      Expr into = let(to + step * n_of(v_.parts * kPanelStep));
      each(number(2), [&](Expr half) {
        PackedTile t{B::left, let(into + half * n_of(kTileElements)), v_.parts};
        Expr first = let(row + half * n_of(kRows));
        auto element = [&](Expr r, Expr term) {
          bool rows = v_.left == Adjacent::row;
          Expr at = rows ? r * param(P::a_stride) + k0_ + term : (k0_ + term) * param(P::a_stride) + r;
          return read(B::a, a_ + at, form_.operands);
        };
        when(full, [&] {
          pack_tile(*this, t, v_.left == Adjacent::column, least,
                    [&](Expr r, Expr pair, int h) { return element(first + r, k + term_of(pair, h)); });
        });
        when(bit_not(full), [&] {
          pack_tile(*this, t, false, least, [&](Expr r, Expr pair, int h) {
            Expr i = first + r, term = k + term_of(pair, h);
            Expr inside = (i < param(P::m)) & (term < terms_);
            return select(inside, element(min(i, param(P::m) - n_of(1)), min(term, terms_ - n_of(1))),
                          real(0));
          });
        });
      });
    });
    if (checks()) store(TileBuffer::least_left, tile, least);
  }

  void compute(Expr tile, const Part& part) override {
    Expr panel = let(floordiv(part.column, n_of(kSide)));
    Statement s{Statement::Kind::tiles};
    s.buffer = B::tile;
    s.offset = number(0);
    Expr step = floordiv(k0_, n_of(kTileTerms));
    s.values = {panel_of(tile), b_ + (panel * param(TileParam::steps) + step) * n_of(v_.parts * kPanelStep),
                steps_of_block()};
    s.product = std::make_shared<const TileProduct>(product());
    block.push_back(std::move(s));
    if (checks()) when(let(is_inexact(tile, panel)), [&] { compute_again(part); });
    finish_stored(part);
  }
  TileProduct product() const {
    // Each pair has a part in common with the one before it, whose tiles are then in registers.
    static const std::vector<std::vector<TileProduct::Pair>> phases[] = {
        {{{0, 0}}}, {{{1, 0}, {0, 0}, {0, 1}}}, {{{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}}, {{0, 0}}}};
    return {B::left, B::b, v_.parts, phases[v_.parts - 1]};
  }

  // Whether a sum is not finite, or numbers are too small.
  Expr is_inexact(Expr tile, Expr panel) {
    Expr most = accumulator(Monoid::sum, DType::Float32);
    vector(number(kSide * kSide), [&](Expr k) {
      Expr x = read(B::tile, k);
      accumulate(most, Monoid::sum, select(eq(x - x, real(0)), real(0), real(1)));
    });
    Expr left = let(read(TileBuffer::least_left, tile));
    Expr right = let(read(TileBuffer::least_right, batch_of_panels() + panel));
    Expr least = real(least_number(v_.parts));
    Expr small = (left < least) | (right < least) | (left * right < real(least_product(v_.parts)));
    return (most > real(0)) | small;
  }
  Expr batch_of_panels() {
    // One matrix for all has one row of panels.
    return select(eq(param(P::b_batch), number(0)), number(0), batch_ * param(TileParam::panels));
  }
  // One element after the other, each as one chain over the K block.
  void compute_again(const Part& part) {
    each(part.rows, [&](Expr r) {
      each(part.columns, [&](Expr c) {
        Expr row = part.row + r, column = part.column + c;
        Expr right = let(batch_ * param(TileParam::right_batch) + column * param(TileParam::right_column));
        Expr sum = variable(real(0));
        each(terms_, [&](Expr k) {
          Expr term = k0_ + k;
          Expr at =
              v_.left == Adjacent::row ? row * param(P::a_stride) + term : term * param(P::a_stride) + row;
          Expr x = read(B::a, a_ + at),
               y = read(TileBuffer::right, right + term * param(TileParam::right_row));
          set(sum, fma(x, y, sum));
        });
        store(B::tile, r * n_of(kSide) + c, sum);
      });
    });
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
  for (int k : {B::left, B::b}) n.buffers[size_t(k)].dtype = DType::BFloat16;
  n.buffers[size_t(TileBuffer::right)].dtype = v.form.operands;
  for (int k : {int(B::left), int(TileBuffer::least_left)}) n.buffers[size_t(k)].written = true;
  n.cost = param(P::rows) * param(P::columns) * param(P::k);
  n.body = std::move(t.block);
  Expr tiles = ceil_div(param(P::rows), kSide), steps = ceil_div(param(P::terms), kTileTerms);
  return {std::move(n),
          {{B::left, tiles * steps * n_of(v.parts * kPanelStep)},
           {B::tile, number(kSide * kSide)},
           {TileBuffer::least_left, tiles}},
          {{B::out_before, B::out}}};
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
  Expr least = checks ? t.accumulator(Monoid::min, DType::Float32) : Expr();
  t.each(param(Q::steps), [&](Expr step) {
    Expr k = t.let(step * n_of(kTileTerms)), into = t.let(to + step * n_of(v.parts * kPanelStep));
    Expr full = t.let((column + n_of(kSide) <= param(Q::n)) & (k + n_of(kTileTerms) <= param(Q::k)));
    t.each(number(2), [&](Expr half) {
      PackedTile tile{1, t.let(into + half * n_of(kTileElements)), v.parts};
      Expr first = t.let(column + half * n_of(kTileColumns));
      auto element = [&](Expr term, Expr c) {
        Expr at = v.right == Adjacent::row ? term * param(Q::stride) + c : c * param(Q::stride) + term;
        return t.read(0, from + at, v.memory);
      };
      t.when(full, [&] {
        pack_tile(t, tile, v.right == Adjacent::column, least,
                  [&](Expr pair, Expr c, int h) { return element(k + term_of(pair, h), first + c); });
      });
      t.when(bit_not(full), [&] {
        pack_tile(t, tile, false, least, [&](Expr pair, Expr c, int h) {
          Expr j = first + c, term = k + term_of(pair, h);
          Expr inside = (j < param(Q::n)) & (term < param(Q::k));
          Expr x = element(min(term, param(Q::k) - n_of(1)), min(j, param(Q::n) - n_of(1)));
          return select(inside, x, t.real(0));
        });
      });
    });
  });
  if (checks) t.store(2, index(task_var), least);
  Nest n;
  n.name = "product_tile_pack";
  n.buffers = {{v.memory}, {DType::BFloat16, true}, {DType::Float32, true}};
  n.params = Q::count;
  n.task_var = task_var;
  n.tasks = param(Q::tasks);
  n.cost = param(Q::k) * n_of(kSide);
  n.body = std::move(t.block);
  return n;
}

}  // namespace facula::device::cpu
