#include "facula/device/cpu/attention_nest.h"

#include <limits>

#include "facula/device/cpu/nest_builder.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;
using P = AttentionParam;

constexpr int kRows = 4;  // rows of a product that are held in registers

class Builder : public NestBuilder {
 public:
  explicit Builder(const AttentionVariant& v) : NestBuilder(v.dtype, v.lanes) {}

  // For each row below `rows` and column below `columns`: done(row, column, start(row, column) + sum over k below `inner`
  // of left(row, k) * right(k, column)). `columns` is a multiple of vectors * lanes.
  template <class Left, class Right, class Start, class Done>
  void product(Expr rows, Expr columns, int vectors, Expr inner, Left left, Right right, Start start,
               Done done) {
    int64_t width = int64_t(vectors) * lanes();
    each(ceil_div(rows, kRows), [&](Expr block_of_rows) {
      std::vector<Expr> row;  // the last row repeats: it is computed and stored twice, with equal results
      for (int r = 0; r < kRows; ++r)
        row.push_back(
            let(min(block_of_rows * Scalar(int64_t(kRows)) + Scalar(int64_t(r)), rows - Scalar(int64_t(1)))));
      each(floordiv(columns, Scalar(width)), [&](Expr strip) {
        vector(number(lanes()), [&](Expr lane) {
          auto column = [&](int c) { return strip * Scalar(width) + Scalar(int64_t(c) * lanes()) + lane; };
          std::vector<Expr> sums;
          for (int r = 0; r < kRows; ++r)
            for (int c = 0; c < vectors; ++c) sums.push_back(variable(start(row[size_t(r)], column(c))));
          each(inner, [&](Expr k) {
            std::vector<Expr> from;
            for (int c = 0; c < vectors; ++c) from.push_back(let(right(k, column(c))));
            for (int r = 0; r < kRows; ++r) {
              Expr x = let(left(row[size_t(r)], k));
              for (int c = 0; c < vectors; ++c) {
                Expr sum = sums[size_t(r * vectors + c)];
                set(sum, call(Fn::fma, {x, from[size_t(c)], sum}));
              }
            }
          });
          for (int r = 0; r < kRows; ++r)
            for (int c = 0; c < vectors; ++c) done(row[size_t(r)], column(c), sums[size_t(r * vectors + c)]);
        });
      });
    });
  }
};

Expr stride(int base, int dimension) { return param(base + dimension); }

// The current tile, and expressions that both nests share.
struct Tile : Builder {
  explicit Tile(const AttentionVariant& v)
      : Builder(v),
        variant(v),
        queries(v.queries),
        vectors(std::min(codegen::vector_lanes() == 16 ? 4 : 2, v.queries / lanes())) {}

  const AttentionVariant variant;
  int64_t queries;
  int vectors;  // of queries in a register row
  Expr batch, head, key_head, first, count, q0, k0, v0, mask0,
      limit;   // queries from `first`, `count` of them; keys below `limit`
  Expr j0, n;  // keys of the tile
  int mask_buffer = 0, state_buffer = 0, numbers_buffer = 0;

  Expr scale() const { return read(numbers_buffer, number(attention_scale)); }
  Expr causal() const { return ne(param(P::causal), Scalar(int64_t(0))); }
  Expr at(Expr row, Expr lane) const { return row * Scalar(queries) + lane; }
  Expr row_of(Expr lane) { return min(first + lane, param(P::rows) - Scalar(int64_t(1))); }

