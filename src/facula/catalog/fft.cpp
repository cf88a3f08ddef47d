// Discrete Fourier transforms: three library operators, and the names that users know.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>

#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;

namespace {

constexpr DTypeSet kReal = dtypes_where([](DType t) { return t == DType::Float32 || t == DType::Float64; });

// How a transform is scaled: not, by 1/sqrt(n), by 1/n.
enum Scaling : int64_t { none, root, whole };

Scaling scaling(const char* name, std::optional<std::string_view> norm, bool forward) {
  std::string_view mode = norm.value_or("backward");
  if (mode == "ortho") return root;
  runtime_check(mode == "backward" || mode == "forward", name)
      << "invalid normalization mode: \"" << std::string(mode) << "\""
      << hint("norm is 'backward', 'forward' or 'ortho'");
  return (mode == "forward") == forward ? whole : none;
}

const char* shown(const char* name) {  // fft_rfft as fft.rfft
  thread_local std::string text;
  text = name;
  if (text.rfind("fft_", 0) == 0) text[3] = '.';
  return text.c_str();
}

Tensor floating_of(const Tensor& x) {
  return is_differentiable(x.dtype()) ? x : to_dtype(x, default_dtype());
}
Tensor complex_input(const Tensor& x) {
  return is_complex(x.dtype()) ? x : to_dtype(x, complex_of(floating_of(x).dtype()));
}
Tensor real_input(const char* name, const Tensor& x) {
  runtime_check(!is_complex(x.dtype()), shown(name))
      << "expects a real input tensor, but got " << x.dtype() << hint("fft.fft takes complex input");
  return floating_of(x);
}

// x cropped or padded with zeros to n along dimension d.
Tensor resized(const char* name, const Tensor& x, int d, SymInt n) {
  runtime_check(n > SymInt(int64_t(0)), shown(name))
      << "invalid number of data points (" << n << ") specified";
  if (x.size(d) == n) return x;
  Dims pad(size_t(2 * (x.dim() - d)), SymInt(int64_t(0)));
  pad.back() = n - x.size(d);
  return constant_pad_nd(x, pad, 0);
}

int one_dim(const char* name, const Tensor& x, int64_t dim) {
  index_check(x.dim() > 0, shown(name)) << "a 0-d tensor has no dimension to transform";
  return wrap_dim(shown(name), dim, x.dim());
}

// The dimensions and sizes of an n-dimensional transform.
struct Plan {
  Ints dims;
  Dims sizes;
};
Plan plan(const char* name, const Tensor& x, Sizes s, Sizes dim, bool of_half) {
  Plan p;
  if (!dim.is_none())
    for (auto k : dim) p.dims.push_back(one_dim(name, x, k.guard_int()));
  else {
    int64_t n = s.is_none() ? x.dim() : int64_t(s.size());
    runtime_check(n <= x.dim(), shown(name))
        << "got shape with " << n << " values but input tensor only has " << x.dim() << " dimensions";
    for (int64_t k = x.dim() - n; k < x.dim(); ++k) p.dims.push_back(k);
  }
  for (size_t k = 0; k < p.dims.size(); ++k)
    runtime_check(std::count(p.dims.begin(), p.dims.end(), p.dims[k]) == 1, shown(name))
        << "FFT dims must be unique";
  runtime_check(s.is_none() || s.size() == p.dims.size(), shown(name))
      << "when given, dim and shape arguments must have the same length";
  for (size_t k = 0; k < p.dims.size(); ++k) {
    SymInt n = x.size(int(p.dims[k]));
    if (of_half && k + 1 == p.dims.size()) n = (n - SymInt(int64_t(1))) * SymInt(int64_t(2));
    p.sizes.push_back(s.is_none() || s[k] == SymInt(int64_t(-1)) ? n : s[k]);
  }
  return p;
}

// Refuses every size of 0, as PyTorch's FFT libraries do.
const Tensor& filled(const char* name, const Tensor& x) {
  runtime_check(x.numel() != SymInt(int64_t(0)), shown(name))
      << "expects elements to transform, but got an empty batch of shape " << to_string(x.sizes());
  return x;
}

Tensor complex_transform(const char* name, const Tensor& self, const Plan& p,
                         std::optional<std::string_view> norm, bool forward) {
  Tensor x = complex_input(self);
  if (p.dims.empty()) return x;
  for (size_t k = 0; k < p.dims.size(); ++k) x = resized(name, x, int(p.dims[k]), p.sizes[k]);
  return _fft_c2c(filled(name, x), p.dims, scaling(shown(name), norm, forward), forward);
}
Tensor to_half(const char* name, const Tensor& self, const Plan& p, std::optional<std::string_view> norm) {
  Tensor x = real_input(name, self);
  runtime_check(!p.dims.empty(), shown(name)) << "must transform at least one axis";
  for (size_t k = 0; k < p.dims.size(); ++k) x = resized(name, x, int(p.dims[k]), p.sizes[k]);
  return _fft_r2c(filled(name, x), p.dims, scaling(shown(name), norm, true));
}
Tensor from_half(const char* name, const Tensor& self, const Plan& p, std::optional<std::string_view> norm) {
  Tensor x = complex_input(self);
  runtime_check(!p.dims.empty(), shown(name)) << "must transform at least one axis";
  SymInt last = p.sizes[p.sizes.size() - 1];
  runtime_check(last > SymInt(int64_t(0)), shown(name))
      << "invalid number of data points (" << last << ") specified";
  for (size_t k = 0; k + 1 < p.dims.size(); ++k) x = resized(name, x, int(p.dims[k]), p.sizes[k]);
  x = resized(name, x, int(p.dims.back()), last / SymInt(int64_t(2)) + SymInt(int64_t(1)));
  return _fft_c2r(filled(name, x), p.dims, scaling(shown(name), norm, false), last);
}

Plan along(const char* name, const Tensor& self, std::optional<SymInt> n, int64_t dim, bool of_half = false) {
  int d = one_dim(name, self, dim);
  SymInt own = of_half ? (self.size(d) - SymInt(int64_t(1))) * SymInt(int64_t(2)) : self.size(d);
  return {Ints{d}, Dims{n.value_or(own)}};
}

// Strides with `dim` as the innermost dimension, as PyTorch lays an out= tensor whose result it conjugates.
Dims innermost(const char* name, const Call& c, SymSpan sizes) {
  size_t last = size_t(one_dim(name, c.tensor("self"), c.integer("dim").guard_int()));
  Dims strides(sizes.size()), order;
  SymInt step(int64_t(1));
  for (size_t k = sizes.size(); k-- > 0;) order.push_back(int64_t(k));
  std::stable_partition(order.begin(), order.end(), [&](SymInt k) { return k == SymInt(int64_t(last)); });
  for (SymInt at : order) {
    size_t k = size_t(at.guard_int());
    strides[k] = step;
    step = step * (sizes[k] > SymInt(int64_t(1)) ? sizes[k] : SymInt(int64_t(1)));
  }
  return strides;
}

// Transforms of Hermitian signals by those of real ones: the conjugate turns the direction, the scale stays.
std::string_view turned(const char* name, std::optional<std::string_view> norm) {
  std::string_view mode = norm.value_or("backward");
  scaling(shown(name), norm, true);  // refuses others
  return mode == "backward" ? "forward" : mode == "forward" ? "backward" : "ortho";
}
Tensor conjugated(const Tensor& x) { return is_complex(x.dtype()) ? conj_physical(x) : x; }
Plan but_last(const Plan& p) {
  return {Ints(std::span(p.dims).first(p.dims.size() - 1)), Dims(SymSpan(p.sizes).first(p.sizes.size() - 1))};
}
Tensor hermitian_to_real(const char* name, const Tensor& self, const Plan& p,
                         std::optional<std::string_view> norm) {
  runtime_check(!p.dims.empty(), shown(name)) << "must transform at least one axis";
  return from_half(name, conjugated(complex_input(self)), p, turned(name, norm));
}
Tensor real_to_hermitian(const char* name, const Tensor& self, const Plan& p,
                         std::optional<std::string_view> norm) {
  return conjugated(to_half(name, self, p, turned(name, norm)));
}

Tensor hermitian_to_real_n(const char* name, const Tensor& self, const Plan& p,
                           std::optional<std::string_view> norm) {
  runtime_check(!p.dims.empty(), shown(name)) << "must transform at least one axis";
  Tensor x = complex_transform(name, self, but_last(p), norm, true);
  return hermitian_to_real(name, x, {Ints{p.dims.back()}, Dims{p.sizes.back()}}, norm);
}
Tensor inverse_to_hermitian(const char* name, const Tensor& self, const Plan& p,
                            std::optional<std::string_view> norm) {
  runtime_check(!p.dims.empty(), shown(name)) << "must transform at least one axis";
  Tensor x = real_to_hermitian(name, self, {Ints{p.dims.back()}, Dims{p.sizes.back()}}, norm);
  return complex_transform(name, x, but_last(p), norm, false);
}

using Transform = Tensor (*)(const char* name, const Tensor& self, const Plan& p,
                             std::optional<std::string_view> norm);
// `f` over several dimensions; `of_half`: of the last one only the distinct points are given.
Definer hermitian_transform(const char* schema, const char* doc, Transform f, bool of_half) {
  std::string name(schema, std::string_view(schema).find('('));
  return std::move(
      define(schema)
          .converting_out()
          .doc(doc)
          .bind(fft)
          .autocast(Autocast::fp32)
          .procedure([=](const Tensor& self, Sizes s, Sizes dim, std::optional<std::string_view> norm) {
            return f(name.c_str(), self, plan(name.c_str(), self, s, dim, of_half), norm);
          })
          .samples({"self[2, 3, 4]"}));
}

// ---- Short-time transforms
struct Frames {
  int64_t n, hop, length;  // points of a transform, between frames, of the window
};
std::string described(const char* name, const Tensor& self, const Frames& f,
                      const std::optional<Tensor>& window) {
  std::string text = std::string(name) + " of " + std::string(facula::name(self.dtype())) +
                     to_string(self.sizes()) + ", n_fft=" + std::to_string(f.n) +
                     ", hop_length=" + std::to_string(f.hop) + ", win_length=" + std::to_string(f.length);
  return window ? text + ", window " + to_string(window->sizes()) : text;
}
// The window, with zeros around it up to n points; ones where none is given.
Tensor padded_window(const Frames& f, const std::optional<Tensor>& window, DType d) {
  Tensor w = window ? *window : ones({f.length}, d);
  if (f.length == f.n) return w;
  int64_t left = (f.n - f.length) / 2;
  return constant_pad_nd(w, std::vector<int64_t>{left, f.n - f.length - left}, 0);
}
// x [batch, n] with `more` points on both sides.
Tensor continued(const Tensor& x, int64_t more, std::string_view mode) {
  if (mode == "constant") return constant_pad_nd(x, std::vector<int64_t>{more, more}, 0);
  supported_check(mode == "reflect" || mode == "replicate" || mode == "circular", "stft")
      << "Unrecognised padding mode " << std::string(mode);
  int64_t n = x.size(-1).guard_int();
  runtime_check(mode == "replicate" ? n > 0 : more < n + (mode == "circular"), "stft")
      << "the padding, " << more << " on both sides, should be less than the size of the signal, of shape "
      << to_string(x.sizes());
  Tensor at = sub(arange(n + 2 * more), more);
  if (mode == "replicate") at = clamp(at, int64_t(0), n - 1);
  else if (mode == "circular") at = remainder(at, n);
  else at = sub(n - 1, abs(sub(n - 1, abs(at))));
  return index_select(x, -1, at);
}

Tensor short_time(const Tensor& self, Frames f, const std::optional<Tensor>& window, bool center,
                  std::string_view mode, bool normalized, std::optional<bool> onesided,
                  std::optional<bool> return_complex, std::optional<bool> align) {
  runtime_check(!align || !center, "stft") << "align_to_window should only be set when center = false";
  bool complex_in = is_complex(self.dtype()) || (window && is_complex(window->dtype()));
  runtime_check(return_complex || complex_in, "stft")
      << "requires the return_complex parameter be given for real inputs" << hint("return_complex=True");
  auto text = [&] { return described("stft", self, f, window); };
  runtime_check(is_differentiable(self.dtype()), "stft")
      << "expected a tensor of floating point or complex values: " << text();
  runtime_check(self.dim() == 1 || self.dim() == 2, "stft") << "expected a 1D or 2D tensor: " << text();
  Tensor x = self.dim() == 1 ? unsqueeze(self, 0) : self;
  if (center) x = continued(x, f.n / 2, mode);
  int64_t points = x.size(-1).guard_int();
  runtime_check(f.n > 0 && f.n <= points, "stft") << "expected 0 < n_fft <= " << points << ": " << text();
  runtime_check(f.hop > 0, "stft") << "expected hop_length > 0: " << text();
  runtime_check(f.length > 0 && f.length <= f.n, "stft") << "expected 0 < win_length <= n_fft: " << text();
  runtime_check(!window || (window->dim() == 1 && window->size(0) == SymInt(f.length)), "stft")
      << "expected a 1D window tensor of size equal to win_length: " << text();
  bool half = onesided.value_or(!complex_in);
  runtime_check(!half || !complex_in, "stft")
      << "Cannot have onesided output if window or input is complex: " << text();
  if (align.value_or(false) && f.length < f.n) {  // the first window begins at the first point
    int64_t left = (f.n - f.length) / 2;
    x = constant_pad_nd(x, std::vector<int64_t>{left, f.n - f.length - left}, 0);
    points = x.size(-1).guard_int();
  }
  Tensor frames = unfold(x, -1, f.n, f.hop);  // [batch, frames, n]
  if (window || f.length < f.n) frames = mul(frames, padded_window(f, window, real_of(x.dtype())));
  std::string_view norm = normalized ? "ortho" : "backward";
  Tensor result = complex_in ? fft_fft(frames, nullopt, -1, norm)
                  : half     ? fft_rfft(frames, nullopt, -1, norm)
                             : fft_fft(frames, nullopt, -1, norm);
  if (complex_in && half) result = narrow(result, -1, int64_t(0), f.n / 2 + 1);
  result = transpose(result, 1, 2);
  if (self.dim() == 1) result = squeeze(result, 0);
  return return_complex.value_or(true) ? result : view_as_real(result);
}

// Overlapping frames added up (Griffin, Lim, "Signal estimation from modified short-time Fourier transform", 1984):
// [batch, frames, n] becomes [batch, points].
Tensor overlap_added(const Tensor& frames, int64_t hop) {
  int64_t batch = frames.size(0).guard_int(), count = frames.size(1).guard_int(),
          n = frames.size(2).guard_int();
  int64_t points = n + hop * (count - 1);
  Tensor at = reshape(add(mul(unsqueeze(arange(count), -1), hop), arange(n)), {int64_t(-1)});
  return index_add(zeros({batch, points}, frames.dtype()), 1, at,
                   reshape(frames, Dims{SymInt(batch), SymInt(count * n)}));
}

Tensor inverse_short_time(const Tensor& self, Frames f, const std::optional<Tensor>& window, bool center,
                          bool normalized, std::optional<bool> onesided, std::optional<int64_t> length,
                          bool return_complex) {
  auto text = [&] { return described("istft", self, f, window); };
  bool complex_window = window && is_complex(window->dtype());
  runtime_check(is_complex(self.dtype()), "istft")
      << "requires a complex-valued input tensor matching the output from stft with return_complex=True, got "
      << self.dtype();
  runtime_check(self.numel() > SymInt(int64_t(0)), "istft") << "input tensor cannot be empty: " << text();
  runtime_check(self.dim() == 2 || self.dim() == 3, "istft")
      << "expected a tensor with 2 or 3 dimensions: " << text();
  Tensor x = self.dim() == 2 ? unsqueeze(self, 0) : self;
  bool half = onesided.value_or(x.size(1) != SymInt(f.n));
  runtime_check(x.size(1) == SymInt(half ? f.n / 2 + 1 : f.n), "istft")
      << "expected the frequency dimension of the input tensor to match "
      << (half ? "n_fft / 2 + 1 when onesided=True" : "n_fft when onesided=False") << ", but got "
      << x.size(1) << ": " << text();
  runtime_check(f.hop > 0 && f.hop <= f.length, "istft")
      << "expected 0 < hop_length <= win_length: " << text();
  runtime_check(f.length > 0 && f.length <= f.n, "istft") << "expected 0 < win_length <= n_fft: " << text();
  runtime_check(!window || (window->dim() == 1 && window->size(0) == SymInt(f.length)), "istft")
      << "Invalid window shape. window has to be 1D and length of `win_length`: " << text();
  runtime_check(return_complex || !complex_window, "istft")
      << "Complex windows are incompatible with return_complex=False";
  runtime_check(!return_complex || !half, "istft")
      << "Cannot have onesided output if window or input is complex";
  Tensor w = padded_window(f, window, real_of(x.dtype()));
  std::string_view norm = normalized ? "ortho" : "backward";
  x = transpose(x, 1, 2);  // [batch, frames, frequencies]
  Tensor frames;
  if (return_complex) frames = fft_ifft(x, nullopt, -1, norm);
  else {
    if (!half) x = narrow(x, -1, int64_t(0), f.n / 2 + 1);
    frames = fft_irfft(x, SymInt(f.n), -1, norm);
  }
  int64_t count = x.size(1).guard_int(), points = f.n + f.hop * (count - 1);
  Tensor y = overlap_added(mul(frames, w), f.hop);
  Tensor weights = overlap_added(expand(mul(w, w), {int64_t(1), count, f.n}), f.hop);
  int64_t start = center ? f.n / 2 : 0, end = length ? start + *length : center ? points - f.n / 2 : points;
  int64_t kept = std::max<int64_t>(0, std::min(end, points) - start);
  y = narrow(y, 1, start, kept);
  weights = narrow(weights, 1, start, kept);
  runtime_check(kept == 0 || amin(abs(weights)).item().to_double() > 1e-11, "istft")
      << "the squares of the window, added up where frames overlap, are 0 somewhere: " << text()
      << hint("a window without zeros at its ends, or center=True");
  y = div(y, weights);
  if (end - start > kept) y = constant_pad_nd(y, std::vector<int64_t>{0, end - start - kept}, 0);
  return self.dim() == 2 ? squeeze(y, 0) : y;
}

Tensor shifted(const Tensor& self, Sizes dim, bool back) {
  Ints dims;
  Dims by;
  if (dim.is_none())
    for (int k = 0; k < self.dim(); ++k) dims.push_back(k);
  else
    for (auto k : dim)
      dims.push_back(wrap_dim(back ? "fft.ifftshift" : "fft.fftshift", k.guard_int(), self.dim()));
  for (int64_t k : dims)
    by.push_back(back ? (self.size(int(k)) + SymInt(int64_t(1))) / SymInt(int64_t(2))
                      : self.size(int(k)) / SymInt(int64_t(2)));
  runtime_check(!dims.empty(), back ? "fft.ifftshift" : "fft.fftshift")
      << "needs a dimension to shift, got dim=[]";
  return roll(self, by, dims);
}

// ---- Slow references: the definition, one dimension after the other.
Tensor transformed(Tensor x, Sizes dim, int64_t normalization, bool forward) {
  double scale = 1;
  for (auto d : dim) {
    int64_t at = d.guard_int(), n = x.size(int(at)).guard_int();
    DType real = real_of(x.dtype());
    Tensor k = arange(n), turn = remainder(mul(unsqueeze(k, -1), k), n);  // j k mod n: exact angles
    Tensor angle = mul(to_dtype(turn, DType::Float64), (forward ? -2 : 2) * std::numbers::pi / double(n));
    Tensor factor =
        to_dtype(exp(mul(angle, Scalar(std::complex<double>(0, 1)))), complex_of(real));  // [n, n]
    x = movedim(sum(mul(unsqueeze(movedim(x, at, -1), -2), factor), -1), -1, at);
    scale /= normalization == 0 ? 1.0 : normalization == 1 ? std::sqrt(double(n)) : double(n);
  }
  return mul(x, scale);
}
Tensor half_spectrum(const Tensor& self, Sizes dim, int64_t normalization) {
  int last = int(dim[dim.size() - 1].guard_int());
  Tensor all = transformed(to_dtype(self, complex_of(self.dtype())), dim, normalization, true);
  return narrow(all, last, int64_t(0), self.size(last) / SymInt(int64_t(2)) + SymInt(int64_t(1)));
}
// Frequency k above n / 2 is the conjugate of frequency -k in all of `dim`.
Tensor of_half_spectrum(const Tensor& self, Sizes dim, int64_t normalization, SymInt last_dim_size) {
  int last = int(dim[dim.size() - 1].guard_int());
  int64_t n = last_dim_size.guard_int();
  Tensor x = self;
  for (size_t k = 0; k + 1 < dim.size(); ++k)
    x = transformed(x, Sizes{dim[k]}, normalization, false);  // leaves the last one Hermitian
  Tensor k = arange(n), mirrored = gt(k, n / 2), low = index_select(x, last, where(mirrored, sub(n, k), k));
  Tensor full =
      movedim(where(mirrored, conj_physical(movedim(low, last, -1)), movedim(low, last, -1)), -1, last);
  return _real(transformed(full, Sizes{dim[dim.size() - 1]}, normalization, false));
}

DType frequency_dtype(const Call& c) {
  DType t = c.maybe_dtype("dtype").value_or(default_dtype());
  runtime_check(is_differentiable(t), c.op().name())
      << "requires a floating point or complex dtype, got " << t;
  supported_check(!is_complex(t), c.op().name()) << "not implemented for '" << t << "'";
  return t;
}
std::vector<DType> complex_result(const Call& c) { return {complex_of(c.dtype("self"))}; }
Sizes last_two() { return Sizes{-2, -1}; }

// Declares a transform that users call.
Definer transform(const char* schema, const char* doc) {
  return std::move(define(schema).doc(doc).bind(fft).autocast(Autocast::fp32));
}

}  // namespace

