// Short-time Fourier transforms.
#include <algorithm>

#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;

namespace {
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
}  // namespace

FACULA_FAMILY(stft) {
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
}
