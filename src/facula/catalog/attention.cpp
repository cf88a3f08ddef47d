// Attention: softmax(query key^T scale + mask) value, without the matrix of scores.
#include <cmath>

#include "facula/device/attention.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

constexpr const char* kName = "scaled_dot_product_attention";

// Dimensions 1 and 2 exchanged: from [batch, rows, heads, width], as the kernel writes, to [batch, heads,
// rows, width] and back.
Tensor exchanged(const Tensor& t) { return transpose(t, 1, 2); }

// The arguments that both directions share; query and key as given.
struct Arguments {
  Tensor q, k, v, mask, state;
  double p, scale;
  bool causal;
  template <class Given>
  Arguments(const Call& c, const Given& given)
      : q(given("query")),
        k(given("key")),
        v(given("value")),
        mask(c.has("attn_mask") ? given("attn_mask") : Tensor()),
        state(c.has("state") ? given("state") : Tensor()),
        p(c.real("dropout_p")),
        scale(c.real("scale")),
        causal(c.flag("is_causal")) {}
  explicit Arguments(const Vjp& vjp) : Arguments(vjp.call(), [&](const char* name) { return vjp[name]; }) {}
  explicit Arguments(const Call& c) : Arguments(c, [&](const char* name) { return c.tensor(name); }) {}
  // In the dtype that is computed in.
  Arguments wide() const {
    Arguments w = *this;
    DType t = compute_type(q.dtype());
    w.q = to_dtype(q, t), w.k = to_dtype(k, t), w.v = to_dtype(v, t);
    return w;
  }
  int64_t group() const { return k.size(1) == SymInt(int64_t(0)) ? 1 : (q.size(1) / k.size(1)).guard_int(); }
  // A head of keys for every head of queries.
  Tensor spread(const Tensor& t) const {
    if (group() == 1) return t;
    Tensor many = expand(unsqueeze(t, 2), {t.size(0), t.size(1), SymInt(group()), t.size(2), t.size(3)});
    return reshape(many, {t.size(0), q.size(1), t.size(2), t.size(3)});
  }
  Tensor gathered(const Tensor& t) const {  // the transpose of spread
    if (group() == 1) return t;
    return sum(view(contiguous(t), {k.size(0), k.size(1), SymInt(group()), t.size(2), t.size(3)}), 2);
  }
};

// The attention in full: what the tiles compute, from plain operators, in the order of PyTorch's plain kernel. Oracle of
// the tests, the source of second derivatives and of the gradient of a mask, and what answers where scores overflow or
// are no numbers.
struct Full {
  Tensor q, k;  // times the root of the scale each
  Tensor s, p, lse,
      factor;  // scores, probabilities, logarithms of sums, and what dropout multiplies by (undefined: nothing)
  double root;
  explicit Full(const Arguments& a) : root(std::sqrt(std::abs(a.scale))) {
    q = mul(a.q, a.scale < 0 ? -root : root), k = mul(a.spread(a.k), root);
    s = matmul(q, transpose(k, -2, -1));
    double none = -std::numeric_limits<double>::infinity();
    auto added = [&](const Tensor& shown) {
      return masked_fill(zeros(shown.sizes(), s.dtype()), logical_not(shown), none);
    };
    if (a.mask.defined()) s = add(s, a.mask.dtype() == DType::Bool ? added(a.mask) : a.mask);
    if (a.causal)
      s = where(tril(ones({s.size(-2), s.size(-1)}, DType::Bool)), s, full(Dims{}, Scalar(none), s.dtype()));
    lse = logsumexp(s, -1);
    p = softmax(s, -1);
    if (s.size(-1) != SymInt(int64_t(0))) p = masked_fill(p, eq(amax(s, -1, true), none), 0);
    if (a.p > 0) {
      Tensor noise = _uniform(a.state, p.sizes(), DType::Float32);
      factor =
          to_dtype(mul(to_dtype(ge(noise, a.p), DType::Float32), a.p < 1 ? 1 / (1 - a.p) : 0), p.dtype());
    }
  }
  Tensor dropped(const Tensor& t) const { return factor.defined() ? mul(t, factor) : t; }
};

Tensor row_sum(const Tensor& a, const Tensor& b) { return sum(mul(a, b), -1, true); }

// Selects by row: `usual` where the saved statistic is finite and its sums do not overflow; else `anew`, which is recomputed
// from the operands in the order of PyTorch's plain kernel.
Tensor kept_or_anew(const Tensor& kept, const Tensor& usual, const Tensor& anew) {
  return where(lt(abs(kept), device::overflowing(kept.dtype())), usual, anew);
}

