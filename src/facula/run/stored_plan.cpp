#include "facula/run/stored_plan.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "facula/base/fork.h"
#include "facula/base/log.h"
#include "facula/base/sha256.h"
#include "facula/codegen/background.h"
#include "facula/codegen/named.h"
#include "facula/codegen/prediction.h"
#include "facula/codegen/store.h"
#include "facula/run/key.h"
#include "facula/run/plan.h"
#include "facula/run/stored_bytes.h"
#include "facula/run/stored_graph.h"

namespace facula::run {

using graph::Graph;

namespace {

constexpr int kFirstPlans = 2048, kOfOperator = 64;  // limits for a process: in all, and for one operator

// ---- the plan

constexpr uint64_t kNoPlace = ~uint64_t(0);

void write_form(ByteWriter& w, const Plan::Form& f) {
  auto& m = f.meta;
  w.word(uint64_t(m.dtype) << 16 | uint64_t(m.device.type) << 8 | uint8_t(m.device.index));
  w.list(concrete(SymSpan(m.sizes)));
  w.list(concrete(SymSpan(m.strides)));
  w.word(f.bytes);
}
Plan::Form read_form(ByteReader& r) {
  Plan::Form f;
  uint64_t type = r.word();
  f.meta.dtype = DType(type >> 16);
  f.meta.device = Device{DeviceType(type >> 8 & 255), int8_t(type & 255)};
  r.list(f.meta.sizes);
  r.list(f.meta.strides);
  f.bytes = r.word();
  return f;
}

void write_kernels(ByteWriter& w, const Plan::Kernels& kernels) {
  w.list(kernels.temporaries);
  w.word(kernels.launches.size());
  for (auto& l : kernels.launches) {
    auto& name = codegen::name_of(*l.kernel);
    w.bytes.append(reinterpret_cast<const char*>(name.data()), name.size());
    w.text(l.kernel->name);
    w.word(uint64_t(l.work.tasks));
    w.word(uint64_t(l.work.grain));
    w.word(l.all_in_order);
    w.list(l.buffers);
    w.list(l.params);
  }
}
// False if a kernel is missing.
bool read_kernels(ByteReader& r, Plan::Kernels& kernels) {
  r.list(kernels.temporaries);
  size_t n = r.count();
  for (size_t k = 0; k < n && !r.failed(); ++k) {
    Sha256 name;
    auto digest = r.piece(name.size());
    if (digest.size() != name.size()) return false;
    std::memcpy(name.data(), digest.data(), name.size());
    Plan::KernelLaunch l;
    std::string shown(r.text());
    l.work.tasks = int64_t(r.word());
    l.work.grain = int64_t(r.word());
    l.all_in_order = r.word();
    r.list(l.buffers);
    r.list(l.params);
    l.kernel = r.failed() ? nullptr : codegen::find_kernel(name, shown);
    if (!l.kernel) return false;
    kernels.launches.push_back(std::move(l));
  }
  return !r.failed();
}

void write_exec(ByteWriter& w, const Outline::Exec& e,
                const std::unordered_map<const graph::Node*, size_t>& nodes) {
  w.word(uint64_t(e.kind));
  w.word(e.node ? nodes.at(e.node) : kNoPlace);
  w.word(uint64_t(int64_t(e.kernels)));
  w.list(e.inputs);
  w.list(e.outputs);
  w.list(e.empty);
  w.list(e.alike);
  w.list(e.dead);
  w.word(e.may_be_epilogue);
}
void write_epilogue(ByteWriter& w, const Plan::Epilogue& e) {
  w.word(e.call);
  w.text(print(e.function.value));
  w.list(e.function.operands);
  w.list(e.operands);
  w.list(e.params);
}
Plan::Epilogue read_epilogue(ByteReader& r, const Outline& o, size_t values) {
  Plan::Epilogue e{};
  e.call = size_t(r.index_under(o.execs.size()));
  auto text = r.text();
  r.list(e.function.operands);
  r.index_under(e.operands, values);
  r.list(e.params);
  e.function.params = int(e.params.size());
  bool fits = e.call + 1 < o.execs.size() && o.execs[e.call].with_epilogue &&
              o.execs[e.call + 1].may_be_epilogue && e.function.operands.size() == e.operands.size();
  if (!fits) r.refuse();
  if (r.failed()) return e;
  e.function.value = loop::parse_expr(text);
  return e;
}
bool read_exec(ByteReader& r, Outline::Exec& e, const Graph& g, const Plan& plan) {
  using Kind = schedule::Step::Kind;
  size_t values = g.values().size();
  e.kind = Kind(r.index_under(size_t(Kind::library) + 1));
  e.node = nullptr;
  if (int node = r.index_or_none(g.nodes.size()); node >= 0) e.node = g.nodes[size_t(node)].get();
  e.kernels = r.index_or_none(plan.kernels.size());
  bool kernel = e.kind == Kind::kernel;
  if (kernel != !e.node || kernel != (e.kernels >= 0)) return false;
  r.index_under(e.inputs, values, e.node);
  r.index_under(e.outputs, values);
  size_t operands = e.inputs.size() + e.outputs.size();
  r.index_under(e.empty, operands);
  r.index_under(e.alike, operands);
  r.index_under(e.dead, values);
  e.may_be_epilogue = r.word();
  if (e.node) e.find_library();
  if (kernel)
    for (auto& l : plan.kernels_of(e).launches)
      for (int b : l.buffers)
        if (b < 0 || size_t(b) >= operands + plan.kernels_of(e).temporaries.size()) return false;
  return !r.failed();
}

// Offsets of values, which no other part determines.
bool fits(const Plan& plan, const Outline& o, size_t values) {
  if (o.form.size() != values || o.written_to.size() != values || o.takes_over.size() != values ||
      plan.offsets.size() != values)
    return false;
  auto is_within = [&](int64_t offset, size_t bytes) {
    return offset < 0 || (size_t(offset) <= plan.arena && bytes <= plan.arena - size_t(offset));
  };
  size_t scratch = 0;
  for (auto& e : o.execs) {
    for (size_t k = 0; k < e.inputs.size() + e.outputs.size(); ++k)
      if (int v = e.operand(k); v >= 0) {
        if (o.form[size_t(v)] < 0) return false;
        if (k >= e.inputs.size() && !is_within(plan.offsets[size_t(v)], plan.form(v).bytes)) return false;
      }
    if (e.kernels < 0) continue;
    for (size_t bytes : plan.kernels_of(e).temporaries)
      if (scratch >= plan.scratch.size() || !is_within(plan.scratch[scratch++], bytes)) return false;
  }
  std::vector<bool> launched(o.kernels);
  for (auto& e : o.execs)
    if (e.kernels >= 0) launched[size_t(e.kernels)] = true;
  return scratch == plan.scratch.size() && std::ranges::all_of(launched, [](bool any) { return any; });
}

std::shared_ptr<const Plan> read_plan(std::string_view bytes, const Graph& g, IntSpan symbols) {
  ByteReader r(bytes);
  auto plan = std::make_shared<Plan>();
  auto outline = std::make_shared<Outline>();
  plan->outline = outline;
  plan->symbols.assign(symbols.begin(), symbols.end());
  size_t values = g.values().size();
  plan->arena = r.word();
  plan->peak = r.word();
  outline->general = r.word();
  size_t forms = r.count();
  for (size_t k = 0; k < forms; ++k) {
    int like = r.index_under(values);
    plan->forms.push_back(read_form(r));
    outline->forms.push_back({like, plan->forms.back().meta.dtype});
  }
  r.index_under(outline->form, forms, true);
  r.index_under(outline->written_to, g.inputs.size(), true);
  r.index_under(outline->takes_over, values, true);
  outline->last_refusal = int(r.word());
  r.list(plan->offsets);
  r.list(plan->scratch);
  outline->kernels = r.count();
  for (size_t k = 0; k < outline->kernels; ++k)
    if (!read_kernels(r, plan->kernels.emplace_back())) return nullptr;
  size_t execs = r.count();
  for (size_t k = 0; k < execs; ++k)
    if (!read_exec(r, outline->execs.emplace_back(), g, *plan)) return nullptr;
  size_t epilogues = r.count();
  for (size_t k = 0; k < epilogues && !r.failed(); ++k)
    plan->epilogues.push_back(read_epilogue(r, *outline, values));
  if (r.word()) {
    Plan::Direct d;
    r.index_under(d.inputs, g.inputs.size());
    r.index_under(d.outputs, Plan::kDirect + g.inputs.size());
    if (d.inputs.size() > Plan::kDirect || execs != 1) return nullptr;
    plan->direct = std::move(d);
  }
  for (int64_t offset : plan->offsets) outline->inside.push_back(offset >= 0);
  if (!r.is_complete() || !fits(*plan, *outline, values)) return nullptr;
  outline->index();
  return plan;
}

// Whether one more plan of that operator may be looked up.
bool is_among_first(const std::string& op) {
  static std::atomic<int> in_all{0};
  if (in_all.load(std::memory_order_relaxed) >= kFirstPlans) return false;
  static auto& mutex = *new TableMutex;
  static auto& of_operator = *new std::unordered_map<std::string, int>;
  std::lock_guard lock(mutex);
  int& count = of_operator[op];
  if (count >= kOfOperator) return false;
  ++count;
  ++in_all;
  return true;
}

// Contents of plan files that other threads read ahead of the program.
class ReadAhead {
 public:
  static ReadAhead& all() {
    static auto& a = *new ReadAhead;
    return a;
  }
  // The contents of a file; empty if it does not exist. The request predicts the next ones (codegen/prediction.h).
  std::string take(const std::string& name) {
    if (codegen::is_background_thread()) return "";
    codegen::wanted(kThing, codegen::words_of(name));
    std::lock_guard lock(mutex_);
    auto it = bytes_.find(name);
    if (it == bytes_.end()) return "";
    std::string contents = std::move(it->second);
    bytes_.erase(it);
    return contents;
  }