  // Alternates blocks from both ends, so that any run of them has about the same number of keys.
  Expr block_of(Expr turn) {
    Expr half = floordiv(turn, Scalar(int64_t(2)));
    return select(eq(remainder(turn, Scalar(int64_t(2))), Scalar(int64_t(0))), half,
                  param(P::blocks) - Scalar(int64_t(1)) - half);
  }
  void set_queries(Expr block) {
    first = let(block * Scalar(queries));
    count = let(min(param(P::rows) - first, number(queries)));
    q0 = let(batch * stride(P::q, 0) + head * stride(P::q, 1));
    k0 = let(batch * stride(P::k, 0) + key_head * stride(P::k, 1));
    v0 = let(batch * stride(P::v, 0) + key_head * stride(P::v, 1));
    mask0 = let(batch * stride(P::mask, 0) + head * stride(P::mask, 1));
    limit = let(select(causal(), min(param(P::keys), first + count), param(P::keys)));
  }
  template <class F>
  void each_tile(F&& body) {
    each(ceil_div(limit, kAttentionKeys), [&](Expr tile) {
      j0 = let(tile * Scalar(int64_t(kAttentionKeys)));
      n = let(min(limit - j0, number(kAttentionKeys)));
      body();
    });
  }
  // Copies the block's rows of x, whose elements are adjacent, times `by` if it is defined; each row is padded with
  // zeros, and rows beyond the last are zero.
  void copy_rows(int to, int from, Expr origin, int strides, Expr width, Expr padded, Expr by) {
    each(number(queries), [&](Expr i) {
      vector(width, [&](Expr c) {
        Expr x = read(from, origin + row_of(i) * stride(strides, 2) + c);
        store(to, i * padded + c, select(i < count, by ? x * by : x, real(0)));
      });
      each(padded - width, [&](Expr c) { store(to, i * padded + width + c, real(0)); });
    });
  }
  // to[column, lane] = rows[lane, column].
  void transpose_rows(int to, int rows, Expr columns, Expr padded) {
    each(columns, [&](Expr c) {
      vector(number(queries), [&](Expr lane) { store(to, at(c, lane), read(rows, lane * padded + c)); });
    });
  }
  void fill(int to, Expr rows, double x) {
    each(rows, [&](Expr r) { vector(number(queries), [&](Expr lane) { store(to, at(r, lane), real(x)); }); });
  }
  // Applies the mask to a score.
  Expr masked(Expr score, Expr row, Expr lane) {
    if (variant.mask == AttentionVariant::none) return score;
    Expr offset = mask0 + row_of(lane) * stride(P::mask, 2) + (j0 + row) * stride(P::mask, 3);
    if (variant.mask == AttentionVariant::added) return score + read(mask_buffer, offset);
    return select(load(mask_buffer, DType::Bool, {offset}), score, minus_infinity());
  }
  // Hides later keys in tiles that the diagonal crosses.
  void hide_future(int buffer, Expr hidden) {
    when(causal() & (j0 + n > first), [&] {
      each(n, [&](Expr j) {
        vector(number(queries), [&](Expr lane) {
          store(buffer, at(j, lane), select(j0 + j <= first + lane, read(buffer, at(j, lane)), hidden));
        });
      });
    });
  }
  // The factor by which dropout multiplies a probability: a function of its position.
  Expr dropout_factor(Expr row, Expr lane) {
    auto state = [&](int64_t k) { return load(state_buffer, DType::Int64, {number(k)}); };
    Expr position =
        ((batch * param(P::heads) + head) * param(P::rows) + first + lane) * param(P::keys) + j0 + row;
    Expr bits = shr(random(state(0), state(1) + position), Scalar(int64_t(8)));
    Expr noise = cast(cast(bits, DType::Float32) * Scalar(1.0 / 16777216.0), dtype());
    return select(noise >= read(numbers_buffer, number(attention_p)),
                  read(numbers_buffer, number(attention_keep_scale)), real(0));
  }
  template <class Done>
  void scores(int k, int qt, Done done) {
    product(
        n, number(queries), vectors, param(P::width),
        [&](Expr j, Expr e) { return read(k, k0 + (j0 + j) * stride(P::k, 2) + e); },
        [&](Expr e, Expr lane) { return read(qt, at(e, lane)); }, [&](Expr, Expr) { return real(0); }, done);
  }
};

// Forward: a task is a block of queries of one head. Softmax by running maxima and sums over the tiles of keys.
struct ForwardTask : Tile {
  using B = AttentionForward;
  using Tile::Tile;

