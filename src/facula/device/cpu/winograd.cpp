#include "facula/device/cpu/winograd.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "facula/base/parallel.h"
#include "facula/device/cpu/nest_builder.h"
#include "facula/device/cpu/onednn.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;

constexpr int kOut = 4, kTile = 6, kTaps = 3, kPlaces = kTile * kTile;
constexpr double a = 0.75, b = 1.5, aa = a * a, bb = b * b;  // the points

// The transforms of one dimension, for the polynomials x (x^2 - a^2) (x^2 - b^2) and their values at the points.
struct Transforms : NestBuilder {
  Transforms() : NestBuilder(DType::Float32) {}
  using Tile = std::array<Expr, kTile>;

  Expr plus(Expr x, double factor, Expr y) { return let(call(Fn::fma, {y, real(factor), x})); }
  Tile of_image(const Tile& d) {
    Expr even_a = plus(d[4], -bb, d[2]), odd_a = let(plus(d[3], -bb, d[1]) * real(a));
    Expr even_b = plus(d[4], -aa, d[2]), odd_b = let(plus(d[3], -aa, d[1]) * real(b));
    return {plus(plus(d[4], -(aa + bb), d[2]), aa * bb, d[0]),
            let(even_a + odd_a),
            let(even_a - odd_a),
            let(even_b + odd_b),
            let(even_b - odd_b),
            plus(plus(d[5], -(aa + bb), d[3]), aa * bb, d[1])};
  }
  Tile of_weight(Expr g0, Expr g1, Expr g2) {
    constexpr double na = 1 / (2 * aa * (aa - bb)), nb = 1 / (2 * bb * (bb - aa));
    Expr even_a = let(plus(g0, aa, g2) * real(na)), odd_a = let(g1 * real(na * a));
    Expr even_b = let(plus(g0, bb, g2) * real(nb)), odd_b = let(g1 * real(nb * b));
    return {let(g0 * real(1 / (aa * bb))), let(even_a + odd_a), let(even_a - odd_a),
            let(even_b + odd_b),           let(even_b - odd_b), g2};
  }
  // Transforms four values of a result's gradient, which play the part of a kernel when a weight's gradient is computed.
  Tile of_gradient(const Tile& g) {
    constexpr double na = 1 / (2 * aa * (aa - bb)), nb = 1 / (2 * bb * (bb - aa));
    Expr even_a = let(plus(g[0], aa, g[2]) * real(na)), odd_a = let(plus(g[1], aa, g[3]) * real(na * a));
    Expr even_b = let(plus(g[0], bb, g[2]) * real(nb)), odd_b = let(plus(g[1], bb, g[3]) * real(nb * b));
    return {let(g[0] * real(1 / (aa * bb))),
            let(even_a + odd_a),
            let(even_a - odd_a),
            let(even_b + odd_b),
            let(even_b - odd_b),
            g[3]};
  }
  std::array<Expr, kTaps> taps(const Tile& m) {
    Expr sum_a = let(m[1] + m[2]), sum_b = let(m[3] + m[4]), odd_a = let(m[1] - m[2]),
         odd_b = let(m[3] - m[4]);
    return {let(m[0] + sum_a + sum_b), plus(let(odd_a * real(a)), b, odd_b),
            plus(plus(m[5], aa, sum_a), bb, sum_b)};
  }
  std::array<Expr, kOut> result(const Tile& m) {
    Expr sum_a = let(m[1] + m[2]), sum_b = let(m[3] + m[4]), odd_a = let(m[1] - m[2]),
         odd_b = let(m[3] - m[4]);
    return {let(m[0] + sum_a + sum_b), plus(let(odd_a * real(a)), b, odd_b),
            plus(let(sum_a * real(aa)), bb, sum_b), plus(plus(m[5], aa * a, odd_a), bb * b, odd_b)};
  }
};

Expr number_of(size_t n) { return number(int64_t(n)); }

// ---- weights to [strip of results, place of a tile, channel, result in the strip]
struct WeightParam {
  enum : int {
    result_block,
    result_outer,
    result_inner,
    in_block,
    in_outer,
    in_inner,
    y,
    x,
    channels,
    vectors,
    chunks,
    results,
    sums,
    tasks,
    count
  };
};
constexpr int64_t kWeightChannels = 16;  // channels of a task

