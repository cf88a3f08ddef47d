#include "facula/op/samples.h"

#include <mutex>
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

// Splits at commas outside of brackets and quotes.
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

// The text between the bracket at the beginning of s and the closing one; s continues after it.
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

Sample parse_sample(const char* line) {
  Sample sample;
  for (auto part : parts(line)) {
    size_t end = part.find_first_of("=<?!+[{");
    internal_check(end != part.npos) << "samples: expected name=literal or name[sizes], not \"" << part
                                     << '"';
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
  return sample;
}

}  // namespace

struct Samples::State {
  std::function<std::vector<Sample>()> make;
  std::once_flag once;
  std::vector<Sample> list;
};

Samples::Samples(std::function<std::vector<Sample>()> make) : state_(std::make_shared<State>()) {
  state_->make = std::move(make);
}

const std::vector<Sample>& Samples::list() const {
  static const std::vector<Sample> none;
  if (!state_) return none;
  std::call_once(state_->once, [&] { state_->list = state_->make(); });
  return state_->list;
}

Samples samples(std::initializer_list<const char*> lines) {
  return Samples([lines = std::vector(lines)] {
    std::vector<Sample> out;
    for (auto* line : lines) out.push_back(parse_sample(line));
    return out;
  });
}

Samples Samples::with(std::string arg, std::vector<std::string> literals) const {
  return Samples([from = *this, arg = std::move(arg), literals = std::move(literals)] {
    std::vector<Sample> out;
    for (auto& sample : from.list()) {
      for (auto& text : literals) {
        Sample s;
        for (auto& a : sample.args)
          if (a.first != arg) s.args.push_back(a);
        s.args.push_back({arg, literal(text)});
        out.push_back(std::move(s));
      }
    }
    return out;
  });
}

Samples Samples::range(double low, double high) const {
  return Samples([from = *this, low, high] {
    std::vector<Sample> out = from.list();
    for (auto& sample : out)
      for (auto& [name, a] : sample.args)
        if (a.kind != SampleArg::Kind::literal && !a.index && !a.boolean) {
          a.low = low;
          a.high = high;
        }
    return out;
  });
}

Samples operator+(Samples a, Samples b) {
  return Samples([a = std::move(a), b = std::move(b)] {
    std::vector<Sample> out = a.list();
    out.insert(out.end(), b.list().begin(), b.list().end());
    return out;
  });
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

Samples samples(std::vector<Sample> list) {
  return Samples([list = std::move(list)] { return list; });
}

Samples unary_samples(double low, double high) {
  return Samples([=] {
    std::vector<Sample> out;
    for (std::vector<int64_t> sizes :
         std::vector<std::vector<int64_t>>{{}, {5}, {2, 3, 4}, {2, 0, 3}, {64, 129}})
      out.push_back({{{"self", tensor(std::move(sizes), low, high)}}});
    return out;
  });
}

Samples binary_samples(double low, double high) {
  return Samples([=] {
    using Shape = std::vector<int64_t>;
    std::vector<Sample> out;
    for (auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{}, {}},
                                                             {{5}, {5}},
                                                             {{2, 3, 4}, {2, 3, 4}},
                                                             {{2, 1, 4}, {3, 1}},
                                                             {{3, 4}, {}},
                                                             {{2, 0}, {1, 1}},
                                                             {{64, 129}, {129}}})
      out.push_back({{{"self", tensor(a, low, high)}, {"other", tensor(b, low, high)}}});
    return out;
  });
}

Samples reduction_samples() {
  return samples({"self[], dim=[], keepdim=False", "self[5], dim=[0], keepdim=False",
                  "self[2, 3, 4], dim=[1], keepdim=True", "self[2, 3, 4], dim=[0, -1], keepdim=False",
                  "self[3, 4], dim=[], keepdim=True", "self[64, 129], dim=[1], keepdim=False",
                  "self[129, 64], dim=[0], keepdim=False"});
}

}  // namespace facula::op
