#include "facula/embed/lowered.h"

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>

#include "facula/embed/order.h"
#include "facula/embed/packing.h"
#include "facula/embed/references.h"
#include "facula/graph/passes.h"
#include "facula/op/geometry.h"
#include "facula/op/operator.h"
#include "facula/run/arena.h"
#include "facula/run/pipeline.h"

namespace facula::embed {
namespace {

using run::Outline;
using schedule::Step;
using Root = Place::Root;

// The graph of the program's results and writes, of operators for which nests are generated.
graph::Graph generated_graph(const run::Traced& program, bool functions) {
  auto* name = program.name().c_str();
  auto& traced = program.graph();
  for (auto* v : traced.inputs)
    for (auto s : v->tensor.sizes())
      supported_check(!s.is_symbolic(), name)
          << "has an input of sizes " << to_string(v->tensor.sizes())
          << ", and C is generated for fixed sizes" << hint("trace it without dynamic=True");
  supported_check(program.checks().empty(), name)
      << "asserts the values of tensors, for which no C is generated" << hint("remove the assertions");
  auto& capture = program.capture();
  return with_references(traced, capture.results, name, functions, capture.lines);
}

class Lowering {
 public:
  Lowering(const run::Traced& program, const Options& options) : options_(options) {
    auto& g = out_.graph;
    g.graph = generated_graph(program, options.functions);
    g.name = program.name();
    find_functions();
    g.number();
    out_.arguments = g.graph.inputs.size() - program.captured().size();
    out_.steps = run::pipeline::fuse(g.graph, g.name);
    if (options.reorders) out_.steps = in_order_of_memory(std::move(out_.steps), g.graph);
    for (auto& step : out_.steps) out_.functions.push_back(function_of(step));
    out_.plan = run::make_plan_to_print(g, out_.steps);
    check_layouts();
    out_.places.resize(g.graph.values().size());
  }

  Lowered run() {
    place_inputs();
    place_allocations();
    place_views();
    copy_results();
    copy_written();
    return std::move(out_);
  }

 private:
  const graph::Graph& g() const { return out_.graph.graph; }
  const Outline& outline() const { return *out_.plan->outline; }
  Place& place(int v) { return out_.places[size_t(v)]; }

  const CFunction* function_of(const Step& step) const {
    auto it = functions_.find(step.node);
    return it == functions_.end() ? nullptr : it->second;
  }

  // Finds the functions of library calls, which read int8 operands where they are, without copies in a wider dtype.
  void find_functions() {
    for (auto& node : g().nodes) {
      if (!node->op->is<op::Library>()) continue;
      auto* f = c_function(*node);
      internal_check(f) << "no C function for " << node->op->name();
      functions_[node.get()] = f;
      node->args.each_tensor([&](int slot, Tensor& t) {
        if (slot == f->unconverted) t = converted_from(graph::value_of(t))->tensor;
      });
    }
    graph::remove_dead(out_.graph.graph);
  }

  // A function of the backend addresses operands by the strides of the trace.
  void check_layouts() const {
    for (size_t k = 0; k < out_.functions.size(); ++k) {
      auto& exec = outline().execs[k];
      for (size_t b = 0; out_.functions[k] && b < exec.inputs.size() + exec.outputs.size(); ++b) {
        int v = exec.operand(b);
        if (v < 0 || outline().form[size_t(v)] < 0) continue;
        auto& planned = out_.plan->form(v).meta;
        Tensor traced = g().values()[size_t(v)]->tensor;
        for (int d = 0; d < traced.dim(); ++d)
          internal_check(traced.size(d) == SymInt(int64_t(1)) || planned.strides.empty() ||
                         planned.strides[size_t(d)] == traced.stride(d))
              << exec.node->op->name() << " reads a value in another layout than that of the trace";
      }
    }
  }

  void place_inputs() {
    for (size_t i = 0; i < g().inputs.size(); ++i) place(g().inputs[i]->id) = {Root::input, int(i), 0};
    for (auto* v : out_.graph.constants) place(v->id) = {Root::constant, v->id, 0};
  }

  // The number of the result whose buffer a step may store `v` into; -1 if there is none.
  int result_of(int v) const {
    auto& outputs = out_.graph.outputs;
    auto it = std::ranges::find(outputs, v);
    return it == outputs.end() || !is_contiguous(v) ? -1 : int(it - outputs.begin());
  }
  bool is_contiguous(int v) const {
    auto& m = out_.plan->form(v).meta;
    return m.strides.empty() || m.strides == contiguous_strides(m.sizes);
  }

