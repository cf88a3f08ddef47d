// Reads a printed graph by calling its operators in a trace. The declared results are compared with what the
// operators' rules give, and never trusted.
#include <algorithm>
#include <limits>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/autograd/formula.h"
#include "facula/graph/function.h"
#include "facula/graph/graph.h"
#include "facula/graph/parse_operators.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/reader.h"
#include "facula/op/registry.h"
#include "facula/op/views.h"
#include "facula/sym/parse.h"
#include "facula/sym/run_time.h"
#include "facula/sym/substitute.h"

namespace facula::graph {

namespace {

using op::Type;

bool same(SymSpan a, SymSpan b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), SymInt::surely_equal);
}

class Parser final : OperatorReader {
 public:
  Parser(std::string_view text, int depth, const Objects& objects) : OperatorReader(text, depth, objects) {}

 public:
  Graph parse() {
    sym::ExpressionLimit sizes(4096 + 4 * text_.size());
    read_sizes();
    auto specs = inputs();
    // Composites with a gradient rule remain one call, as when the text was written.
    auto body = [&](std::span<const Tensor> inputs) {
      KeepRules keep;
      for (size_t i = 0; i < inputs.size(); ++i) {
        define(ids_[i], inputs[i]);
        if (held_[i]) hold(inputs[i]);
      }
      while (!accept_word("return")) line();
      return results(inputs);
    };
    autograd::GradMode history(true);
    op::Mode::With outside(nullptr);
    Graph g = [&] {
      try {
        return trace(shapes_, specs, body, "graph");
      } catch (const Error& e) {
        if (e.op() == "parse_graph") throw;
        fail(e.message());  // error of an operator that the text calls
      }
    }();
    g.renumber();
    return g;
  }