// The cotangent of the scores for that of the attention.
Tensor score_gradient(const Arguments& a, const Full& f, const Tensor& grad) {
  Tensor dp = f.dropped(matmul(grad, transpose(a.spread(a.v), -2, -1)));
  return mul(f.p, sub(dp, row_sum(f.p, dp)));
}

Tensor sum_of(const Tensor& a, const Tensor& b) { return !a.defined() ? b : !b.defined() ? a : add(a, b); }

// Second derivatives. With S the scores, P the probabilities, D the dropout, g the first cotangent, dP = D (g
// v^T) and dS = P (dP - rows of P dP): the gradients were dq = s dS k, dk = s dS^T q, dv = (D P)^T g.
Grads second_gradients(const Vjp& vjp) {
  auto& c = vjp.call();
  Arguments a(vjp);
  Tensor g = vjp["grad"];
  Full f(a);
  Tensor k = a.spread(a.k), v = a.spread(a.v);
  auto given = [&](int r) {
    Tensor t = vjp.grad(r);
    return t.defined() ? exchanged(t) : t;
  };
  Tensor gq = given(0), gk = given(1), gv = given(2);
  if (gk.defined()) gk = a.spread(gk);
  if (gv.defined()) gv = a.spread(gv);
  Tensor dp = f.dropped(matmul(g, transpose(v, -2, -1))), centred = sub(dp, row_sum(f.p, dp)),
         ds = mul(f.p, centred);
  Tensor x;  // cotangent of dS
  if (gq.defined()) x = matmul(gq, transpose(k, -2, -1));
  if (gk.defined()) x = sum_of(x, matmul(a.q, transpose(gk, -2, -1)));
  Tensor of_p, of_dp, dq, dk, dv, dg;
  if (x.defined()) {
    x = mul(x, a.scale);
    Tensor mean = row_sum(x, f.p);
    of_dp = f.dropped(mul(f.p, sub(x, mean)));
    of_p = sub(mul(x, centred), mul(dp, mean));
    dg = matmul(of_dp, v);
    dv = matmul(transpose(of_dp, -2, -1), g);
  }
  if (gv.defined()) {
    of_p = sum_of(of_p, f.dropped(matmul(g, transpose(gv, -2, -1))));
    dg = sum_of(dg, matmul(f.dropped(f.p), gv));
  }
  if (gk.defined()) dq = mul(matmul(ds, gk), a.scale);
  if (gq.defined()) dk = mul(matmul(transpose(ds, -2, -1), gq), a.scale);
  if (of_p.defined()) {
    Tensor of_s = mul(f.p, sub(of_p, row_sum(f.p, of_p)));
    dq = sum_of(dq, mul(matmul(of_s, k), a.scale));
    dk = sum_of(dk, mul(matmul(transpose(of_s, -2, -1), a.q), a.scale));
    if (a.mask.defined() && vjp.needs("attn_mask")) a.mask = of_s;
  }
  Grads out(size_t(c.tensor_slot("attn_mask")) + 1);
  auto set = [&](const char* name, const Tensor& t) {
    if (vjp.needs(name) && t.defined()) out[size_t(c.tensor_slot(name))] = t;
  };
  set("grad", dg);
  set("query", dq);
  if (dk.defined()) set("key", a.gathered(dk));
  if (dv.defined()) set("value", a.gathered(dv));
  if (c.has("attn_mask") && vjp.needs("attn_mask")) set("attn_mask", a.mask);
  return out;
}

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v, bool gqa) {
  auto shapes = [&] {
    return "query " + to_string(q.sizes()) + ", key " + to_string(k.sizes()) + ", value " +
           to_string(v.sizes());
  };
  runtime_check(q.dtype() == k.dtype() && q.dtype() == v.dtype(), kName)
      << "Expected query, key, and value to have the same dtype, but got query.dtype: " << q.dtype()
      << " key.dtype: " << k.dtype() << " and value.dtype: " << v.dtype() << " instead.";
  runtime_check(q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2, kName)
      << "Expected query, key, and value to all be at least 2 dimensional, but got " << shapes();
  supported_check(is_floating(q.dtype()), kName)
      << "expected floating-point query, key and value, got " << q.dtype();
  runtime_check(q.size(-1) == k.size(-1), kName)
      << "query and key must have the same last dimension: " << shapes();
  runtime_check(k.size(-2) == v.size(-2), kName)
      << "key and value must have the same number of positions (dimension -2): " << shapes();
  if (!gqa) return;
  runtime_check(q.dim() >= 3 && k.dim() >= 3 && v.dim() >= 3, kName)
      << "enable_gqa needs a dimension of heads (-3): " << shapes();
  runtime_check(k.size(-3) == v.size(-3) && k.size(-3) > SymInt(int64_t(0)) &&
                    q.size(-3) % k.size(-3) == SymInt(int64_t(0)),
                kName)
      << "Expected the number of heads in query to be a multiple of those in key and value: " << shapes();
}

