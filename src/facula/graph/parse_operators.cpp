#include "facula/graph/parse_operators.h"

#include <algorithm>
#include <limits>

#include "facula/autograd/autograd.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "facula/sym/substitute.h"

namespace facula::graph {

using autograd::Derivation;
using op::Type;

const op::Operator& OperatorReader::op() {
  skip();
  size_t from = at_;
  size_t end = text_.find('(', at_);
  if (end == text_.npos) fail("expected an operator");
  std::string name(text_.substr(at_, end - at_));
  at_ = end;
  if (auto it = derived_.find(name); it != derived_.end()) return *it->second;
  auto* o = op::find(name);
  if (!o || autograd::derivation_of(*o)) {
    at_ = from;
    bool is_users = name.find("::") != name.npos && name.find_first_of(" \n%[") == name.npos;
    runtime_check(!is_users, "load") << "the program calls " << name << ", which this process does not have"
                                     << hint("load the library that defines it first");
    fail("no operator has this name");
  }
  if (!is_recorded(*o)) {
    at_ = from;
    fail("no graph has calls of this operator");
  }
  return *o;
}

bool OperatorReader::is_recorded(const op::Operator& o) {
  auto* foreign = o.as<op::Foreign>();
  bool calls = o.is<op::Procedure>() || (o.is<op::Composite>() && !o.vjp) ||
               (foreign && foreign->functions->is_composite());
  return !calls && (!o.effects.reads_data || o.is<op::DataDependent>()) && !o.schema.mutates();
}

void OperatorReader::derived() {
  std::string name = word("a value, requires, an operator or return"), plain_name = name;
  expect('#');
  name += "#" + std::to_string(plain(1, std::numeric_limits<int>::max()));
  expect('=');
  const op::Operator* derived = nullptr;
  if (accept_word("function") && accept_word("of")) derived = &function(plain_name);
  else if (accept_word("gradient") && accept_word("of")) derived = &gradient();
  else fail("expected gradient of, or function of");
  if (!derived_.emplace(name, derived).second) fail("the operator is there already");
}

bool OperatorReader::behind(std::string_view what) {
  bool is = text_.substr(std::min(at_, text_.size())).starts_with(what);
  if (is) at_ += what.size();
  return is;
}

std::vector<bool> OperatorReader::flags(size_t count) {
  auto all = list<bool>([&] { return number(Type::Bool).to_bool(); });
  if (all.size() != count) fail("expected " + std::to_string(count) + " items");
  return all;
}

const op::Operator& OperatorReader::function(const std::string& name) {
  if (depth_ >= 8) fail("functions inside of gradients of functions, too deep");
  UserFunction f{name};
  auto counted = [&](const char* what) {
    auto n = size_t(plain(0, 1 << 16));
    if (!accept_word(what)) fail(std::string("expected ") + what);
    return n;
  };
  f.inputs = counted("inputs");
  expect(',');
  f.results = counted("results");
  expect(',');
  f.reads = counted("reads");
  f.materialize = behind(", materialize");
  while (behind("\n    gradient needs ")) {
    f.gradients.push_back({flags(f.inputs), {}, nullptr});
    auto& g = f.gradients.back();
    if (!accept_word("given")) fail("expected given");
    g.defined = flags(f.results);
    if (behind(" refused ")) {
      g.type = ErrorType(plain(0, int64_t(ErrorType::LinAlgError)));
      skip();
      g.refused = this->text();
    } else {
      g.graph =
          inner(f.inputs, f.reads + f.results + size_t(std::count(g.defined.begin(), g.defined.end(), true)));
    }
  }
  return operator_of(std::move(f));
}

std::shared_ptr<const Graph> OperatorReader::inner(size_t outputs, size_t inputs) {
  static constexpr std::string_view begin = "\n      ";
  size_t from = at_;
  std::string lines;
  for (auto rest = text_.substr(at_); rest.starts_with(begin); rest = text_.substr(at_)) {
    size_t end = std::min(rest.find('\n', 1), rest.size());
    lines += rest.substr(begin.size(), end - begin.size());
    lines += '\n';
    at_ += end;
  }
  std::string what = "the gradient has other inputs or outputs, or writes";
  try {
    auto g = std::make_shared<const Graph>(parse_nested(lines, depth_ + 1));
    if (g->inputs.size() == inputs && g->outputs.size() == outputs && g->mutated.empty()) return g;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    what = "in the gradient: " + e.message();
  }
  at_ = from + 1;
  fail(what);
}

bool OperatorReader::takes(const Graph& g, const std::vector<const Tensor*>& tensors) {
  std::vector<SymInt> symbols(g.shapes ? size_t(g.shapes->symbol_count()) : 0, SymInt(int64_t(-1)));
  bool fits = tensors.size() == g.inputs.size();
  for (size_t k = 0; fits && k < tensors.size(); ++k) {
    const Tensor &t = *tensors[k], &taken = g.inputs[k]->tensor;
    fits = t.defined() && t.dtype() == taken.dtype() && t.dim() == taken.dim();
    for (size_t d = 0; fits && d < t.sizes().size(); ++d)
      if (auto s = taken.sizes()[d]; s.is_symbol()) symbols[size_t(s.node()->value)] = t.sizes()[d];
  }
  for (auto s : symbols) fits &= s.is_symbolic() || !(s < SymInt(int64_t(0)));
  for (size_t k = 0; fits && k < tensors.size(); ++k)
    for (size_t d = 0; d < tensors[k]->sizes().size(); ++d)
      fits &= SymInt::surely_equal(sym::substitute(g.inputs[k]->tensor.sizes()[d], symbols),
                                   tensors[k]->sizes()[d]);
  return fits;
}

void OperatorReader::check_function(const UserFunction& f, const op::Args& args) {
  auto& all = args.tensors();
  bool fits = all.size() == f.inputs + f.results + f.reads && args[0].list.count == f.inputs &&
              args[1].list.count == f.results;
  for (auto& g : f.gradients) {
    if (!fits || !g.graph) continue;
    std::vector<const Tensor*> tensors;
    for (size_t k = 0; k < f.reads; ++k) tensors.push_back(&all[f.inputs + f.results + k]);
    for (size_t k = 0; k < f.results; ++k) tensors.push_back(&all[f.inputs + k]);
    for (size_t k = 0; k < f.results; ++k)
      if (g.defined[k]) tensors.push_back(&all[f.inputs + k]);
    fits = takes(*g.graph, tensors);
  }
  if (!fits) fail("the function takes other tensors");
}

const op::Operator& OperatorReader::gradient() {
  Derivation d;
  d.of = &op();
  std::vector<Tensor> tensors;
  d.args = arguments(*d.of, [&] {
    tensors.push_back(without_data(type()));
    return tensors.back();
  });
  if (!accept_word("wanted")) fail("expected wanted");
  for (bool w : list<bool>([&] { return number(Type::Bool).to_bool(); })) d.wanted.push_back(w);
  if (!accept_word("given")) fail("expected given");
  for (auto& g : list<std::optional<DType>>([&]() -> std::optional<DType> {
         if (accept_word("None")) return {};
         return dtype_from_name(word("a dtype"));
       }))
    d.grads.push_back(g);
  d.piece = accept_word("piece") ? int(plain(0, 1 << 20)) : -1;
  return derived_from(d);
}

const op::Operator& OperatorReader::derived_from(const Derivation& d) {
  auto& o = *d.of;
  bool derives = !o.vjp && o.differentiable && (d.piece < 0 ? o.is<op::Pointwise>() : o.is<op::Loop>());
  if (!derives) fail(o.schema.full_name() + " has no such gradient");
  op::Mode::With none(nullptr);
  auto results = infer(o, d.args.values());
  bool fits = d.wanted.size() == d.args.tensors().size() && d.grads.size() == results.size();
  for (size_t k = 0; fits && k < d.wanted.size(); ++k) {
    auto& t = d.args.tensors()[k];
    fits = !d.wanted[k] || (t.defined() && is_differentiable(t.dtype()));
  }
  for (size_t r = 0; fits && r < d.grads.size(); ++r)
    fits = !d.grads[r] ||
           (o.carries_gradient(r) && is_differentiable(results[r].dtype) && is_differentiable(*d.grads[r]));
  auto* gradient = fits ? autograd::gradient_of(d) : nullptr;
  if (!gradient) fail(o.schema.full_name() + " has no such gradient");
  return *gradient;
}

}  // namespace facula::graph
