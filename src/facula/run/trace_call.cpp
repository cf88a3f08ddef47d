#include "facula/run/trace_call.h"

#include "facula/autograd/autograd.h"
#include "facula/graph/trace.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/run/graph_body.h"
#include "facula/run/pipeline.h"
#include "facula/run/write.h"

namespace facula::run {

using op::Operator;
using op::Tag;
using op::Value;

Key trace_key(const Operator& o, std::span<const Value> args, std::span<const Tensor> out, Purpose purpose) {
  Key key{uint64_t(default_dtype()) | uint64_t(purpose) << 8};
  auto append_tensor = [&](const TensorImpl* t) {
    key.push_back(t ? uint64_t(t->dtype) << 1 | 1 | uint64_t(t->wrapped_number) << 8 |
                          uint64_t(t->sizes.size()) << 16
                    : 0);
  };
  for (size_t k = 0; k < args.size(); ++k) {
    auto& v = args[k];
    key.push_back(uint64_t(v.tag));
    if (v.tag == Tag::tensor) {
      append_tensor(v.tensor);
    } else if (v.tag == Tag::tensors) {
      key.push_back(v.list.count);
      for (auto* t : v.tensors()) append_tensor(t);
    } else if (is_run_time_number(o, k, v)) {
      key.push_back(uint64_t(op::operand_dtype(v)));
    } else {
      op::append_attributes(key, args.subspan(k, 1));
    }
  }
  for (auto& t : out) key.push_back(t.defined() ? uint64_t(t.dtype()) + 1 : 0);
  return key;
}

namespace {

std::vector<graph::InputSpec> specs_of(const Operator& o, const Operands& operands, sym::Shapes& shapes) {
  if (auto* body = graph_body(o); body && body->is_piece()) return body->specs(operands.values, shapes);
  auto* composite = o.as<op::Composite>();
  bool exact = composite && composite->exact_sizes;
  std::vector<graph::InputSpec> specs;
  for (auto& v : operands.values) {
    if (v.tag != Tag::tensor) {
      specs.push_back({op::operand_dtype(v), {}, {}, true});
      continue;
    }
    Tensor t(Ref<TensorImpl>::share(v.tensor));
    specs.push_back(exact ? graph::spec_of(t) : graph::symbolic_spec(t, shapes));
  }
  return specs;
}

// The arguments of a call with other operands.
class ReplacedOperands {
 public:
  ReplacedOperands(std::span<const Value> args, const Operands& operands,
                   std::span<const Tensor> replacements)
      : args_(args.begin(), args.end()), lists_(args.size()) {
    for (size_t i = 0; i < replacements.size(); ++i) {
      size_t k = operands.position[i] >> 16, item = operands.position[i] & 0xffff;
      if (args[k].tag != Tag::tensors) {
        args_[k] = Value(replacements[i]);
        continue;
      }
      auto& list = lists_[k];
      if (list.empty()) {
        auto items = args[k].tensors();
        list.assign(items.begin(), items.end());
        args_[k] = Value(std::span<TensorImpl* const>(list));
      }
      list[item] = replacements[i].impl();
    }
  }
  std::span<const Value> args() const { return args_; }

 private:
  std::vector<Value> args_;
  std::vector<std::vector<TensorImpl*>> lists_;
};

// Casts results to the dtypes of their destinations. The results of other operators have been checked by the form of the call.
void cast_to_destinations(const Operator& o, std::span<const Value> args, std::span<const Tensor> out,
                          std::vector<Tensor>& results) {
  for (size_t k = 0; k < results.size() && k < out.size(); ++k) {
    if (!out[k].defined() || out[k].dtype() == results[k].dtype()) continue;
    if (o.calls()) check_conversion(o, results[k].dtype(), out[k].dtype(), args, results.size() > 1);
    Value cast[] = {results[k], out[k].dtype()};
    results[k] = op::call(op::get("to_dtype"), cast)[0];
  }
}

}  // namespace

graph::Graph trace_call(const Operator& o, std::span<const Value> args, std::span<const Tensor> out,
                        Composites composites) {
  Key key;
  Operands operands;
  key_of(o, args, Purpose::functional, key, operands);
  auto shapes = std::make_shared<sym::Shapes>();
  auto specs = specs_of(o, operands, *shapes);
  auto traced = [&](std::span<const Tensor> inputs) {
    using Rules = graph::KeepRules;
    Rules rules(composites == Composites::nodes ? Rules::now() : Rules::none);
    auto results = op::call(o, ReplacedOperands(args, operands, inputs).args()).to_vector();
    cast_to_destinations(o, args, out, results);
    return results;
  };
  try {
    return pipeline::trace(shapes, specs, traced, o.name());
  } catch (const Error& e) {
    // The error of a trace names symbols. Made call by call, the composite raises the error with the sizes.
    auto* body = graph_body(o);
    bool writes = body && body->is_piece() ? body->writes() : o.effects.writes;
    if (o.calls() && e.kind() != ErrorKind::internal && !writes) {
      autograd::GradMode off(false);
      (*o.calls())(op::Call(o, args));
    }
    throw;
  }
}

}  // namespace facula::run