// [..., heads, rows, width] as [batch, heads, rows, width], its batch dimensions expanded to `batch`.
Tensor four(const Tensor& t, SymSpan batch, bool own_heads) {
  Dims sizes(batch);
  if (own_heads && !batch.empty()) sizes.back() = t.size(-3);
  sizes.push_back(t.size(-2));
  sizes.push_back(t.size(-1));
  Tensor x = t.dim() == int(sizes.size()) && std::equal(sizes.begin(), sizes.end(), t.sizes().begin())
                 ? t
                 : expand(t, sizes);
  while (x.dim() < 4) x = unsqueeze(x, 0);
  if (x.dim() == 4) return x;
  return reshape(x, {product(x.sizes().first(size_t(x.dim() - 3))), x.size(-3), x.size(-2), x.size(-1)});
}

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, std::optional<Tensor> mask, double p,
              bool causal, std::optional<double> scale_given, bool gqa) {
  check_operands(q, k, v, gqa);
  runtime_check(p >= 0 && p <= 1, kName) << "dropout probability has to be between 0 and 1, but got " << p;
  runtime_check(!(mask && causal), kName) << "Explicit attn_mask should not be set when is_causal=True";
  auto leading = [](const Tensor& t, int keep) {
    return t.sizes().first(size_t(std::max(0, t.dim() - keep)));
  };
  Dims batch;
  if (gqa) {
    batch = broadcast_sizes(kName, std::vector<SymSpan>{leading(q, 3), leading(k, 3), leading(v, 3)});
    batch.push_back(q.size(-3));
  } else {
    batch = broadcast_sizes(kName, std::vector<SymSpan>{leading(q, 2), leading(k, 2), leading(v, 2)});
  }
  Tensor q4 = four(q, batch, false), k4 = four(k, batch, gqa), v4 = four(v, batch, gqa), m4;
  if (mask) {
    Tensor m = *mask;
    runtime_check(m.dtype() == DType::Bool || m.dtype() == q.dtype() || m.dtype() == DType::Float32, kName)
        << "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
        << m.dtype() << " and  query.dtype: " << q.dtype() << " instead.";
    Dims scores(batch);
    scores.push_back(q.size(-2));
    scores.push_back(k.size(-2));
    runtime_check(broadcasts_to(m.sizes(), scores), kName)
        << "attn_mask of shape " << to_string(m.sizes()) << " does not broadcast to the scores' shape "
        << to_string(SymSpan(scores));
    if (m.dtype() != DType::Bool && m.dtype() != compute_type(q.dtype()))
      m = to_dtype(m, compute_type(q.dtype()));
    while (m.dim() < 2) m = unsqueeze(m, 0);
    Dims sizes(batch);
    sizes.push_back(q.size(-2));
    sizes.push_back(k.size(-2));
    m = expand(m, sizes);
    while (m.dim() < 4) m = unsqueeze(m, 0);
    if (m.dim() > 4)
      m = reshape(m, {product(m.sizes().first(size_t(m.dim() - 3))), m.size(-3), m.size(-2), m.size(-1)});
    m4 = m;
  }
  // Gradients cancel where probabilities are near 1, more than 16 bits of the result leave. As in PyTorch only four
  // dimensions take that for speed.
  DType narrow = q.dtype(),
        wide = q.dim() == 4 && k.dim() == 4 && v.dim() == 4 ? narrow : compute_type(narrow);
  if (wide != narrow) q4 = to_dtype(q4, wide), k4 = to_dtype(k4, wide), v4 = to_dtype(v4, wide);
  double scale = scale_given ? *scale_given : 1 / std::sqrt(double(q.size(-1).guard_int()));
  Tensor state;
  if (p > 0) state = _rng_take(q4.size(0) * q4.size(1) * q4.size(2) * k4.size(2));
  Tensor y = exchanged(
      std::get<0>(_attention(q4, k4, v4, m4.defined() ? MaybeTensor(m4) : MaybeTensor(),
                             state.defined() ? MaybeTensor(state) : MaybeTensor(), p, causal, scale)));
  if (wide != narrow) y = to_dtype(y, narrow);
  Dims sizes(batch);
  sizes.push_back(q.size(-2));
  sizes.push_back(v.size(-1));
  if (sizes.size() == 4) return y;
  if (sizes.size() > 4) return reshape(y, sizes);
  while (y.dim() > int(sizes.size())) y = squeeze(y, 0);
  return y;
}