FACULA_FAMILY(fft) {
  define("_fft_c2c(Tensor self, int[] dim, int normalization, bool forward) -> Tensor")
      .converting_out()
      .doc("Complex transform over `dim`.")
      .grad_name("FftC2C")
      .bind(hidden)
      .dtypes(dtypes::complex)
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .library("fft_c2c")
      .batched_in_front()
      .reference([](const Tensor& self, Sizes dim, int64_t normalization, bool forward) {
        return transformed(self, dim, normalization, forward);
      })
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        return grads(
            _fft_c2c(v.grad(), c.ints("dim"), c.integer("normalization").guard_int(), !c.flag("forward")));
      })
      .samples({"self[3, 4], dim=[1], normalization=0, forward=True",
                "self[3, 5], dim=[0, 1], normalization=1, forward=False"});
  define("_fft_r2c(Tensor self, int[] dim, int normalization) -> Tensor")
      .converting_out()
      .doc("Transform of real numbers over `dim`; the last one keeps its n / 2 + 1 distinct frequencies.")
      .grad_name("FftR2C")
      .bind(hidden)
      .dtypes(kReal)
      .result(complex_result)
      .shape([](const Call& c) {
        Dims sizes(c.sizes("self"));
        auto& n = sizes[size_t(c.ints("dim").back().guard_int())];
        n = n / SymInt(int64_t(2)) + SymInt(int64_t(1));
        return sizes;
      })
      .library("fft_r2c")
      .batched_in_front()
      .reference([](const Tensor& self, Sizes dim, int64_t normalization) {
        return half_spectrum(self, dim, normalization);
      })
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        int last = int(c.ints("dim").back().guard_int());
        Tensor g = resized("fft_rfft", v.grad(), last, c.size("self", last));
        return grads(_real(_fft_c2c(g, c.ints("dim"), c.integer("normalization").guard_int(), false)));
      })
      .samples({"self[3, 4], dim=[1], normalization=0", "self[3, 5], dim=[0, 1], normalization=2"});
  define("_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor")
      .converting_out()
      .doc("The real numbers whose distinct frequencies (of the last of `dim`) are given: inverse transform.")
      .grad_name("FftC2R")
      .bind(hidden)
      .dtypes(dtypes::complex)
      .result([](const Call& c) { return std::vector<DType>{real_of(c.dtype("self"))}; })
      .shape([](const Call& c) {
        return with(c.sizes("self"), int(c.ints("dim").back().guard_int()), c.integer("last_dim_size"));
      })
      .library("fft_c2r")
      .batched_in_front()
      .reference([](const Tensor& self, Sizes dim, int64_t normalization, SymInt last_dim_size) {
        return of_half_spectrum(self, dim, normalization, last_dim_size);
      })
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        int last = int(c.ints("dim").back().guard_int());
        Tensor g = _fft_r2c(v.grad(), c.ints("dim"), c.integer("normalization").guard_int());
        // Frequencies that stand for their mirror image too count twice.
        SymInt doubled = v.grad().size(last) - g.size(last);
        if (!(doubled > SymInt(int64_t(0)))) return grads(g);
        Tensor rest =
            narrow(g, last, doubled + SymInt(int64_t(1)), g.size(last) - doubled - SymInt(int64_t(1)));
        return grads(cat(std::vector<Tensor>{narrow(g, last, int64_t(0), int64_t(1)),
                                             mul(narrow(g, last, int64_t(1), doubled), 2.0), rest},
                         last));
      })
      .samples({"self[3, 3], dim=[1], normalization=0, last_dim_size=4",
                "self[3, 3], dim=[1], normalization=2, last_dim_size=5"});

  transform("fft_fft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor",
            "Discrete Fourier transform along `dim`, cropped or padded to n.")
      .grad_name([](const Call& c) { return grad_name(is_complex(c.dtype("self")) ? "FftC2C" : "FftR2C"); })
      .converting_out()
      .procedure(
          [](const Tensor& self, std::optional<SymInt> n, int64_t dim, std::optional<std::string_view> norm) {
            return complex_transform("fft_fft", self, along("fft_fft", self, n, dim), norm, true);
          })
      .samples({"self[5]", "self[3, 8], n=6, dim=0", "self[3, 4], norm='ortho'", "self[17, 97]"});
  transform("fft_ifft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor",
            "Inverse discrete Fourier transform along `dim`.")
      .grad_name([](const Call& c) { return grad_name(is_complex(c.dtype("self")) ? "FftC2C" : "Conj"); })
      .exact_out([](const Call& c) { return !is_complex(c.dtype("self")); })
      .resized([](const Call& c, size_t, const Tensor&, SymSpan sizes) {
        return is_complex(c.dtype("self")) ? Dims{} : innermost("fft_ifft", c, sizes);
      })
      .procedure(
          [](const Tensor& self, std::optional<SymInt> n, int64_t dim, std::optional<std::string_view> norm) {
            return complex_transform("fft_ifft", self, along("fft_ifft", self, n, dim), norm, false);
          })
      .samples({"self[5]", "self[3, 8], n=6, dim=0", "self[3, 4], norm='forward'"});
  transform("fft_rfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor",
            "The n / 2 + 1 distinct frequencies of a real signal along `dim`.")
      .converting_out()
      .procedure(
          [](const Tensor& self, std::optional<SymInt> n, int64_t dim, std::optional<std::string_view> norm) {
            return to_half("fft_rfft", self, along("fft_rfft", self, n, dim), norm);
          })
      .samples({"self[8]", "self[3, 7], n=9", "self[4, 3], dim=0, norm='ortho'", "self[17, 97]"});
  transform("fft_irfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor",
            "The real signal of n points (default 2 (m - 1)) with these m frequencies along `dim`.")
      .converting_out()
      .procedure(
          [](const Tensor& self, std::optional<SymInt> n, int64_t dim, std::optional<std::string_view> norm) {
            return from_half("fft_irfft", self, along("fft_irfft", self, n, dim, true), norm);
          })
      .samples({"self[5]", "self[3, 5], n=7", "self[3, 5], n=2, norm='ortho'"});
  transform("fft_fftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
            "Discrete Fourier transform over several dimensions.")
      .converting_out()
      .procedure([](const Tensor& self, Sizes s, Sizes dim, std::optional<std::string_view> norm) {
        return complex_transform("fft_fftn", self, plan("fft_fftn", self, s, dim, false), norm, true);
      })
      .samples({"self[2, 3, 4]", "self[2, 3, 4], dim=[0, 2]", "self[2, 3, 4], s=[2, 5]"});
  transform("fft_ifftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
            "Inverse discrete Fourier transform over several dimensions.")
      .converting_out()
      .procedure([](const Tensor& self, Sizes s, Sizes dim, std::optional<std::string_view> norm) {
        return complex_transform("fft_ifftn", self, plan("fft_ifftn", self, s, dim, false), norm, false);
      })
      .samples({"self[2, 3, 4]", "self[2, 3, 4], s=[2, 2]"});
  transform(
      "fft_rfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
      "Transform of a real signal over several dimensions; the last one keeps its distinct frequencies.")
      .converting_out()
      .procedure([](const Tensor& self, Sizes s, Sizes dim, std::optional<std::string_view> norm) {
        return to_half("fft_rfftn", self, plan("fft_rfftn", self, s, dim, false), norm);
      })
      .samples({"self[2, 3, 4]", "self[2, 3, 4], dim=[0, 1]"});
  transform("fft_irfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
            "The real signal of which rfftn gives these frequencies.")
      .converting_out()
      .procedure([](const Tensor& self, Sizes s, Sizes dim, std::optional<std::string_view> norm) {
        return from_half("fft_irfftn", self, plan("fft_irfftn", self, s, dim, true), norm);
      })
      .samples({"self[2, 3, 3]", "self[2, 3, 3], s=[3, 5]"});
  transform("fft_fft2(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
            "fftn over two dimensions, by default the last ones.")
      .converting_out()
      .procedure([](const Tensor& self, Sizes s, Sizes dim, std::optional<std::string_view> norm) {
        auto p = plan("fft_fft2", self, s, dim.is_none() ? last_two() : dim, false);
        return complex_transform("fft_fft2", self, p, norm, true);
      })
      .samples({"self[2, 4, 5]"});
  transform("fft_ifft2(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
            "ifftn over two dimensions, by default the last ones.")
      .converting_out()
      .procedure([](const Tensor& self, Sizes s, Sizes dim, std::optional<std::string_view> norm) {
        auto p = plan("fft_ifft2", self, s, dim.is_none() ? last_two() : dim, false);
        return complex_transform("fft_ifft2", self, p, norm, false);
      })
      .samples({"self[2, 4, 5], norm='ortho'"});
  transform("fft_rfft2(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
            "rfftn over two dimensions, by default the last ones.")
      .converting_out()
      .procedure([](const Tensor& self, Sizes s, Sizes dim, std::optional<std::string_view> norm) {
        auto p = plan("fft_rfft2", self, s, dim.is_none() ? last_two() : dim, false);
        return to_half("fft_rfft2", self, p, norm);
      })
      .samples({"self[2, 4, 5]"});
  transform("fft_irfft2(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
            "irfftn over two dimensions, by default the last ones.")
      .converting_out()
      .procedure([](const Tensor& self, Sizes s, Sizes dim, std::optional<std::string_view> norm) {
        auto p = plan("fft_irfft2", self, s, dim.is_none() ? last_two() : dim, true);
        return from_half("fft_irfft2", self, p, norm);
      })
      .samples({"self[2, 4, 3]"});
  transform(
      "fft_hfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor",
      "The real spectrum of n points (default 2 (m - 1)) of a Hermitian signal, of which m points are given along `dim`.")
      .converting_out()
      .procedure(
          [](const Tensor& self, std::optional<SymInt> n, int64_t dim, std::optional<std::string_view> norm) {
            return hermitian_to_real("fft_hfft", self, along("fft_hfft", self, n, dim, true), norm);
          })
      .samples({"self[5]", "self[3, 5], n=7, norm='ortho'"});
  transform(
      "fft_ihfft(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor",
      "The inverse of hfft: the n / 2 + 1 distinct points of the Hermitian signal whose spectrum is real.")
      .exact_out()
      .resized([](const Call& c, size_t, const Tensor&, SymSpan sizes) {
        return innermost("fft_ihfft", c, sizes);
      })
      .procedure(
          [](const Tensor& self, std::optional<SymInt> n, int64_t dim, std::optional<std::string_view> norm) {
            return real_to_hermitian("fft_ihfft", self, along("fft_ihfft", self, n, dim), norm);
          })
      .samples({"self[5]", "self[3, 5], n=7, norm='ortho'"});
  hermitian_transform("fft_hfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
                      "hfft over the last of several dimensions after fft over the others.",
                      hermitian_to_real_n, true);
  hermitian_transform(
      "fft_ihfftn(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
      "ihfft over the last of several dimensions, then ifft over the others.", inverse_to_hermitian, false);
  hermitian_transform(
      "fft_hfft2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2, -1], str? norm=None) -> Tensor",
      "hfftn over two dimensions, by default the last ones.", hermitian_to_real_n, true);
  hermitian_transform(
      "fft_ihfft2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2, -1], str? norm=None) -> Tensor",
      "ihfftn over two dimensions, by default the last ones.", inverse_to_hermitian, false);
  define("fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor")
      .converting_out()
      .doc("Frequency 0 moved to the middle.")
      .bind(fft)
      .procedure([](const Tensor& self, Sizes dim) { return shifted(self, dim, false); })
      .samples({"self[5, 4]", "self[5, 4], dim=[0]"});
  define("fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor")
      .converting_out()
      .doc("Frequency 0 moved from the middle to the front.")
      .bind(fft)
      .procedure([](const Tensor& self, Sizes dim) { return shifted(self, dim, true); })
      .samples({"self[5, 4]", "self[5, 4], dim=[0]"});
  define(
      "stft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, str pad_mode='reflect', bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor")
      .check([](const Call& c) {
        if (!c.has("window"))
          warn_once(
              "A window was not provided. A rectangular window will be applied,which is known to cause spectral leakage. Other windows "
              "such as torch.hann_window or torch.hamming_window are recommended to reduce spectral leakage.To suppress this warning and "
              "use a rectangular window, explicitly set `window=torch.ones(n_fft, device=<device>)`.");
        if (c.has("return_complex") && !c.flag("return_complex"))
          warn_once(
              "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors for all "
              "inputs, and return_complex=False will raise an error.\nNote: you can still call torch.view_as_real on the complex "
              "output to recover the old return format.");
      })
      .doc(
          "The spectra of windows of n_fft points every `hop_length` points (n_fft / 4), [..., frequencies, frames]; the "
          "signal is padded by n_fft / 2 on both sides if `center`.")
      .autocast(Autocast::fp32)
      .procedure([](const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length,
                    std::optional<int64_t> win_length, const std::optional<Tensor>& window, bool center,
                    std::string_view pad_mode, bool normalized, std::optional<bool> onesided,
                    std::optional<bool> return_complex, std::optional<bool> align_to_window) {
        Frames f{n_fft, hop_length.value_or(n_fft / 4), win_length.value_or(n_fft)};
        return short_time(self, f, window, center, pad_mode, normalized, onesided, return_complex,
                          align_to_window);
      })
      .samples({"self[16], n_fft=8, return_complex=True",
                "self[2, 16], n_fft=6, hop_length=2, window[6](0.5, 1), return_complex=True"});
  define(
      "istft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, bool normalized=False, bool? onesided=None, int? length=None, bool return_complex=False) -> Tensor")
      .check([](const Call& c) {
        if (!c.has("window"))
          warn_once(
              "A window was not provided. A rectangular window will be applied.Please provide the same window used by stft to make the "
              "inversion lossless.To suppress this warning and use a rectangular window, explicitly set "
              "`window=torch.ones(n_fft, device=<device>)`.");
      })
      .doc(
          "The signal of which stft gives these spectra: windows weighted, added up, and divided by the sums of their "
          "squares.  Griffin, Lim, \"Signal estimation from modified short-time Fourier transform\", 1984.")
      .dtypes(dtypes::complex)
      .autocast(Autocast::fp32)
      .procedure([](const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length,
                    std::optional<int64_t> win_length, const std::optional<Tensor>& window, bool center,
                    bool normalized, std::optional<bool> onesided, std::optional<int64_t> length,
                    bool return_complex) {
        Frames f{n_fft, hop_length.value_or(n_fft / 4), win_length.value_or(n_fft)};
        return inverse_short_time(self, f, window, center, normalized, onesided, length, return_complex);
      })
      .samples({"self[5, 4], n_fft=8, hop_length=2", "self[2, 4, 5], n_fft=6, hop_length=2, length=8"});
  define(
      "fft_fftfreq(int n, float d=1.0, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("The frequencies of fft's results for n samples that lie d apart: 0, 1, ..., -2, -1 over n d.")
      .bind(fft)
      .non_differentiable()
      .procedure([](const Call& c, int64_t n, double d) {
        runtime_check(n >= 0, c.op().name()) << "trying to create tensor with negative dimension " << n;
        Tensor k = cat({arange(0, (n + 1) / 2), arange(-(n / 2), 0)});
        return mul(to_dtype(k, frequency_dtype(c)), 1.0 / (double(n) * d));
      })
      .samples({"n=5", "n=4, d=0.5"});
  define(
      "fft_rfftfreq(int n, float d=1.0, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("The frequencies of rfft's results for n samples that lie d apart: 0, 1, ... n // 2 over n d.")
      .bind(fft)
      .non_differentiable()
      .procedure([](const Call& c, int64_t n, double d) {
        runtime_check(n >= 0, c.op().name()) << "trying to create tensor with negative dimension " << n;
        return mul(to_dtype(arange(0, n / 2 + 1), frequency_dtype(c)), 1.0 / (double(n) * d));
      })
      .samples({"n=5", "n=4, d=0.5"});
}
