#include "facula/graph/segments.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "facula/graph/history.h"
#include "facula/op/call.h"
#include "facula/sym/substitute.h"

namespace facula::graph {

namespace {

bool is_data_dependent(const Node& n) { return n.op->is<op::DataDependent>(); }

// By value: whether it is one of `ends`, or a gradient flows back to it from one.
std::unordered_set<const Value*> values_behind(std::span<Value* const> ends) {
  std::unordered_set<const Value*> all;
  each_in_history({ends.begin(), ends.end()}, [&](Value* v) { return all.insert(v).second; });
  return all;
}

// Whether a gradient flows through the call, from one of the values `behind`.
bool passes_gradient(const Node& n, const std::unordered_set<const Value*>& behind) {
  return std::ranges::any_of(n.results, [&](auto* r) { return behind.count(r) && call_behind(r); });
}

bool stays_in_order(const Node& n) {
  return n.op->effects.draws || n.op->effects.ordered || n.op->schema.mutates();
}

// True if the node can be repeated in each segment that reads it at no cost.
bool is_free(const Node& n) {
  auto read = operands(n);
  bool no_operands = std::none_of(read.begin(), read.end(), [](auto* v) { return v; });
  return n.op->is<op::View>() || (no_operands && n.op->effects.repeatable() && !n.op->calls());
}

// The symbols in a node's attributes and in the sizes of its results.
std::set<int> symbols_of(const Node& n) {
  std::set<int> all;
  auto add = [&](SymInt s) { sym::each_symbol(s, [&](size_t k) { all.insert(int(k)); }); };
  op::Args args = n.args.clone();
  args.each_size([&](SymInt& s) { add(s); });
  for (auto* r : n.results)
    for (auto s : r->tensor.sizes()) add(s);
  return all;
}

class Splitter {
 public:
  Splitter(const Graph& g, std::span<const Value* const> inside)
      : g_(g), inside_(inside.begin(), inside.end()) {
    if (inside.empty()) return;
    std::vector<Value*> ends(g.outputs);
    for (auto& [i, v] : g.mutated) ends.push_back(v);
    behind_ = values_behind(ends);
  }

  std::vector<Segment> run() {
    find_depths();
    find_places();
    std::vector<Segment> all(size_t(last_) + 1);
    for (int k = 0; k <= last_; ++k) build(all[size_t(k)], k);
    for (auto& n : g_.nodes)
      if (is_cut(*n)) all[size_t(depth_of_call(*n))].calls.push_back(n.get());
    find_dead(all);
    return all;
  }

 private:
  using Segments = std::set<int>;

  bool divides_histories() const { return !inside_.empty(); }
  // Whether the call is in no segment.
  bool is_cut(const Node& n) const {
    if (is_data_dependent(n)) return true;
    return n.op->is<op::View>() && std::ranges::any_of(n.results, [&](auto* r) { return inside_.count(r); });
  }
  bool comes_from_outside(const Value* v) const { return !v->producer; }
  int depth(const Value* v) const {
    auto it = depths_.find(v);
    return it == depths_.end() ? 0 : it->second;
  }
  int depth_of_call(const Node& n) const { return depth(n.results[0]) - 1; }

  // Finds how many ends of segments precede each value in a chain, and for each symbol a value that has it as a size.
  void find_depths() {
    for (auto* v : g_.inputs) shows(v);
    int last_draw = 0;
    for (auto& n : g_.nodes) {
      int d = stays_in_order(*n) ? last_draw : 0;
      bool passes = divides_histories() && !is_cut(*n) && passes_gradient(*n, behind_);
      for (auto* v : operands(*n))
        if (v) d = std::max(d, depth(v) + int(passes && ends_segment(v)));
      auto& used = used_[n.get()] = symbols_of(*n);
      if (is_cut(*n))
        for (auto* r : n->results) {
          depths_[r] = d + 1;
          shows(r);
        }
      for (int s : used) {
        auto shown = shown_by_.find(s);
        value_check(shown != shown_by_.end(), n->op->name())
            << "has the size " << g_.shapes->symbol(s) << ", which nothing before it gives";
        if (!is_data_dependent(*n)) d = std::max(d, depth(shown->second));
      }
      if (!is_cut(*n))
        for (auto* r : n->results) depths_[r] = d;
      if (stays_in_order(*n)) last_draw = d;
      last_ = std::max(last_, is_cut(*n) ? d + 1 : d);
    }
  }
  // Whether calls that pass its gradient on are in later segments than the call that computes it.
  bool ends_segment(const Value* v) const { return inside_.count(v) && v->producer && !is_cut(*v->producer); }
  void shows(const Value* v) {
    for (auto s : v->tensor.sizes())
      if (s.is_symbol()) shown_by_.try_emplace(int(s.node()->value), v);
  }

