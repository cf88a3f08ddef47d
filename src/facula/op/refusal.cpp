#include "facula/op/refusal.h"

#include "facula/base/hash.h"
#include "facula/op/helpers.h"
#include "facula/op/registry.h"

namespace facula::op {

loop::Expr accepted(loop::Expr x, loop::Expr accepted, std::string_view text) {
  using namespace loop;
  Expr none = integer(0), place = within(select(accepted, none, integer(refusal_code(text))), integer(1));
  return select(eq(place, none), x, constant(Scalar(int64_t(0)), x.dtype()));
}

int64_t refusal_code(std::string_view text) { return int64_t(hash_of(text) >> 2 | uint64_t(1) << 61); }

std::pair<const Operator*, std::string> find_refusal(int64_t code) {
  std::pair<const Operator*, std::string> refusal;
  for (auto* o : all())  // prefers an operator that users know to a part of it
    for (auto& text : o->refusals)
      if (refusal_code(text) == code && (!refusal.first || !(o->namespaces & hidden) || !o->called.empty()))
        refusal = {o, text};
  return refusal;
}

}  // namespace facula::op