// The position of channel k; the parameters from `block` on are its block's size and the outer and inner step.
Expr place(Expr k, int block) {
  return floordiv(k, param(block)) * param(block + 1) + remainder(k, param(block)) * param(block + 2);
}

// The properties of users' tensors that kernels depend on.
struct UserVariant {
  DType dtype;
  bool contiguous;  // the results of a block of the weight are adjacent
  auto operator<=>(const UserVariant&) const = default;
};

Nest weight_nest(const UserVariant& v) {
  using P = WeightParam;
  Transforms t;
  int task_var = t.fresh();
  int64_t lanes = t.lanes();
  Expr part = t.let(floordiv(index(task_var), param(P::chunks)));
  Expr chunk = t.let(index(task_var) - part * param(P::chunks)), first = t.let(chunk * Scalar(lanes));
  Expr strip = t.let(floordiv(chunk, param(P::vectors))), width = t.let(param(P::vectors) * Scalar(lanes));
  auto tap = [](int y, int x) { return Scalar(int64_t(y)) * param(P::y) + Scalar(int64_t(x)) * param(P::x); };
  Expr from = t.let(place(first, P::result_block)), column = t.let(first - strip * width);
  t.each(number(kWeightChannels), [&](Expr c) {
    Expr k = t.let(part * Scalar(kWeightChannels) + c), origin = t.let(from + place(k, P::in_block));
    t.vector(number(lanes), [&](Expr lane) {
      Expr g[kTaps][kTaps];
      for (int y = 0; y < kTaps; ++y)
        for (int x = 0; x < kTaps; ++x)
          g[y][x] = t.let(
              t.read(0, origin + tap(y, x) + (v.contiguous ? lane : lane * param(P::result_inner)), v.dtype));
      Transforms::Tile columns[kTaps];
      for (int x = 0; x < kTaps; ++x) columns[x] = t.of_weight(g[0][x], g[1][x], g[2][x]);
      for (size_t i = 0; i < kTile; ++i) {
        auto row = t.of_weight(columns[0][i], columns[1][i], columns[2][i]);
        for (size_t j = 0; j < kTile; ++j)
          t.store(1,
                  ((strip * Scalar(int64_t(kPlaces)) + number_of(i * kTile + j)) * param(P::channels) + k) *
                          width +
                      column + lane,
                  row[j]);
      }
    });
  });
  Nest n;
  n.name = "winograd_weight";
  n.buffers = {{v.dtype}, {DType::Float32, true}};
  n.params = P::count;
  n.task_var = task_var;
  n.tasks = param(P::tasks);
  n.cost = number(kWeightChannels * 64 * lanes);
  n.body = std::move(t.block);
  return n;
}

// ---- tiles
struct ConvParam {
  enum : int {
    c,
    h,
    w,
    o,
    oh,
    ow,
    top,
    left,
    tiles,
    tiles_image,
    tiles_x,
    group,
    groups,
    strips,
    channels,
    chunks,
    tasks,
    count
  };
};

// Expressions that nests over tiles share, for a group of tiles from `first` on.
struct Tiles : Transforms {
  using P = ConvParam;
  explicit Tiles(DType d) : user(d) {}
  DType user;  // dtype of images
  Expr first, count;
  Expr n, y0, x0;  // of a tile: image, first row and column of its results
  Expr one = number(1), zero = number(0);

