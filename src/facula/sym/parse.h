// Parses the text of sizes: the inverse of to_string.
#pragma once
#include <functional>
#include <string_view>

#include "facula/sym/symint.h"

namespace facula::sym {

// The range of a size without a declared one.
constexpr int64_t kLeastSize = 2, kMostSize = int64_t(1) << 60;

// Parses the longest expression at the beginning of `rest` and removes it from there: "s0*3 + 1, ...". Symbols are
// those of `shapes`, by name. ValueError for anything else.
SymInt parse_size(std::string_view& rest, const Shapes& shapes);
// The same with a function that finds symbols; null: unknown.
using FindSymbol = std::function<const SymInt*(std::string_view name)>;
SymInt parse_size(std::string_view& rest, const FindSymbol& find);

// The most parts of an expression; building a larger one raises ValueError.
constexpr int kMostParts = 2048;
// Expressions live as long as the process. While an ExpressionLimit lives, its thread may create at most `most` new
// ones, so that untrusted text takes memory in proportion to its size; ValueError beyond that.
class ExpressionLimit {
 public:
  explicit ExpressionLimit(size_t most);
  ~ExpressionLimit();

 private:
  size_t outer_, most_;
};

}  // namespace facula::sym
