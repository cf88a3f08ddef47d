#include "facula/schedule/invariants.h"

#include "facula/loop/simplify.h"

namespace facula::schedule {

using loop::Block;
using loop::Expr;
using loop::Kind;
using loop::Statement;

Expr Invariants::let(Block& block, Expr e, bool shared, bool always) {
  bool is_cheap =
      e->kind == Kind::constant || e->kind == Kind::param || e->kind == Kind::local || e->kind == Kind::index;
  if (is_cheap && !always) return e;
  Statement s;
  s.kind = Statement::Kind::let;
  s.var = next_local_++;
  s.values = {e};
  Expr l = loop::local(s.var, e.dtype());
  block.push_back(std::move(s));
  if (shared) lets_.push_back({e.get(), l});
  return l;
}

Invariants::Facts Invariants::Survey::of(Expr e) {
  if (auto it = facts_.find(e.get()); it != facts_.end()) return it->second;
  Facts f;
  if (e->kind == Kind::index) f.varies = !scope_.count(e->slot);
  if (e->kind == Kind::local) f.varies = locals_.count(e->slot);
  if (e->kind == Kind::reduce || e->kind == Kind::scan) f.pure = false;
  if (e->kind == Kind::load) {
    f.guarded = true;
    if (e->slot < 0 || buffers_[size_t(e->slot)].written) f.pure = false;
  }
  if (e->kind == Kind::check || e->kind == Kind::divisor) f.guarded = true;
  for (auto& a : e->args) {
    Facts x = of(a);
    f.varies |= x.varies;
    f.guarded |= x.guarded;
    f.pure &= x.pure;
  }
  for (auto& b : e->bound) f.varies |= of(b.extent).varies;
  return facts_[e.get()] = f;
}

bool Invariants::reads_written(Expr e) {
  bool shared = false;
  loop::visit(e, [&](Expr x) {
    shared |= x->kind == Kind::load && x->slot >= 0 && !buffers_[size_t(x->slot)].unique;
  });
  return shared || !Survey(scope_, volatile_, buffers_).of(e).pure;
}

void Invariants::hoist(Block& block, const std::vector<Expr*>& roots) {
  Survey survey(scope_, volatile_, buffers_);
  Memo plain, careful;
  for (auto* r : roots) *r = hoisted(block, *r, survey, false, plain, careful);
}

Expr Invariants::hoisted(Block& block, Expr e, Survey& survey, bool guarded, Memo& plain, Memo& careful) {
  if (e->kind == Kind::constant || e->kind == Kind::param || e->kind == Kind::local || e->kind == Kind::index)
    return e;
  Memo& memo = guarded ? careful : plain;
  if (const Expr* hoisted_before = memo.find(e.get())) return *hoisted_before;
  for (size_t k = lets_.size(); k-- > 0;)
    if (lets_[k].first == e.get()) return lets_[k].second;
  Facts f = survey.of(e);
  Expr r;
  if (!f.varies && f.pure && !(guarded && f.guarded)) r = let(block, e);
  else if (e->kind == Kind::select) {
    Expr c = hoisted(block, e->args[0], survey, guarded, plain, careful);
    r = loop::select(c, hoisted(block, e->args[1], survey, true, plain, careful),
                     hoisted(block, e->args[2], survey, true, plain, careful));
  } else if (e->kind == Kind::call && e.dtype() == DType::Int64 &&
             (e->fn == loop::Fn::add || e->fn == loop::Fn::sub)) {
    r = sum(block, e, survey, guarded, plain, careful);
  } else {
    r = loop::map_operands(e, [&](Expr x) { return hoisted(block, x, survey, guarded, plain, careful); });
  }
  return memo[e.get()] = r;
}

// Combines the loop-invariant terms of an integer sum into one.
Expr Invariants::sum(Block& block, Expr e, Survey& survey, bool guarded, Memo& plain, Memo& careful) {
  loop::Linear all, fixed, rest;
  if (!loop::linear(e, all)) return e;
  for (auto& t : all.terms) {
    Facts f = survey.of(t.x);
    (f.varies || !f.pure || (guarded && f.guarded) ? rest : fixed).terms.push_back(t);
  }
  for (auto& t : rest.terms) t.x = same(t.x, e) ? e : hoisted(block, t.x, survey, guarded, plain, careful);
  if (fixed.terms.empty()) rest.constant = all.constant;
  else {
    fixed.constant = all.constant;
    Expr base = loop::from_linear(fixed, DType::Int64);
    Expr local;
    for (size_t k = lets_.size(); k-- > 0 && !local.get();)
      if (lets_[k].first == base.get()) local = lets_[k].second;
    rest.terms.push_back({local ? local : let(block, base), 1});
  }
  return loop::from_linear(rest, DType::Int64);
}

}  // namespace facula::schedule