  template <class F>
  void each_tile(F&& body) {
    each(count, [&](Expr k) {
      Expr tile = let(first + k);
      n = let(floordiv(tile, param(P::tiles_image)));
      Expr rest = let(tile - n * param(P::tiles_image)), row = let(floordiv(rest, param(P::tiles_x)));
      y0 = let(row * Scalar(int64_t(kOut)));
      x0 = let((rest - row * param(P::tiles_x)) * Scalar(int64_t(kOut)));
      body(k);
    });
  }
  // to[place, tile, channel] = transformed pieces of size x size of `channels` from `channel` on of a buffer [n, h, w,
  // all]; zero outside of it.
  template <class F>
  void transform(int to, int from, int size, Expr h, Expr w, Expr top, Expr left, Expr all, Expr channel,
                 Expr channels, F&& of) {
    each_tile([&](Expr k) {
      std::vector<Expr> row, column, row_inside, column_inside;
      for (int i = 0; i < size; ++i) {
        Expr y = let(y0 - top + Scalar(int64_t(i))), x = let(x0 - left + Scalar(int64_t(i)));
        row_inside.push_back(let((y >= zero) & (y < h)));
        column_inside.push_back(let((x >= zero) & (x < w)));
        row.push_back(let((n * h + max(min(y, h - one), zero)) * w * all + channel));
        column.push_back(let(max(min(x, w - one), zero) * all));
      }
      vector(channels, [&](Expr lane) {
        std::vector<Tile> columns;
        for (size_t j = 0; j < size_t(size); ++j) {
          Tile d;
          for (size_t i = 0; i < size_t(size); ++i) {
            Expr x = read(from, row[i] + column[j] + lane, user);
            d[i] = let(select(row_inside[i] & column_inside[j], x, real(0)));
          }
          columns.push_back(of(d));
        }
        for (size_t i = 0; i < kTile; ++i) {
          Tile line;
          for (size_t j = 0; j < size_t(size); ++j) line[j] = columns[j][i];
          line = of(line);
          for (size_t j = 0; j < kTile; ++j)
            store(to, (number_of(i * kTile + j) * param(P::group) + k) * channels + lane, line[j]);
        }
      });
    });
  }
};

// ---- a task: the tiles of a group, and some strips of results
constexpr int64_t kChannels = 16;  // channels of a product's inner sum

struct ConvBuffer {
  enum : int { input, weight, bias, output, report, image, product, nothing, nothing_before, count };
};
struct ConvVariant {
  DType dtype;        // dtype of users' tensors
  int rows, vectors;  // sums of a product in registers
  bool bias;
  auto operator<=>(const ConvVariant&) const = default;
};

struct ConvTask : Tiles {
  using B = ConvBuffer;
  explicit ConvTask(const ConvVariant& v) : Tiles(v.dtype), v(v), width(v.vectors * lanes()) {}
  ConvVariant v;
  int64_t width;       // results of a strip
  Expr part, results;  // the task's strips of results, and their number of results

  // product[place, tile, result] = sum over channels of image[place, tile, channel] * weight[place, channel, result].
  void multiply() {
    each(number(kPlaces), [&](Expr place) {
      each(param(P::strips), [&](Expr strip) {
        Expr weight = let(((part * param(P::strips) + strip) * Scalar(int64_t(kPlaces)) + place) *
                          param(P::c) * Scalar(width));
        each(ceil_div(count, v.rows), [&](Expr block) {
          // the last row repeats: it is computed and stored twice, with equal results
          std::vector<Expr> left, to;
          for (int r = 0; r < v.rows; ++r) {
            Expr row = let(place * param(P::group) +
                           min(block * Scalar(int64_t(v.rows)) + Scalar(int64_t(r)), count - one));
            left.push_back(let(row * param(P::c)));
            to.push_back(let(row * results + strip * Scalar(width)));
          }
          vector(number(lanes()), [&](Expr lane) {
            auto totals = sums_over_channels(left, weight, lane);
            for (int r = 0; r < v.rows; ++r)
              for (int c = 0; c < v.vectors; ++c)
                store(B::product, to[size_t(r)] + Scalar(int64_t(c * lanes())) + lane,
                      totals[size_t(r * v.vectors + c)]);
          });
        });
      });
    });
  }
  // Adds up partial sums of a few channels, which halves the error of one long sum.
  std::vector<Expr> sums_over_channels(const std::vector<Expr>& left, Expr weight, Expr lane) {
    std::vector<Expr> totals;
    for (int k = 0; k < v.rows * v.vectors; ++k) totals.push_back(variable(real(0)));
    each(ceil_div(param(P::c), kChannels), [&](Expr piece) {
      std::vector<Expr> sums;
      for (int k = 0; k < v.rows * v.vectors; ++k) sums.push_back(variable(real(0)));
      Expr from = let(piece * Scalar(kChannels));
      each(min(param(P::c) - from, number(kChannels)), [&](Expr j) {
        Expr k = from + j;
        std::vector<Expr> right;
        for (int c = 0; c < v.vectors; ++c)
          right.push_back(
              let(read(B::weight, weight + k * Scalar(width) + Scalar(int64_t(c * lanes())) + lane)));
        for (int r = 0; r < v.rows; ++r) {
          Expr x = let(read(B::image, left[size_t(r)] + k));
          for (int c = 0; c < v.vectors; ++c) {
            Expr sum = sums[size_t(r * v.vectors + c)];
            set(sum, call(Fn::fma, {x, right[size_t(c)], sum}));
          }
        }
      });
      for (size_t k = 0; k < totals.size(); ++k) set(totals[k], totals[k] + sums[k]);
    });
    return totals;
  }
  // Transforms products back and writes them, with the bias, to the images of results. The task's report becomes 0, or
  // NaN if a result is not finite.
  void write_results(Expr task) {
    each_tile([&](Expr k) {
      // Places beyond the border map to the last row or column, which is written after them.
      Expr row[kOut], column[kOut];
      for (int i = 0; i < kOut; ++i) {
        Expr y = min(y0 + Scalar(int64_t(i)), param(P::oh) - one);
        row[i] = let((n * param(P::oh) + y) * param(P::ow) * param(P::o) + part * results);
        column[i] = let(min(x0 + Scalar(int64_t(i)), param(P::ow) - one) * param(P::o));
      }
      vector(results, [&](Expr lane) {
        std::array<Expr, kOut> columns[kTile];
        for (size_t j = 0; j < kTile; ++j) {
          Transforms::Tile m;
          for (size_t i = 0; i < kTile; ++i)
            m[i] = let(read(B::product, (number_of(i * kTile + j) * param(P::group) + k) * results + lane));
          columns[j] = result(m);
        }
        Expr bias = v.bias ? let(read(B::bias, part * results + lane, v.dtype)) : Expr();
        Expr nothing = variable(select(eq(k, zero), real(0), read(B::nothing_before, lane)));
        for (size_t i = kOut; i-- > 0;) {
          auto line = result(
              {columns[0][i], columns[1][i], columns[2][i], columns[3][i], columns[4][i], columns[5][i]});
          for (size_t j = kOut; j-- > 0;) {
            set(nothing, call(Fn::fma, {line[j], real(0), nothing}));
            store(B::output, row[i] + column[j] + lane, v.bias ? line[j] + bias : line[j]);
          }
        }
        store(B::nothing, lane, nothing);
      });
    });
    Expr all = variable(real(0));
    each(results, [&](Expr k) { set(all, all + read(B::nothing, k)); });
    store(B::report, task, all);
  }
};

