#include "facula/schedule/exchange.h"

#include <bit>

#include "facula/loop/monoid.h"
#include "facula/schedule/statements.h"

namespace facula::schedule {

using loop::Block;
using loop::Expr;
using loop::Fn;
using loop::Kind;
using loop::LoopKind;
using loop::Monoid;
using loop::Statement;
using SK = loop::Statement::Kind;

std::vector<Expr> locals(int var, const std::vector<DType>& types) {
  std::vector<Expr> all;
  for (size_t k = 0; k < types.size(); ++k) all.push_back(loop::local(var + int(k), types[k]));
  return all;
}

std::vector<Expr> Exchange::Parts::at(Expr place) const {
  std::vector<Expr> all;
  for (size_t k = 0; k < slots.size(); ++k) all.push_back(loop::load(slots[k], types[k], {place}));
  return all;
}

Exchange::Parts Exchange::parts_of(const Statement& accumulator, size_t nth) {
  Parts p;
  std::map<DType, size_t> used;
  auto components = loop::identity(accumulator.monoid, accumulator.dtype, accumulator.position);
  for (auto& e : components) used[e.dtype()] += nth;  // skips the arrays of earlier sets
  for (auto& e : components) {
    auto& list = slots_[e.dtype()];
    size_t place = used[e.dtype()]++;
    while (list.size() <= place) {
      Statement a{SK::array};
      a.var = fresh_.local++;
      a.dtype = e.dtype();
      a.space = loop::Space::shared;
      a.extent = integer(threads_);
      arrays_.push_back(a);
      list.push_back(-1 - a.var);
    }
    p.types.push_back(e.dtype());
    p.slots.push_back(list[place]);
  }
  return p;
}

void Exchange::put(Block& to, const Parts& p, Expr place, const std::vector<Expr>& values) {
  std::vector<Expr> lets;
  for (auto& v : values) {
    bool is_local = v->kind == Kind::local;
    if (!is_local) to.push_back(set(SK::let, fresh_.local, v));
    lets.push_back(is_local ? v : loop::local(fresh_.local++, v.dtype()));
  }
  for (size_t k = 0; k < lets.size(); ++k) to.push_back(store(p.slots[k], place, lets[k]));
}

void Exchange::tree(int var, const Statement& own, Block& out) {
  Parts p = parts_of(own);
  int thread = fresh_.var++, step = fresh_.var++, half = fresh_.local++;
  Expr i = loop::index(thread);
  Block first;
  put(first, p, i, locals(own.var, p.types));
  out.push_back(loop_over(LoopKind::threads, thread, integer(threads_), std::move(first)));
  Expr width = loop::local(half, DType::Int64);
  Block add, steps{set(SK::let, half, loop::call(Fn::shr, {integer(threads_ / 2), loop::index(step)}))};
  put(add, p, i, loop::combine(own.monoid, p.at(i), p.at(i + width)));
  steps.push_back(loop_over(LoopKind::threads, thread, width, std::move(add)));
  out.push_back(
      loop_over(LoopKind::serial, step, integer(std::countr_zero(unsigned(threads_))), std::move(steps)));
  combine_into(var, own.monoid, p, p.at(integer(0)), out);
}

Statement Exchange::neighbours(Monoid m, const Parts& from, const Parts& to, int distance) {
  int thread = fresh_.var++;
  Expr i = loop::index(thread);
  Block body;
  std::vector<Expr> all;
  auto mine = from.at(i), sum = loop::combine(m, from.at(i - integer(distance)), mine);
  for (size_t k = 0; k < sum.size(); ++k)
    all.push_back(loop::select(i >= integer(distance), sum[k], mine[k]));
  put(body, to, i, all);
  return loop_over(LoopKind::threads, thread, integer(threads_), std::move(body));
}

void Exchange::combine_into(int var, Monoid m, const Parts& p, const std::vector<Expr>& with, Block& out) {
  std::vector<Expr> lets;
  for (auto& e : loop::combine(m, locals(var, p.types), with)) {
    out.push_back(set(SK::let, fresh_.local, e));
    lets.push_back(loop::local(fresh_.local++, e.dtype()));
  }
  for (size_t k = 0; k < lets.size(); ++k) out.push_back(set(SK::assign, var + int(k), lets[k]));
}

}  // namespace facula::schedule
