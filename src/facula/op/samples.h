// Sample inputs of an operator, which every generated test, documentation example and benchmark uses. A sample gives
// shapes, ranges and attributes; the tester instantiates it for each dtype and layout.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace facula::op {

// One argument: a tensor to be filled, or a literal in the form of a schema default ("2", "0.5", "'tanh'", "[0, 1]",
// "None").
struct SampleArg {
  enum class Kind : unsigned char { tensor, tensors, literal } kind = Kind::literal;
  std::vector<std::vector<int64_t>> sizes;  // one for a tensor
  double low = -2, high = 2;                // range of the values
  bool index = false;                       // int64 in [low, high)
  bool boolean = false;
  bool distinct = false;           // no two values are equal (sorting, max)
  bool positive_definite = false;  // a batch of matrices that are safely invertible
  std::string literal;
};

// Missing arguments take their defaults.
struct Sample {
  std::vector<std::pair<std::string, SampleArg>> args;
};

// A recipe for samples, which is evaluated on demand: most processes never need it, and import defines a thousand
// operators.
class Samples {
 public:
  Samples() = default;
  explicit Samples(std::function<std::vector<Sample>()> make);
  const std::vector<Sample>& list() const;  // InternalError if a text is not a sample
  // Every sample once for each literal as the argument `arg`.
  Samples with(std::string arg, std::vector<std::string> literals) const;
  Samples range(double low, double high) const;  // for every tensor
  friend Samples operator+(Samples a, Samples b);

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: no samples
};
// Parses samples, one line each: "self[3, 4], dim=1". An argument is name=literal, or a tensor: its name, a mark for
// the contents (none: reals, <n>: indices below n, ?: booleans, !: distinct reals, +: invertible matrices), its
// sizes, and optionally the range of values: "input[2, 0](0.1, 1)", "index<4>[5]", "mask?[3]", "self![5]". A list:
// "tensors{[2, 3], [4, 3]}". The texts must live as long as the process.
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
