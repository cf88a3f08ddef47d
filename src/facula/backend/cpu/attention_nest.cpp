#include "facula/backend/cpu/attention_nest.h"

#include <limits>

#include "facula/backend/cpu/nest_builder.h"

namespace facula::backend::cpu {

namespace {

using namespace facula::loop;
using P = AttentionParam;

constexpr int kRows = 4;  // rows of a product that are held in registers

class Builder : public NestBuilder {
 public:
  explicit Builder(const AttentionVariant& v) : NestBuilder(v.dtype) {}

  // For every row below `rows` and column below columns: done(row, column, start(row, column) + sum over k
  // below `inner` of left(row, k) * right(k, column)). `columns` is a multiple of vectors * lanes.
  template <class Left, class Right, class Start, class Done>
  void product(Expr rows, Expr columns, int vectors, Expr inner, Left left, Right right, Start start,
               Done done) {
    int64_t width = int64_t(vectors) * lanes();
    each(ceil_div(rows, kRows), [&](Expr block_of_rows) {
      std::vector<Expr> row;  // the last rows repeat: they are computed and stored twice, alike
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

// The tile that is worked on, and what both nests say about it.
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
      limit;   // queries from `first`, `count`; keys below `limit`
  Expr j0, n;  // keys of the tile
  int mask_buffer = 0, state_buffer = 0, numbers_buffer = 0;

  Expr scale() const { return read(numbers_buffer, number(attention_scale)); }
  Expr causal() const { return ne(param(P::causal), Scalar(int64_t(0))); }
  Expr at(Expr row, Expr lane) const { return row * Scalar(queries) + lane; }
  Expr row_of(Expr lane) { return min(first + lane, param(P::rows) - Scalar(int64_t(1))); }

  // Blocks from both ends in turn, so that any run of them has about the same number of keys.
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
  // to[column, lane] = rows of x, transposed; zero beyond the last.
  void transpose_rows(int to, int from, Expr origin, int strides, Expr columns, Expr factor) {
    each(columns, [&](Expr c) {
      vector(number(queries), [&](Expr lane) {
        Expr x = read(from, origin + row_of(lane) * stride(strides, 2) + c * stride(strides, 3));
        store(to, at(c, lane), select(lane < count, factor ? x * factor : x, real(0)));
      });
    });
  }
  void fill(int to, Expr rows, double x) {
    each(rows, [&](Expr r) { vector(number(queries), [&](Expr lane) { store(to, at(r, lane), real(x)); }); });
  }
  // A score with its mask.
  Expr masked(Expr score, Expr row, Expr lane) {
    if (variant.mask == AttentionVariant::none) return score;
    Expr offset = mask0 + row_of(lane) * stride(P::mask, 2) + (j0 + row) * stride(P::mask, 3);
    if (variant.mask == AttentionVariant::added) return score + read(mask_buffer, offset);
    return select(load(mask_buffer, DType::Bool, {offset}), score, minus_infinity());
  }
  // In tiles that the diagonal crosses.
  void hide_future(int buffer, Expr hidden) {
    when(causal() & (j0 + n > first), [&] {
      each(n, [&](Expr j) {
        vector(number(queries), [&](Expr lane) {
          store(buffer, at(j, lane), select(j0 + j <= first + lane, read(buffer, at(j, lane)), hidden));
        });
      });
    });
  }
  // What dropout multiplies a probability by: a function of its position.
  Expr kept(Expr row, Expr lane) {
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
        [&](Expr j, Expr e) { return read(k, k0 + (j0 + j) * stride(P::k, 2) + e * stride(P::k, 3)); },
        [&](Expr e, Expr lane) { return read(qt, at(e, lane)); }, [&](Expr, Expr) { return real(0); }, done);
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

loop::Nest attention_forward_nest(const AttentionVariant& v) {
  using B = AttentionForward;
  Tile t(v);
  t.mask_buffer = B::mask, t.state_buffer = B::state, t.numbers_buffer = B::numbers;
  int task_var = t.fresh();
  Expr task = index(task_var);
  Expr pair = t.let(floordiv(task, param(P::blocks)));
  t.batch = t.let(floordiv(pair, param(P::heads)));
  t.head = t.let(pair - t.batch * param(P::heads));
  t.key_head = t.let(floordiv(t.head, param(P::group)));
  t.set_queries(t.let(t.block_of(task - pair * param(P::blocks))));
  Expr scale = t.let(t.scale()), queries = number(v.queries);

  t.transpose_rows(B::qt, B::q, t.q0, P::q, param(P::width), scale);
  t.fill(B::sum, param(P::value_width), 0);
  t.vector(queries, [&](Expr i) {
    t.store(B::maximum, i, t.minus_infinity());
    t.store(B::total, i, t.real(0));
  });
  t.each_tile([&] {
    t.scores(B::k, B::qt, [&](Expr j, Expr i, Expr s) { t.store(B::scores, t.at(j, i), t.masked(s, j, i)); });
    t.hide_future(B::scores, t.minus_infinity());
    int row = t.fresh();
    t.vector(queries, [&](Expr i) {
      Expr top = t.variable(t.read(B::maximum, i));
      t.loop_over(LoopKind::serial, row, t.n, [&](Expr j) {
        Expr s = t.let(t.read(B::scores, t.at(j, i)));
        t.set(top, select(s > top, s, select(eq(s, s), top, s)));  // NaN wins
      });
      Expr shift = t.let(select(eq(top, t.minus_infinity()), t.real(0), top));
      Expr factor = t.let(exp(t.read(B::maximum, i) - shift));
      Expr sum = t.variable(t.read(B::total, i) * factor);
      t.loop_over(LoopKind::serial, row, t.n, [&](Expr j) {
        Expr p = t.let(exp(t.read(B::scores, t.at(j, i)) - shift));
        t.set(sum, sum + p);
        t.store(B::scores, t.at(j, i), v.dropout ? p * t.kept(j, i) : p);
      });
      t.store(B::maximum, i, top);
      t.store(B::total, i, sum);
      t.store(B::factor, i, factor);
    });
    t.product(
        param(P::value_width), queries, t.vectors, t.n,
        [&](Expr d, Expr j) {
          return t.read(B::v, t.v0 + (t.j0 + j) * stride(P::v, 2) + d * stride(P::v, 3));
        },
        [&](Expr j, Expr i) { return t.read(B::scores, t.at(j, i)); },
        [&](Expr d, Expr i) { return t.read(B::sum_in, t.at(d, i)) * t.read(B::factor, i); },
        [&](Expr d, Expr i, Expr y) { t.store(B::sum, t.at(d, i), y); });
  });
  t.vector(t.count, [&](Expr i) {
    t.store(B::lse, pair * param(P::rows) + t.first + i, t.read(B::maximum, i) + log(t.read(B::total, i)));
  });
  t.vector(queries, [&](Expr i) {
    Expr sum = t.let(t.read(B::total, i));
    t.store(B::factor, i, select(eq(sum, t.real(0)), t.real(0), t.real(1) / sum));  // all masked: zeros
  });
  Expr out0 = t.let(t.batch * stride(P::out, 0) + t.head * stride(P::out, 1));
  t.each(t.count, [&](Expr i) {
    t.vector(param(P::value_width), [&](Expr d) {
      t.store(B::out, out0 + (t.first + i) * stride(P::out, 2) + d,
              t.read(B::sum, t.at(d, i)) * t.read(B::factor, i));
    });
  });

  Nest n = nest_of("attention", v, B::count, t, task_var);
  for (int k : {B::out, B::lse, B::qt, B::scores, B::sum, B::maximum, B::total, B::factor})
    n.buffers[size_t(k)].written = true;
  for (int k : {B::sum, B::sum_in}) n.buffers[size_t(k)].unique = false;
  return n;
}

loop::Nest attention_backward_nest(const AttentionVariant& v) {
  using B = AttentionBackward;
  Tile t(v);
  t.mask_buffer = B::mask, t.state_buffer = B::state, t.numbers_buffer = B::numbers;
  int task_var = t.fresh();
  Expr task = index(task_var);
  Expr pair = t.let(floordiv(task, param(P::chunks))), chunk = t.let(task - pair * param(P::chunks));
  Expr key_heads = t.let(floordiv(param(P::heads), param(P::group)));
  t.batch = t.let(floordiv(pair, key_heads));
  t.key_head = t.let(pair - t.batch * key_heads);
  Expr scale = t.let(t.scale()), queries = number(v.queries);
  Expr from = t.let(floordiv(chunk * param(P::blocks), param(P::chunks)));
  Expr to = t.let(floordiv((chunk + Scalar(int64_t(1))) * param(P::blocks), param(P::chunks)));
  auto into = [&](int base) {
    return t.let(chunk * stride(base, 0) + t.batch * stride(base, 1) + t.key_head * stride(base, 2));
  };
  Expr dk0 = into(P::dk), dv0 = into(P::dv);
  auto clear = [&](int buffer, Expr origin, int base, Expr padded) {
    t.each(param(P::keys), [&](Expr j) {
      t.vector(padded, [&](Expr c) { t.store(buffer, origin + j * stride(base, 3) + c, t.real(0)); });
    });
  };
  clear(B::dk, dk0, P::dk, param(P::padded_width));
  clear(B::dv, dv0, P::dv, param(P::padded_value_width));

  t.each(param(P::group), [&](Expr member) {
    t.head = t.let(t.key_head * param(P::group) + member);
    t.each(to - from, [&](Expr turn) {
      t.set_queries(t.let(t.block_of(from + turn)));
      Expr row0 = t.let((t.batch * param(P::heads) + t.head) * param(P::rows));
      Expr g0 = t.let(t.batch * stride(P::grad, 0) + t.head * stride(P::grad, 1));
      t.transpose_rows(B::qt, B::q, t.q0, P::q, param(P::width), scale);
      t.transpose_rows(B::gt, B::grad, g0, P::grad, param(P::value_width), Expr());
      auto rows = [&](int buffer, int given, Expr origin, int strides, Expr width, Expr padded, Expr factor) {
        t.each(queries, [&](Expr i) {
          t.vector(width, [&](Expr c) {
            Expr x = t.read(given, origin + t.row_of(i) * stride(strides, 2) + c * stride(strides, 3));
            t.store(buffer, i * padded + c, select(i < t.count, factor ? x * factor : x, t.real(0)));
          });
        });
      };
      rows(B::qr, B::q, t.q0, P::q, param(P::width), param(P::padded_width), scale);
      rows(B::gr, B::grad, g0, P::grad, param(P::value_width), param(P::padded_value_width), Expr());
      t.fill(B::dqt, param(P::width), 0);
      t.vector(queries, [&](Expr i) {
        Expr lse = t.let(t.read(B::lse, row0 + t.row_of(i)));
        Expr infinity = t.real(std::numeric_limits<double>::infinity());
        t.store(B::lse_row, i,
                select((i < t.count) & ne(lse, t.minus_infinity()), lse, infinity));  // no probabilities
        t.store(B::delta_row, i, select(i < t.count, t.read(B::delta, row0 + t.row_of(i)), t.real(0)));
      });
      t.each_tile([&] {
        t.scores(B::k, B::qt, [&](Expr j, Expr i, Expr s) {
          t.store(B::p, t.at(j, i), exp(t.masked(s, j, i) - t.read(B::lse_row, i)));
        });
        t.hide_future(B::p, t.real(0));
        t.product(
            t.n, queries, t.vectors, param(P::value_width),
            [&](Expr j, Expr d) {
              return t.read(B::v, t.v0 + (t.j0 + j) * stride(P::v, 2) + d * stride(P::v, 3));
            },
            [&](Expr d, Expr i) { return t.read(B::gt, t.at(d, i)); }, [&](Expr, Expr) { return t.real(0); },
            [&](Expr j, Expr i, Expr y) {
              t.store(B::ds, t.at(j, i),
                      v.dropout ? y : t.read(B::p, t.at(j, i)) * (y - t.read(B::delta_row, i)));
            });
        if (v.dropout)
          t.each(t.n, [&](Expr j) {
            t.vector(queries, [&](Expr i) {
              Expr p = t.let(t.read(B::p, t.at(j, i))), kept = t.let(t.kept(j, i));
              t.store(B::ds, t.at(j, i), p * (kept * t.read(B::ds, t.at(j, i)) - t.read(B::delta_row, i)));
              t.store(B::p, t.at(j, i), p * kept);
            });
          });
        // The gradients of values and keys: rows of tiles with rows of the output's gradient and of queries.
        auto add = [&](int buffer, int buffer_in, Expr origin, int base, int tile, int with, Expr padded,
                       int vectors) {
          auto place = [&](Expr j, Expr c) { return origin + (t.j0 + j) * stride(base, 3) + c; };
          t.product(
              t.n, padded, vectors, queries, [&](Expr j, Expr i) { return t.read(tile, t.at(j, i)); },
              [&](Expr i, Expr c) { return t.read(with, i * padded + c); },
              [&](Expr j, Expr c) { return t.read(buffer_in, place(j, c)); },
              [&](Expr j, Expr c, Expr y) { t.store(buffer, place(j, c), y); });
        };
        add(B::dv, B::dv_in, dv0, P::dv, B::p, B::gr, param(P::padded_value_width), v.value_vectors);
        add(B::dk, B::dk_in, dk0, P::dk, B::ds, B::qr, param(P::padded_width), v.key_vectors);
        t.product(
            param(P::width), queries, t.vectors, t.n,
            [&](Expr e, Expr j) {
              return t.read(B::k, t.k0 + (t.j0 + j) * stride(P::k, 2) + e * stride(P::k, 3));
            },
            [&](Expr j, Expr i) { return t.read(B::ds, t.at(j, i)); },
            [&](Expr e, Expr i) { return t.read(B::dqt_in, t.at(e, i)); },
            [&](Expr e, Expr i, Expr y) { t.store(B::dqt, t.at(e, i), y); });
      });
      Expr dq0 = t.let(t.batch * stride(P::dq, 0) + t.head * stride(P::dq, 1));
      t.each(t.count, [&](Expr i) {
        t.vector(param(P::width), [&](Expr e) {
          t.store(B::dq, dq0 + (t.first + i) * stride(P::dq, 2) + e, t.read(B::dqt, t.at(e, i)) * scale);
        });
      });
    });
  });

  Nest n = nest_of("attention_backward", v, B::count, t, task_var);
  for (int k :
       {B::dq, B::dk, B::dv, B::qt, B::gt, B::qr, B::gr, B::p, B::ds, B::dqt, B::lse_row, B::delta_row})
    n.buffers[size_t(k)].written = true;
  for (int k : {B::dk, B::dk_in, B::dv, B::dv_in, B::dqt, B::dqt_in}) n.buffers[size_t(k)].unique = false;
  return n;
}

}  // namespace facula::backend::cpu
