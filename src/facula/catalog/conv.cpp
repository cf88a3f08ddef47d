// Convolutions (cross-correlations, as the field calls them): forward and the two gradients, each an
// operator.
#include "facula/catalog/widened.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::is_rounded, catalog::narrowed, catalog::wide;
namespace d = facula::dtypes;

namespace {

struct Window {
  int64_t stride[2], padding[2], dilation[2], groups;
};

Window window(const Call& c) {
  Window w;
  auto pair = [&](const char* arg, int64_t* to) {
    Dims p = c.ints(arg, 2);
    for (size_t k = 0; k < 2; ++k) to[k] = p[k].guard_int();
  };
  pair("stride", w.stride);
  pair("padding", w.padding);
  pair("dilation", w.dilation);
  w.groups = c.integer("groups").guard_int();
  for (int k = 0; k < 2; ++k) {
    runtime_check(w.stride[k] > 0, c.name())
        << "non-positive stride is not supported, got " << to_string(c.ints("stride"));
    runtime_check(w.dilation[k] > 0, c.name())
        << "dilation should be greater than zero, got " << to_string(c.ints("dilation"));
    runtime_check(w.padding[k] >= 0, c.name())
        << "negative padding is not supported, got " << to_string(c.ints("padding"));
    for (auto [given, arg] : {std::pair(w.stride[k], "stride"), std::pair(w.padding[k], "padding"),
                              std::pair(w.dilation[k], "dilation")})
      runtime_check(given < int64_t(1) << 31, c.name())
          << arg << " must be below 2^31, got " << to_string(c.ints(arg));
  }
  runtime_check(w.groups > 0, c.name()) << "non-positive groups is not supported, got " << w.groups;
  return w;
}

Dims conv_sizes(const char* name, SymSpan input, SymSpan weight, const Window& w) {
  runtime_check(input.size() == 3 || input.size() == 4, name)
      << "expected 3D (unbatched) or 4D (batched) input [N, C, H, W], but got input of size "
      << to_string(input);
  runtime_check(weight.size() == 4, name)
      << "weight must be 4D [out_channels, in_channels / groups, kH, kW], got shape " << to_string(weight);
  SymInt channels = input[input.size() - 3];
  runtime_check(channels == weight[1] * SymInt(w.groups), name)
      << "given groups=" << w.groups << ", weight of size " << to_string(weight) << ", expected input"
      << to_string(input) << " to have " << weight[1] * SymInt(w.groups) << " channels, but got " << channels
      << " channels instead";
  runtime_check(!(weight[0] < SymInt(w.groups)), name)
      << "given groups=" << w.groups << ", expected weight to be at least " << w.groups
      << " at dimension 0, but got weight of size " << to_string(weight) << " instead";
  runtime_check(weight[0] % SymInt(w.groups) == SymInt(int64_t(0)), name)
      << "given groups=" << w.groups << ", expected weight to be divisible by " << w.groups
      << " at dimension 0, but got weight of size " << to_string(weight) << " instead";
  Dims out(input);
  size_t r = input.size() - 2;
  bool nothing = channels == SymInt(int64_t(0));  // of no channels PyTorch makes none, by kernels of any size
  out[r - 1] = nothing ? SymInt(int64_t(0)) : weight[0];
  for (size_t k = 0; k < 2; ++k) {
    SymInt padded = input[r + k] + SymInt(2 * w.padding[k]),
           kernel = SymInt(w.dilation[k]) * (weight[2 + k] - SymInt(int64_t(1))) + SymInt(int64_t(1));
    runtime_check(nothing || weight[2 + k] > SymInt(int64_t(0)), name)
        << "kernel size should be greater than zero, got weight " << to_string(weight);
    runtime_check(!(kernel > padded), name)
        << "kernel size can't be greater than actual input size: padded input " << padded << ", kernel "
        << kernel << " at dimension " << r + k << " of input " << to_string(input) << ", weight "
        << to_string(weight);
    out[r + k] = (padded - kernel) / SymInt(w.stride[k]) + SymInt(int64_t(1));
  }
  return out;
}

void check_dtypes(const char* name, const Tensor& a, const char* what_a, const Tensor& b,
                  const char* what_b) {
  runtime_check(a.dtype() == b.dtype(), name) << what_a << " type (" << a.dtype() << ") and " << what_b
                                              << " type (" << b.dtype() << ") should be the same";
}

// A gradient's sizes must be those of the forward result.
void check_gradient(const Call& c, SymSpan input, SymSpan weight) {
  Dims expected = conv_sizes(c.name(), input, weight, window(c));
  auto given = c.sizes("grad");
  runtime_check(given.size() == expected.size() && std::equal(given.begin(), given.end(), expected.begin()),
                c.name())
      << "expected grad of shape " << to_string(SymSpan(expected)) << " for input " << to_string(input)
      << " and weight " << to_string(weight) << ", got " << to_string(given);
}

Expr n_of(SymInt n) { return loop::size(n); }
Expr inside(Expr at, Expr n) { return (at >= Scalar(int64_t(0))) & (at < n); }
Expr clipped(Expr at, Expr n) { return max(min(at, n - Scalar(int64_t(1))), Scalar(int64_t(0))); }
Expr zero_of(Expr x) { return constant(Scalar(int64_t(0)), x.dtype()); }

// The index [n?, channel, y, x].
Index pixel(const Index& batch, Expr channel, Expr y, Expr x) {
  Index j = batch;
  j.push_back(channel);
  j.push_back(y);
  j.push_back(x);
  return j;
}

// The input position that window (y, x) reads with tap (ky, kx), and whether it is inside the input.
struct Tap {
  Expr y, x, valid;
};
Tap read_at(const Window& w, Expr y, Expr x, Expr ky, Expr kx, SymInt height, SymInt width) {
  auto along = [&](int k, Expr o, Expr tap) {
    return o * Scalar(w.stride[k]) + tap * Scalar(w.dilation[k]) - Scalar(w.padding[k]);
  };
  Expr row = along(0, y, ky), column = along(1, x, kx), h = n_of(height), l = n_of(width);
  return {clipped(row, h), clipped(column, l), inside(row, h) & inside(column, l)};
}
// The window that reads pixel (y, x) with tap (ky, kx), and whether there is one.
Tap written_by(const Window& w, Expr y, Expr x, Expr ky, Expr kx, SymInt height, SymInt width) {
  Expr valid = constant(true, DType::Bool), o[2], n[2] = {n_of(height), n_of(width)}, at[2] = {y, x},
       tap[2] = {ky, kx};
  for (int k = 0; k < 2; ++k) {
    Expr start = at[k] + Scalar(w.padding[k]) - tap[k] * Scalar(w.dilation[k]);
    o[k] = floordiv(start, Scalar(w.stride[k]));
    valid = valid & eq(o[k] * Scalar(w.stride[k]), start) & inside(o[k], n[k]);
    o[k] = clipped(o[k], n[k]);
  }
  return {o[0], o[1], valid};
}

Expr conv_element(const LoopCall& c, Index i) {
  Window w = window(c);
  auto input = c.sizes("input"), weight = c.sizes("weight");
  size_t r = i.size() - 3;
  Index batch(i.begin(), i.begin() + std::ptrdiff_t(r));
  Expr group = floordiv(i[r], n_of(weight[0] / SymInt(w.groups)));
  Expr y = reduce(c, monoid::sum, {weight[1], weight[2], weight[3]}, [&](Index k) {
    Tap t = read_at(w, i[r + 1], i[r + 2], k[1], k[2], input[r + 1], input[r + 2]);
    Expr x = c.load("input", pixel(batch, group * n_of(weight[1]) + k[0], t.y, t.x));
    return select(t.valid, x * c.load("weight", {i[r], k[0], k[1], k[2]}), zero_of(x));
  });
  return c.has("bias") ? y + c.load("bias", {i[r]}) : y;
}

Expr input_gradient_element(const LoopCall& c, Index i) {
  Window w = window(c);
  auto grad = c.sizes("grad"), weight = c.sizes("weight");
  size_t r = i.size() - 3;
  Index batch(i.begin(), i.begin() + std::ptrdiff_t(r));
  SymInt per_group = weight[0] / SymInt(w.groups);
  Expr group = floordiv(i[r], n_of(weight[1])), channel = i[r] - group * n_of(weight[1]);
  return reduce(c, monoid::sum, {per_group, weight[2], weight[3]}, [&](Index k) {
    Tap t = written_by(w, i[r + 1], i[r + 2], k[1], k[2], grad[r + 1], grad[r + 2]);
    Expr out = group * n_of(per_group) + k[0];
    Expr g = c.load("grad", pixel(batch, out, t.y, t.x));
    return select(t.valid, g * c.load("weight", {out, channel, k[1], k[2]}), zero_of(g));
  });
}

Expr weight_gradient_element(const LoopCall& c, Index i) {
  Window w = window(c);
  auto grad = c.sizes("grad"), input = c.sizes("input"), weight = c.ints("weight_size");
  bool batched = grad.size() == 4;
  size_t r = batched ? 1 : 0;
  Expr group = floordiv(i[0], n_of(weight[0] / SymInt(w.groups)));
  SymInt images = batched ? grad[0] : SymInt(int64_t(1));
  return reduce(c, monoid::sum, {images, grad[r + 1], grad[r + 2]}, [&](Index k) {
    Tap t = read_at(w, k[1], k[2], i[2], i[3], input[r + 1], input[r + 2]);
    Index batch;
    if (batched) batch.push_back(k[0]);
    Expr x = c.load("input", pixel(batch, group * n_of(weight[1]) + i[1], t.y, t.x));
    return select(t.valid, x * c.load("grad", pixel(batch, i[0], k[1], k[2])), zero_of(x));
  });
}

Tensor conjugate(const Tensor& x) { return is_complex(x.dtype()) ? conj_physical(x) : x; }

Tensor input_gradient(const Tensor& grad, const Tensor& weight, SymSpan size, const Call& c) {
  return convolution_backward_input(grad, conjugate(weight), size, c.ints("stride"), c.ints("padding"),
                                    c.ints("dilation"), c.integer("groups").guard_int());
}
Tensor weight_gradient(const Tensor& grad, const Tensor& input, SymSpan size, const Call& c) {
  return convolution_backward_weight(grad, conjugate(input), size, c.ints("stride"), c.ints("padding"),
                                     c.ints("dilation"), c.integer("groups").guard_int());
}
Tensor forward(const Tensor& input, const Tensor& weight, MaybeTensor bias, const Call& c) {
  return conv2d(input, weight, bias, c.ints("stride"), c.ints("padding"), c.ints("dilation"),
                c.integer("groups").guard_int());
}

Tensor complex_of(const Tensor& re, const Tensor& im) {
  return view_as_complex(stack(std::vector<Tensor>{re, im}, -1));
}
// Gradients of a complex convolution, which is made of three real ones: a(re, re), b(im, im) and c(sum, sum) give
// a - b + i (c - a - b).
Grads complex_gradients(const Vjp& v) {
  auto& c = v.call();
  Tensor g = v.grad(), along = _real(g), across = _imag(g);
  Tensor of_a = sub(along, across), of_b = neg(add(along, across));
  auto of = [&](const char* other, auto&& gradient) {
    Tensor re = _real(v[other]), im = _imag(v[other]), both = gradient(across, add(re, im));
    return complex_of(add(gradient(of_a, re), both), add(gradient(of_b, im), both));
  };
  Grads out(3);
  if (v.needs("input"))
    out[0] = of("weight", [&](const Tensor& grad, const Tensor& w) {
      return input_gradient(grad, w, c.sizes("input"), c);
    });
  if (v.needs("weight"))
    out[1] = of("input", [&](const Tensor& grad, const Tensor& x) {
      return weight_gradient(grad, x, c.sizes("weight"), c);
    });
  if (v.needs("bias")) out[2] = sum(g, c.rank("input") == 4 ? Sizes{0, 2, 3} : Sizes{1, 2});
  return out;
}

Dims weight_gradient_sizes(const Call& c) {
  check_dtypes(c.name(), c.tensor("grad"), "Gradient", c.tensor("input"), "input");
  check_gradient(c, c.sizes("input"), c.ints("weight_size"));
  return Dims(c.ints("weight_size"));
}

// Gradients of the pair (weight, bias) gradient or of the weight gradient alone.
Grads second_weight_gradients(const Vjp& v) {
  auto& c = v.call();
  Grads out(2);
  Tensor gw = v.grad(0), grad_bias = c.op().schema.returns.size() > 1 ? v.grad(1) : Tensor();
  if (v.needs("grad")) {
    if (gw.defined())
      out[0] =
          forward(conjugate(v["input"]), gw, grad_bias.defined() ? MaybeTensor(grad_bias) : MaybeTensor(), c);
    else if (grad_bias.defined()) {
      Dims sizes{c.size("grad", -3), SymInt(int64_t(1)), SymInt(int64_t(1))};
      out[0] = expand(view(grad_bias, sizes), c.sizes("grad"));
    }
  }
  if (v.needs("input") && gw.defined())
    out[1] = input_gradient(conjugate(v["grad"]), conjugate(gw), c.sizes("input"), c);
  return out;
}

Sample conv_sample(std::vector<int64_t> input, std::vector<int64_t> weight, bool bias,
                   const char* stride = "1", const char* padding = "0", const char* dilation = "1",
                   const char* groups = "1") {
  Sample s{{{"input", op::tensor(std::move(input))}, {"weight", op::tensor(weight)}}};
  if (bias) s.args.push_back({"bias", op::tensor({weight[0]})});
  for (auto [name, text] : {std::pair("stride", stride), std::pair("padding", padding),
                            std::pair("dilation", dilation), std::pair("groups", groups)})
    s.args.push_back({name, op::literal(text)});
  return s;
}

// One dimension is a row of images of height 1.
void check_line(const Tensor& input, const Tensor& weight) {
  runtime_check(input.dim() == 2 || input.dim() == 3, "conv1d")
      << "expected 2D (unbatched) or 3D (batched) input [N, C, L], but got input of size "
      << to_string(input.sizes());
  runtime_check(weight.dim() == 3, "conv1d")
      << "weight must be 3D [out_channels, in_channels / groups, k], got shape " << to_string(weight.sizes());
}
Dims in_row(SymSpan s, int64_t neutral) {
  runtime_check(s.size() <= 1, "conv1d")
      << "expected stride, padding and dilation to be single numbers, but got " << to_string(s);
  return Dims{SymInt(neutral), s.empty() ? SymInt(neutral) : s[0]};
}

// A transposed convolution over `rank` dimensions; one dimension is a row of images of height 1.
Tensor transposed(const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias,
                  int rank) {
  const char* name = c.name();
  int64_t groups = c.integer("groups").guard_int();
  runtime_check(input.dim() == rank + 1 || input.dim() == rank + 2, name)
      << "expected " << rank + 1 << "D (unbatched) or " << rank + 2
      << "D (batched) input, but got input of size " << to_string(input.sizes());
  runtime_check(weight.dim() == rank + 2, name)
      << "weight must be " << rank + 2 << "D [in_channels, out_channels / groups, ...], got shape "
      << to_string(weight.sizes());
  runtime_check(groups > 0, name) << "non-positive groups is not supported, got " << groups;
  SymInt channels = input.size(-rank - 1), outputs = weight.size(1) * SymInt(groups);
  runtime_check(channels == weight.size(0), name)
      << "given transposed=1, weight of size " << to_string(weight.sizes()) << ", expected input "
      << to_string(input.sizes()) << " to have " << weight.size(0) << " channels, but got " << channels
      << " channels instead";
  runtime_check(!(channels < SymInt(groups)), name)
      << "given groups=" << groups << ", expected weight to be at least " << groups
      << " at dimension 0, but got weight of size " << to_string(weight.sizes()) << " instead";
  runtime_check(channels % SymInt(groups) == SymInt(int64_t(0)), name)
      << "given groups=" << groups << ", expected weight to be divisible by " << groups
      << " at dimension 0, but got weight of size " << to_string(weight.sizes()) << " instead";
  runtime_check(!bias || (bias->dim() == 1 && bias->size(0) == outputs), name)
      << "given transposed=1, weight of size " << to_string(weight.sizes())
      << ", expected bias to be 1-dimensional with " << outputs << " elements, but got bias of size "
      << (bias ? to_string(bias->sizes()) : "") << " instead";
  Dims stride = c.ints("stride", rank), padding = c.ints("padding", rank),
       extra = c.ints("output_padding", rank), dilation = c.ints("dilation", rank);
  Tensor x = input, w = weight;
  if (rank == 1) {
    x = unsqueeze(x, -2);
    w = unsqueeze(w, -2);
    for (auto* d : {&stride, &dilation}) d->insert(0, SymInt(int64_t(1)));
    for (auto* d : {&padding, &extra}) d->insert(0, SymInt(int64_t(0)));
  }
  runtime_check(outputs > SymInt(int64_t(0)), name)
      << "expected a weight that makes output channels, but got weight of size " << to_string(weight.sizes());
  Dims size(x.sizes());
  size_t r = size.size() - 2;
  size[r - 1] = outputs;
  for (size_t k = 0; k < 2; ++k) {
    bool in_use = rank == 2 || k == 1;
    runtime_check(!in_use || extra[k] < stride[k] || extra[k] < dilation[k], name)
        << "output padding must be smaller than either stride or dilation, but got output_padding "
        << to_string(SymSpan(extra)) << ", stride " << to_string(SymSpan(stride)) << ", dilation "
        << to_string(SymSpan(dilation));
    SymInt one = int64_t(1);
    size[r + k] = (size[r + k] - one) * stride[k] - SymInt(int64_t(2)) * padding[k] +
                  dilation[k] * (w.size(int(k) + 2) - one) + extra[k] + one;
    runtime_check(size[r + k] > SymInt(int64_t(0)), name)
        << "given input size " << to_string(input.sizes())
        << ", the output size is too small: " << to_string(SymSpan(size));
  }
  // The gradients of what is cut off are zeros, and take part: PyTorch's NaN and infinities meet them where windows
  // have gaps (not those of 16-bit floats).
  bool cut = false, whole_width = !is_rounded(x);
  // A sum of a few float16 products may have no more digits than its bias leaves: both are rounded at once.
  DType given = x.dtype();
  if (bias && given == DType::Float16 && w.dtype() == given) x = wide(x), w = wide(w), bias = wide(*bias);
  for (size_t k = 0; k < 2; ++k)
    cut = cut || (whole_width && dilation[k] > SymInt(int64_t(1)) && padding[k] > SymInt(int64_t(0)));
  auto written = [&](const Tensor& x, const Tensor& w) {
    if (!cut && extra[0] < stride[0] && extra[1] < stride[1])
      return convolution_backward_input(x, w, size, stride, padding, dilation, groups);
    // All that is written, cut and padded; beyond a stride no convolution of that size gives this input.
    Dims whole(size), crop;
    for (size_t k = 0; k < 2; ++k) whole[r + k] = size[r + k] + SymInt(int64_t(2)) * padding[k] - extra[k];
    Tensor y = convolution_backward_input(x, w, whole, stride, Sizes{0, 0}, dilation, groups);
    for (size_t k = 2; k-- > 0;) {
      crop.push_back(-padding[k]);
      crop.push_back(extra[k] - padding[k]);
    }
    return constant_pad_nd(y, crop, 0);
  };
  auto with_bias = [&](const Tensor& y, const Tensor& b) {
    return bias ? add(y, view(b, Dims{outputs, SymInt(int64_t(1)), SymInt(int64_t(1))})) : y;
  };
  Tensor y;
  if (!is_complex(x.dtype()) || !is_complex(w.dtype()) || (bias && !is_complex(bias->dtype()))) {
    y = with_bias(written(x, w), bias ? *bias : Tensor());
  } else {  // by three real ones, as conv2d of complex numbers
    auto parts = [](const Tensor& t) {
      Tensor pairs = view_as_real(t);
      return std::pair(select(pairs, -1, int64_t(0)), select(pairs, -1, int64_t(1)));
    };
    auto [xr, xi] = parts(x);
    auto [wr, wi] = parts(w);
    auto [br, bi] = bias ? parts(*bias) : std::pair<Tensor, Tensor>();
    Tensor a = with_bias(written(xr, wr), br), b = written(xi, wi);
    Tensor turned = with_bias(written(add(xr, xi), add(wr, wi)), bias ? add(br, bi) : br);
    turned = sub(sub(turned, a), b);
    Tensor none = mul(turned, 0);
    y = complex_of(add(sub(a, b), none), add(turned, none));
  }
  y = narrowed(y, given);
  return rank == 1 ? squeeze(y, -2) : y;
}

// ---- batches of calls (vmap): [batch, n, ...], n is 1 for calls without a batch of their own

// Whether all slices along the first dimension share memory, as expand makes them.
bool is_repeated(const Tensor& t) { return SymInt::surely_equal(t.stride(0), int64_t(0)); }
Tensor first_of(const Tensor& t) { return select(t, 0, SymInt(int64_t(0))); }

// [batch, n, ...] as [batch * n, ...], and back.
Tensor folded(const Tensor& t) {
  Dims sizes{t.size(0) * t.size(1)};
  for (int d = 2; d < t.dim(); ++d) sizes.push_back(t.size(d));
  return reshape(t, sizes);
}
Tensor parted(const Tensor& t, SymInt batch, SymInt n) {
  Dims sizes{batch, n};
  for (int d = 1; d < t.dim(); ++d) sizes.push_back(t.size(d));
  return reshape(t, sizes);
}
// [batch, n, channels, ...] as [n, batch * channels, ...], and back.
Tensor in_channels(const Tensor& t) {
  return reshape(transpose(t, 0, 1), Sizes{t.size(1), t.size(0) * t.size(2), t.size(3), t.size(4)});
}
Tensor of_channels(const Tensor& t, SymInt batch) {
  return transpose(reshape(t, Sizes{t.size(0), batch, t.size(1) / batch, t.size(2), t.size(3)}), 0, 1);
}

// The operand of a call as [batch, n, ...].
Tensor images(const Batched& b, ParameterName arg) {
  Tensor t = b.whole(arg);
  return b.logical().rank(arg) == 3 ? unsqueeze(t, 1) : t;
}
Tensor as_called(const Batched& b, ParameterName arg, const Tensor& t) {
  return b.logical().rank(arg) == 3 ? squeeze(t, 1) : t;
}
struct Steps {
  Dims stride, padding, dilation;
  int64_t groups;
  explicit Steps(const Call& c)
      : stride(c.ints("stride", 2)),
        padding(c.ints("padding", 2)),
        dilation(c.ints("dilation", 2)),
        groups(c.integer("groups").guard_int()) {}
};
// Neither parts of complex numbers nor no channels: such calls are made one by one.
bool is_plain(const Batched& b, const char* input) {
  return !is_complex(b.logical().dtype(input)) && product(b.logical().sizes(input)) > SymInt(int64_t(0));
}

Results convolutions(const Batched& b) {
  auto& c = b.logical();
  if (!is_plain(b, "input")) return {};
  Steps s(c);
  Tensor bias = b["bias"], y;
  bool with_bias = bias.defined() && !b.is_batched("bias") && !b.is_batched("weight");
  if (!b.is_batched("weight"))
    y = parted(conv2d(folded(images(b, "input")), b["weight"], with_bias ? MaybeTensor(bias) : MaybeTensor(),
                      s.stride, s.padding, s.dilation, s.groups),
               b.size(), c.rank("input") == 3 ? SymInt(int64_t(1)) : c.size("input", 0));
  else y = _conv2d_batch(images(b, "input"), b["weight"], s.stride, s.padding, s.dilation, s.groups);
  if (bias.defined() && !with_bias) {
    SymInt one = int64_t(1);
    y = add(y, b.is_batched("bias") ? view(bias, Sizes{b.size(), one, bias.size(1), one, one})
                                    : view(bias, Sizes{bias.size(0), one, one}));
  }
  return Results(as_called(b, "input", y));
}

Results input_gradients(const Batched& b) {
  auto& c = b.logical();
  if (!is_plain(b, "grad")) return {};
  Steps s(c);
  Tensor grad = images(b, "grad");
  Dims sizes(c.ints("input_size"));
  if (sizes.size() == 3) sizes.insert(0, SymInt(int64_t(1)));
  Dims whole(sizes);
  whole[0] *= b.size();
  Tensor x = b.is_batched("weight")
                 ? _conv2d_batch_input(grad, b["weight"], sizes, s.stride, s.padding, s.dilation, s.groups)
                 : parted(convolution_backward_input(folded(grad), b["weight"], whole, s.stride, s.padding,
                                                     s.dilation, s.groups),
                          b.size(), sizes[0]);
  return Results(as_called(b, "grad", x));
}

Tensor weight_gradients(const Batched& b) {
  Steps s(b.logical());
  return _conv2d_batch_weight(images(b, "grad"), images(b, "input"), b.logical().ints("weight_size"),
                              s.stride, s.padding, s.dilation, s.groups);
}

}  // namespace