TaskNest conv_nest(const ConvVariant& v) {
  using P = ConvParam;
  using B = ConvBuffer;
  ConvTask t(v);
  int task_var = t.fresh();
  t.part = t.let(floordiv(index(task_var), param(P::groups)));
  t.first = t.let((index(task_var) - t.part * param(P::groups)) * param(P::group));
  t.count = t.let(min(param(P::tiles) - t.first, param(P::group)));
  t.results = t.let(param(P::strips) * Scalar(t.width));
  t.transform(B::image, B::input, kTile, param(P::h), param(P::w), param(P::top), param(P::left), param(P::c),
              t.zero, param(P::c), [&](auto& d) { return t.of_image(d); });
  t.multiply();
  t.write_results(index(task_var));
  Nest nest;
  nest.name = "winograd";
  for (int k = 0; k < B::count; ++k) {
    bool user = k == B::input || k == B::bias || k == B::output, before = k == B::nothing_before;
    nest.buffers.push_back(
        {user ? v.dtype : DType::Float32, k >= B::output && !before, "", k != B::nothing && !before});
  }
  nest.params = P::count;
  nest.task_var = task_var;
  nest.tasks = param(P::tasks);
  nest.cost = param(P::group) * param(P::c) * param(P::strips) * Scalar(kPlaces * t.width);
  nest.body = std::move(t.block);
  Expr places = number(kPlaces) * param(P::group), results = param(P::strips) * Scalar(t.width);
  return {std::move(nest),
          {{B::image, places * param(P::c)}, {B::product, places * results}, {B::nothing, results}},
          {{B::nothing_before, B::nothing}}};
}

// ---- gradient of the weight: a task sums a chunk of the groups for some channels and results
struct SumBuffer {
  enum : int { input, grad, sums, sums_in, image, gradient, count };
};

struct SumVariant {
  DType dtype;
  int vectors;
  auto operator<=>(const SumVariant&) const = default;
};

