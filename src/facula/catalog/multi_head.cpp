// Multi-head attention: projections around scaled_dot_product_attention.  Vaswani et al., 2017.
#include <cmath>
#include <limits>

#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;

namespace {

constexpr const char* kName = "multi_head_attention_forward";
#define attention_check(cond) FACULA_CHECK_AS(cond, user, AssertionError, kName)

using MaybeMask = std::optional<Tensor>;

std::optional<Tensor> maybe(const Call& c, const char* name) {
  Tensor t = c.tensor(name);
  return t.defined() ? std::optional(t) : std::nullopt;
}

void check_ranks(const Call& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  attention_check(query.dim() == 2 || query.dim() == 3)
      << "query should be unbatched 2D or batched 3D tensor but received " << query.dim()
      << "-D query tensor";
  const char* kind = query.dim() == 3 ? "batched (3-D)" : "unbatched (2-D)";
  attention_check(key.dim() == query.dim() && value.dim() == query.dim())
      << "For " << kind << " `query`, expected `key` and `value` to be " << query.dim() << "-D but found "
      << key.dim() << "-D and " << value.dim() << "-D tensors respectively";
  if (auto padding = maybe(c, "key_padding_mask")) {
    attention_check(padding->dim() == query.dim() - 1)
        << "For " << kind << " `query`, expected `key_padding_mask` to be `None` or " << query.dim() - 1
        << "-D but found " << padding->dim() << "-D tensor instead";
  }
  auto mask = maybe(c, "attn_mask");
  runtime_check(mask || !c.flag("is_causal"), kName)
      << "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
         "`generate_square_subsequent_mask` to create this mask.";
  if (!mask) return;
  attention_check(mask->dim() == 2 || mask->dim() == 3)
      << "For " << kind << " `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found " << mask->dim()
      << "-D tensor instead";
  if (query.dim() == 3 || mask->dim() == 2) return;
  Dims expected{c.integer("num_heads"), query.size(0), key.size(0)};
  attention_check(Dims(mask->sizes()) == expected)
      << "Expected `attn_mask` shape to be " << to_string(SymSpan(expected)) << " but got "
      << to_string(mask->sizes());
}

void check_widths(const Call& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  SymInt width = query.size(2), heads = c.integer("num_heads");
  attention_check(width == c.integer("embed_dim_to_check"))
      << "was expecting embedding dimension of " << c.integer("embed_dim_to_check") << ", but got " << width;
  attention_check(width % heads == SymInt(int64_t(0)))
      << "embed_dim " << width << " not divisible by num_heads " << heads;
  if (c.flag("use_separate_proj_weight"))
    attention_check(Dims(key.sizes().first(2)) == Dims(value.sizes().first(2)))
        << "key's sequence and batch dims " << to_string(key.sizes().first(2)) << " do not match value's "
        << to_string(value.sizes().first(2));
  else
    attention_check(Dims(key.sizes()) == Dims(value.sizes()))
        << "key shape " << to_string(key.sizes()) << " does not match value shape "
        << to_string(value.sizes());
}

// A mask as numbers to be added to the scores: -inf where a boolean one is true.
MaybeMask additive(const MaybeMask& mask, const char* what, DType t) {
  if (!mask) return {};
  attention_check(mask->dtype() == DType::Bool || is_floating(mask->dtype()))
      << "only bool and floating types of " << what << " are supported";
  if (mask->dtype() != DType::Bool) return mask;
  return masked_fill(zeros_like(*mask, t), *mask, -std::numeric_limits<double>::infinity());
}

struct Projected {
  Tensor q, k, v;
};
// One product where the operands are one.
Projected projected(const Call& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  auto bias = maybe(c, "in_proj_bias");
  SymInt width = query.size(-1);
  auto part = [&](int64_t k, int64_t count) {
    return bias ? std::optional(narrow(*bias, 0, SymInt(k) * width, SymInt(count) * width)) : std::nullopt;
  };
  if (c.flag("use_separate_proj_weight"))
    return {linear(query, c.tensor("q_proj_weight"), part(0, 1)),
            linear(key, c.tensor("k_proj_weight"), part(1, 1)),
            linear(value, c.tensor("v_proj_weight"), part(2, 1))};
  Tensor weight = c.tensor("in_proj_weight");
  attention_check(weight.defined()) << "in_proj_weight is None, and use_separate_proj_weight is False";
  auto tripled = [&](const char* name, const Tensor& t, const Dims& sizes) {
    runtime_check(Dims(t.sizes()) == sizes, kName)
        << "expected " << name << " of shape " << to_string(SymSpan(sizes)) << ", got "
        << to_string(t.sizes());
  };
  SymInt three = SymInt(int64_t(3)) * width;
  tripled("in_proj_weight", weight, {three, width});
  if (bias) tripled("in_proj_bias", *bias, {three});
  auto rows = [&](int64_t k, int64_t count) {
    return narrow(weight, 0, SymInt(k) * width, SymInt(count) * width);
  };
  bool one = key.impl() == value.impl();
  if (one && query.impl() == key.impl()) {
    auto all = split(linear(query, weight, bias), width, -1);
    return {all[0], all[1], all[2]};
  }
  Tensor q = linear(query, rows(0, 1), part(0, 1));
  if (one) {
    auto both = split(linear(key, rows(1, 2), part(1, 2)), width, -1);
    return {q, both[0], both[1]};
  }
  return {q, linear(key, rows(1, 1), part(1, 1)), linear(value, rows(2, 1), part(2, 1))};
}

// Keys and values with those that no mask leaves out behind them, by heads [batch, heads, keys, width / heads]; how
// many these are.
int extend(const Call& c, Projected& p, const SymInt& batch, const SymInt& width) {
  SymInt heads = c.integer("num_heads"), each = width / heads;
  auto by_heads = [&](const Tensor& t) {
    return permute(view(t, {t.size(0), batch, heads, each}),
                   {int64_t(1), int64_t(2), int64_t(0), int64_t(3)});
  };
  auto given_k = maybe(c, "static_k"), given_v = maybe(c, "static_v"), bias_k = maybe(c, "bias_k"),
       bias_v = maybe(c, "bias_v");
  for (auto& [what, t] : {std::pair("static_k", given_k), std::pair("static_v", given_v)})
    attention_check(!t || (t->dim() == 3 && t->size(0) == batch * heads && t->size(2) == each))
        << "expecting " << what << " of shape [" << batch * heads << ", keys, " << each << "], but got "
        << to_string(t->sizes());
  attention_check(!bias_k == !bias_v)
      << "bias_k and bias_v are given together, but " << (bias_k ? "bias_v" : "bias_k") << " is None";
  int added = 0;
  if (bias_k) {
    attention_check(!given_k && !given_v) << "bias cannot be added to static key or value.";
    Dims row{int64_t(1), batch, width};
    p.k = cat({p.k, expand(*bias_k, row)});
    p.v = cat({p.v, expand(*bias_v, row)});
    ++added;
  }
  auto of = [&](const std::optional<Tensor>& given, const Tensor& t) {
    return given ? view(*given, {batch, heads, given->size(1), each}) : by_heads(t);
  };
  p.q = by_heads(p.q);
  p.k = of(given_k, p.k);
  p.v = of(given_v, p.v);
  if (c.flag("add_zero_attn")) {
    Tensor none = zeros({batch, heads, int64_t(1), each}, p.k.dtype(), p.k.device());
    p.k = cat({p.k, none}, 2);
    p.v = cat({p.v, none}, 2);
    ++added;
  }
  return added;
}

MaybeMask joined(MaybeMask mask, MaybeMask padding, const Projected& p, int added) {
  SymInt batch = p.q.size(0), heads = p.q.size(1), keys = p.k.size(2), given = keys - SymInt(int64_t(added));
  auto widen = [&](MaybeMask& m) {
    if (m && added) m = constant_pad_nd(*m, Dims{int64_t(0), int64_t(added)}, 0);
  };
  if (mask) {
    Dims expected{p.q.size(2), given};
    if (mask->dim() == 3) expected.insert(0, batch * heads);
    runtime_check(Dims(mask->sizes()) == expected, kName)
        << "The shape of the " << mask->dim() << "D attn_mask is " << to_string(mask->sizes())
        << ", but should be " << to_string(SymSpan(expected)) << ".";
    if (mask->dim() == 3) mask = view(*mask, {batch, heads, p.q.size(2), given});
  }
  if (padding) {
    attention_check(Dims(padding->sizes()) == (Dims{batch, given}))
        << "expecting key_padding_mask shape of " << to_string(SymSpan(Dims{batch, given})) << ", but got "
        << to_string(padding->sizes());
  }
  widen(mask);
  widen(padding);
  if (!padding) return mask;
  Tensor by_keys = view(*padding, {batch, int64_t(1), int64_t(1), keys});
  return mask ? add(*mask, by_keys) : by_keys;
}

std::tuple<Tensor, Tensor> attend(const Call& c, const Tensor& query, const Tensor& key,
                                  const Tensor& value) {
  check_widths(c, query, key, value);
  DType t = query.dtype();
  SymInt rows = query.size(0), batch = query.size(1), width = query.size(2);
  auto given = maybe(c, "key_padding_mask");
  if (given && given->dim() == 1) given = unsqueeze(*given, 0);
  bool wants_weights = c.flag("need_weights"), causal = c.flag("is_causal") && !given && !wants_weights;
  MaybeMask padding = additive(given, "key_padding_mask", t),
            mask = causal ? std::nullopt : additive(maybe(c, "attn_mask"), "attn_mask", t);
  Projected p = projected(c, query, key, value);
  int added = extend(c, p, batch, width);
  mask = joined(mask, padding, p, added);
  double dropped = c.flag("training") ? c.real("dropout_p") : 0;
  value_check(dropped >= 0 && dropped <= 1, kName)
      << "dropout probability has to be between 0 and 1, but got " << dropped;
  Tensor y, weights;
  if (wants_weights) {
    double scale = std::sqrt(1 / double((width / c.integer("num_heads")).guard_int()));
    Tensor scores = matmul(mul(p.q, scale), transpose(p.k, -2, -1));
    weights = softmax(mask ? add(scores, *mask) : scores, -1);
    if (dropped > 0) weights = dropout(weights, dropped, true);
    y = matmul(weights, p.v);
    if (c.flag("average_attn_weights")) weights = mean(weights, Sizes{int64_t(1)});
  } else {
    y = scaled_dot_product_attention(p.q, p.k, p.v, mask ? MaybeTensor(*mask) : MaybeTensor(), dropped,
                                     causal);
  }
  Tensor lines = reshape(transpose(y, 1, 2), {batch, rows, width});
  y = linear(lines, c.tensor("out_proj_weight"), maybe(c, "out_proj_bias"));
  return {transpose(y, 0, 1), weights};
}

}  // namespace