  void softmax(Expr all) {
    int row = fresh();
    vector(all, [&](Expr i) {
      Expr top = variable(read(B::maximum, i));
      loop_over(LoopKind::serial, row, n, [&](Expr j) {
        Expr s = let(read(B::scores, at(j, i)));
        set(top, select(s > top, s, select(eq(s, s), top, s)));  // NaN wins
      });
      Expr shift = let(select(eq(top, minus_infinity()), real(0), top));
      Expr factor = let(exp(read(B::maximum, i) - shift));
      Expr sum = variable(read(B::total, i) * factor);
      loop_over(LoopKind::serial, row, n, [&](Expr j) {
        Expr p = let(exp(read(B::scores, at(j, i)) - shift));
        set(sum, sum + p);
        store(B::scores, at(j, i), variant.dropout ? p * dropout_factor(j, i) : p);
      });
      store(B::maximum, i, top);
      store(B::total, i, sum);
      store(B::factor, i, factor);
    });
  }
  // Adds values, weighted by the tile's probabilities, to the sums of earlier tiles.
  void add_values(Expr all) {
    product(
        param(P::value_width), all, vectors, n,
        [&](Expr d, Expr j) { return read(B::v, v0 + (j0 + j) * stride(P::v, 2) + d); },
        [&](Expr j, Expr i) { return read(B::scores, at(j, i)); },
        [&](Expr d, Expr i) { return read(B::sum_in, at(d, i)) * read(B::factor, i); },
        [&](Expr d, Expr i, Expr y) { store(B::sum, at(d, i), y); });
  }
  void write_results(Expr pair, Expr all) {
    vector(count, [&](Expr i) {
      store(B::lse, pair * param(P::rows) + first + i, read(B::maximum, i) + log(read(B::total, i)));
    });
    vector(all, [&](Expr i) {
      Expr sum = let(read(B::total, i));
      store(B::factor, i, select(eq(sum, real(0)), real(0), real(1) / sum));  // all masked: zeros
    });
    Expr out0 = let(batch * stride(P::out, 0) + head * stride(P::out, 1));
    each(count, [&](Expr i) {
      vector(param(P::value_width), [&](Expr d) {
        store(B::out, out0 + (first + i) * stride(P::out, 2) + d,
              read(B::sum, at(d, i)) * read(B::factor, i));
      });
    });
  }
};

// Backward: a task is a chunk of the blocks of queries of all heads that share keys. It recomputes the probabilities tile
// by tile and adds to the gradients of keys and values.
struct BackwardTask : Tile {
  using B = AttentionBackward;
  using Tile::Tile;
  Expr factor, all, dk0, dv0;  // the scores' scale; the number of queries in a block
  Expr row0, g0;               // of the current head: its first row; its part of the output's gradient