  // Assigns nodes to segments, from the last node to the first: a node belongs to the earliest segment that reads its
  // results.
  void find_places() {
    if (divides_histories()) {
      outputs_.insert(g_.outputs.begin(), g_.outputs.end());
      for (auto& [i, v] : g_.mutated) outputs_.insert(v);
    } else {
      for (auto* v : g_.outputs) need(v, last_);
      for (auto& [i, v] : g_.mutated) {
        need(v, last_);
        need(g_.inputs[size_t(i)], last_);
      }
    }
    int next_draw = last_;
    for (size_t k = g_.nodes.size(); k-- > 0;) {
      auto& n = *g_.nodes[k];
      Segments in;
      if (is_cut(n)) {
        in = {depth_of_call(n)};
      } else {
        for (auto* r : n.results) {
          in.insert(needed_[r].begin(), needed_[r].end());
          if (ends_segment(r)) in.insert(depth(r));
          if (in.empty() && outputs_.count(r)) in.insert(last_);
        }
        if (stays_in_order(n)) in = {next_draw = std::min(next_draw, in.empty() ? last_ : *in.begin())};
        else if (in.empty()) continue;
        else if (!is_free(n)) in = {*in.begin()};
        places_[&n] = in;
        for (int s : in)
          for (int symbol : used_[&n]) needed_symbols_[s].insert(symbol);
      }
      for (auto* v : operands(n))
        for (int s : in) {
          need(v, s);
          if (v && is_cut(n)) read_after_[v].insert(s);
        }
    }
    for (auto& [s, symbols] : needed_symbols_)
      for (int symbol : symbols) need(shown_by_.at(symbol), s);
  }
  void need(const Value* v, int segment) {
    if (v) needed_[v].insert(segment);
  }
  bool is_computed_in(const Value* v, int segment) const {
    if (!v->producer) return false;
    auto it = places_.find(v->producer);
    return it != places_.end() && it->second.count(segment) > 0;
  }

  void build(Segment& s, int k) {
    s.graph.shapes = g_.shapes;
    std::unordered_map<const Value*, Value*> at;
    for (auto& owned : g_.values()) {  // in the order of the graph's text
      auto* v = owned.get();
      auto it = needed_.find(v);
      if (it == needed_.end() || !it->second.count(k)) continue;
      if (v->constant.defined()) {
        at[v] = s.graph.add_constant(v->constant);
      } else if (!is_computed_in(v, k)) {
        s.graph.inputs.push_back(at[v] = s.graph.add_value_like(*v));
        s.inputs.push_back(v);
      }
    }
    for (auto& n : g_.nodes) {
      auto it = places_.find(n.get());
      if (it == places_.end() || !it->second.count(k)) continue;
      op::Args args = n->args.clone();
      args.each_tensor([&](size_t, Tensor& t) {
        if (t.defined()) t = at.at(value_of(t))->tensor;
      });
      std::vector<Value*> results;
      for (auto* r : n->results) results.push_back(at[r] = s.graph.add_value_like(*r));
      At place(n->place);
      s.graph.add_node(*n->op, args.values(), results);
    }
    auto gives = [&](const Value* v) {
      s.outputs.push_back(v);
      s.graph.outputs.push_back(v ? at.at(v) : nullptr);
    };
    if (k == last_ && divides_histories()) {
      for (auto& n : g_.nodes)
        for (auto* r : n->results)
          if (outputs_.count(r) && is_computed_in(r, k)) gives(r);
      return;
    }
    if (k == last_) {
      for (auto* v : g_.outputs) gives(v);
      s.graph.results = g_.results;
      for (auto& [i, v] : g_.mutated) {
        auto* input = g_.inputs[size_t(i)];
        auto number = std::find(s.inputs.begin(), s.inputs.end(), input) - s.inputs.begin();
        s.graph.mutated.push_back({int(number), at.at(v)});
      }
      return;
    }
    for (auto& n : g_.nodes)
      for (auto* r : n->results)
        if (is_computed_in(r, k) && leaves(r, k)) gives(r);
  }
  // True if the value is read where it is not computed: by a call after its segment, or in a later segment.
  bool leaves(const Value* v, int k) const {
    if (outputs_.count(v) && !is_computed_in(v, last_)) return true;
    if (auto it = read_after_.find(v); it != read_after_.end() && it->second.count(k)) return true;
    auto it = needed_.find(v);
    return it != needed_.end() && std::any_of(it->second.begin(), it->second.end(),
                                              [&](int s) { return s > k && !is_computed_in(v, s); });
  }

  void find_dead(std::vector<Segment>& all) {
    std::set<const Value*> read(outputs_.begin(), outputs_.end());
    read.insert(inside_.begin(), inside_.end());
    for (size_t k = all.size(); k-- > 0;) {
      auto look = [&](const Value* v) {
        if (v && v->producer && read.insert(v).second) all[k].dead.push_back(v);
      };
      for (auto* n : all[k].calls)
        for (auto* v : operands(*n)) look(v);
      for (auto* v : all[k].inputs) look(v);
    }
  }

  const Graph& g_;
  std::unordered_set<const Value*> inside_;   // behind these a segment ends
  std::unordered_set<const Value*> behind_;   // a gradient flows back to these from a result
  std::unordered_set<const Value*> outputs_;  // results that any segment may give
  int last_ = 0;
  std::unordered_map<const Value*, int> depths_;
  std::unordered_map<const Node*, std::set<int>> used_;
  std::unordered_map<int, const Value*> shown_by_;  // by symbol
  std::unordered_map<const Value*, Segments> needed_,
      read_after_;  // read_after_: segments after which a call reads it
  std::unordered_map<const Node*, Segments> places_;
  std::unordered_map<int, std::set<int>> needed_symbols_;  // by segment
};

}  // namespace

bool has_run_time_sizes(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](auto& n) { return is_data_dependent(*n); });
}

std::vector<const Value*> inside_histories(const Graph& g, std::span<Value* const> candidates,
                                           std::span<Value* const> ends) {
  auto behind = values_behind(ends);
  std::unordered_set<const Value*> read;
  for (auto& n : g.nodes)
    if (passes_gradient(*n, behind))
      for (auto* v : operands(*n)) read.insert(v);
  std::vector<const Value*> inside;
  for (auto* v : candidates)
    if (v && behind.count(v) && read.count(v)) inside.push_back(v);
  return inside;
}

std::vector<Segment> segments(const Graph& g, std::span<const Value* const> inside) {
  return Splitter(g, inside).run();
}

}  // namespace facula::graph