struct SumTask : Tiles {
  using B = SumBuffer;
  static constexpr int kRows = 4;
  explicit SumTask(const SumVariant& v) : Tiles(v.dtype), vectors(v.vectors), width(v.vectors * lanes()) {}
  int vectors;
  int64_t width;                          // results of a strip
  Expr results, channels, chunk, c0, o0;  // the task's results and channels, from o0 and c0 on

  // sums[chunk, place, channel, result] += sum over the group's tiles of image * gradient.
  void add_products(Expr turn) {
    each(number(kPlaces), [&](Expr place) {
      Expr row0 = let(place * param(P::group)),
           sums0 = let((chunk * Scalar(int64_t(kPlaces)) + place) * param(P::c) + c0);
      each(param(P::strips), [&](Expr strip) {
        each(floordiv(channels, Scalar(int64_t(kRows))), [&](Expr block) {
          Expr c = let(block * Scalar(int64_t(kRows)));
          vector(number(lanes()), [&](Expr lane) {
            auto at = [&](int r, int k) {
              return (sums0 + c + Scalar(int64_t(r))) * param(P::o) + o0 + strip * Scalar(width) +
                     Scalar(int64_t(k * lanes())) + lane;
            };
            auto sums = sums_over_tiles(row0, c, strip, lane);
            for (int r = 0; r < kRows; ++r)
              for (int k = 0; k < vectors; ++k) {
                Expr before = let(select(eq(turn, zero), real(0), read(B::sums_in, at(r, k))));
                store(B::sums, at(r, k), before + sums[size_t(r * vectors + k)]);
              }
          });
        });
      });
    });
  }
  std::vector<Expr> sums_over_tiles(Expr row0, Expr c, Expr strip, Expr lane) {
    std::vector<Expr> sums;
    for (int k = 0; k < kRows * vectors; ++k) sums.push_back(variable(real(0)));
    each(count, [&](Expr tile) {
      std::vector<Expr> right;
      Expr g0 = (row0 + tile) * results + strip * Scalar(width) + lane;
      for (int k = 0; k < vectors; ++k)
        right.push_back(let(read(B::gradient, g0 + Scalar(int64_t(k * lanes())))));
      for (int r = 0; r < kRows; ++r) {
        Expr x = let(read(B::image, (row0 + tile) * channels + c + Scalar(int64_t(r))));
        for (int k = 0; k < vectors; ++k) {
          Expr sum = sums[size_t(r * vectors + k)];
          set(sum, call(Fn::fma, {x, right[size_t(k)], sum}));
        }
      }
    });
    return sums;
  }
};

TaskNest sum_nest(const SumVariant& v) {
  using P = ConvParam;
  using B = SumBuffer;
  SumTask t(v);
  int task_var = t.fresh();
  t.results = t.let(param(P::strips) * Scalar(t.width)), t.channels = param(P::channels);
  Expr part = t.let(floordiv(index(task_var), param(P::chunks)));
  t.chunk = t.let(index(task_var) - part * param(P::chunks));
  Expr parts = t.let(floordiv(param(P::o), t.results));
  t.c0 = t.let(floordiv(part, parts) * t.channels), t.o0 = t.let(remainder(part, parts) * t.results);
  auto begin = [&](Expr k) { return t.let(floordiv(k * param(P::groups), param(P::chunks))); };
  Expr from = begin(t.chunk), to = begin(t.chunk + t.one);
  t.each(to - from, [&](Expr turn) {
    t.first = t.let((from + turn) * param(P::group));
    t.count = t.let(min(param(P::tiles) - t.first, param(P::group)));
    t.transform(B::image, B::input, kTile, param(P::h), param(P::w), param(P::top), param(P::left),
                param(P::c), t.c0, t.channels, [&](auto& d) { return t.of_image(d); });
    t.transform(B::gradient, B::grad, kOut, param(P::oh), param(P::ow), t.zero, t.zero, param(P::o), t.o0,
                t.results, [&](auto& g) { return t.of_gradient(g); });
    t.add_products(turn);
  });
  Nest nest;
  nest.name = "winograd_sums";
  for (int k = 0; k < B::count; ++k)
    nest.buffers.push_back({k == B::input || k == B::grad ? v.dtype : DType::Float32,
                            k == B::sums || k >= B::image, "", k != B::sums && k != B::sums_in});
  nest.params = P::count;
  nest.task_var = task_var;
  nest.tasks = param(P::tasks);
  nest.cost = param(P::group) * t.channels * param(P::strips) * Scalar(kPlaces * t.width);
  nest.body = std::move(t.block);
  Expr places = number(kPlaces) * param(P::group), results = param(P::strips) * Scalar(t.width);
  return {std::move(nest),
          {{B::image, places * param(P::channels)}, {B::gradient, places * results}},
          {{B::sums_in, B::sums}}};
}

