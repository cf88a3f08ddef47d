#include "facula/run/interpose.h"

#include <unordered_map>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/base/per_thread.h"
#include "facula/op/origin.h"
#include "facula/op/registry.h"

namespace facula::run {

using op::Form;
using op::Operator;
using op::Results;
using op::Value;

namespace {
FindInterposer source = nullptr;

struct Exceptions {
  std::span<const Decomposition> decompositions;
  bool (*is_one_call)(const Operator&) = nullptr;
} exceptions;

// How interposers see an operator, if its kind does not say it.
struct Exception {
  const Parts* parts = nullptr;
  bool one_call = false;
};

const Exception* exception_of(const Operator& o) {
  static const auto by_operator = [] {
    std::unordered_map<const Operator*, Exception> all;
    for (auto& d : exceptions.decompositions) all[&op::get(d.op)].parts = &d.parts;
    for (auto* o : op::all())
      if (exceptions.is_one_call(*o)) all[o].one_call = true;
    return all;
  }();
  auto it = by_operator.find(&o);
  return it == by_operator.end() ? nullptr : &it->second;
}

// Factorizations read their codes of errors if they are asked to.
bool checks_errors(const Invocation& call) {
  int k = call.op.schema.index_of("check_errors");
  return k >= 0 && call.call().flag("check_errors");
}

bool is_operand(const Tensor& t, std::span<const Value> args) {
  return op::any_tensor(args, [&](TensorImpl* operand) { return operand == t.impl(); });
}
struct Taken {
  uint64_t calls = 0;
};
}  // namespace

uint64_t interposed_calls() { return per_thread<Taken>().calls; }

void set_interposer_source(FindInterposer find) {
  source = find;
  set_in_use(Interceptor::interposed);
}

Interposer* find_interposer(std::span<const Value> args, std::span<const Tensor> out) {
  return source ? source(args, out) : nullptr;
}

void set_decompositions(std::span<const Decomposition> all, bool (*is_one_call)(const Operator&)) {
  exceptions = {all, is_one_call};
}

bool is_seen_as_one_call(const Invocation& call, const Parts*& parts) {
  auto& o = call.op;
  auto* exception = exception_of(o);
  bool one_call = exception && exception->one_call;
  parts = exception ? exception->parts : nullptr;
  if (parts && call.form == Form::functional) return false;
  parts = nullptr;
  if (!o.calls()) return true;
  bool recording = call.recording && o.differentiable;
  bool writes = call.form != Form::functional || o.schema.mutates();
  if (recording && !o.vjp && (writes || o.effects.draws)) return false;
  if (o.effects.draws) return one_call;
  if (auto* composite = o.as<op::Composite>())  // a traced program has no name to be called by
    return !composite->in_parts && op::is_found(o);
  // A procedure that cannot be traced has no gradient as one call.
  bool traceable = !o.has_number_operands() && !o.effects.reads_data && !checks_errors(call);
  return one_call && (!recording || o.vjp || traceable);
}

Results interposed_results(const Invocation& call) {
  ++per_thread<Taken>().calls;
  Results results;
  {
    autograd::GradMode off(false);
    results = call.interposer->take(call.op, call.args, call.form, call.out);
  }
  if (call.form == Form::functional) {
    // A result that is an operand, or that another call made, keeps its own history.
    for (size_t k = 0; k < results.size(); ++k) {
      auto& t = results[k];
      if (t.defined() && !call.op.schema.mutates() &&
          (is_operand(t, call.args) || t.impl()->has_node || t.impl()->requires_grad))
        t = t.detached();
    }
    return results;
  }
  results = {};
  if (call.form == Form::in_place) results.push_back(call.self());
  else
    for (auto& t : call.out) results.push_back(t);
  return results;
}

}  // namespace facula::run
