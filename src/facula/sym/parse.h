// Text of sizes back to sizes: the inverse of to_string.
#pragma once
#include <functional>
#include <string_view>

#include "facula/sym/symint.h"

namespace facula::sym {

// The range of a size that was given none.
constexpr int64_t kLeastSize = 2, kMostSize = int64_t(1) << 60;

// Reads an expression at the beginning of `rest`, as far as it goes, and takes it from there: "s0*3 + 1, ...".
// Symbols are those of `shapes`, by name. ValueError for anything else.
SymInt parse_size(std::string_view& rest, const Shapes& shapes);
// The same by another way to find symbols, null: there is none.
using FindSymbol = std::function<const SymInt*(std::string_view name)>;
SymInt parse_size(std::string_view& rest, const FindSymbol& find);

// An expression has at most so many parts, and ValueError is what making a larger one raises.
constexpr int kMostParts = 2048;
// Expressions live for ever. While one of these lives, its thread makes at most so many new ones, so that a text from
// elsewhere takes memory in proportion to its size: ValueError for the next one.
class ExpressionLimit {
 public:
  explicit ExpressionLimit(size_t most);
  ~ExpressionLimit();

 private:
  size_t outer_, most_;
};

}  // namespace facula::sym
