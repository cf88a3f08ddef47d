#include "facula/device/cpu/nest_builder.h"

#include <algorithm>

namespace facula::device::cpu {

namespace {

constexpr size_t kAlignment = 64;  // of work buffers, in bytes

// Renames the buffers of all loads and stores in a block.
template <class F>
void rename_buffers(loop::Block& b, F&& name) {
  auto renamed = [&](loop::Expr x) {
    return loop::rewrite(x, [&](loop::Expr e) -> loop::Expr {
      if (e->kind != loop::Kind::load || name(e->slot) == e->slot) return {};
      return loop::load(name(e->slot), e->memory, {e->args[0]}, e->part);
    });
  };
  for (auto& s : b) {
    loop::each_expression(s, [&](loop::Expr& e) { e = renamed(e); });
    if (s.kind == loop::Statement::Kind::store) s.buffer = name(s.buffer);
    rename_buffers(s.body, name);
  }
}

}  // namespace

loop::Nest with_arrays(TaskNest t) {
  loop::Nest& n = t.nest;
  int next = 0;
  loop::each_statement(n.body, [&](const loop::Statement& s) { next = std::max(next, s.var + 1); });
  std::map<int, int> names;
  loop::Block arrays;
  for (auto& w : t.work) {
    loop::Statement a{loop::Statement::Kind::array};
    a.var = next++;
    a.dtype = n.buffers[size_t(w.buffer)].dtype;
    a.extent = w.extent;
    names[w.buffer] = -1 - a.var;
    arrays.push_back(std::move(a));
  }
  for (auto& a : t.aliases) n.buffers[size_t(a.of)].unique = true;
  std::vector<loop::Buffer> left;
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

WorkMemory::WorkMemory(const TaskKernel& k, const int64_t* params) : kernel_(k) {
  internal_check(k.work.size() <= begin_.size())
      << k.kernel->name << ": " << k.work.size() << " work buffers";
  for (size_t w = 0; w < k.work.size(); ++w) {
    begin_[w] = bytes_;
    size_t own = size_t(codegen::eval_params(k.work[w].extent, params) * itemsize(k.dtypes[w]));
    bytes_ += (own + kAlignment - 1) / kAlignment * kAlignment;
  }
}
void WorkMemory::place(char* memory, std::span<void*> buffers) const {
  for (size_t w = 0; w < kernel_.work.size(); ++w)
    buffers[size_t(kernel_.work[w].buffer)] = memory + begin_[w];
  for (auto& a : kernel_.aliases) buffers[size_t(a.buffer)] = buffers[size_t(a.of)];
}

}  // namespace facula::device::cpu
