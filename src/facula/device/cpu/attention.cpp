// Attention: runs the generated kernels of attention_nest.h, tile by tile over all heads. 16-bit floats are converted to
// float32.
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "facula/autograd/autograd.h"
#include "facula/base/parallel.h"
#include "facula/codegen/kernel.h"
#include "facula/device/attention.h"
#include "facula/device/cpu/attention_nest.h"
#include "facula/device/cpu/cpu.h"
#include "facula/device/cpu/nest_builder.h"
#include "facula/device/cpu/onednn.h"
#include "facula/op/registry.h"

namespace facula::device::cpu {

namespace {

using P = AttentionParam;

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Number of vectors that divide a row of `padded` elements, as many as registers allow.
int register_vectors(int64_t padded, int64_t lanes) {
  for (int v : {4, 3, 2})
    if (padded / lanes % v == 0 && v <= (codegen::vector_lanes() == 16 ? 4 : 2)) return v;
  return 1;
}

struct Problem {
  DType dtype;  // the compute dtype
  Tensor q, k, v, mask, state;
  int64_t batch, heads, key_heads, rows, keys, width, value_width;
  AttentionVariant variant;
  std::array<int64_t, P::count> params{};
  union Numbers {
    float f[3];
    double d[3];
  } numbers;

  explicit Problem(const Call& c) {
    q = c.tensor("query"), k = c.tensor("key"), v = c.tensor("value"), mask = c.tensor("attn_mask"),
    state = c.tensor("state");
    dtype = compute_type(q.dtype());
    for (Tensor* t : {&q, &k, &v}) *t = as_computed(*t);
    auto qs = q.int_sizes(), ks = k.int_sizes();
    batch = qs[0], heads = qs[1], rows = qs[2], width = qs[3], key_heads = ks[1], keys = ks[2],
    value_width = v.int_sizes()[3];
    variant.dtype = dtype;
    if (mask.defined())
      variant.mask = mask.dtype() == DType::Bool ? AttentionVariant::boolean : AttentionVariant::added;
    internal_check(!mask.defined() || mask.dtype() == DType::Bool || mask.dtype() == dtype)
        << "attention: a mask of " << mask.dtype();
    double p = c.real("dropout_p");
    variant.dropout = p > 0;
    if (state.defined()) state = dense(state);
    variant.queries = rows > 32 ? 64 : rows > 16 ? 32 : 16;
    double values[] = {c.real("scale"), p < 1 ? 1 / (1 - p) : 0, p};
    for (int i = 0; i < 3; ++i) {
      if (dtype == DType::Float64) numbers.d[i] = values[i];
      else numbers.f[i] = float(values[i]);
    }
    params[P::heads] = heads, params[P::group] = heads / std::max<int64_t>(1, key_heads),
    params[P::rows] = rows, params[P::keys] = keys;
    params[P::width] = width, params[P::value_width] = value_width,
    params[P::blocks] = rounded_up(rows, variant.queries) / variant.queries;
    params[P::causal] = c.flag("is_causal");
    strides(P::q, q), strides(P::k, k), strides(P::v, v);
    if (mask.defined()) strides(P::mask, mask);
  }
  // Returns t in the compute dtype with adjacent elements in a row.
  Tensor as_computed(const Tensor& t) const {
    return t.dtype() == dtype && (t.int_strides()[3] == 1 || t.int_sizes()[3] == 1) ? t : dense(t, dtype);
  }
  void strides(int to, const Tensor& t) {
    for (size_t d = 0; d < 4; ++d) params[size_t(to) + d] = t.int_sizes()[d] == 1 ? 0 : t.int_strides()[d];
  }
  void* data(const Tensor& t) const {
    return t.defined() ? t.data_ptr() : const_cast<void*>(static_cast<const void*>(&numbers));
  }