// The batching rule (vmap): the batch is folded into the first dimension. A mask with that dimension, and the random numbers of
// dropout, differ from call to call.
Results joined(const Batched& b) {
  auto& c = b.logical();
  Tensor mask = b["attn_mask"];
  bool shared = !mask.defined() || (!b.is_batched("attn_mask") &&
                                    (mask.dim() < 4 || SymInt::surely_equal(mask.size(0), int64_t(1))));
  if (!shared || c.has("state")) return {};
  std::vector<Tensor> alive;
  std::vector<Value> args(b.physical().args().begin(), b.physical().args().end());
  for (size_t k = 0; k < args.size(); ++k) {
    auto& p = c.op().schema.parameters[k];
    if (p.type != Type::Tensor || p.name == "attn_mask" || args[k].tag != Tag::tensor) continue;
    Tensor t = b.whole(p.name);
    Dims sizes{t.size(0) * t.size(1)};
    for (int d = 2; d < t.dim(); ++d) sizes.push_back(t.size(d));
    alive.push_back(reshape(t, sizes));
    args[k] = Value(alive.back());
  }
  Results all = op::call(c.op(), args);
  for (size_t k = 0; k < all.size(); ++k) {
    Dims sizes{b.size(), c.size("query", 0)};
    for (int d = 1; d < all[k].dim(); ++d) sizes.push_back(all[k].size(d));
    all[k] = reshape(all[k], sizes);
  }
  return all;
}

}  // namespace