FACULA_FAMILY(conv) {
  // Weights that are the same in all calls, as those of a model whose gradients are asked for each example: one
  // convolution forward, and apart only in the gradient of the weights.
  define(
      "_conv2d_batch(Tensor input, Tensor weight, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc("conv2d of each pair of input [batch, N, C, H, W] and weight [batch, out, C / groups, kH, kW].")
      .bind(hidden)
      .dtypes(d::numeric)
      .autocast(Autocast::lower)
      .composite([](const Tensor& input, const Tensor& weight, SymSpan stride, SymSpan padding,
                    SymSpan dilation, int64_t groups) {
        SymInt batch = input.size(0), n = input.size(1);
        if (is_repeated(weight))
          return parted(conv2d(folded(input), first_of(weight), MaybeTensor(), stride, padding, dilation,
                               groups),
                        batch, n);
        Tensor x = is_repeated(input) && groups == 1 ? first_of(input) : in_channels(input);
        int64_t together = is_repeated(input) && groups == 1 ? 1 : groups * batch.guard_int();
        return of_channels(conv2d(x, folded(weight), MaybeTensor(), stride, padding, dilation, together),
                           batch);
      })
      // Gradients of weights by one product of matrices for each example.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Steps s(c);
        Dims w(c.sizes("weight").subspan(1)), x(c.sizes("input").subspan(1));
        return grads(v.needs("input") ? _conv2d_batch_input(v.grad(), v["weight"], x, s.stride, s.padding,
                                                            s.dilation, s.groups)
                                      : Tensor(),
                     v.needs("weight") ? _conv2d_batch_weight(v.grad(), v["input"], w, s.stride, s.padding,
                                                              s.dilation, s.groups)
                                       : Tensor());
      })
      .samples(
          {"input[3, 2, 4, 5, 5], weight[3, 6, 2, 3, 3], stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=2"});
  define(
      "_conv2d_batch_input(Tensor grad, Tensor weight, SymInt[] input_size, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc("The gradient of _conv2d_batch for its input; input_size is that of one.")
      .bind(hidden)
      .dtypes(d::numeric)
      .composite([](const Tensor& grad, const Tensor& weight, SymSpan input_size, SymSpan stride,
                    SymSpan padding, SymSpan dilation, int64_t groups) {
        SymInt batch = grad.size(0);
        Dims sizes(input_size);
        if (is_repeated(weight)) {
          sizes[0] *= batch;
          return parted(convolution_backward_input(folded(grad), first_of(weight), sizes, stride, padding,
                                                   dilation, groups),
                        batch, input_size[0]);
        }
        sizes[1] *= batch;
        return of_channels(convolution_backward_input(in_channels(grad), folded(weight), sizes, stride,
                                                      padding, dilation, groups * batch.guard_int()),
                           batch);
      })
      .samples(
          {"grad[3, 2, 6, 5, 5], weight[3, 6, 2, 3, 3], input_size=[2, 4, 5, 5], stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=2"});
  define(
      "_conv2d_batch_weight(Tensor grad, Tensor input, SymInt[] weight_size, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc(
          "The gradients of _conv2d_batch for its weights, each a product of matrices: of grad and of the windows of input.")
      .bind(hidden)
      .dtypes(d::numeric)
      .composite([](const Tensor& grad, const Tensor& input, SymSpan weight_size, SymSpan stride,
                    SymSpan padding, SymSpan dilation, int64_t groups) {
        SymInt batch = grad.size(0), n = grad.size(1), places = grad.size(3) * grad.size(4);
        Dims sizes{batch};
        for (SymInt k : weight_size) sizes.push_back(k);
        if (groups == 1) {
          Tensor windows =
              im2col(folded(input), Sizes{weight_size[2], weight_size[3]}, dilation, padding, stride);
          SymInt taps = windows.size(1), used = windows.size(2);
          Tensor g = reshape(transpose(grad, 1, 2), Sizes{batch, grad.size(2), n * places});
          windows = reshape(transpose(reshape(windows, Sizes{batch, n, taps, used}), 1, 2),
                            Sizes{batch, taps, n * used});
          return reshape(bmm(g, transpose(windows, 1, 2)), sizes);
        }
        Dims all(weight_size);
        all[0] *= batch;
        return reshape(convolution_backward_weight(in_channels(grad), in_channels(input), all, stride,
                                                   padding, dilation, groups * batch.guard_int()),
                       sizes);
      })
      .samples(
          {"grad[3, 2, 6, 5, 5], input[3, 2, 4, 5, 5], weight_size=[6, 2, 3, 3], stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=2",
           "grad[3, 2, 6, 5, 5], input[3, 2, 4, 5, 5], weight_size=[6, 4, 3, 3], stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1"});
  define(
      "conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] dilation=1, int groups=1) -> Tensor")
      .doc("Cross-correlation of input [N, C, H, W] with weight [out, C / groups, kH, kW], plus bias [out].")
      .grad_name([](const Call& c) {
        return c.rank("input") == 4 ? grad_name("Convolution") : grad_name("Squeeze", 1);
      })
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        check_dtypes("conv2d", c.tensor("input"), "Input", c.tensor("weight"), "weight");
        Dims sizes = conv_sizes("conv2d", c.sizes("input"), c.sizes("weight"), window(c));
        if (c.has("bias")) {
          check_dtypes("conv2d", c.tensor("input"), "Input", c.tensor("bias"), "bias");
          runtime_check(c.rank("bias") == 1 && c.size("bias", 0) == c.size("weight", 0), "conv2d")
              << "given weight of size " << to_string(c.sizes("weight"))
              << ", expected bias to be 1-dimensional with " << c.size("weight", 0)
              << " elements, but got bias of size " << to_string(c.sizes("bias")) << " instead";
        }
        return sizes;
      })
      .format_of({"input", "weight"})
      .channels_last(ChannelsLast::chooses)
      .library("conv2d")
      .batched(convolutions)
      .reference(conv_element)
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Grads out(3);
        if (c.size("input", -3) == SymInt(int64_t(0))) {
          for (size_t k = 0; const char* name : {"input", "weight", "bias"}) {
            if (v.needs(name)) out[k] = zeros_like(v[name]);
            ++k;
          }
          return out;
        }
        if (is_complex(c.dtype("input"))) return complex_gradients(v);
        if (v.needs("input")) out[0] = input_gradient(v.grad(), v["weight"], c.sizes("input"), c);
        if (v.needs("bias") && v.needs("weight")) {
          auto [w, b] = convolution_backward_weight_bias(v.grad(), conjugate(v["input"]), c.sizes("weight"),
                                                         c.ints("stride"), c.ints("padding"),
                                                         c.ints("dilation"), c.integer("groups").guard_int());
          out[1] = w;
          out[2] = b;
        } else if (v.needs("weight")) {
          out[1] = weight_gradient(v.grad(), v["input"], c.sizes("weight"), c);
        } else if (v.needs("bias")) {
          out[2] = sum(v.grad(), c.rank("input") == 4 ? Sizes{0, 2, 3} : Sizes{1, 2});
        }
        return out;
      })
      .samples(op::samples({conv_sample({1, 2, 4, 4}, {2, 2, 3, 3}, true, "1", "1"),
                            conv_sample({2, 4, 4}, {4, 1, 2, 3}, false, "2", "[0, 1]", "1", "2"),
                            conv_sample({2, 3, 7, 6}, {4, 3, 3, 3}, true, "1", "1"),
                            conv_sample({3, 7, 6}, {4, 3, 3, 2}, false, "[2, 1]"),
                            conv_sample({2, 4, 9, 9}, {6, 2, 3, 3}, true, "2", "[1, 2]", "2", "2")}));
  define(
      "convolution_backward_input(Tensor grad, Tensor weight, SymInt[] input_size, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc("The gradient of conv2d for its input: the transposed convolution of grad.")
      .grad_name("Convolution")
      .bind(hidden)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        check_dtypes(c.name(), c.tensor("grad"), "Gradient", c.tensor("weight"), "weight");
        check_gradient(c, c.ints("input_size"), c.sizes("weight"));
        return Dims(c.ints("input_size"));
      })
      .format_of({"grad", "weight"})
      .channels_last(ChannelsLast::chooses)
      .library("conv2d_backward_input")
      .batched(input_gradients)
      .reference(input_gradient_element)
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        return grads(v.needs("grad") ? forward(v.grad(), conjugate(v["weight"]), nullopt, c) : Tensor(),
                     v.needs("weight")
                         ? weight_gradient(conjugate(v["grad"]), conjugate(v.grad()), c.sizes("weight"), c)
                         : Tensor());
      })
      .samples(
          {"grad[1, 2, 3, 3], weight[2, 2, 2, 2], input_size=[1, 2, 4, 4], stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1"});
  define(
      "convolution_backward_weight(Tensor grad, Tensor input, SymInt[] weight_size, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc("The gradient of conv2d for its weight.")
      .bind(hidden)
      .dtypes(d::numeric)
      .shape(weight_gradient_sizes)
      .channels_last(ChannelsLast::packs)
      .library("conv2d_backward_weight")
      .batched(
          [](const Batched& b) { return is_plain(b, "grad") ? Results(weight_gradients(b)) : Results(); })
      .reference(weight_gradient_element)
      .vjp(second_weight_gradients)
      .samples(
          {"grad[1, 2, 3, 3], input[1, 2, 4, 4], weight_size=[2, 2, 2, 2], stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1"});
  define(
      "convolution_backward_weight_bias(Tensor grad, Tensor input, SymInt[] weight_size, int[2] stride, int[2] padding, int[2] dilation, int groups) "
      "-> (Tensor grad_weight, Tensor grad_bias)")
      .doc("The gradients of conv2d for its weight and bias.")
      .bind(hidden)
      .dtypes(d::numeric)
      .shapes([](const Call& c) {
        Dims w = weight_gradient_sizes(c), b{w[0]};
        return std::vector<Dims>{w, b};
      })
      .channels_last(ChannelsLast::packs)
      .library("conv2d_backward_weight")
      .batched([](const Batched& b) {
        if (!is_plain(b, "grad")) return Results();
        return Results{weight_gradients(b), sum(images(b, "grad"), Sizes{1, 3, 4})};
      })
      .reference([](const Tensor& grad, const Tensor& input, Sizes weight_size, Sizes stride, Sizes padding,
                    Sizes dilation, int64_t groups) {
        return std::tuple(convolution_backward_weight(grad, input, weight_size, stride, padding, dilation,
                                                      groups),
                          sum(grad, grad.dim() == 4 ? Sizes{0, 2, 3} : Sizes{1, 2}, false, grad.dtype()));
      })
      .vjp(second_weight_gradients)
      .samples(
          {"grad[1, 2, 3, 3], input[1, 2, 4, 4], weight_size=[2, 2, 2, 2], stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1"});
  define(
      "conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, str padding='valid', int[2] dilation=1, int groups=1) -> Tensor")
      .doc("conv2d with padding 'valid' (none) or 'same' (the result has the input's size; stride 1).")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias,
                    SymSpan stride, std::string_view padding, SymSpan dilation, int64_t groups) {
        runtime_check(padding == "same" || padding == "valid", "conv2d")
            << "padding must be 'same', 'valid' or numbers, got '" << std::string(padding) << "'";
        MaybeTensor b = bias ? MaybeTensor(*bias) : MaybeTensor();
        if (padding == "valid") return conv2d(input, weight, b, stride, Sizes{0, 0}, dilation, groups);
        for (auto s : c.ints("stride", 2))
          runtime_check(s == SymInt(int64_t(1)), "conv2d")
              << "padding='same' is not supported for strided convolutions";
        runtime_check(weight.dim() == 4, "conv2d")
            << "weight must be 4D [out_channels, in_channels / groups, kH, kW], got shape "
            << to_string(weight.sizes());
        Dims gap = c.ints("dilation", 2), pad;
        bool even = true;
        SymInt before[2], total[2];
        for (int k = 0; k < 2; ++k) {
          total[k] = gap[size_t(k)] * (weight.size(2 + k) - SymInt(int64_t(1)));
          before[k] = total[k] / SymInt(int64_t(2));
          even = even && before[k] * SymInt(int64_t(2)) == total[k];
        }
        if (even) return conv2d(input, weight, b, stride, {before[0], before[1]}, dilation, groups);
        for (int k = 1; k >= 0; --k) {
          pad.push_back(before[k]);
          pad.push_back(total[k] - before[k]);
        }
        return conv2d(constant_pad_nd(input, pad, 0), weight, b, stride, Sizes{0, 0}, dilation, groups);
      })
      .samples({"input[2, 2, 5, 4], weight[3, 2, 3, 3], bias[3], padding='same'",
                "input[2, 2, 5, 4], weight[3, 2, 3, 2], padding='valid'"});
  define(
      "conv1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] dilation=1, int groups=1) -> Tensor")
      .grad_name("Convolution")
      .doc("Cross-correlation of input [N, C, L] with weight [out, C / groups, k], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Tensor& input, const Tensor& weight, std::optional<Tensor> bias, SymSpan stride,
                    SymSpan padding, SymSpan dilation, int64_t groups) {
        check_line(input, weight);
        Tensor y =
            conv2d(unsqueeze(input, -2), unsqueeze(weight, -2), bias ? MaybeTensor(*bias) : MaybeTensor(),
                   in_row(stride, 1), in_row(padding, 0), in_row(dilation, 1), groups);
        return squeeze(y, -2);
      })
      .samples({"input[2, 3, 9], weight[4, 3, 3], bias[4], stride=[2], padding=[1]",
                "input[3, 9], weight[4, 3, 3]"});
  define("conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor")
      .grad_name("ConvTbc")
      .doc(
          "Cross-correlation of self [time, batch, channels] with weight [k, channels, out], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Tensor& self, const Tensor& weight, const Tensor& bias, int64_t pad) {
        runtime_check(self.dim() == 3 && weight.dim() == 3 && bias.dim() == 1, "conv_tbc")
            << "expected self [time, batch, channels], weight [k, channels, out] and bias [out], got "
            << to_string(self.sizes()) << ", " << to_string(weight.sizes()) << " and "
            << to_string(bias.sizes());
        runtime_check(weight.size(1) == self.size(2) && bias.size(0) == weight.size(2), "conv_tbc")
            << "expected weight [k, " << self.size(2) << ", out] and bias [out], got "
            << to_string(weight.sizes()) << " and " << to_string(bias.sizes());
        runtime_check(self.dtype() == weight.dtype() && self.dtype() == bias.dtype(), "conv_tbc")
            << "Input type (" << self.dtype() << "), weight type (" << weight.dtype() << ") and bias type ("
            << bias.dtype() << ") should be the same";
        runtime_check(std::abs(pad) < int64_t(1) << 31, "conv_tbc")
            << "padding must be below 2^31, got " << pad;
        // A product for each place of the kernel, added in PyTorch's order.
        SymInt zero = int64_t(0), one = int64_t(1), in = self.size(0), kernel = weight.size(0),
               out = in - kernel + one + SymInt(2 * pad), channels = weight.size(2);
        runtime_check(!(out < zero), "conv_tbc")
            << "the kernel of " << kernel << " places is longer than the input of " << in
            << " with a padding of " << pad;
        DType t = compute_type(self.dtype());
        Tensor x = to_dtype(self, t), w = to_dtype(weight, t);
        Tensor y =
            clone(expand(to_dtype(bias, t), Dims{out, self.size(1), channels}), MemoryFormat::contiguous);
        for (int64_t k = 0; k < kernel.guard_int(); ++k) {
          SymInt from = std::max<int64_t>(k - pad, 0), to = std::max<int64_t>(pad - k, 0);
          SymInt count = min(in + SymInt(pad - k), out) - to;
          if (!(count > zero)) continue;
          Tensor part = reshape(narrow(x, 0, from, count), Dims{count * self.size(1), self.size(2)});
          Tensor rows = view(narrow(y, 0, to, count), Dims{count * self.size(1), channels});
          addmm_(rows, part, select(w, 0, SymInt(k)));
        }
        return to_dtype(y, self.dtype());
      })
      .samples({"self[6, 2, 3], weight[3, 3, 4], bias[4], pad=1"});
  define(
      "conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, str padding='valid', int[1] dilation=1, int groups=1) -> Tensor")
      .grad_name("Convolution")
      .doc("conv1d with padding 'valid' (none) or 'same' (the result has the input's size; stride 1).")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Tensor& input, const Tensor& weight, std::optional<Tensor> bias, SymSpan stride,
                    std::string_view padding, SymSpan dilation, int64_t groups) {
        check_line(input, weight);
        Tensor y =
            conv2d(unsqueeze(input, -2), unsqueeze(weight, -2), bias ? MaybeTensor(*bias) : MaybeTensor(),
                   in_row(stride, 1), padding, in_row(dilation, 1), groups);
        return squeeze(y, -2);
      })
      .samples({"input[2, 3, 9], weight[4, 3, 3], bias[4], padding='same'",
                "input[3, 9], weight[4, 3, 2], padding='valid'"});
  define(
      "conv_transpose2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] output_padding=0, int groups=1, int[2] dilation=1) -> Tensor")
      .grad_name("Convolution")
      .doc(
          "Transposed convolution, the gradient of conv2d for its input: input [N, C, H, W] with weight [C, out / groups, kH, kW], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias) {
        return transposed(c, input, weight, bias, 2);
      })
      .samples({"input[1, 2, 4, 4], weight[2, 3, 3, 3], bias[3]",
                "input[2, 3, 5], weight[2, 1, 2, 3], stride=2, padding=[0, 1], output_padding=1, groups=2",
                "input[1, 2, 3, 4], weight[2, 2, 2, 2], dilation=[2, 1]"});
  define(
      "conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] output_padding=0, int groups=1, int[1] dilation=1) -> Tensor")
      .grad_name("Convolution")
      .doc(
          "Transposed convolution, the gradient of conv1d for its input: input [N, C, L] with weight [C, out / groups, k], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias) {
        return transposed(c, input, weight, bias, 1);
      })
      .samples({"input[2, 2, 5], weight[2, 3, 3], bias[3], stride=2",
                "input[2, 4], weight[2, 2, 3], padding=1, dilation=2"});
  define(
      "convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, int groups) -> Tensor")
      .grad_name("Convolution")
      .doc("The convolution, or transposed one, of 1, 2 or 3 dimensions that the rank of weight says.")
      .autocast(Autocast::lower)
      .procedure([](const Tensor& input, const Tensor& weight, std::optional<Tensor> bias, SymSpan stride,
                    SymSpan padding, SymSpan dilation, bool transposed, SymSpan output_padding,
                    int64_t groups) {
        int rank = weight.dim() - 2;
        runtime_check(rank >= 1 && rank <= 3, "convolution")
            << "weight must have 3 to 5 dimensions, got shape " << to_string(weight.sizes());
        MaybeTensor b = bias ? MaybeTensor(*bias) : MaybeTensor();
        if (transposed)
          return rank == 1
                     ? conv_transpose1d(input, weight, b, stride, padding, output_padding, groups, dilation)
                 : rank == 2
                     ? conv_transpose2d(input, weight, b, stride, padding, output_padding, groups, dilation)
                     : conv_transpose3d(input, weight, b, stride, padding, output_padding, groups, dilation);
        return rank == 1   ? conv1d(input, weight, b, stride, padding, dilation, groups)
               : rank == 2 ? conv2d(input, weight, b, stride, padding, dilation, groups)
                           : conv3d(input, weight, b, stride, padding, dilation, groups);
      })
      .samples(
          {"input[1, 2, 4, 4], weight[2, 2, 3, 3], bias[2], stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=False, output_padding=[0, 0], groups=1",
           "input[2, 2, 5], weight[2, 3, 3], bias=None, stride=[2], padding=[0], dilation=[1], transposed=True, output_padding=[1], groups=1"});
}
