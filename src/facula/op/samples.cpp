#include "facula/op/samples.h"

namespace facula::op {

Samples Samples::with(std::string arg, std::vector<std::string> literals) const {
  Samples out;
  for (auto& sample : list) {
    for (auto& text : literals) {
      Sample s;
      for (auto& a : sample.args) if (a.first != arg) s.args.push_back(a);
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
      if (a.kind != SampleArg::Kind::literal && !a.index && !a.boolean) { a.low = low; a.high = high; }
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
  for (std::vector<int64_t> sizes : std::vector<std::vector<int64_t>>{{}, {5}, {2, 3, 4}, {2, 0, 3}, {64, 129}})
    out.list.push_back({{{"self", tensor(std::move(sizes), low, high)}}});
  return out;
}

Samples binary_samples(double low, double high) {
  using Shape = std::vector<int64_t>;
  Samples out;
  for (auto& [a, b] : std::vector<std::pair<Shape, Shape>>{
           {{}, {}}, {{5}, {5}}, {{2, 3, 4}, {2, 3, 4}}, {{2, 1, 4}, {3, 1}}, {{3, 4}, {}}, {{2, 0}, {1, 1}}, {{64, 129}, {129}}})
    out.list.push_back({{{"self", tensor(a, low, high)}, {"other", tensor(b, low, high)}}});
  return out;
}

Samples reduction_samples() {
  struct Case { std::vector<int64_t> sizes; const char *dim, *keepdim; };
  Samples out;
  for (auto& c : {Case{{}, "[]", "False"}, Case{{5}, "[0]", "False"}, Case{{2, 3, 4}, "[1]", "True"},
                  Case{{2, 3, 4}, "[0, -1]", "False"}, Case{{3, 4}, "[]", "True"}, Case{{64, 129}, "[1]", "False"},
                  Case{{129, 64}, "[0]", "False"}})
    out.list.push_back({{{"self", tensor(c.sizes)}, {"dim", literal(c.dim)}, {"keepdim", literal(c.keepdim)}}});
  return out;
}

}  // namespace facula::op
