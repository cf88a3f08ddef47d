// Lets of what does not change in a loop, before the loop.
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

  // A local with the value of e. `shared`: hoist may use it for e again; `always`: even of constants and locals.
  Expr let(Block& block, Expr e, bool shared = true, bool always = false);
  // Whatever in `roots` depends only on loops around `block` is computed there.
  void hoist(Block& block, const std::vector<Expr*>& roots);
  // An input that shares memory with some output counts as written: a store may be to it under another
  // number.
  bool reads_written(Expr e);

  // Facts of an expression for one hoist.
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
    std::unordered_map<const loop::Node*, Facts> known_;
  };

  const std::vector<BufferInfo>& buffers_;
  std::set<int> scope_, volatile_;  // variables of loops around; locals that change
  std::vector<std::pair<const loop::Node*, Expr>> lets_;
  int next_local_ = 1 << 12;

 private:
  using Memo = loop::NodeMap<Expr>;
  Expr hoisted(Block& block, Expr e, Survey& survey, bool guarded, Memo& plain, Memo& careful);
  Expr sum(Block& block, Expr e, Survey& survey, bool guarded, Memo& plain, Memo& careful);
};

}  // namespace facula::schedule
