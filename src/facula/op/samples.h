// Sample inputs of an operator: what every generated test, documentation example and benchmark runs on. A
// sample names shapes, ranges and attributes; the tester instantiates it for each dtype and layout.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace facula::op {

// One argument: a tensor to be filled, or a literal as in a schema default ("2", "0.5", "'tanh'", "[0, 1]",
// "None").
struct SampleArg {
  enum class Kind : unsigned char { tensor, tensors, literal } kind = Kind::literal;
  std::vector<std::vector<int64_t>> sizes;  // tensor: one
  double low = -2, high = 2;                // range of the values
  bool index = false;                       // int64 in [low, high)
  bool boolean = false;
  bool distinct = false;           // no two equal values (sorting, max)
  bool positive_definite = false;  // a batch of matrices that can be inverted safely
  std::string literal;
};

// Missing arguments take their defaults.
struct Sample {
  std::vector<std::pair<std::string, SampleArg>> args;
};

// A recipe, followed when somebody asks: most processes never do, and import defines a thousand operators.
class Samples {
 public:
  Samples() = default;
  explicit Samples(std::function<std::vector<Sample>()> make);
  const std::vector<Sample>& list() const;  // InternalError where a text is none
  // Every sample once for each literal of `arg`.
  Samples with(std::string arg, std::vector<std::string> literals) const;
  Samples range(double low, double high) const;  // of every tensor
  friend Samples operator+(Samples a, Samples b);

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: none
};
// From text, one line a sample: "self[3, 4], dim=1". An argument is name=literal, or a tensor: name, then
// what it holds (nothing: reals, <n>: indices below n, ?: booleans, !: reals of which no two are equal, +:
// matrices that can be inverted safely), its sizes, and perhaps the range of its values: "input[2, 0](0.1,
// 1)", "index<4>[5]", "mask?[3]", "self![5]". A list: "tensors{[2, 3], [4, 3]}". The texts live as long as the process.
Samples samples(std::initializer_list<const char*> lines);
SampleArg tensor(std::vector<int64_t> sizes, double low = -2, double high = 2);
SampleArg index(std::vector<int64_t> sizes, int64_t limit);
SampleArg tensors(std::vector<std::vector<int64_t>> sizes, double low = -2, double high = 2);  // a list
SampleArg mask(std::vector<int64_t> sizes);                                                    // boolean
SampleArg distinct(SampleArg a);
SampleArg literal(std::string text);
Samples samples(std::vector<Sample> list);
Samples unary_samples(double low = -2, double high = 2);   // `self`: 0-d, 1-d, 3-d, empty, large
Samples binary_samples(double low = -2, double high = 2);  // `self`, `other`: equal and broadcasting shapes
Samples reduction_samples();                               // `self`, `dim`, `keepdim`

}  // namespace facula::op