  // Runs all tasks.
  void run(bool backward, int64_t tasks, std::span<void*> buffers) {
    params[P::tasks] = tasks;
    auto forward_nest = [](const AttentionVariant& v) { return attention_forward_nest(v); };
    auto backward_nest = [](const AttentionVariant& v) { return attention_backward_nest(v); };
    auto& kernel = backward ? task_kernel_of(variant, backward_nest) : task_kernel_of(variant, forward_nest);
    WorkMemory work(kernel, params.data());
    // The work of a tile decides whether a task is worth a thread.
    double cost = double(std::min<int64_t>(rows, variant.queries)) * double(keys) *
                  double(width + value_width) * (backward ? double(params[P::blocks]) : 1.0);
    parallel_for(tasks, std::max<int64_t>(1, int64_t(65536 / std::max(1.0, cost))),
                 [&](int64_t begin, int64_t end) {
                   std::array<void*, 32> own;
                   std::copy(buffers.begin(), buffers.end(), own.begin());
                   work.place(static_cast<char*>(scratch(Scratch::other, work.bytes())), own);
                   codegen::Status status;
                   kernel.kernel->fn(own.data(), params.data(), begin, end, &status);
                 });
  }
};

// A tensor of the compute dtype with the layout [batch, rows, heads, width], as a view [batch, heads, rows, width].
Tensor heads_inside(const Tensor& t) {
  return t.alias(Dims{t.size(0), t.size(2), t.size(1), t.size(3)},
                 Dims{t.stride(0), t.stride(2), t.stride(1), t.stride(3)}, t.offset());
}

// Returns whether an element is NaN or so large that sums may overflow. If `hidden`, -inf does not count: it marks rows
// whose keys a mask hides.
template <class T>
bool beyond(const Tensor& t, bool hidden) {
  const T large = T(overflowing(t.dtype())), none = -std::numeric_limits<T>::infinity();
  auto* x = static_cast<const T*>(t.data_ptr());
  std::atomic<bool> any = false;
  parallel_for(t.numel().guard_int(), 65536, [&](int64_t begin, int64_t end) {
    bool here = false;
    if (hidden)
      for (int64_t i = begin; i < end; ++i) here |= !(std::abs(x[i]) < large) && x[i] != none;
    else
      for (int64_t i = begin; i < end; ++i) here |= !(std::abs(x[i]) < large);
    if (here) any = true;
  });
  return any;
}
bool beyond(const Tensor& t, bool hidden = false) {
  return t.dtype() == DType::Float64 ? beyond<double>(t, hidden) : beyond<float>(t, hidden);
}
// Computes attention by plain operators, which propagate infinities and NaN as PyTorch does.
Results in_full(const Call& c, Out out) {
  autograd::GradMode off(false);
  Results full = c.op().backed()->composed_reference(c), results;
  for (size_t k = 0; k < full.size(); ++k) {
    copy(out[k], full[k]);
    results.push_back(out[k]);
  }
  return results;
}

// Computes all rows again, as PyTorch's plain kernel does, if a number overflowed.
Results backward_in_full(const Call& c, const Tensor& lse, Out out) {
  Tensor unknown = Tensor::empty(lse.int_sizes(), lse.dtype());
  std::memset(unknown.data_ptr(), 0xff,
              size_t(unknown.numel().concrete()) * size_t(itemsize(lse.dtype())));  // NaN
  std::vector<op::Value> args(c.args().begin(), c.args().end());
  for (const char* name : {"lse", "delta"}) args[size_t(c.op().schema.index_of(name))] = op::Value(unknown);
  return in_full(op::Call(c.op(), args), out);
}

// The gradient of keys or values while it is summed, [chunks, batch, heads, keys, width]: each chunk of the queries adds
// to its own copy. A single chunk that needs no padding adds to the result directly.
struct ChunkedGradient {
  Tensor result, sums;
  int64_t chunks;

  ChunkedGradient(Problem& p, const Tensor& result, int64_t width, int64_t chunks, int base)
      : result(result), chunks(chunks) {
    bool direct =
        chunks == 1 && result.dtype() == p.dtype && result.is_contiguous() && result.int_sizes()[3] == width;
    Dims sizes{SymInt(chunks), result.size(0), result.size(1), result.size(2),
               direct ? result.size(3) : SymInt(width)};
    sums = direct ? result.alias(sizes, contiguous_strides(sizes), result.offset())
                  : Tensor::empty(sizes, p.dtype);
    auto s = sums.int_strides();
    for (auto [d, at] : {std::pair(0, 0), {1, 1}, {2, 3}, {3, 2}}) p.params[size_t(base + d)] = s[size_t(at)];
  }
  // Sums the chunks, in order.
  void finish() const {
    if (sums.impl()->storage == result.impl()->storage) return;
    Tensor sum = chunk(0);
    static const op::Operator& add = op::get("add");
    for (int64_t k = 1; k < chunks; ++k) {
      Tensor part = chunk(k);
      op::Value args[] = {sum, part, Scalar(int64_t(1))};
      op::call(add, args, op::Form::in_place);
    }
    copy(result, sum.alias(result.sizes(), sum.strides(), sum.offset()));
  }