// Writes the sums of all chunks, in order, to the weight's gradient.
Nest gradient_nest(const UserVariant& v) {
  using P = WeightParam;
  Transforms t;
  int task_var = t.fresh();
  int64_t lanes = t.lanes();
  Expr part = t.let(floordiv(index(task_var), param(P::chunks)));
  Expr first = t.let((index(task_var) - part * param(P::chunks)) * Scalar(lanes));
  Expr to = t.let(place(first, P::result_block));
  t.each(number(kWeightChannels), [&](Expr c) {
    Expr k = t.let(part * Scalar(kWeightChannels) + c), origin = t.let(to + place(k, P::in_block));
    t.vector(number(lanes), [&](Expr lane) {
      std::vector<Expr> sums;
      for (int i = 0; i < kPlaces; ++i) sums.push_back(t.variable(t.real(0)));
      t.each(param(P::sums), [&](Expr chunk) {
        for (int i = 0; i < kPlaces; ++i) {
          Expr row = (chunk * Scalar(int64_t(kPlaces)) + Scalar(int64_t(i))) * param(P::channels) + k;
          t.set(sums[size_t(i)], sums[size_t(i)] + t.read(0, row * param(P::results) + first + lane));
        }
      });
      std::array<Expr, kTaps> columns[kTile];
      for (size_t j = 0; j < kTile; ++j) {
        Transforms::Tile m;
        for (size_t i = 0; i < kTile; ++i) m[i] = sums[i * kTile + j];
        columns[j] = t.taps(m);
      }
      for (size_t y = 0; y < kTaps; ++y) {
        auto row = t.taps(
            {columns[0][y], columns[1][y], columns[2][y], columns[3][y], columns[4][y], columns[5][y]});
        for (size_t x = 0; x < kTaps; ++x) {
          Expr tap = Scalar(int64_t(y)) * param(P::y) + Scalar(int64_t(x)) * param(P::x);
          t.store(1, origin + tap + (v.contiguous ? lane : lane * param(P::result_inner)), row[x]);
        }
      }
    });
  });
  Nest n;
  n.name = "winograd_gradient";
  n.buffers = {{DType::Float32}, {v.dtype, true}};
  n.params = P::count;
  n.task_var = task_var;
  n.tasks = param(P::tasks);
  n.cost = param(P::sums) * Scalar(kWeightChannels * kPlaces * lanes);
  n.body = std::move(t.block);
  return n;
}

// Vectors of channels in registers: their number divides a row of results.
int vectors_of(int64_t o) {
  int64_t lanes = codegen::vector_lanes();
  for (int v : {4, 3, 2})
    if (o / lanes % v == 0 && (v <= 2 || lanes == 16)) return v;
  return 1;
}

constexpr int64_t kFewTasks = 8;  // at least so many, where possible, whatever the number of threads

std::array<int64_t, WeightParam::count> weight_params(const WinogradShape& s, const WeightPlaces& places) {
  using P = WeightParam;
  std::array<int64_t, P::count> p{};
  p[P::result_block] = places.out.block, p[P::result_outer] = places.out.outer,
  p[P::result_inner] = places.out.inner;
  p[P::in_block] = places.in.block, p[P::in_outer] = places.in.outer, p[P::in_inner] = places.in.inner;
  p[P::y] = places.y, p[P::x] = places.x, p[P::channels] = s.c, p[P::results] = s.o;
  p[P::vectors] = vectors_of(s.o), p[P::chunks] = s.o / codegen::vector_lanes();
  p[P::tasks] = p[P::chunks] * (s.c / kWeightChannels);
  return p;
}