  void clear(int buffer, Expr origin, int base, Expr padded) {
    each(param(P::keys), [&](Expr j) {
      vector(padded, [&](Expr c) { store(buffer, origin + j * stride(base, 3) + c, real(0)); });
    });
  }
  // Loads queries and the output's gradient in both orders, and the numbers of each query.
  void load_block() {
    row0 = let((batch * param(P::heads) + head) * param(P::rows));
    g0 = let(batch * stride(P::grad, 0) + head * stride(P::grad, 1));
    copy_rows(B::qr, B::q, q0, P::q, param(P::width), param(P::padded_width), factor);
    copy_rows(B::gr, B::grad, g0, P::grad, param(P::value_width), param(P::padded_value_width), Expr());
    transpose_rows(B::qt, B::qr, param(P::width), param(P::padded_width));
    transpose_rows(B::gt, B::gr, param(P::value_width), param(P::padded_value_width));
    each(count, [&](Expr i) {
      vector(param(P::padded_width), [&](Expr c) { store(B::dqr, i * param(P::padded_width) + c, real(0)); });
    });
    vector(all, [&](Expr i) {
      Expr lse = let(read(B::lse, row0 + row_of(i)));
      Expr infinity = real(std::numeric_limits<double>::infinity());
      store(B::lse_row, i,
            select((i < count) & ne(lse, minus_infinity()), lse, infinity));  // no probabilities
      store(B::delta_row, i, select(i < count, read(B::delta, row0 + row_of(i)), real(0)));
    });
  }
  // Computes probabilities and the gradient of the scores.
  void probabilities() {
    scores(B::k, B::qt, [&](Expr j, Expr i, Expr s) {
      store(B::p, at(j, i), exp(masked(s, j, i) - read(B::lse_row, i)));
    });
    hide_future(B::p, real(0));
    product(
        n, all, vectors, param(P::value_width),
        [&](Expr j, Expr d) { return read(B::v, v0 + (j0 + j) * stride(P::v, 2) + d); },
        [&](Expr d, Expr i) { return read(B::gt, at(d, i)); }, [&](Expr, Expr) { return real(0); },
        [&](Expr j, Expr i, Expr y) {
          store(B::ds, at(j, i), variant.dropout ? y : read(B::p, at(j, i)) * (y - read(B::delta_row, i)));
        });
    if (!variant.dropout) return;
    each(n, [&](Expr j) {
      vector(all, [&](Expr i) {
        Expr p = let(read(B::p, at(j, i))), noise = let(dropout_factor(j, i));
        store(B::ds, at(j, i), p * (noise * read(B::ds, at(j, i)) - read(B::delta_row, i)));
        store(B::p, at(j, i), p * noise);
      });
    });
  }
  // Adds to the gradients of values or keys: rows of tiles times rows of the output's gradient or of queries.
  void add_gradient(int buffer, int buffer_in, Expr origin, int base, int tile, int with, Expr padded,
                    int vectors) {
    auto place = [&](Expr j, Expr c) { return origin + (j0 + j) * stride(base, 3) + c; };
    product(
        n, padded, vectors, count, [&](Expr j, Expr i) { return read(tile, at(j, i)); },
        [&](Expr i, Expr c) { return read(with, i * padded + c); },
        [&](Expr j, Expr c) { return read(buffer_in, place(j, c)); },
        [&](Expr j, Expr c, Expr y) { store(buffer, place(j, c), y); });
  }
  // Adds to the gradient of queries: columns of the tile times its keys, padded.
  void add_gradient_of_queries() {
    Expr padded = param(P::padded_width);
    each(n, [&](Expr j) {
      vector(param(P::width),
             [&](Expr e) { store(B::kr, j * padded + e, read(B::k, k0 + (j0 + j) * stride(P::k, 2) + e)); });
      each(padded - param(P::width),
           [&](Expr e) { store(B::kr, j * padded + param(P::width) + e, real(0)); });
    });
    product(
        count, padded, variant.key_vectors, n, [&](Expr i, Expr j) { return read(B::ds, at(j, i)); },
        [&](Expr j, Expr e) { return read(B::kr, j * padded + e); },
        [&](Expr i, Expr e) { return read(B::dqr_in, i * padded + e); },
        [&](Expr i, Expr e, Expr y) { store(B::dqr, i * padded + e, y); });
  }
  void block_of_queries() {
    load_block();
    each_tile([&] {
      probabilities();
      add_gradient(B::dv, B::dv_in, dv0, P::dv, B::p, B::gr, param(P::padded_value_width),
                   variant.value_vectors);
      add_gradient(B::dk, B::dk_in, dk0, P::dk, B::ds, B::qr, param(P::padded_width), variant.key_vectors);
      add_gradient_of_queries();
    });
    Expr dq0 = let(batch * stride(P::dq, 0) + head * stride(P::dq, 1));
    each(count, [&](Expr i) {
      vector(param(P::width), [&](Expr e) {
        store(B::dq, dq0 + (first + i) * stride(P::dq, 2) + e,
              read(B::dqr, i * param(P::padded_width) + e) * factor);
      });
    });
  }
};

Nest nest_of(const char* name, const AttentionVariant& v, int buffers, Tile& t, int task) {
  Nest n;
  n.name = name;
  for (int k = 0; k < buffers; ++k) n.buffers.push_back({v.dtype, false, "", true});
  n.buffers[size_t(t.mask_buffer)].dtype = v.mask == AttentionVariant::boolean ? DType::Bool : v.dtype;
  n.buffers[size_t(t.state_buffer)].dtype = DType::Int64;
  n.params = P::count;
  n.task_var = task;
  n.tasks = param(P::tasks);
  n.cost = param(P::keys) * param(P::width) * Scalar(int64_t(v.queries));
  n.body = std::move(t.block);
  return n;
}

}  // namespace