FACULA_FAMILY(attention) {
  define(
      "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, "
      "float? scale=None, bool enable_gqa=False) -> Tensor")
      .doc(
          "softmax(query @ key^T * scale + attn_mask) @ value over [..., heads, positions, width], in tiles; scale defaults to 1 / sqrt(width). A boolean "
          "mask says which keys take part; is_causal hides those after the query; enable_gqa shares each head of keys among several of queries. "
          "Dao et al., 2022.")
      .autocast(Autocast::lower)
      .bind(nn_functional)
      .draws()
      .grad_name([](const Call& c) {
        bool tiled = c.rank("query") == 4 && c.real("dropout_p") == 0 &&
                     !(c.has("attn_mask") && c.tensor("attn_mask").requires_grad());
        return grad_name(tiled ? "ScaledDotProductFlashAttentionForCpu" : "UnsafeView");
      })
      .procedure([](const Tensor& q, const Tensor& k, const Tensor& v, std::optional<Tensor> mask, double p,
                    bool causal, std::optional<double> scale,
                    bool gqa) { return attend(q, k, v, mask, p, causal, scale, gqa); })
      .samples({"query[2, 3, 5, 4], key[2, 3, 6, 4], value[2, 3, 6, 4]",
                "query[2, 1, 5, 4], key[2, 1, 5, 4], value[2, 1, 5, 4], is_causal=True",
                "query[1, 2, 5, 4], key[1, 2, 6, 4], value[1, 2, 6, 4], attn_mask[5, 6], scale=0.3",
                "query[1, 4, 5, 4], key[1, 2, 6, 4], value[1, 2, 6, 3], enable_gqa=True",
                "query[5, 4], key[6, 4], value[6, 3], attn_mask[5, 6], dropout_p=0, scale=0.3",
                "query[2, 5, 4], key[2, 5, 4], value[2, 5, 4], dropout_p=0, is_causal=True",
                "query[2, 3, 5, 4], key[2, 3, 6, 4], value[2, 3, 6, 3], dropout_p=0"});
  define(
      "_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, Tensor? state=None, float dropout_p=0.0, bool is_causal=False, "
      "float scale=1.0) -> (Tensor out, Tensor lse)")
      .doc(
          "Attention over [batch, heads, positions, width]: its result as [batch, positions, heads, width], and the logarithm of each row's sum of exponentials.")
      .bind(hidden)
      .dtypes(d::floating)
      .promote(Promote::none)
      .result(
          [](const Call& c) { return std::vector<DType>{c.dtype("query"), compute_type(c.dtype("query"))}; })
      .shapes([](const Call& c) {
        auto q = c.sizes("query");
        return std::vector<Dims>{Dims{q[0], q[2], q[1], c.size("value", 3)}, Dims{q[0], q[1], q[2]}};
      })
      .non_differentiable({1}, "it serves the gradient of the first alone")
      .library("attention")
      .batched(joined)
      .reference([](const Call& c) {
        Arguments a = Arguments(c).wide();
        Full f(a);
        Tensor y = contiguous(exchanged(matmul(f.dropped(f.p), a.spread(a.v))));
        return Results{to_dtype(y, c.dtype("query")), f.lse};
      })
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Arguments a(v);
        Tensor g = exchanged(v.grad());
        auto maybe = [](const Tensor& t) { return t.defined() ? MaybeTensor(t) : MaybeTensor(); };
        Grads out(4);
        if (v.needs("query") || v.needs("key") || v.needs("value")) {
          DType t = compute_type(c.dtype("query"));
          Tensor delta = sum(mul(to_dtype(v.grad(), t), to_dtype(v.result(0), t)), -1);
          auto [dq, dk, dv] =
              _attention_backward(g, a.q, a.k, a.v, v.result(1), contiguous(transpose(delta, 1, 2)),
                                  maybe(a.mask), maybe(a.state), a.p, a.causal, a.scale);
          out[0] = exchanged(dq), out[1] = exchanged(dk), out[2] = exchanged(dv);
        }
        if (c.has("attn_mask") && v.needs("attn_mask"))
          out[3] =
              a.k.size(-2) == SymInt(int64_t(0))
                  ? zeros_like(a.mask)
                  : to_dtype(score_gradient(a.wide(), Full(a.wide()), to_dtype(g, compute_type(g.dtype()))),
                             c.dtype("attn_mask"));
        return out;
      })
      .samples({"query[2, 3, 5, 4], key[2, 3, 6, 4], value[2, 3, 6, 3], is_causal=True, scale=0.5",
                "query[1, 4, 5, 4], key[1, 2, 6, 4], value[1, 2, 6, 3], scale=0.5"});
  define(
      "_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor lse, Tensor delta, Tensor? attn_mask=None, Tensor? state=None, "
      "float dropout_p=0.0, bool is_causal=False, float scale=1.0) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)")
      .doc(
          "The gradients of _attention, as [batch, positions, heads, width]; delta is the sum over each row of grad times the result.")
      .bind(hidden)
      .dtypes(d::floating)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>(3, c.dtype("query")); })
      .shapes([](const Call& c) {
        std::vector<Dims> out;
        for (auto name : {"query", "key", "value"}) {
          auto s = c.sizes(name);
          out.push_back(Dims{s[0], s[2], s[1], s[3]});
        }
        return out;
      })
      .library("attention_backward")
      .batched(joined)
      .reference([](const Call& c) {
        Arguments a = Arguments(c).wide();
        Full f(a);
        Tensor lse = unsqueeze(c.tensor("lse"), -1), delta = unsqueeze(c.tensor("delta"), -1);
        f.p = kept_or_anew(lse, exp(sub(f.s, lse)), f.p);
        Tensor g = to_dtype(c.tensor("grad"), a.q.dtype());
        Tensor dp = f.dropped(matmul(g, transpose(a.spread(a.v), -2, -1)));
        Tensor ds = mul(f.p, sub(dp, kept_or_anew(delta, delta, row_sum(f.p, dp))));
        auto last = [&](const Tensor& t) { return to_dtype(contiguous(exchanged(t)), c.dtype("query")); };
        return Results{last(mul(matmul(ds, f.k), a.scale < 0 ? -f.root : f.root)),
                       last(mul(a.gathered(matmul(transpose(ds, -2, -1), f.q)), f.root)),
                       last(a.gathered(matmul(transpose(f.dropped(f.p), -2, -1), g)))};
      })
      .vjp(second_gradients)
      .samples(
          {"grad[2, 3, 5, 3], query[2, 3, 5, 4], key[2, 3, 6, 4], value[2, 3, 6, 3], lse[2, 3, 5], delta[2, 3, 5], scale=0.5"});
}