std::array<int64_t, ConvParam::count> tile_params(const WinogradShape& s, int64_t most) {
  using P = ConvParam;
  std::array<int64_t, P::count> p{};
  p[P::c] = s.c, p[P::h] = s.h, p[P::w] = s.w, p[P::o] = s.o, p[P::oh] = s.oh, p[P::ow] = s.ow;
  p[P::top] = s.top, p[P::left] = s.left;
  p[P::tiles_x] = (s.ow + kOut - 1) / kOut;
  p[P::tiles_image] = p[P::tiles_x] * ((s.oh + kOut - 1) / kOut);
  p[P::tiles] = p[P::tiles_image] * s.n;
  p[P::groups] = (p[P::tiles] + most - 1) / most;
  p[P::group] = (p[P::tiles] + p[P::groups] - 1) / p[P::groups];
  p[P::strips] = 1;
  return p;
}

// Returns false if a result is not finite.
bool run(const WinogradShape& s, const void* input, const void* weight, const WeightPlaces& places,
         const void* bias, void* output, const RetainTransformed& retain) {
  int64_t lanes = codegen::vector_lanes();
  int vectors = vectors_of(s.o);
  int64_t width = vectors * lanes, all_strips = s.o / width;
  const size_t bytes = size_t(kPlaces * s.c * s.o) * sizeof(float);
  auto weights = weight_params(s, places);
  auto transform = [&](void* to) {
    void* of_weights[] = {const_cast<void*>(weight), to};
    auto& of_weight =
        kernel_of(UserVariant{s.dtype, places.out.inner == 1}, [](auto& v) { return weight_nest(v); });
    codegen::launch(of_weight, of_weights, weights.data(), "conv2d");
  };
  const Storage retained = retain(bytes, transform);
  void* transformed = retained ? retained->data() : scratch(Scratch::weights, bytes);
  if (!retained) transform(transformed);
  using P = ConvParam;
  using B = ConvBuffer;
  // The data of a task should fit into a core's own cache.
  constexpr int64_t kMostTiles = 48, kMostResults = 128;
  auto p = tile_params(s, kMostTiles);
  while (all_strips % (p[P::strips] * 2) == 0 && p[P::strips] * 2 * width <= kMostResults &&
         p[P::groups] * (all_strips / p[P::strips] / 2) >= kFewTasks)
    p[P::strips] *= 2;
  p[P::tasks] = p[P::groups] * (all_strips / p[P::strips]);
  auto& kernel = task_kernel_of(ConvVariant{s.dtype, lanes == 16 ? 4 : 6, vectors, bias != nullptr},
                                [](auto& v) { return conv_nest(v); });
  WorkMemory work(kernel, p.data());
  std::vector<float> reports(static_cast<size_t>(p[P::tasks]));
  std::atomic<bool> finite{true};
  parallel_for(p[P::tasks], 1, [&](int64_t begin, int64_t end) {
    std::array<void*, B::count> buffers{const_cast<void*>(input), transformed, const_cast<void*>(bias),
                                        output, reports.data()};
    work.place(static_cast<char*>(scratch(Scratch::other, work.bytes())), buffers);
    codegen::Status status;
    for (int64_t task = begin; task < end && finite.load(std::memory_order_relaxed); ++task) {
      kernel.kernel->fn(buffers.data(), p.data(), task, task + 1, &status);
      if (reports[size_t(task)] != 0) finite = false;
    }
  });
  return finite;
}

// The part of the definition's products up to which Winograd is faster. Measured (docs/layouts.md) for float32, where
// products of tiles run at half the rate of oneDNN's, and for bfloat16 on processors that multiply pairs of it. On
// processors that multiply tiles of it the definition is faster by far.
double most_work(DType d) {
  if (d == DType::Float32) return 0.42;
  auto isa = unsigned(dnnl::get_effective_cpu_isa());
  auto has = [&](dnnl::cpu_isa x) { return (isa & unsigned(x)) == unsigned(x); };
  return has(dnnl::cpu_isa::avx512_core_amx) ? 0 : has(dnnl::cpu_isa::avx512_core_bf16) ? 0.32 : 0.75;
}

template <class Bits>
bool all_finite(const void* data, int64_t n, Bits exponent) {
  auto* x = static_cast<const Bits*>(data);
  Bits any = 0;
  for (int64_t i = 0; i < n; ++i) any |= Bits((x[i] & exponent) == exponent);
  return any == 0;
}

}  // namespace

