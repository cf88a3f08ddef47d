// Builds nests with a canonical numbering, so that equal nests have equal texts: see nest_spec.h.
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "facula/base/bounded.h"
#include "facula/base/caches.h"
#include "facula/base/fork.h"
#include "facula/loop/seen.h"
#include "facula/schedule/nest_spec.h"

namespace facula::schedule {

using loop::Block;
using loop::Expr;
using loop::Kind;
using loop::Statement;

namespace {

// Applies f to every expression of a block, in order.
void each_expr(Block& block, const std::function<void(Expr&)>& f) {
  for (auto& s : block) {
    if (s.extent) f(s.extent);
    for (auto& v : s.values) f(v);
    if (s.offset) f(s.offset);
    each_expr(s.body, f);
  }
}

// Assigns numbers in order of appearance.
struct Renumber {
  std::map<int, int> map;
  int next = 0;
  int of(int k, int count = 1) {
    auto it = map.find(k);
    if (it != map.end()) return it->second;
    for (int i = 0; i < count; ++i) map[k + i] = next++;
    return map[k];
  }
};

std::shared_ptr<const loop::Nest> shared_nest(loop::Nest n) {
  static TableMutex mutex;
  static Bounded<std::string, std::shared_ptr<const loop::Nest>> nests(4096);
  static const Droppable registered([] {
    std::lock_guard lock(mutex);
    nests.clear();
  });
  std::string text = loop::identity(n);
  n.identity.text = text;
  std::lock_guard lock(mutex);
  if (auto* nest = nests.find(text)) return *nest;
  return nests.put(std::move(text), std::make_shared<const loop::Nest>(std::move(n)));
}

// Renumbers variables, locals, parameters and buffers in order of appearance.
class Renamer {
 public:
  explicit Renamer(Finished& finished) : finished_(finished) {
    for (size_t k = 0; k < finished.buffers.size(); ++k) buffers_[finished.buffers[k]] = int(k);
  }

  int variable(int v) { return vars_.of(v); }
  int parameters() const { return numbers_.next; }
  Expr operator()(Expr x) {
    if (const Expr* renamed = done_.find(x.get())) return *renamed;
    Expr r;
    switch (x->kind) {
      case Kind::index: r = loop::index(vars_.of(x->slot)); break;
      case Kind::local: r = loop::local(locals_.of(x->slot), x.dtype()); break;
      case Kind::param: {
        bool fresh = !numbers_.map.count(x->slot);
        r = loop::param(numbers_.of(x->slot));
        if (fresh) finished_.numbers.push_back(x->slot);
        break;
      }
      case Kind::load: {
        int slot = memory(x->slot);
        r = loop::load(slot, x->memory, {(*this)(x->args[0])}, x->part);
        break;
      }
      default: r = loop::map_operands(x, [&](Expr y) { return (*this)(y); });
    }
    return done_[x.get()] = r;
  }
  void block(Block& block) {
    for (auto& s : block) {
      if (s.extent) s.extent = (*this)(s.extent);
      if (s.kind == Statement::Kind::loop) s.var = vars_.of(s.var);
      for (auto& v : s.values) v = (*this)(v);
      if (s.kind == Statement::Kind::let || s.kind == Statement::Kind::assign ||
          s.kind == Statement::Kind::array)
        s.var = locals_.of(s.var);
      if (s.kind == Statement::Kind::accumulator || s.kind == Statement::Kind::accumulate)
        s.var = locals_.of(s.var, loop::components(s.monoid));
      if (s.offset) s.offset = (*this)(s.offset);
      if (s.kind == Statement::Kind::store) s.buffer = memory(s.buffer);
      this->block(s.body);
    }
  }

 private:
  int memory(int slot) { return slot < 0 ? -1 - locals_.of(-1 - slot) : buffers_.at(slot); }

  Finished& finished_;
  std::map<int, int> buffers_;
  Renumber vars_, locals_, numbers_;
  loop::NodeMap<Expr> done_;
};

// The buffers that a nest accesses, in order.
std::set<int> used_buffers(const NestSpec& spec, loop::Nest& n) {
  std::set<int> used;
  each_expr(n.body, [&](Expr& e) {
    loop::visit(e, [&](Expr x) {
      if (x->kind == Kind::load && x->slot >= 0) used.insert(x->slot);
    });
  });
  for (auto& s : spec.stores) used.insert(s.buffer);
  return used;
}

}  // namespace

Finished finish(const NestSpec& spec, const std::vector<BufferInfo>& buffers) {
  loop::Nest n;
  n.name = spec.name;
  constexpr int kTask = (1 << 20) - 1, kEnd = kTask - 1;
  std::vector<BufferInfo> info = buffers;
  for (auto& b : info) b.written = false;
  for (auto& s : spec.stores) info[size_t(s.buffer)].written = true;
  n.body = task_body(spec, info, kTask, kEnd);
  n.tasks = spec.tasks;
  n.cost = spec.cost;

  Finished finished;
  for (int b : used_buffers(spec, n)) {
    finished.buffers.push_back(b);
    loop::Buffer buffer;
    buffer.dtype = info[size_t(b)].dtype;
    buffer.written = info[size_t(b)].written;
    buffer.unique = info[size_t(b)].unique;
    buffer.name = "b" + std::to_string(n.buffers.size());
    n.buffers.push_back(buffer);
  }
  Renamer renamed(finished);
  n.task_var = renamed.variable(kTask);
  if (spec.unit && !spec.row_vector) n.end_var = renamed.variable(kEnd);
  n.tasks = renamed(n.tasks);
  n.cost = renamed(n.cost);
  renamed.block(n.body);
  n.params = renamed.parameters();
  finished.nest = shared_nest(std::move(n));
  return finished;
}

}  // namespace facula::schedule
