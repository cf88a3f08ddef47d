// Prints tensors in PyTorch's form: aligned columns, and only the edges of large tensors.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "facula/tensor/print.h"
#include "facula/tensor/sparse.h"
#include "facula/tensor/tensor.h"

namespace facula {

PrintOptions& print_options() {
  static PrintOptions options;
  return options;
}

namespace {

std::string digits(double v, char kind, int precision) {
  const char* format = kind == 'e' ? "%.*e" : "%.*f";
  std::string text(size_t(std::snprintf(nullptr, 0, format, precision, v)), '\0');
  std::snprintf(text.data(), text.size() + 1, format, precision, v);
  return text;
}

// The format of the printed numbers of one tensor, so that columns align.
class Style {
 public:
  Style(const std::vector<Scalar>& values, DType dtype) : dtype_(dtype) {
    if (!is_floating(dtype)) {
      for (auto& v : values) width_ = std::max(width_, text(v).size());
      return;
    }
    // Zero, infinity and NaN influence neither the format nor the width.
    std::vector<double> numbers;
    for (auto& v : values)
      if (double x = v.to_double(); std::isfinite(x) && x != 0) numbers.push_back(x);
    if (numbers.empty()) return;
    double low = INFINITY, high = 0;
    for (double x : numbers) {
      low = std::min(low, std::fabs(x));
      high = std::max(high, std::fabs(x));
      integral_ &= x == std::ceil(x);
    }
    scientific_ = print_options().scientific.value_or(high / low > 1000 || high > 1e8 || low < 1e-4);
    for (double x : numbers) width_ = std::max(width_, text(Scalar(x)).size());
  }
  size_t width() const { return width_; }
  std::string operator()(const Scalar& v) const {
    std::string s = text(v);
    return s.size() < width_ ? std::string(width_ - s.size(), ' ') + s : s;
  }
  std::string text(const Scalar& v) const {
    if (is_bool(dtype_)) return v.to_bool() ? "True" : "False";
    if (dtype_ == DType::UInt64) return std::to_string(uint64_t(v.to_int()));
    if (!is_floating(dtype_)) return std::to_string(v.to_int());
    double x = v.to_double();
    if (std::isnan(x)) return "nan";
    if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
    if (scientific_) return digits(x, 'e', print_options().precision);
    return integral_ ? digits(x, 'f', 0) + "." : digits(x, 'f', print_options().precision);
  }

 private:
  DType dtype_;
  bool integral_ = true, scientific_ = false;
  size_t width_ = 1;
};

class Printer {
 public:
  explicit Printer(const Tensor& t)
      : tensor_(t),
        sizes_(t.int_sizes()),
        strides_(t.int_strides()),
        dtype_(t.dtype()),
        data_(static_cast<const char*>(t.impl()->data_ptr())),
        summarise_(t.numel().concrete() > print_options().threshold),
        complex_(is_complex(dtype_)),
        first_({}, dtype_),
        second_({}, dtype_) {
    std::vector<Scalar> values;
    collect(0, 0, values);
    if (!complex_) {
      first_ = Style(values, dtype_);
      return;
    }
    std::vector<Scalar> real, imaginary;
    for (auto& v : values) {
      real.push_back(v.to_complex().real());
      imaginary.push_back(v.to_complex().imag());
    }
    first_ = Style(real, real_of(dtype_));
    second_ = Style(imaginary, real_of(dtype_));
  }
  std::string text(size_t indent) const { return sizes_.empty() ? element(0) : dimension(0, 0, indent); }

 private:
  // Calls f(index) for the printed indices of a dimension, and f(-1) for the gap.
  template <class F>
  void shown(size_t d, F&& f) const {
    int64_t n = sizes_[d], edge = print_options().edge_items;
    bool gap = summarise_ && n > 2 * edge;
    for (int64_t i = 0; i < (gap ? edge : n); ++i) f(i);
    if (!gap) return;
    f(-1);
    for (int64_t i = n - edge; i < n; ++i) f(i);
  }
  Scalar load(int64_t at) const { return tensor_.load(data_ + at * itemsize(dtype_)); }
  void collect(size_t d, int64_t at, std::vector<Scalar>& to) const {
    if (d == sizes_.size()) to.push_back(load(at));
    else
      shown(d, [&](int64_t i) {
        if (i >= 0) collect(d + 1, at + i * strides_[d], to);
      });
  }
  std::string element(int64_t at) const {
    Scalar v = load(at);
    if (!complex_) return first_(v);
    auto z = v.to_complex();
    std::string imaginary = second_.text(z.imag());
    return first_(z.real()) + (imaginary[0] == '-' ? "" : "+") + imaginary + "j";
  }
  std::string dimension(size_t d, int64_t at, size_t indent) const {
    bool innermost = d + 1 == sizes_.size();
    size_t width = first_.width() + 2 + (complex_ ? second_.width() + 1 : 0);
    const size_t line = size_t(print_options().line_width);
    size_t per_line = indent < line ? std::max<size_t>(1, (line - indent) / width) : 1, count = 0;
    std::string out = "[", margin(indent + 1, ' '),
                gap = "," + std::string(sizes_.size() - d - 1, '\n') + margin;
    shown(d, [&](int64_t i) {
      if (count && innermost) out += count % per_line ? ", " : ",\n" + margin;
      else if (count) out += gap;
      ++count;
      if (i < 0) out += innermost ? " ..." : "...";
      else
        out += innermost ? element(at + i * strides_[d]) : dimension(d + 1, at + i * strides_[d], indent + 1);
    });
    return out + "]";
  }

