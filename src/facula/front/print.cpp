#include "facula/front/print.h"

#include <cxxabi.h>

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <span>
#include <sstream>

#include "facula/ops.h"

namespace facula::front {

namespace {
// How the numbers of a tensor are written: all of them in one way, in columns of one width.
struct Style {
  double scale = 1;
  int width = 0;
  bool scientific = false, fixed = false;
};

int digits_before_point(double x) { return x == 0 ? 1 : int(std::floor(std::log10(x))) + 1; }

Style style_of(std::span<const double> values) {
  double least = 0, most = 0;
  bool integral = true, any = false;
  for (double v : values) {
    if (!std::isfinite(v)) continue;
    double size = std::abs(v);
    integral = integral && v == std::ceil(v);
    least = any ? std::min(least, size) : size;
    most = any ? std::max(most, size) : size;
    any = true;
  }
  if (!any) return {1, 11, false, false};
  int low = digits_before_point(least), high = digits_before_point(most);
  Style s;
  if (integral) {
    s.scientific = high > 9;
    s.width = s.scientific ? 11 : high + 1;
  } else if (high - low > 4) {
    s.scientific = true;
    s.width = std::abs(high) > 99 || std::abs(low) > 99 ? 12 : 11;
  } else {
    s.fixed = true;
    bool scaled = high > 5 || high < 0;
    if (scaled) s.scale = std::pow(10.0, high - 1);
    s.width = scaled || high == 0 ? 7 : high + 6;
  }
  return s;
}

class Printer {
 public:
  Printer(const Tensor& t, int64_t width) : width_(width) {
    for (SymInt n : t.sizes()) sizes_.push_back(n.guard_int());
    Tensor plain = contiguous(to_dtype(t.detached().on_host(), DType::Float64));
    values_.assign(plain.data<double>(), plain.data<double>() + plain.numel().guard_int());
  }
  std::string text() {
    if (sizes_.empty()) text_ << fmt::format("{}\n", values_[0]);
    else if (values_.empty()) return "";
    else if (sizes_.size() == 1) column();
    else if (sizes_.size() == 2) matrix(values_, 0);
    else matrices();
    return text_.str();
  }

 private:
  // Sets how the numbers that follow are written.
  void use_style_of(std::span<const double> values) {
    style_ = style_of(values);
    text_ << std::defaultfloat << std::setprecision(6);
    if (style_.scientific) text_ << std::scientific << std::setprecision(4);
    else if (style_.fixed) text_ << std::fixed << std::setprecision(4);
  }
  void number(double v) { text_ << std::setw(style_.width) << v / style_.scale; }
  void scale() {
    std::ostringstream factor;  // as 1e-05
    factor << style_.scale << " *\n";
    text_ << factor.str();
  }
  void column() {
    use_style_of(values_);
    if (style_.scale != 1) scale();
    for (double v : values_) {
      number(v);
      text_ << '\n';
    }
  }
  // Rows after the first are indented. PyTorch's C++ writes the first row on the line that names its columns.
  void matrix(std::span<const double> values, int indent) {
    use_style_of(values);
    int64_t columns = sizes_.back(), rows = int64_t(values.size()) / columns;
    int64_t at_once = std::max<int64_t>(1, (width_ - indent) / (style_.width + 1));
    std::string margin(size_t(indent), ' ');
    for (int64_t from = 0; from < columns; from += at_once) {
      int64_t to = std::min(columns, from + at_once);
      if (at_once < columns) text_ << (from ? "\n" : "") << "Columns " << from + 1 << " to " << to << margin;
      if (style_.scale != 1) {
        scale();
        text_ << margin;
      }
      for (int64_t r = 0; r < rows; ++r) {
        if (r > 0) text_ << margin;
        for (int64_t c = from; c < to; ++c) {
          if (c > from) text_ << ' ';
          number(values[size_t(r * columns + c)]);
        }
        text_ << '\n';
      }
    }
  }
  void matrices() {
    size_t size = size_t(sizes_[sizes_.size() - 2] * sizes_.back());
    std::vector<int64_t> outer(sizes_.size() - 2, 0);
    for (size_t at = 0; at < values_.size(); at += size) {
      if (at > 0) text_ << '\n';
      text_ << '(';
      for (int64_t i : outer) text_ << i + 1 << ',';
      text_ << ".,.) = \n";
      matrix(std::span(values_).subspan(at, size), 1);
      for (size_t d = outer.size(); d-- > 0;) {
        if (++outer[d] < sizes_[d]) break;
        outer[d] = 0;
      }
    }
  }

  std::vector<int64_t> sizes_;
  std::vector<double> values_;
  Style style_;
  std::ostringstream text_;
  int64_t width_;
};

const char* element_name(DType d) {
  switch (d) {
    case DType::Bool: return "Bool";
    case DType::UInt8: return "Byte";
    case DType::Int8: return "Char";
    case DType::Int16: return "Short";
    case DType::Int32: return "Int";
    case DType::Int64: return "Long";
    case DType::Float16: return "Half";
    case DType::BFloat16: return "BFloat16";
    case DType::Float32: return "Float";
    case DType::Float64: return "Double";
    case DType::Complex64: return "ComplexFloat";
    case DType::Complex128: return "ComplexDouble";
    default: return name(d);
  }
}
}  // namespace

std::string type_name(const Tensor& t) {
  if (!t.defined()) return "UndefinedType";
  std::string device = to_string(Device{t.device().type});
  for (char& c : device) c = char(std::toupper(c));
  return device + element_name(t.dtype()) + "Type";
}

std::string printed(const Tensor& t, int64_t width) {
  if (!t.defined()) return "[ Tensor (undefined) ]";
  std::string text, sizes;
  if (t.device().type != DeviceType::meta)
    text = is_complex(t.dtype()) ? to_string(t) + "\n" : Printer(t, width).text();
  for (SymInt n : t.sizes()) sizes += (sizes.empty() ? "" : ",") + std::to_string(n.guard_int());
  return text + "[ " + type_name(t) + "{" + sizes + "} ]";
}

std::string printed(const nn::Module& m) {
  std::string text = m.to_string();
  int depth = 0;
  for (char& c : text) {
    if (c == '(' && depth++ > 0) c = '[';
    else if (c == ')' && --depth > 0) c = ']';
  }
  for (auto [python, cpp] : {std::pair("True", "true"), std::pair("False", "false")})
    for (size_t at = 0; (at = text.find(python, at)) != text.npos;)
      text.replace(at, std::strlen(python), cpp);
  return text;
}

std::string class_name(const std::type_info& type) {
  int status = 0;
  char* readable = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? readable : type.name();
  std::free(readable);
  return name;
}

}  // namespace facula::front