  // Each block of memory that a step allocates is the buffer of a result, or a part of the arena.
  void place_allocations() {
    std::vector<run::Lifetime> lifetimes;
    std::map<int, size_t> block;  // by value: the index of its lifetime
    std::vector<Tie> ties;
    for (int i : options_.in_arena) {
      auto* v = g().inputs[size_t(i)];
      block[v->id] = lifetimes.size();
      lifetimes.push_back({size_t(elements(*v) * itemsize(v->tensor.dtype())), 0, last_read(v)});
    }
    auto heir = heirs();
    for (auto& a : outline().allocations) {
      int last = a.value;
      while (heir[size_t(last)] >= 0) last = heir[size_t(last)];
      int result = result_of(last);
      if (result >= 0) {
        place(a.value) = {Root::result, result, 0};
        continue;
      }
      size_t bytes = out_.plan->forms[size_t(a.form)].bytes;
      auto replaced = replaced_by(a, block, lifetimes, bytes);
      if (replaced && bytes == lifetimes[*replaced].bytes) {
        lifetimes[*replaced].last = a.last;
        block[a.value] = *replaced;
        continue;
      }
      if (replaced) {  // a smaller result: the rest of the memory is free after the step
        ties.push_back({lifetimes.size(), *replaced, a.step, true});
        block[a.value] = lifetimes.size();
        lifetimes.push_back({bytes, a.step + 1, std::max(a.last, a.step + 1)});
        continue;
      }
      if (auto part = grown_from(a, block, lifetimes)) ties.push_back({*part, lifetimes.size(), a.step});
      block[a.value] = lifetimes.size();
      lifetimes.push_back({bytes, a.step, a.last});
    }
    size_t values = lifetimes.size();
    for (size_t k = 0; k < outline().execs.size(); ++k)
      for (size_t bytes : temporaries_of(k)) lifetimes.push_back({bytes, k, k});
    auto packing = pack(lifetimes, ties);
    out_.arena = int64_t(packing.bytes);
    for (auto [v, k] : block) place(v) = {Root::arena, 0, packing.offsets[k]};
    list_blocks(lifetimes, packing, block, values);
    place_temporaries(packing, values);
    for (size_t v = 0; v < out_.places.size(); ++v)
      if (int input = outline().written_to[v]; input >= 0) place(int(v)) = {Root::input, input, 0};
    for (auto [v, former] : outline().successions) place(v) = place(former);
  }
  static int64_t elements(const graph::Value& v) { return v.tensor.numel().concrete(); }
  static const graph::Value* base_of(const graph::Value* v) {
    while (v->producer && v->producer->op->is<op::View>()) v = graph::operands(*v->producer)[0];
    return v;
  }
  // The last step that reads an input or a view of it.
  size_t last_read(const graph::Value* input) const {
    size_t last = 0;
    for (size_t k = 0; k < outline().execs.size(); ++k)
      for (int v : outline().execs[k].inputs)
        if (v >= 0 && base_of(g().values()[size_t(v)].get()) == input) last = k;
    bool is_result = std::ranges::any_of(g().outputs, [&](auto* v) { return v && base_of(v) == input; });
    return is_result ? outline().execs.size() : last;
  }
  // The operation that computes a value, and its shape.
  std::string name_of(int v) const {
    auto* value = g().values()[size_t(v)].get();
    std::string operation = value->producer ? value->producer->op->name() : "argument";
    return operation + ": " + std::string(name(value->tensor.dtype())) + to_string(value->tensor.sizes());
  }
  void list_blocks(const std::vector<run::Lifetime>& lifetimes, const run::Packing& packing,
                   const std::map<int, size_t>& block, size_t values) {
    std::vector<std::string> names(lifetimes.size(), "scratch");
    for (auto [v, k] : block)
      if (names[k] == "scratch") names[k] = name_of(v);
    for (size_t k = 0; k < lifetimes.size(); ++k) {
      auto& life = lifetimes[k];
      std::string text = k < values ? names[k] : "scratch of step " + std::to_string(life.first);
      if (life.bytes)
        out_.blocks.push_back({text, packing.offsets[k], int64_t(life.bytes), life.first, life.last});
    }
  }