TaskNest attention_forward_nest(const AttentionVariant& v) {
  using B = AttentionForward;
  ForwardTask t(v);
  t.mask_buffer = B::mask, t.state_buffer = B::state, t.numbers_buffer = B::numbers;
  int task_var = t.fresh();
  Expr task = index(task_var);
  Expr pair = t.let(floordiv(task, param(P::blocks)));
  t.batch = t.let(floordiv(pair, param(P::heads)));
  t.head = t.let(pair - t.batch * param(P::heads));
  t.key_head = t.let(floordiv(t.head, param(P::group)));
  t.set_queries(t.let(t.block_of(task - pair * param(P::blocks))));
  Expr scale = t.let(t.scale()), queries = number(v.queries);

  t.copy_rows(B::qr, B::q, t.q0, P::q, param(P::width), param(P::width), scale);
  t.transpose_rows(B::qt, B::qr, param(P::width), param(P::width));
  t.fill(B::sum, param(P::value_width), 0);
  t.vector(queries, [&](Expr i) {
    t.store(B::maximum, i, t.minus_infinity());
    t.store(B::total, i, t.real(0));
  });
  t.each_tile([&] {
    t.scores(B::k, B::qt, [&](Expr j, Expr i, Expr s) { t.store(B::scores, t.at(j, i), t.masked(s, j, i)); });
    t.hide_future(B::scores, t.minus_infinity());
    t.softmax(queries);
    t.add_values(queries);
  });
  t.write_results(pair, queries);

  Nest n = nest_of("attention", v, B::count, t, task_var);
  for (int k : {B::out, B::lse, B::qr, B::qt, B::scores, B::sum, B::maximum, B::total, B::factor})
    n.buffers[size_t(k)].written = true;
  for (int k : {B::sum, B::sum_in}) n.buffers[size_t(k)].unique = false;
  Expr keys = number(kAttentionKeys);
  return {std::move(n),
          {{B::qr, queries * param(P::width)},
           {B::qt, queries * param(P::width)},
           {B::scores, queries * keys},
           {B::sum, queries * param(P::value_width)},
           {B::maximum, queries},
           {B::total, queries},
           {B::factor, queries}},
          {{B::sum_in, B::sum}}};
}

TaskNest attention_backward_nest(const AttentionVariant& v) {
  using B = AttentionBackward;
  BackwardTask t(v);
  t.mask_buffer = B::mask, t.state_buffer = B::state, t.numbers_buffer = B::numbers;
  int task_var = t.fresh();
  Expr task = index(task_var);
  Expr pair = t.let(floordiv(task, param(P::chunks))), chunk = t.let(task - pair * param(P::chunks));
  Expr key_heads = t.let(floordiv(param(P::heads), param(P::group)));
  t.batch = t.let(floordiv(pair, key_heads));
  t.key_head = t.let(pair - t.batch * key_heads);
  t.factor = t.let(t.scale()), t.all = number(v.queries);
  Expr from = t.let(floordiv(chunk * param(P::blocks), param(P::chunks)));
  Expr to = t.let(floordiv((chunk + Scalar(int64_t(1))) * param(P::blocks), param(P::chunks)));
  auto into = [&](int base) {
    return t.let(chunk * stride(base, 0) + t.batch * stride(base, 1) + t.key_head * stride(base, 2));
  };
  t.dk0 = into(P::dk);
  t.dv0 = into(P::dv);
  t.clear(B::dk, t.dk0, P::dk, param(P::padded_width));
  t.clear(B::dv, t.dv0, P::dv, param(P::padded_value_width));
  t.each(param(P::group), [&](Expr member) {
    t.head = t.let(t.key_head * param(P::group) + member);
    t.each(to - from, [&](Expr turn) {
      t.set_queries(t.let(t.block_of(from + turn)));
      t.block_of_queries();
    });
  });

  Nest n = nest_of("attention_backward", v, B::count, t, task_var);
  for (int k : {B::dq, B::dk, B::dv, B::qt, B::gt, B::qr, B::gr, B::kr, B::p, B::ds, B::dqr, B::lse_row,
                B::delta_row})
    n.buffers[size_t(k)].written = true;
  for (int k : {B::dk, B::dk_in, B::dv, B::dv_in, B::dqr, B::dqr_in}) n.buffers[size_t(k)].unique = false;
  Expr queries = number(v.queries), keys = number(kAttentionKeys);
  return {std::move(n),
          {{B::qt, queries * param(P::width)},
           {B::gt, queries * param(P::value_width)},
           {B::qr, queries * param(P::padded_width)},
           {B::gr, queries * param(P::padded_value_width)},
           {B::kr, keys * param(P::padded_width)},
           {B::p, queries * keys},
           {B::ds, queries * keys},
           {B::dqr, queries * param(P::padded_width)},
           {B::lse_row, queries},
           {B::delta_row, queries}},
          {{B::dk_in, B::dk}, {B::dv_in, B::dv}, {B::dqr_in, B::dqr}}};
}

}  // namespace facula::device::cpu
