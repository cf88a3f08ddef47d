// Fourier transforms of Hermitian signals.
#include "facula/catalog/fft_helpers.h"
#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using namespace facula::catalog::fft_helpers;

namespace {
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
}  // namespace

FACULA_FAMILY(hermitian_fft) {
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
}
