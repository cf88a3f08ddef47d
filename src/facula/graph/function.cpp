#include "facula/graph/function.h"

#include <algorithm>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "facula/autograd/calls.h"
#include "facula/autograd/forward.h"
#include "facula/base/fork.h"
#include "facula/op/describe.h"
#include "facula/op/registry.h"

namespace facula::graph {

namespace {

class Rule {
 public:
  explicit Rule(std::shared_ptr<const UserFunction> f) : function(std::move(f)) {}
  op::Grads operator()(const op::Vjp& v) const;
  std::shared_ptr<const UserFunction> function;

 private:
  const FunctionGradient& gradient_for(const op::Vjp& v, const std::vector<bool>& defined) const;
};

op::Grads Rule::operator()(const op::Vjp& v) const {
  auto& f = *function;
  supported_check(!autograd::forward_level(), f.name)
      << "is part of a program, which has the gradient that backward gives alone, and is called in a dual level"
      << hint("call the function itself there, or use reverse mode");
  std::vector<Tensor> values, grads;
  std::vector<bool> defined;
  auto outputs = v.call().tensors("outputs");
  for (size_t k = 0; k < f.results; ++k) {
    Tensor g = v.grad(int(k));
    if (!g.defined() && f.materialize)
      g = autograd::filled(0, outputs[k].sizes(), outputs[k].dtype(), outputs[k].device());
    defined.push_back(g.defined());
    if (g.defined()) grads.push_back(g);
  }
  auto& gradient = gradient_for(v, defined);
  for (size_t k = 0; k < f.reads; ++k) values.push_back(v.item("reads", int(k)));
  for (size_t k = 0; k < f.results; ++k) values.push_back(v.result(int(k)));
  values.insert(values.end(), grads.begin(), grads.end());
  auto gradients = interpret(*gradient.graph, values);
  op::Grads all(f.inputs + f.results + f.reads);
  for (size_t k = 0; k < f.inputs; ++k)
    if (v.needs("inputs", int(k))) all[k] = gradients[k];
  return all;
}

const FunctionGradient& Rule::gradient_for(const op::Vjp& v, const std::vector<bool>& defined) const {
  auto& f = *function;
  auto fits = [&](const FunctionGradient& g) {
    for (size_t k = 0; k < f.inputs; ++k)
      if (v.needs("inputs", int(k)) && !g.needs[k]) return false;
    return g.defined == defined;
  };
  auto it = std::find_if(f.gradients.begin(), f.gradients.end(), fits);
  supported_check(it != f.gradients.end(), f.name)
      << "was traced when another choice of its arguments required gradients, or of its results had one"
      << hint("trace the program with tensors that require gradients where they do now");
  if (!it->graph)
    throw Error(ErrorKind::user, it->type, f.name,
                "its backward cannot be part of a program: " + it->refused);
  return *it;
}

void print_flags(std::ostream& s, const std::vector<bool>& flags) {
  s << '[';
  for (size_t k = 0; k < flags.size(); ++k) s << (k ? ", " : "") << (flags[k] ? "True" : "False");
  s << ']';
}

}  // namespace

const op::Operator& operator_of(UserFunction f) {
  static TableMutex mutex;
  static std::unordered_map<std::string, const op::Operator*> operators;
  std::string text = f.name + print(f);
  std::lock_guard lock(mutex);
  auto& entry = operators[text];
  if (entry) return *entry;
  op::Composite outputs{[](const op::Call& c) {
    op::Results results;
    for (auto& t : c.tensors("outputs")) results.push_back(autograd::invoke("detach", {t}));
    return results;
  }};
  auto* o = &op::nameless(f.name + "(Tensor[] inputs, Tensor[] outputs, Tensor[] reads) -> Tensor[]",
                          std::move(outputs));
  o->batched = [](const op::Batched&) {
    return op::Results();
  };  // calls of a batch are made one by one, by the rule
  o->vjp = Rule(std::make_shared<const UserFunction>(std::move(f)));
  return *(entry = o);
}

const UserFunction* function_of(const op::Operator& o) {
  auto* rule = o.vjp.target<Rule>();
  return rule ? rule->function.get() : nullptr;
}

Value* function_output(const Node& n, int k) { return operands(n)[function_of(*n.op)->inputs + size_t(k)]; }

std::string print(const UserFunction& f) {
  std::ostringstream s;
  s << " = function of " << f.inputs << " inputs, " << f.results << " results, " << f.reads << " reads";
  if (f.materialize) s << ", materialize";
  s << '\n';
  for (auto& g : f.gradients) {
    s << "  gradient needs ";
    print_flags(s, g.needs);
    s << " given ";
    print_flags(s, g.defined);
    if (!g.graph) {
      s << " refused " << int(g.type) << ' ';
      op::print_attribute(s, std::string_view(g.refused));
      s << '\n';
      continue;
    }
    s << '\n';
    std::istringstream lines(print(*g.graph));
    for (std::string line; std::getline(lines, line);) s << "    " << line << '\n';
  }
  return s.str();
}

}  // namespace facula::graph
