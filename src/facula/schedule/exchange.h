// How the threads of a block put together what each of them has: trees of totals, and the steps of a scan, by way of
// shared arrays of one element a thread. The order is fixed by the number of threads.
#pragma once
#include <map>
#include <vector>

#include "facula/loop/nest.h"

namespace facula::schedule {

// Numbers that a nest does not use yet.
struct Fresh {
  int var, local;
};

class Exchange {
 public:
  Exchange(int threads, Fresh& fresh) : threads_(threads), fresh_(fresh) {}

  // Places for the components of a monoid, by thread.
  struct Parts {
    std::vector<int> slots;
    std::vector<DType> types;
    std::vector<loop::Expr> at(loop::Expr place) const;
  };
  // Different ones for the `nth` time at once; otherwise what was used before is used again.
  Parts parts_of(const loop::Statement& accumulator, size_t nth = 0);

  // The accumulator `var` of outside and the totals `own` of the threads for it: together.
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

// Locals var, var + 1, ... of the types.
std::vector<loop::Expr> locals(int var, const std::vector<DType>& types);

}  // namespace facula::schedule
