// The text form of expressions and nests. It depends on structure only (not on addresses or the order of creation),
// because the kernel cache names files by it. A subexpression that is used twice is printed once, as "%k = ...",
// before its first use.
#pragma once
#include <string>

#include "facula/loop/seen.h"

namespace facula::loop {

class ExprPrinter {
 public:
  void count(Expr x);  // call for every expression first ...
  // ... then print: definitions that x needs and that were not printed yet are appended to `lines`, each one after
  // `indent`.
  std::string print(Expr x, std::string& lines, const std::string& indent);

 private:
  void write(Expr x, std::string& to);
  NodeMap<int> uses_;
  NodeMap<int> names_;
};

std::string print_size(SymInt s);  // "add(mul(s0, 3), 1)"
std::string print_number(const Scalar& v, DType d);

}  // namespace facula::loop
