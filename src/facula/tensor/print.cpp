// Text of tensors as PyTorch prints them: 4 digits, columns aligned, summarised above 1000 elements.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "facula/tensor/tensor.h"

namespace facula {

namespace {

constexpr int kPrecision = 4, kThreshold = 1000, kEdge = 3, kLine = 80;

std::string format(const char* pattern, double v) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, kPrecision, v);
  return text;
}
std::string fixed(double v, int digits) {
  char text[512];
  std::snprintf(text, sizeof text, "%.*f", digits, v);
  return text;
}
std::string padded(std::string s, size_t width) { return s.size() >= width ? s : std::string(width - s.size(), ' ') + s; }

// How the numbers of one tensor are written: chosen from all that are shown.
class Formatter {
 public:
  Formatter(const std::vector<double>& values, bool floating) : floating_(floating) {
    if (!floating) {
      for (double v : values) width_ = std::max(width_, fixed(v, 0).size());
      return;
    }
    std::vector<double> finite;
    for (double v : values) if (std::isfinite(v) && v != 0) finite.push_back(std::fabs(v));
    if (!finite.empty()) {
      double low = *std::min_element(finite.begin(), finite.end()), high = *std::max_element(finite.begin(), finite.end());
      whole_ = std::all_of(finite.begin(), finite.end(), [](double v) { return v == std::ceil(v); });
      scientific_ = high / low > 1000 || high > 1e8 || (!whole_ && low < 1e-4);
    } else {
      whole_ = true;
      width_ = 1;
      for (double v : values) width_ = std::max(width_, write(v).size());
      return;
    }
    for (double v : values) if (std::isfinite(v) || true) width_ = std::max(width_, write(v).size());
  }
  size_t width() const { return width_; }
  std::string operator()(double v) const { return padded(write(v), width_); }
  std::string write(double v) const {
    if (!floating_) return fixed(v, 0);
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
    if (scientific_) return format("%.*e", v);
    if (whole_) return fixed(v, 0) + ".";
    return format("%.*f", v);
  }

 private:
  bool floating_, whole_ = false, scientific_ = false;
  size_t width_ = 1;
};

class Printer {
 public:
  explicit Printer(const Tensor& t) : t_(t), summarise_(t.numel().concrete() > kThreshold) {
    std::vector<double> re, im;
    int64_t at = 0;
    collect(0, at, re, im);
    bool floating = is_differentiable(t.dtype());
    real_ = std::make_unique<Formatter>(re, floating);
    if (is_complex(t.dtype())) imag_ = std::make_unique<Formatter>(im, true);
    if (is_bool(t.dtype())) {
      bool any_false = std::any_of(re.begin(), re.end(), [](double v) { return v == 0; });
      bool_width_ = any_false ? 5 : 4;
    }
  }
  std::string text(size_t indent) const { return dimension(0, 0, indent); }

 private:
  Scalar load(int64_t at) const { return Scalar::load(t_.dtype(), static_cast<const char*>(t_.data_ptr()) + at * t_.itemsize()); }
  // Calls f(index) on the shown indices of a dimension; f(-1) for the gap.
  template <class F> void shown(int d, F&& f) const {
    int64_t n = t_.int_sizes()[size_t(d)];
    if (!summarise_ || n <= 2 * kEdge) for (int64_t i = 0; i < n; ++i) f(i);
    else {
      for (int64_t i = 0; i < kEdge; ++i) f(i);
      f(-1);
      for (int64_t i = n - kEdge; i < n; ++i) f(i);
    }
  }
  void collect(int d, int64_t at, std::vector<double>& re, std::vector<double>& im) const {
    if (d == t_.dim()) {
      auto v = load(at).to_complex();
      re.push_back(v.real());
      im.push_back(v.imag());
      return;
    }
    shown(d, [&](int64_t i) { if (i >= 0) collect(d + 1, at + i * t_.int_strides()[size_t(d)], re, im); });
  }
  std::string element(int64_t at) const {
    Scalar v = load(at);
    if (is_bool(t_.dtype())) return padded(v.to_bool() ? "True" : "False", bool_width_);
    if (is_integral(t_.dtype())) return padded(std::to_string(v.to_int()), real_->width());
    if (!imag_) return (*real_)(v.to_double());
    auto z = v.to_complex();
    std::string im = imag_->write(z.imag());
    // PyTorch writes the real part padded, the imaginary part with its sign and j.
    return (*real_)(z.real()) + (im[0] == '-' ? "" : "+") + padded(im, im[0] == '-' ? 0 : 0) + "j";
  }
  std::string dimension(int d, int64_t at, size_t indent) const {
    if (t_.dim() == 0) return element(at);
    int64_t stride = t_.int_strides()[size_t(d)];
    if (d == t_.dim() - 1) {
      size_t width = is_bool(t_.dtype()) ? bool_width_ : real_->width() + (imag_ ? imag_->width() + 2 : 0);
      size_t per_line = std::max<size_t>(1, size_t(std::max<long>(0, (kLine - long(indent)))) / (width + 2));
      std::string out = "[";
      size_t count = 0;
      bool first = true;
      shown(d, [&](int64_t i) {
        if (!first) {
          out += ",";
          out += count % per_line == 0 ? "\n" + std::string(indent + 1, ' ') : " ";
        }
        first = false;
        ++count;
        out += i < 0 ? "..." : element(at + i * stride);
      });
      return out + "]";
    }
    std::string out = "[", gap = "," + std::string(size_t(t_.dim() - d - 1), '\n') + std::string(indent + 1, ' ');
    bool first = true;
    shown(d, [&](int64_t i) {
      if (!first) out += gap;
      first = false;
      out += i < 0 ? "..." : dimension(d + 1, at + i * stride, indent + 1);
    });
    return out + "]";
  }

  const Tensor& t_;
  bool summarise_;
  std::unique_ptr<Formatter> real_, imag_;
  size_t bool_width_ = 5;
};

}  // namespace

std::string to_string(const Tensor& t, std::string_view suffix) {
  if (!t.defined()) return "None";
  if (t.is_traced() && !t.impl()->storage) return std::string("tensor(..., size=") + to_string(t.sizes()) + ", dtype=" + name(t.dtype()) + ")";
  std::string out = "tensor(";
  bool implied = t.dtype() == default_dtype() || t.dtype() == DType::Bool || t.dtype() == DType::Int64 ||
                 (is_complex(t.dtype()) && t.dtype() == complex_of(default_dtype()));
  std::string tail;
  if (t.numel() == SymInt(int64_t(0))) {
    out += "[]";
    if (t.dim() != 1) tail += ", size=(" + [&] { auto s = to_string(t.sizes()); return s.substr(1, s.size() - 2) + (t.dim() == 1 ? "," : ""); }() + ")";
    implied = t.dtype() == default_dtype();
  } else {
    out += Printer(t).text(out.size());
  }
  if (!implied) tail += std::string(", dtype=facula.") + name(t.dtype());
  return out + tail + std::string(suffix) + ")";
}

}  // namespace facula