FACULA_FAMILY(multi_head) {
  define(
      "multi_head_attention_forward(Tensor query, Tensor key, Tensor value, int embed_dim_to_check, int num_heads, "
      "Tensor? in_proj_weight, Tensor? in_proj_bias, Tensor? bias_k, Tensor? bias_v, bool add_zero_attn, float dropout_p, "
      "Tensor out_proj_weight, Tensor? out_proj_bias, bool training=True, Tensor? key_padding_mask=None, bool need_weights=True, "
      "Tensor? attn_mask=None, bool use_separate_proj_weight=False, Tensor? q_proj_weight=None, Tensor? k_proj_weight=None, "
      "Tensor? v_proj_weight=None, Tensor? static_k=None, Tensor? static_v=None, bool average_attn_weights=True, bool is_causal=False) "
      "-> (Tensor, Tensor)")
      .python(
          "multi_head_attention_forward(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, "
          "bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, "
          "need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, "
          "v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, is_causal=False)",
          "warn_of_masks(key_padding_mask, attn_mask)")
      .doc(
          "Attention of `num_heads` heads over [positions, batch, width] or [positions, width], with the weights [batch, positions, "
          "keys] if they are asked for, else None: then no matrix of scores is made.  Vaswani et al., 2017.")
      .bind(hidden)
      .draws()
      .procedure([](const Call& c, const Tensor& query, const Tensor& key, const Tensor& value) {
        check_ranks(c, query, key, value);
        if (query.dim() == 3) return attend(c, query, key, value);
        bool same_key = key.impl() == query.impl(), same_value = value.impl() == key.impl();
        Tensor q = unsqueeze(query, 1), k = same_key ? q : unsqueeze(key, 1),
               v = same_value ? k : unsqueeze(value, 1);
        auto [y, weights] = attend(c, q, k, v);
        return std::tuple(squeeze(y, Sizes{int64_t(1)}),
                          weights.defined() ? squeeze(weights, Sizes{int64_t(0)}) : weights);
      })
      .samples(
          {"query[3, 2, 4], key[5, 2, 4], value[5, 2, 4], embed_dim_to_check=4, num_heads=2, in_proj_weight[12, 4], in_proj_bias[12], "
           "bias_k=None, bias_v=None, add_zero_attn=False, dropout_p=0.0, out_proj_weight[4, 4], out_proj_bias[4]",
           "query[3, 4], key[5, 4], value[5, 4], embed_dim_to_check=4, num_heads=2, in_proj_weight[12, 4], in_proj_bias=None, "
           "bias_k[1, 1, 4], bias_v[1, 1, 4], add_zero_attn=True, dropout_p=0.0, out_proj_weight[4, 4], out_proj_bias[4]"});
}
