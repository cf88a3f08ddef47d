#include "facula/loop/nest_builder.h"

#include <algorithm>
#include <map>

namespace facula::loop {

namespace {

// Renames the buffers of all loads and stores in a block.
template <class F>
void rename_buffers(Block& b, F&& name) {
  auto renamed = [&](Expr x) {
    return rewrite(x, [&](Expr e) -> Expr {
      if (e->kind != Kind::load || name(e->slot) == e->slot) return {};
      return load(name(e->slot), e->memory, {e->args[0]}, e->part);
    });
  };
  for (auto& s : b) {
    each_expression(s, [&](Expr& e) { e = renamed(e); });
    if (s.kind == Statement::Kind::store) s.buffer = name(s.buffer);
    rename_buffers(s.body, name);
  }
}

}  // namespace

Nest with_arrays(TaskNest t) {
  Nest& n = t.nest;
  int next = 0;
  each_statement(n.body, [&](const Statement& s) { next = std::max(next, s.var + 1); });
  std::map<int, int> names;
  Block arrays;
  for (auto& w : t.work) {
    Statement a{Statement::Kind::array};
    a.var = next++;
    a.dtype = n.buffers[size_t(w.buffer)].dtype;
    a.extent = w.extent;
    names[w.buffer] = -1 - a.var;
    arrays.push_back(std::move(a));
  }
  for (auto& a : t.aliases) n.buffers[size_t(a.of)].unique = true;
  std::vector<Buffer> left;
  for (int k = 0; k < int(n.buffers.size()); ++k) {
    bool is_alias = std::any_of(t.aliases.begin(), t.aliases.end(), [&](auto& a) { return a.buffer == k; });
    if (!is_alias && names.try_emplace(k, int(left.size())).second) left.push_back(n.buffers[size_t(k)]);
  }
  for (auto& a : t.aliases) names[a.buffer] = names.at(a.of);
  rename_buffers(n.body, [&](int slot) { return slot < 0 ? slot : names.at(slot); });
  n.buffers = std::move(left);
  n.body.insert(n.body.begin(), arrays.begin(), arrays.end());
  return std::move(n);
}

}  // namespace facula::loop
