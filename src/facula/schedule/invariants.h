// Moves computations that do not change in a loop to `let` statements before the loop.
//   example: for i1 < p0 { store 2[i1] = mul(log(load[0](0)), load[1](i1)) }
//            ->  let v0 = log(load[0](0)); for i1 < p0 { store 2[i1] = mul(v0, load[1](i1)) }
#pragma once
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "facula/loop/nest.h"
#include "facula/loop/seen.h"
#include "facula/schedule/nest_spec.h"

namespace facula::schedule {

class Invariants {
 protected:
  using Block = loop::Block;
  using Expr = loop::Expr;

  explicit Invariants(const std::vector<BufferInfo>& buffers) : buffers_(buffers) {}

  // Binds the value of e to a local. `shared`: hoist may reuse the local for e; `always`: also if e is a constant or
  // a local.
  Expr let(Block& block, Expr e, bool shared = true, bool always = false);
  // Computes whatever in `roots` depends only on loops around `block` at the end of `block`.
  void hoist(Block& block, const std::vector<Expr*>& roots);
  // True if e reads memory that the nest writes. An input that shares memory with an output counts as written, since
  // a store may change it under another buffer number.
  bool reads_written(Expr e);

  // Properties of an expression during one hoist.
  struct Facts {
    bool varies = false, guarded = false, pure = true;
  };
  class Survey {
   public:
    Survey(const std::set<int>& scope, const std::set<int>& volatile_locals,
           const std::vector<BufferInfo>& buffers)
        : scope_(scope), locals_(volatile_locals), buffers_(buffers) {}
    Facts of(Expr e);

   private:
    const std::set<int>& scope_;
    const std::set<int>& locals_;
    const std::vector<BufferInfo>& buffers_;
    std::unordered_map<const loop::Node*, Facts> facts_;
  };

  const std::vector<BufferInfo>& buffers_;
  std::set<int> scope_, volatile_;  // variables of the loops around; locals that change
  std::vector<std::pair<const loop::Node*, Expr>> lets_;
  int next_local_ = 1 << 12;

 private:
  using Memo = loop::NodeMap<Expr>;
  Expr hoisted(Block& block, Expr e, Survey& survey, bool guarded, Memo& plain, Memo& careful);
  Expr sum(Block& block, Expr e, Survey& survey, bool guarded, Memo& plain, Memo& careful);
};

}  // namespace facula::schedule
