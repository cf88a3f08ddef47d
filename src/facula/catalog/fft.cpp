// Discrete Fourier transforms: three library operators, and the names that users know.
#include <cmath>
#include <complex>
#include <numbers>

#include "facula/catalog/fft_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using namespace facula::catalog::fft_helpers;

namespace {
constexpr DTypeSet kReal = dtypes_where([](DType t) { return t == DType::Float32 || t == DType::Float64; });
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
      "fft_fftfreq(int n, float d=1.0, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("The frequencies of fft's results for n samples that lie d apart: 0, 1, ..., -2, -1 over n d.")
      .bind(fft)
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
      .procedure([](const Call& c, int64_t n, double d) {
        runtime_check(n >= 0, c.op().name()) << "trying to create tensor with negative dimension " << n;
        return mul(to_dtype(arange(0, n / 2 + 1), frequency_dtype(c)), 1.0 / (double(n) * d));
      })
      .samples({"n=5", "n=4, d=0.5"});
}
