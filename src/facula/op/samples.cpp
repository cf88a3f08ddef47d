#include "facula/op/samples.h"

#include <string_view>

#include "facula/base/error.h"

namespace facula::op {

namespace {

constexpr std::string_view kOpen = "[({", kClose = "])}";

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// Parts between commas that stand outside of brackets and quotes.
std::vector<std::string_view> parts(std::string_view s) {
  std::vector<std::string_view> out;
  size_t start = 0;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\'') quoted = !quoted;
    if (quoted) continue;
    if (kOpen.find(s[i]) != s.npos) ++depth;
    if (kClose.find(s[i]) != s.npos) --depth;
    if (s[i] != ',' || depth) continue;
    out.push_back(trimmed(s.substr(start, i - start)));
    start = i + 1;
  }
  if (!trimmed(s.substr(start)).empty()) out.push_back(trimmed(s.substr(start)));
  return out;
}

// What stands between the bracket that s opens with and the one that closes it; s goes on behind.
std::string_view bracketed(std::string_view& s, char close) {
  size_t end = s.find(close);
  internal_check(end != s.npos) << "samples: '" << close << "' is missing in \"" << s << '"';
  auto inside = s.substr(1, end - 1);
  s.remove_prefix(end + 1);
  return inside;
}

// "<4>[3, 2](0, 1)"
void parse_tensor(std::string_view s, SampleArg& a) {
  if (s.starts_with("<")) {
    a.index = true;
    a.low = 0;
    a.high = std::stod(std::string(bracketed(s, '>')));
  } else if (s.starts_with("?")) {
    a.boolean = true;
    a.low = 0;
    a.high = 1;
    s.remove_prefix(1);
  } else if (s.starts_with("+")) {
    a.positive_definite = true;
    s.remove_prefix(1);
  } else if (s.starts_with("!")) {
    a.distinct = true;
    s.remove_prefix(1);
  }
  internal_check(s.starts_with("[")) << "samples: expected sizes in brackets, not \"" << s << '"';
  auto& sizes = a.sizes.emplace_back();
  for (auto n : parts(bracketed(s, ']'))) sizes.push_back(std::stoll(std::string(n)));
  if (s.starts_with("(")) {
    auto range = parts(bracketed(s, ')'));
    a.low = std::stod(std::string(range.at(0)));
    a.high = std::stod(std::string(range.at(1)));
  }
}

}  // namespace

Samples samples(std::initializer_list<const char*> lines) {
  Samples out;
  for (auto* line : lines) {
    Sample sample;
    for (auto part : parts(line)) {
      size_t end = part.find_first_of("=<?!+[{");
      internal_check(end != part.npos)
          << "samples: expected name=literal or name[sizes], not \"" << part << '"';
      std::string_view rest = part.substr(end);
      SampleArg a;
      if (rest.starts_with("=")) {
        a.literal = rest.substr(1);
      } else if (rest.starts_with("{")) {
        a.kind = SampleArg::Kind::tensors;
        for (auto one : parts(bracketed(rest, '}'))) parse_tensor(one, a);
      } else {
        a.kind = SampleArg::Kind::tensor;
        parse_tensor(rest, a);
      }
      sample.args.emplace_back(part.substr(0, end), std::move(a));
    }
    out.list.push_back(std::move(sample));
  }
  return out;
}

Samples Samples::with(std::string arg, std::vector<std::string> literals) const {
  Samples out;
  for (auto& sample : list) {
    for (auto& text : literals) {
      Sample s;
      for (auto& a : sample.args)
        if (a.first != arg) s.args.push_back(a);
      s.args.push_back({arg, literal(text)});
      out.list.push_back(std::move(s));
    }
  }
  return out;
}

Samples Samples::range(double low, double high) const {
  Samples out = *this;
  for (auto& sample : out.list)
    for (auto& [name, a] : sample.args)
      if (a.kind != SampleArg::Kind::literal && !a.index && !a.boolean) {
        a.low = low;
        a.high = high;
      }
  return out;
}

SampleArg tensor(std::vector<int64_t> sizes, double low, double high) {
  SampleArg a;
  a.kind = SampleArg::Kind::tensor;
  a.sizes = {std::move(sizes)};
  a.low = low;
  a.high = high;
  return a;
}

SampleArg tensors(std::vector<std::vector<int64_t>> sizes, double low, double high) {
  SampleArg a;
  a.kind = SampleArg::Kind::tensors;
  a.sizes = std::move(sizes);
  a.low = low;
  a.high = high;
  return a;
}

SampleArg index(std::vector<int64_t> sizes, int64_t limit) {
  SampleArg a = tensor(std::move(sizes), 0, double(limit));
  a.index = true;
  return a;
}

SampleArg mask(std::vector<int64_t> sizes) {
  SampleArg a = tensor(std::move(sizes), 0, 1);
  a.boolean = true;
  return a;
}

SampleArg distinct(SampleArg a) {
  a.distinct = true;
  return a;
}

SampleArg literal(std::string text) {
  SampleArg a;
  a.literal = std::move(text);
  return a;
}

Samples samples(std::vector<Sample> list) { return {std::move(list)}; }

Samples unary_samples(double low, double high) {
  Samples out;
  for (std::vector<int64_t> sizes :
       std::vector<std::vector<int64_t>>{{}, {5}, {2, 3, 4}, {2, 0, 3}, {64, 129}})
    out.list.push_back({{{"self", tensor(std::move(sizes), low, high)}}});
  return out;
}

Samples binary_samples(double low, double high) {
  using Shape = std::vector<int64_t>;
  Samples out;
  for (auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{}, {}},
                                                           {{5}, {5}},
                                                           {{2, 3, 4}, {2, 3, 4}},
                                                           {{2, 1, 4}, {3, 1}},
                                                           {{3, 4}, {}},
                                                           {{2, 0}, {1, 1}},
                                                           {{64, 129}, {129}}})
    out.list.push_back({{{"self", tensor(a, low, high)}, {"other", tensor(b, low, high)}}});
  return out;
}

Samples reduction_samples() {
  struct Case {
    std::vector<int64_t> sizes;
    const char *dim, *keepdim;
  };
  Samples out;
  for (auto& c : {Case{{}, "[]", "False"}, Case{{5}, "[0]", "False"}, Case{{2, 3, 4}, "[1]", "True"},
                  Case{{2, 3, 4}, "[0, -1]", "False"}, Case{{3, 4}, "[]", "True"},
                  Case{{64, 129}, "[1]", "False"}, Case{{129, 64}, "[0]", "False"}})
    out.list.push_back(
        {{{"self", tensor(c.sizes)}, {"dim", literal(c.dim)}, {"keepdim", literal(c.keepdim)}}});
  return out;
}

}  // namespace facula::op
