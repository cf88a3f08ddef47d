// Combines the values of a block's threads: trees of totals, and the steps of a scan, through shared arrays with one
// element per thread. The order of the operations depends on the number of threads only.
#pragma once
#include <map>
#include <vector>

#include "facula/loop/nest.h"

namespace facula::schedule {

// Numbers of variables and locals that a nest does not use yet.
struct Fresh {
  int var, local;
};

class Exchange {
 public:
  Exchange(int threads, Fresh& fresh) : threads_(threads), fresh_(fresh) {}

  // Shared arrays for the components of a monoid, indexed by thread.
  struct Parts {
    std::vector<int> slots;
    std::vector<DType> types;
    std::vector<loop::Expr> at(loop::Expr place) const;
  };
  // The arrays for an accumulator's components. `nth` selects a separate set where several are in use at the same
  // time; otherwise arrays are reused.
  Parts parts_of(const loop::Statement& accumulator, size_t nth = 0);

  // Combines the threads' totals `own` with the accumulator `var` that is declared outside of the loop.
  void tree(int var, const loop::Statement& own, loop::Block& out);
  // One step of a scan: to[i] := from[i - distance] and from[i].
  loop::Statement neighbours(loop::Monoid m, const Parts& from, const Parts& to, int distance);
  void put(loop::Block& to, const Parts& p, loop::Expr place, const std::vector<loop::Expr>& values);
  void combine_into(int var, loop::Monoid m, const Parts& p, const std::vector<loop::Expr>& with,
                    loop::Block& out);

  const std::vector<loop::Statement>& arrays() const { return arrays_; }

 private:
  int threads_;
  Fresh& fresh_;
  std::map<DType, std::vector<int>> slots_;
  std::vector<loop::Statement> arrays_;
};

// The locals var, var + 1, ... with these types.
std::vector<loop::Expr> locals(int var, const std::vector<DType>& types);

}  // namespace facula::schedule
