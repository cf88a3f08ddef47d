#include "facula/run/pipeline.h"

#include <algorithm>
#include <chrono>

#include "facula/base/log.h"
#include "facula/codegen/background.h"
#include "facula/run/layout.h"
#include "facula/run/plan.h"

namespace facula::run::pipeline {

namespace {

// Runs one pass and logs the time that it took.
template <class F>
auto pass(const char* pass_name, const std::string& name, F&& f) {
  if (!log_on(Log::passes)) [[likely]]
    return f();
  struct Timer {
    ~Timer() {
      auto spent = std::chrono::steady_clock::now() - start;
      auto us = std::chrono::duration_cast<std::chrono::microseconds>(spent).count();
      log_line(Log::passes, name + ": " + pass_name + " took " + std::to_string(us) + " us");
    }
    const char* pass_name;
    const std::string& name;
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  } timer{pass_name, name};
  return f();
}

// The graph with the bodies of composites in place of their calls.
graph::Graph with_bodies(graph::Graph g, const std::string& name) {
  bool expands = std::any_of(g.nodes.begin(), g.nodes.end(), [](auto& n) { return n->op->calls(); });
  if (expands) g = pass("expand", name, [&] { return graph::expanded(g, g.shapes); });
  return g;
}

std::string name_of(const loop::LazyNest& n) { return n.kernel() ? n.kernel()->shown : n.nest().name; }

}  // namespace

graph::Graph trace(std::shared_ptr<sym::Shapes> shapes, std::span<const graph::InputSpec> inputs,
                   const graph::Function& f, const std::string& name) {
  return pass("trace", name, [&] { return graph::trace(std::move(shapes), inputs, f, name.c_str()); });
}

graph::Joint differentiate(const graph::Graph& forward, const std::vector<int>& wrt,
                           const std::string& name) {
  return pass("differentiate", name, [&] { return graph::differentiate(forward, wrt); });
}

graph::Partition partition(const graph::Joint& joint, const std::string& name) {
  auto p = pass("partition", name, [&] { return graph::partition(joint); });
  if (std::ranges::none_of(p.forward.nodes, [](auto& n) { return chooses_order(*n); })) return p;
  p.forward = with_bodies(std::move(p.forward), name);
  p.backward = with_bodies(std::move(p.backward), name);
  pass("place saved values", name, [&] { place_saved_values(p); });
  return p;
}

graph::Graph simplify(graph::Graph g, const std::string& name) {
  g = with_bodies(std::move(g), name);
  pass("merge equal", name, [&] { graph::merge_equal(g); });
  pass("rematerialize", name, [&] { graph::rematerialize(g); });
  return g;
}

std::vector<schedule::Step> fuse(const graph::Graph& g, const std::string& name) {
  auto steps = pass("fuse", name, [&] { return schedule::fuse(g, schedule::Between::exact); });
  pass("analyse", name, [&] {
    for (auto& step : steps) {
      if (step.kind != schedule::Step::Kind::kernel) continue;
      step.each_element_alone = treats_each_element_alone(step.group);
      step.analysed = schedule::analysed(step.group);
    }
  });
  return steps;
}

schedule::Schedule schedule(const schedule::Group& group, schedule::Layout layout,
                            std::shared_ptr<const schedule::AnalysedGroup> analysis) {
  return pass("schedule", group.name,
              [&] { return schedule::schedule(group, std::move(layout), std::move(analysis)); });
}

std::vector<const codegen::Kernel*> kernels(const Nests& nests) {
  Nests missing;
  for (auto& n : nests)
    if (!n->compiled()) missing.push_back(n);
  if (missing.size() > 1) codegen::expect({missing.begin() + 1, missing.end()});
  std::vector<const codegen::Kernel*> all;
  for (auto& n : nests)
    all.push_back(n->compiled() ? codegen::kernel(*n)
                                : pass("kernel", name_of(*n), [&] { return codegen::kernel(*n); }));
  return all;
}

}  // namespace facula::run::pipeline
