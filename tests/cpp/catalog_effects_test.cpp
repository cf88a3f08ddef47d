// What operators declare to do besides computing results, against what their definitions do.
#include <gtest/gtest.h>

#include "facula/catalog/catalog.h"
#include "facula/op/registry.h"
#include "facula/run/trace_call.h"
#include "facula/schedule/fuse.h"
#include "instances.h"

using namespace facula;
using namespace facula::test;

namespace {

// Does the call look at elements? In a trace there are none.
bool reads_data(const op::Operator& o, std::span<const op::Value> args) {
  try {
    auto graph = run::trace_call(o, args, {});
    return std::ranges::any_of(graph.nodes, [](auto& n) { return n->op->effects.reads_data; });
  } catch (const Error& e) { return e.message().find("has no data") != std::string::npos; }
}

// Does a kernel of the call refuse elements? Not of one that float64 does not serve.
bool has_check(const op::Operator& o, std::span<const op::Value> args) {
  loop::Definition d;
  try {
    d = schedule::lower(o, args);
  } catch (const Error&) { return false; }
  bool found = false;
  auto look = [&](loop::Expr e) { found |= e->kind == loop::Kind::check || e->kind == loop::Kind::divisor; };
  for (auto& v : d.values) loop::visit(v, look);
  if (!d.scatter) return found;
  loop::visit(d.scatter->value, look);
  for (auto& t : d.scatter->target) loop::visit(t, look);
  return found;
}

// Calls f(operator, arguments) on the samples of every operator of the catalog that `chosen` holds for.
template <class Chosen, class F>
void each_sample(Chosen chosen, F f) {
  catalog::load();
  for (auto* o : op::all())
    for (auto& sample : o->samples()) {
      Instance x;
      if (chosen(*o) && instantiate(*o, sample, x)) f(*o, x.args);
    }
}

TEST(Effects, WhatReadsDataSaysSo) {
  each_sample([](auto& o) { return o.calls() && !o.effects.reads_data; },
              [](auto& o, auto& args) { EXPECT_FALSE(reads_data(o, args)) << o.schema.full_name(); });
}

TEST(Effects, WhatChecksItsElementsSaysSo) {
  each_sample(
      [](auto& o) {
        return (o.template is<op::Pointwise>() || o.template is<op::Loop>()) && !o.effects.checks_elements;
      },
      [](auto& o, auto& args) { EXPECT_FALSE(has_check(o, args)) << o.schema.full_name(); });
}

TEST(Effects, WhatTakesAGeneratorDraws) {
  catalog::load();
  for (auto* o : op::all())
    EXPECT_TRUE(o->schema.index_of("generator") < 0 || o->effects.draws) << o->schema.full_name();
}

}  // namespace