 private:
  Tensor chunk(int64_t k) const {
    return sums.alias(sums.sizes().last(4), sums.strides().last(4),
                      sums.offset() + SymInt(k * sums.int_strides()[0]));
  }
};

}  // namespace

Results attention(const Call& c, Out out) {
  using B = AttentionForward;
  Problem p(c);
  Destination result(out[0], p.dtype), lse(out[1], p.dtype);
  if (p.batch * p.heads * p.rows == 0) return Results{out[0], out[1]};
  p.strides(P::out, heads_inside(result.tensor()));
  std::array<void*, B::count> buffers{};
  buffers[B::q] = p.data(p.q), buffers[B::k] = p.data(p.k), buffers[B::v] = p.data(p.v),
  buffers[B::mask] = p.data(p.mask), buffers[B::state] = p.data(p.state);
  buffers[B::numbers] = &p.numbers, buffers[B::out] = p.data(result.tensor()),
  buffers[B::lse] = p.data(lse.tensor());
  p.run(false, p.batch * p.heads * p.params[P::blocks], buffers);
  result.finish();
  lse.finish();
  if (beyond(lse.tensor(), p.mask.defined() || p.keys == 0)) return in_full(c, out);
  return Results{out[0], out[1]};
}

Results attention_backward(const Call& c, Out out) {
  using B = AttentionBackward;
  Problem p(c);
  Tensor grad = p.as_computed(c.tensor("grad")), lse = dense(c.tensor("lse"), p.dtype),
         delta = dense(c.tensor("delta"), p.dtype);
  if (beyond(lse, p.mask.defined() || p.keys == 0) || beyond(delta)) return backward_in_full(c, lse, out);
  int64_t lanes = codegen::vector_lanes() / (p.dtype == DType::Float64 ? 2 : 1);
  int64_t padded = rounded_up(p.width, lanes), padded_value = rounded_up(p.value_width, lanes),
          blocks = p.params[P::blocks];
  // With few heads, chunks of the queries become separate tasks.
  int64_t pairs = p.batch * p.key_heads,
          chunks =
              pairs == 0 || blocks == 0 ? 1 : std::clamp<int64_t>(8 / pairs, 1, std::min<int64_t>(4, blocks));
  p.variant.key_vectors = register_vectors(padded, lanes),
  p.variant.value_vectors = register_vectors(padded_value, lanes);
  p.params[P::chunks] = chunks, p.params[P::padded_width] = padded,
  p.params[P::padded_value_width] = padded_value;
  Destination dq(out[0], p.dtype);
  ChunkedGradient dk(p, out[1], padded, chunks, P::dk), dv(p, out[2], padded_value, chunks, P::dv);
  if (p.batch * p.heads * p.rows == 0) {
    for (auto& t : out) copy(t, Tensor::scalar(Scalar(int64_t(0)), t.dtype()));
    return Results{out[0], out[1], out[2]};
  }
  p.strides(P::grad, grad);
  p.strides(P::dq, heads_inside(dq.tensor()));
  std::array<void*, B::count> buffers{};
  buffers[B::q] = p.data(p.q), buffers[B::k] = p.data(p.k), buffers[B::v] = p.data(p.v),
  buffers[B::mask] = p.data(p.mask), buffers[B::state] = p.data(p.state);
  buffers[B::numbers] = &p.numbers, buffers[B::grad] = p.data(grad), buffers[B::lse] = p.data(lse),
  buffers[B::delta] = p.data(delta);
  buffers[B::dq] = p.data(dq.tensor()), buffers[B::dk] = p.data(dk.sums), buffers[B::dv] = p.data(dv.sums);
  p.run(true, pairs * chunks, buffers);
  dq.finish();
  dk.finish();
  dv.finish();
  return Results{out[0], out[1], out[2]};
}

}  // namespace facula::device::cpu