 private:
  static void read(IntSpan words) {
    std::string name = codegen::text_of(words), folder = codegen::user_folder();
    if (name.size() == sizeof(Sha256) * 2 && !folder.empty())
      all().put(name, codegen::read_entry(folder, codegen::Stored::plan, name, codegen::Owner::user));
  }
  void put(const std::string& name, std::string bytes) {
    std::lock_guard lock(mutex_);
    if (!bytes.empty() && bytes_.size() < size_t(kFirstPlans)) bytes_[name] = std::move(bytes);
  }
  TableMutex mutex_;
  std::unordered_map<std::string, std::string> bytes_;
  static const codegen::Thing kThing;
};
const codegen::Thing ReadAhead::kThing("plan", &ReadAhead::read);

}  // namespace

std::string stored_name(const std::string& op, GraphName& of_graph, const Graph& g, IntSpan symbols,
                        std::span<const op::Value> inputs, std::span<const Tensor> out) {
  if (!stores_plans() || !is_among_first(op)) return "";
  std::call_once(of_graph.named, [&] {
    auto all = bytes_of(g, Constants::layouts);
    of_graph.captures = all.has_constants;
    if (all.is_reproducible) of_graph.name = stored_digest("graph", all.bytes);
  });
  // A destination could share memory with a captured tensor.
  if (of_graph.name.empty() || (of_graph.captures && !out.empty())) return "";
  ByteWriter w;
  w.text(of_graph.name);
  w.word(uint64_t(default_dtype()));
  w.list(symbols);
  Key key;
  for (auto& v : inputs) append(key, v);
  for (auto& t : out) append(key, t, inputs);
  w.list(key);
  return hex(sha256({"plan", w.bytes}));
}

std::shared_ptr<const Plan> load_plan(const std::string& name, const Graph& g, IntSpan symbols) {
  std::string folder = codegen::user_folder();
  if (folder.empty()) return nullptr;
  std::string bytes = ReadAhead::all().take(name);
  if (bytes.empty()) bytes = codegen::read_entry(folder, codegen::Stored::plan, name, codegen::Owner::user);
  auto plan = bytes.empty() ? nullptr : read_plan(bytes, g, symbols);
  if (log_on(Log::cache)) log_line(Log::cache, (plan ? "hit plan " : "miss plan ") + name);
  return plan;
}

void store_plan(const std::string& name, const Graph& g, const Plan& plan) {
  std::string folder = codegen::user_folder();
  if (folder.empty()) return;
  auto& outline = *plan.outline;
  ByteWriter w;
  w.word(plan.arena);
  w.word(plan.peak);
  w.word(outline.general &&
         std::ranges::none_of(outline.forms, [](auto& f) { return f.strides.has_value(); }));
  w.word(plan.forms.size());
  for (size_t k = 0; k < plan.forms.size(); ++k) {
    w.word(uint64_t(outline.forms[k].like));
    write_form(w, plan.forms[k]);
  }
  w.list(outline.form);
  w.list(outline.written_to);
  w.list(outline.takes_over);
  w.word(uint64_t(outline.last_refusal));
  w.list(plan.offsets);
  w.list(plan.scratch);
  w.word(plan.kernels.size());
  for (auto& k : plan.kernels) write_kernels(w, k);
  std::unordered_map<const graph::Node*, size_t> nodes;
  for (size_t k = 0; k < g.nodes.size(); ++k) nodes[g.nodes[k].get()] = k;
  w.word(outline.execs.size());
  for (auto& e : outline.execs) write_exec(w, e, nodes);
  w.word(plan.epilogues.size());
  for (auto& e : plan.epilogues) write_epilogue(w, e);
  w.word(plan.direct.has_value());
  if (plan.direct) {
    w.list(plan.direct->inputs);
    w.list(plan.direct->outputs);
  }
  codegen::write_at_exit(codegen::Stored::plan, name, std::move(w.bytes));
}

}  // namespace facula::run