 private:
  std::vector<InputSpec> inputs() {
    if (!accept_word("graph")) fail("expected graph(");
    expect('(');
    std::vector<InputSpec> specs;
    while (!accept(')')) {
      ids_.push_back(id());
      expect(':');
      auto t = type();
      if (std::any_of(t.sizes.begin(), t.sizes.end(), sym::is_run_time))
        fail("an input has a size that a call gives");
      specs.push_back({t.dtype, t.sizes, t.strides, t.number});
      held_.push_back(t.held);
      if (accept(',')) continue;
      expect(')');
      break;
    }
    return specs;
  }
  // ---- a line of the body
  void line() {
    skip();
    if (at_ >= text_.size()) fail("expected return");
    if (text_[at_] == '%' || text_[at_] == '=') return node();
    if (accept_word("size")) {  // was read before
      at_ = std::min(text_.find('\n', at_), text_.size());
      return;
    }
    if (accept_word("requires")) return guard();
    if (accept_word("phase")) {
      place_.phase = int(plain(0, 1 << 20));
      return;
    }
    if (accept_word("checkpoint")) {
      place_.checkpoint = int(plain(0, 1 << 20));
      return;
    }
    derived();
  }
  void guard() {
    using Relation = sym::Guard::Relation;
    sym::Guard g;
    g.left = integer();
    skip();
    static constexpr std::pair<std::string_view, Relation> kAll[] = {{"==", Relation::eq},
                                                                     {"!=", Relation::ne},
                                                                     {">=", Relation::ge},
                                                                     {"<", Relation::lt}};
    auto rest = text_.substr(at_);
    auto* relation =
        std::find_if(std::begin(kAll), std::end(kAll), [&](auto& r) { return rest.starts_with(r.first); });
    if (relation == std::end(kAll)) fail("expected ==, !=, < or >=");
    at_ += relation->first.size();
    g.relation = relation->second;
    g.right = integer();
    shapes_->guard(g);
  }
  // %3: float32[2], %4: int64[2] = op(...), or = op(...) without results, or %3: float64[] number = constant 0.5
  void node() {
    std::vector<std::pair<int, TensorType>> declared;
    if (!next_is('=')) do {
        int n = id();
        expect(':');
        declared.emplace_back(n, type());
      } while (accept(','));
    expect('=');
    if (accept_word("constant")) {
      if (declared.size() != 1 || !declared[0].second.number)
        fail("the elements of a constant are not in the text");
      Tensor number = op::wrapped_number(this->number(Type::Scalar));
      agree(declared[0], number);
      return define(declared[0].first, number);
    }
    auto& o = op();
    size_t from = at_;
    auto args = arguments(o, [&] { return value(); });
    std::swap(from, at_);  // errors refer to the call
    if (auto* f = function_of(o)) check_function(*f, args);
    At there(place_);
    op::CallLimit limit(std::max(int64_t(declared.size()), kMostInside + ++calls_));
    bool cuts = o.is<op::DataDependent>() && !declared[0].second.sizes.empty();
    DeclaredSize size(cuts ? &declared[0].second.sizes[0] : nullptr);
    if (cuts && size.now()->is_symbolic() && !result_sizes_.insert(size.now()->identity()).second)
      fail("another call gives this size already");
    auto results = op::call(o, args.values());
    if (results.size() != declared.size())
      fail("the operator has " + std::to_string(results.size()) + " results");
    for (size_t k = 0; k < results.size(); ++k) {
      agree(declared[k], results[k]);
      define(declared[k].first, results[k]);
      if (declared[k].second.held) hold(results[k]);
    }
    at_ = from;
  }
  void agree(const std::pair<int, TensorType>& said, const Tensor& t) {
    auto& s = said.second;
    bool agrees = t.defined() && t.dtype() == s.dtype && same(t.sizes(), s.sizes);
    bool empty =
        std::any_of(s.sizes.begin(), s.sizes.end(), [](SymInt n) { return !n.is_symbolic() && n == 0; });
    for (
        size_t d = 0; agrees && !empty && d < s.sizes.size();
        ++d)  // strides of single elements are meaningless; symbolic ones can have several forms, and the operator's form is used
      agrees = s.sizes[d].hint() == 1 || t.strides()[d].hint() == s.strides[d].hint();
    if (agrees) return;
    std::ostringstream actual;
    if (t.defined()) actual << t.dtype() << to_string(t.sizes()) << " strides " << to_string(t.strides());
    else actual << "None";
    fail("%" + std::to_string(said.first) + " is " + actual.str() + " by its operator");
  }
  // ---- return %1, None  mutates input 0 = %2
  std::vector<Tensor> results(std::span<const Tensor> inputs) {
    std::vector<Tensor> outputs;
    auto more = [&] { return !is_word("mutates") && at_ < text_.size(); };
    skip();
    if (more()) do {
        outputs.push_back(accept_word("None") ? Tensor() : value());
      } while (accept(','));
    std::vector<std::pair<size_t, Tensor>> written;
    while (accept_word("mutates")) {
      if (!accept_word("input")) fail("expected input");
      auto i = size_t(plain(0, int64_t(inputs.size()) - 1));
      expect('=');
      const Tensor& v = value();
      if (v.dtype() != inputs[i].dtype() || !same(v.sizes(), inputs[i].sizes()))
        fail("the input is of another type");
      if (!v.is_traced()) fail("a constant is written");
      for (auto& w : written)
        if (w.first == i) fail("the input is written twice");
      written.emplace_back(i, v);
    }
    skip();
    if (at_ != text_.size()) fail("unexpected text");
    finish(inputs, written, outputs);
    return outputs;
  }
  static void finish(std::span<const Tensor> inputs, const std::vector<std::pair<size_t, Tensor>>& written,
                     std::vector<Tensor>& outputs) {
    // An output that is an unchanged input is no longer the current value of that input.
    std::vector<Value*> values;
    for (auto& w : written) values.push_back(value_of(w.second));
    for (auto& t : outputs)
      for (auto& w : written)
        if (t.defined() && t.impl() == inputs[w.first].impl()) t = value_of(t)->tensor;
    for (size_t k = 0; k < written.size(); ++k) inputs[written[k].first].impl()->traced = values[k];
  }

  static constexpr int64_t kMostInside = 4096;  // most views, and most calls of a composite that is one node
  int64_t calls_ = 0;                           // number of calls that the text made

  Place place_;
  std::vector<int> ids_;                       // numbers of the inputs
  std::vector<bool> held_;                     // by input
  std::unordered_set<uint64_t> result_sizes_;  // sizes that are results of calls
};

}  // namespace

Graph parse_nested(std::string_view text, int depth, const Objects& objects) {
  return Parser(text, depth, objects).parse();
}
Graph parse_graph(std::string_view text, const Objects& objects) { return parse_nested(text, 0, objects); }
Graph parse_graph(std::string_view text) { return parse_nested(text, 0); }

}  // namespace facula::graph