bool winograd_pays(const WinogradShape& s) {
  // If a window may be entirely in the padding, its result would not be exact.
  int64_t bottom = s.oh - s.h + kTaps - 1 - s.top, right = s.ow - s.w + kTaps - 1 - s.left;
  if (std::max({s.top, s.left, bottom, right}) >= kTaps) return false;
  if (s.c % 16 != 0 || s.o % 16 != 0 || s.c < 32 || s.o < 32) return false;
  int64_t tiles = s.n * ((s.oh + kOut - 1) / kOut) * ((s.ow + kOut - 1) / kOut);
  // Transforming the weight costs as much as two dozen tiles.
  constexpr int64_t kWeight = 24;
  return double((tiles + kWeight) * kPlaces) < most_work(s.dtype) * double(kTaps * kTaps * s.n * s.oh * s.ow);
}

WinogradTask winograd_task(const WinogradShape& s, bool bias) {
  int vectors = vectors_of(s.o);
  auto p = tile_params(s, 2);
  p[ConvParam::tasks] = p[ConvParam::groups] * (s.o / (vectors * codegen::vector_lanes()));
  return {conv_nest({s.dtype, 4, vectors, bias}), {p.begin(), p.end()}};
}

bool winograd(const WinogradShape& s, const void* input, const void* weight, const WeightPlaces& places,
              const void* bias, void* output, const RetainTransformed& retain) {
  return run(s, input, weight, places, bias, output, retain);
}

bool winograd_backward_input(const WinogradShape& s, const void* grad, const void* weight,
                             const WeightPlaces& places, void* input, const RetainTransformed& retain) {
  // A convolution of the gradient with the kernel rotated by 180 degrees.
  WinogradShape turned{s.dtype, s.n, s.o, s.oh, s.ow, s.c, s.h, s.w, kTaps - 1 - s.top, kTaps - 1 - s.left};
  auto* last = static_cast<const char*>(weight) + (kTaps - 1) * (places.y + places.x) * itemsize(s.dtype);
  return run(turned, grad, last, {places.in, places.out, -places.y, -places.x}, nullptr, input, retain);
}

bool winograd_backward_weight(const WinogradShape& s, const void* input, const void* grad,
                              const WeightPlaces& places, void* weight) {
  using P = ConvParam;
  using B = SumBuffer;
  constexpr int64_t kMostTiles = 32, kMost = 64;  // channels and results of a task
  int vectors = vectors_of(s.o);
  int64_t width = vectors * codegen::vector_lanes();
  auto p = tile_params(s, kMostTiles);
  while (s.o % (p[P::strips] * 2 * width) == 0 && p[P::strips] * 2 * width <= kMost) p[P::strips] *= 2;
  p[P::channels] = s.c;
  while (p[P::channels] > kMost && p[P::channels] % 8 == 0) p[P::channels] /= 2;
  int64_t results = p[P::strips] * width, parts = (s.c / p[P::channels]) * (s.o / results);
  p[P::chunks] = std::min(p[P::groups], (kFewTasks + parts - 1) / parts);
  p[P::tasks] = parts * p[P::chunks];
  auto* sums = static_cast<float*>(
      scratch(Scratch::weights, size_t(p[P::chunks] * kPlaces * s.c * s.o) * sizeof(float)));
  auto& kernel = task_kernel_of(SumVariant{s.dtype, vectors}, [](auto& v) { return sum_nest(v); });
  WorkMemory work(kernel, p.data());
  parallel_for(p[P::tasks], 1, [&](int64_t begin, int64_t end) {
    std::array<void*, B::count> buffers{const_cast<void*>(input), const_cast<void*>(grad), sums};
    work.place(static_cast<char*>(scratch(Scratch::other, work.bytes())), buffers);
    codegen::Status status;
    kernel.kernel->fn(buffers.data(), p.data(), begin, end, &status);
  });
  auto q = weight_params(s, places);
  q[WeightParam::sums] = p[P::chunks];
  void* buffers[] = {sums, weight};
  auto& of_sums =
      kernel_of(UserVariant{s.dtype, places.out.inner == 1}, [](auto& v) { return gradient_nest(v); });
  codegen::launch(of_sums, buffers, q.data(), "conv2d");
  return s.dtype == DType::Float32 ? all_finite<uint32_t>(weight, kTaps * kTaps * s.c * s.o, 0x7f800000)
                                   : all_finite<uint16_t>(weight, kTaps * kTaps * s.c * s.o, 0x7f80);
}

}  // namespace facula::device::cpu