  std::vector<size_t> temporaries_of(size_t k) const {
    auto& e = outline().execs[k];
    if (auto* f = out_.functions[k]) return {size_t(f->scratch(*e.node))};
    return e.kernels < 0 ? std::vector<size_t>() : out_.plan->kernels_of(e).temporaries;
  }
  void place_temporaries(const run::Packing& packing, size_t next) {
    out_.temporaries.resize(outline().execs.size());
    for (size_t k = 0; k < outline().execs.size(); ++k)
      for (size_t t = 0; t < temporaries_of(k).size(); ++t)
        out_.temporaries[k].push_back({Root::arena, 0, packing.offsets[next++]});
  }
  // The block of the operand that a library call may replace, if nothing else reads the operand afterwards.
  std::optional<size_t> replaced_by(const Outline::Allocation& a, const std::map<int, size_t>& block,
                                    const std::vector<run::Lifetime>& lifetimes, size_t bytes) const {
    auto* f = out_.functions[a.step];
    if (!f || !f->in_place(*outline().execs[a.step].node)) return {};
    auto k = block_of_operand(a.step, block);
    if (!k) return {};
    auto& life = lifetimes[*k];
    return life.last == a.step && bytes <= life.bytes ? k : std::nullopt;
  }
  // The block of the operand that may be the last part of the result's memory.
  std::optional<size_t> grown_from(const Outline::Allocation& a, const std::map<int, size_t>& block,
                                   const std::vector<run::Lifetime>& lifetimes) const {
    auto* f = out_.functions[a.step];
    if (!f || !f->grows(*outline().execs[a.step].node)) return {};
    auto k = block_of_operand(a.step, block);
    if (!k || lifetimes[*k].last != a.step) return {};
    auto& operand =
        *g().values()[size_t(outline().execs[a.step].inputs[0])];  // it has to be all of its block
    bool is_all = int64_t(lifetimes[*k].bytes) == elements(operand) * itemsize(operand.tensor.dtype());
    return is_all ? k : std::nullopt;
  }
  // The block in which operand 0 of a step is.
  std::optional<size_t> block_of_operand(size_t step, const std::map<int, size_t>& block) const {
    int base = base_of(g().values()[size_t(outline().execs[step].inputs[0])].get())->id;
    for (auto [successor, former] : std::views::reverse(outline().successions))
      if (successor == base) base = former;
    auto it = block.find(base);
    return it == block.end() ? std::nullopt : std::optional(it->second);
  }
  // By value: the value that reuses its memory, or -1.
  std::vector<int> heirs() const {
    std::vector<int> heir(out_.places.size(), -1);
    for (auto [v, former] : outline().successions) heir[size_t(former)] = v;
    return heir;
  }

  void place_views() {
    for (auto& exec : outline().execs) {
      if (exec.kind != Step::Kind::view) continue;
      auto& n = *exec.node;
      op::Args args = n.args.clone();
      args.each_tensor([&](size_t, Tensor& t) {
        if (t.defined()) t = run::fake(out_.plan->form(graph::value_of(t)->id).meta);
      });
      Tensor base = run::fake(out_.plan->form(exec.inputs[0]).meta);
      auto views =
          n.op->as<op::View>()->rule(op::Call(*n.op, args.values()), op::Geometry(n.op->name(), base, false));
      for (size_t k = 0; k < exec.outputs.size(); ++k) {
        Tensor view = views[k].apply(base);
        Place at = place(exec.inputs[0]);
        at.offset += view.offset().concrete() * itemsize(view.dtype());
        place(exec.outputs[k]) = at;
      }
    }
  }

  Ints numbers(SymSpan sizes) const {
    Ints all;
    for (auto s : sizes) all.push_back(s.concrete());
    return all;
  }
  // `v`, an input, constant or value of a step, to a contiguous place.
  Copy copy_of(int v, Place to) {
    bool planned = outline().form[size_t(v)] >= 0;
    Tensor t = planned ? run::fake(out_.plan->form(v).meta) : g().values()[size_t(v)]->tensor;
    Dims strides = planned ? Dims(t.strides()) : contiguous_strides(t.sizes());
    return {place(v),         to,
            t.dtype(),        numbers(t.sizes()),
            numbers(strides), numbers(contiguous_strides(t.sizes()))};
  }

  void copy_results() {
    for (size_t k = 0; k < out_.graph.outputs.size(); ++k) {
      int v = out_.graph.outputs[k];
      if (v < 0) continue;
      auto& at = place(v);
      if (at.root == Root::result && at.number == int(k) && at.offset == 0) continue;
      out_.copies.push_back(copy_of(v, {Root::result, int(k), 0}));
    }
  }

  // A value that a step did not store into its input is copied. If its source is an input that another copy writes, it goes
  // through the arena.
  void copy_written() {
    std::vector<Copy> staged;
    for (auto& [i, v] : g().mutated) {
      if (outline().written_to[size_t(v->id)] == i) continue;
      Copy copy = copy_of(v->id, {Root::input, i, 0});
      if (copy.from.root == Root::input) {
        Place stage{Root::arena, 0, out_.arena};
        int64_t count = 1;
        for (auto s : copy.sizes) count *= s;
        out_.arena += (count * itemsize(copy.dtype) + 63) / 64 * 64;
        Copy back = copy;
        back.from = stage;
        copy.to = stage;
        back.from_strides = copy.to_strides;
        out_.copies.push_back(copy);
        staged.push_back(back);
      } else {
        staged.push_back(copy);
      }
    }
    out_.copies.insert(out_.copies.end(), staged.begin(), staged.end());
  }

  Lowered out_;
  const Options& options_;
  std::map<const graph::Node*, const CFunction*> functions_;  // by node of a step
};

}  // namespace

Lowered lowered(const run::Traced& program, const Options& options) {
  return Lowering(program, options).run();
}

}  // namespace facula::embed