  const Tensor& tensor_;
  IntSpan sizes_, strides_;
  DType dtype_;
  const char* data_;
  bool summarise_, complex_;
  Style first_, second_;  // of all elements, or of their real and imaginary parts
};

std::string tuple(SymSpan sizes) {
  std::string s = to_string(sizes);
  return "(" + s.substr(1, s.size() - 2) + (sizes.size() == 1 ? ",)" : ")");
}

}  // namespace

namespace {
// Prints one part of a sparse tensor.
std::string part(const char* label, const Tensor& t, size_t indent) {
  std::string out = std::string(label) + "=tensor(";
  if (t.numel() == SymInt(int64_t(0))) return out + "[], size=" + tuple(t.sizes()) + ")";
  return out + Printer(t.on_host()).text(indent + out.size()) + ")";
}
// Prints the parts of a sparse tensor, and collects its attributes.
std::string parts_text(const Tensor& t, size_t indent, std::vector<std::string>& notes) {
  auto& p = sparse_parts(t);
  std::string next = ",\n" + std::string(indent, ' ');
  const char *outer = p.by_columns ? "ccol_indices" : "crow_indices",
             *inner = p.by_columns ? "row_indices" : "col_indices";
  std::string out = p.crow.defined() ? part(outer, p.crow, indent) + next + part(inner, p.indices, indent)
                                     : part("indices", p.indices, indent);
  notes.push_back("size=" + tuple(t.sizes()));
  notes.push_back("nnz=" + std::to_string(p.nnz()));
  return out + next + part("values", p.values, indent);
}
}  // namespace

std::string to_string(const Tensor& t, std::string_view suffix) {
  if (suffix.starts_with(", ")) suffix.remove_prefix(2);
  return to_text(t, "tensor", suffix.empty() ? std::vector<std::string>() : std::vector{std::string(suffix)});
}
std::string to_text(const Tensor& t, std::string_view type, std::span<const std::string> further) {
  if (!t.defined()) return "None";
  std::string out = std::string(type) + "(";
  const size_t indent = out.size();
  bool unknown = t.device().type == DeviceType::meta || (t.is_traced() && !t.impl()->storage);
  bool empty = !unknown && t.numel() == SymInt(int64_t(0));
  // The dtype is omitted if the numbers imply it.
  bool told = t.dtype() == default_dtype();
  std::vector<std::string> notes;
  bool sparse = is_sparse(t);
  if (sparse) out += parts_text(t, indent, notes);
  else if (unknown) out += "...";
  else if (empty) out += "[]";
  else out += Printer(t.on_host()).text(indent);
  if (sparse || !(unknown || empty))
    told =
        told || t.dtype() == DType::Int64 || is_bool(t.dtype()) || t.dtype() == complex_of(default_dtype());
  if (t.device().type != DeviceType::cpu) notes.push_back("device='" + to_string(t.device()) + "'");
  if (!sparse && (unknown || (empty && t.dim() != 1))) notes.push_back("size=" + tuple(t.sizes()));
  if (!told) notes.push_back("dtype=" + print_options().package + "." + name(t.dtype()));
  if (sparse) notes.push_back("layout=" + print_options().package + "." + name(layout_of(t)));
  notes.insert(notes.end(), further.begin(), further.end());

  size_t line = out.size() - (out.rfind('\n') + 1) + 2;  // PyTorch counts two more; npos + 1 is 0
  for (auto& note : notes) {
    bool fits =
        !(is_coo(t) && &note == &notes[0]) && line + note.size() + 2 <= size_t(print_options().line_width);
    out += fits ? ", " : ",\n" + std::string(indent, ' ');
    out += note;
    line = (fits ? line + 2 : indent) + note.size();
  }
  return out + ")";
}

}  // namespace facula
