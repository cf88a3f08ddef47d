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

using autograd::Derivation;
using op::Type;

struct TensorType {
  DType dtype = DType::Float32;
  Dims sizes, strides;
  bool number = false;
};

bool same(SymSpan a, SymSpan b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), SymInt::surely_equal);
}

class Parser final : op::Reader {
 public:
  // `depth`: nesting of gradients of functions.
  explicit Parser(std::string_view text, int depth = 0)
      : Reader(text), shapes_(std::make_shared<sym::Shapes>()), depth_(depth) {}

  Graph parse() {
    sym::ExpressionLimit sizes(4096 + 4 * text_.size());
    read_sizes();
    auto specs = inputs();
    // Composites with a gradient rule remain one call, as when the text was written.
    auto body = [&](std::span<const Tensor> inputs) {
      KeepRules keep;
      for (size_t i = 0; i < inputs.size(); ++i) define(ids_[i], inputs[i]);
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
  [[noreturn]] void fail(std::string_view what) const override {
    auto before = text_.substr(0, std::min(at_, text_.size()));
    auto begin = before.rfind('\n') + 1;  // 0 if there is none
    auto shown = text_.substr(begin, text_.substr(begin).find('\n')).substr(0, 200);
    value_check(false, "parse_graph") << "line " << 1 + std::count(before.begin(), before.end(), '\n')
                                      << ", character " << at_ - begin << ", " << what << ": " << shown;
    __builtin_unreachable();
  }

  SymInt integer() override {
    skip();
    auto rest = text_.substr(at_);
    try {
      SymInt s = sym::parse_size(rest, [&](std::string_view name) { return symbol(name); });
      at_ = text_.size() - rest.size();
      return s;
    } catch (const Error& e) {
      at_ = text_.size() - rest.size();
      fail(e.message());
    }
  }
  Dims sizes() {
    Dims all;
    expect('[');
    while (!accept(']')) {
      all.push_back(integer());
      if (all.size() > 64) fail("no tensor has more than 64 dimensions");
      if (accept(',')) continue;
      expect(']');
      break;
    }
    return all;
  }
  int64_t plain(int64_t low, int64_t high) {
    size_t from = at_;
    int64_t n = number(Type::Int).to_int();
    if (n < low || n > high) {
      at_ = from;
      fail("expected a number from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return n;
  }
  template <class T, class F>
  std::vector<T> list(F&& item) {
    std::vector<T> all;
    expect('[');
    while (!accept(']')) {
      all.push_back(item());
      if (accept(',')) continue;
      expect(']');
      break;
    }
    return all;
  }

  // Declarations of symbols follow after the inputs, which use them already.
  void read_sizes() {
    static constexpr std::string_view begin = "\n  size ";
    for (size_t at = text_.find(begin); at != text_.npos; at = text_.find(begin, at + 1)) {
      at_ = at + begin.size();
      std::string name = word("a symbol");
      if (!is_symbol(name)) fail("a symbol is s or u, and a number");
      if (symbol(name)) fail("the symbol is there already");
      if (sym::is_run_time_name(name)) {
        if (!accept_word("from")) fail("expected from");
        plain(0, 0);
        if (!accept_word("to")) fail("expected to");
        symbols_.emplace(name, sym::run_time_size(*shapes_, plain(1, sym::kMostSize), name));
        continue;
      }
      expect('=');
      int64_t hint = plain(0, sym::kMostSize), low = sym::kLeastSize, high = sym::kMostSize;
      if (accept_word("from")) {
        low = plain(-sym::kMostSize, hint);
        if (!accept_word("to")) fail("expected to");
        high = plain(hint, sym::kMostSize);
      } else if (hint < low) {
        fail("a size below its range");
      }
      symbols_.emplace(name, shapes_->fresh(name, hint, low, high));
    }
    at_ = 0;
  }
  const SymInt* symbol(std::string_view name) const {
    auto it = symbols_.find(std::string(name));
    return it == symbols_.end() ? nullptr : &it->second;
  }
  static bool is_symbol(std::string_view name) {
    return name.size() > 1 && (name[0] == 's' || name[0] == 'u') &&
           name.find_first_not_of("0123456789", 1) == name.npos;
  }

  int id() {
    expect('%');
    return int(plain(0, std::numeric_limits<int>::max()));
  }
  void define(int id, const Tensor& t) {
    if (!values_.try_emplace(id, t).second) fail("%" + std::to_string(id) + " is there already");
  }
  const Tensor& value() {
    size_t from = at_;
    auto it = values_.find(id());
    if (it != values_.end()) return it->second;
    at_ = from;
    fail("the value is not there yet");
  }

  TensorType type() {
    TensorType t;
    size_t from = at_;
    std::string dtype = word("a dtype");
    try {
      t.dtype = dtype_from_name(dtype);
    } catch (const Error& e) {
      at_ = from;
      fail(e.message());
    }
    t.sizes = sizes();
    for (auto s : t.sizes)
      if (sym::is_run_time(s) ? s.node()->high < 0 : s.hint() < 0) fail("a negative size");
    if (!is_countable(t.sizes)) fail("a tensor of too many elements");
    if (accept_word("strides")) t.strides = sizes();
    else t.strides = contiguous_strides(t.sizes);
    if (t.strides.size() != t.sizes.size()) fail("as many strides as sizes are expected");
    for (auto s : t.strides)
      if (s.hint() < 0) fail("a negative stride");
    t.number = accept_word("number");
    if (accept_word("on")) fail("only values on the CPU are supported");
    return t;
  }
  static Tensor without_data(const TensorType& t) {
    Tensor tensor(make_ref<TensorImpl>(Storage(), t.sizes, t.strides, SymInt(), t.dtype, Device{}));
    tensor.impl()->wrapped_number = t.number;
    return tensor;
  }

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
    if (text_[at_] == '%') return node();
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

  // Parses an operator between = and (: one of the registry, or a derived one by its number.
  const op::Operator& op() {
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
      fail("no operator has this name");
    }
    if (!is_recorded(*o)) {
      at_ = from;
      fail("no graph has calls of this operator");
    }
    return *o;
  }
  // True if a trace records the operator as a node. Other operators are traced by the calls of their bodies, which
  // might look at elements.
  static bool is_recorded(const op::Operator& o) {
    auto* foreign = o.as<op::Foreign>();
    bool calls = o.is<op::Procedure>() || (o.is<op::Composite>() && !o.vjp) ||
                 (foreign && foreign->functions->is_composite());
    return !calls && (!o.effects.reads_data || o.is<op::DataDependent>()) && !o.schema.mutates();
  }

  // name#1 = ...: declares a derived operator for the following calls
  void derived() {
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

  // Consumes `what` if the text continues with it; whitespace is significant.
  bool behind(std::string_view what) {
    bool is = text_.substr(std::min(at_, text_.size())).starts_with(what);
    if (is) at_ += what.size();
    return is;
  }
  std::vector<bool> flags(size_t count) {
    auto all = list<bool>([&] { return number(Type::Bool).to_bool(); });
    if (all.size() != count) fail("expected " + std::to_string(count) + " items");
    return all;
  }

  // 1 inputs, 1 results, 1 reads, materialize, followed by lines with the gradients (function.h)
  const op::Operator& function(const std::string& name) {
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
        g.graph = inner(f.inputs,
                        f.reads + f.results + size_t(std::count(g.defined.begin(), g.defined.end(), true)));
      }
    }
    return operator_of(std::move(f));
  }
  // A nested graph on separate lines, indented further.
  std::shared_ptr<const Graph> inner(size_t outputs, size_t inputs) {
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
      auto g = std::make_shared<const Graph>(Parser(lines, depth_ + 1).parse());
      if (g->inputs.size() == inputs && g->outputs.size() == outputs && g->mutated.empty()) return g;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::internal) throw;
      what = "in the gradient: " + e.message();
    }
    at_ = from + 1;
    fail(what);
  }

  // True if the graph's inputs match these tensors, which must determine all of its symbols.
  static bool takes(const Graph& g, const std::vector<const Tensor*>& tensors) {
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
  // Checks that the tensors of a call of a function are the ones that its gradients take.
  void check_function(const UserFunction& f, const op::Args& args) {
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

  // gradient of name(types) wanted [...] given [...] piece 0
  const op::Operator& gradient() {
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

  const op::Operator& derived_from(const Derivation& d) {
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
    auto f = fits ? autograd::formula_of(op::Call(o, d.args.values()), d.wanted, d.grads) : nullptr;
    auto* gradient = !f                                   ? nullptr
                     : d.piece < 0                        ? f->derived
                     : size_t(d.piece) < f->pieces.size() ? f->pieces[size_t(d.piece)].derived
                                                          : nullptr;
    if (!gradient) fail(o.schema.full_name() + " has no such gradient");
    return *gradient;
  }

  // %3: float32[2], %4: int64[2] = op(...), or %3: float64[] number = constant 0.5
  void node() {
    std::vector<std::pair<int, TensorType>> declared;
    do {
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

  template <class F>
  op::Args arguments(const op::Operator& o, F&& tensor) {
    std::vector<op::Args> attributes;
    std::vector<std::vector<TensorImpl*>> lists(o.schema.parameters.size());
    std::vector<Tensor> held;
    std::vector<op::Value> values;
    expect('(');
    for (size_t k = 0; k < o.schema.parameters.size(); ++k) {
      auto& p = o.schema.parameters[k];
      auto one = [&]() -> TensorImpl* {
        if (accept_word("None")) return nullptr;
        held.push_back(tensor());
        return held.back().impl();
      };
      if (k) expect(',');
      if (p.type != Type::Tensor) {
        if (!accept_word(p.name)) fail("expected " + p.name + "=");
        expect('=');
        if (p.is_number_operand() && next_is('%')) {
          values.push_back(one());
          continue;
        }
        attributes.push_back(is_expression(p) ? of_size() : attribute(p));
        values.push_back(attributes.back()[0]);
        continue;
      }
      if (p.list && next_is('[')) {
        lists[k] = list<TensorImpl*>(one);
        values.push_back(std::span<TensorImpl* const>(lists[k]));
      } else if (is_number()) {
        attributes.push_back(is_expression(p) ? of_size() : scalar());
        values.push_back(attributes.back()[0]);
      } else {
        values.push_back(one());
      }
    }
    expect(')');
    return op::Args(values, o.schema);
  }
  // True if the next argument is a number computed from sizes, such as s0*2.
  bool is_expression(const op::Parameter& p) {
    if (p.type != Type::Scalar && p.type != Type::Tensor && p.type != Type::Float) return false;
    skip();
    auto rest = text_.substr(at_);
    if (rest.starts_with("min(") || rest.starts_with("max(")) return true;
    rest = rest.substr(0, rest.find_first_of(",\n"));
    for (size_t at = 0; at < rest.size();) {
      size_t end = at;
      while (end < rest.size() && in_word(rest[end])) ++end;
      if (is_symbol(rest.substr(at, end - at))) return true;
      at = end + 1;
    }
    return false;
  }
  bool is_number() {
    skip();
    return at_ < text_.size() &&
           (std::isdigit(uint8_t(text_[at_])) ||
            std::string_view("-(").find(text_[at_]) != std::string_view::npos || is_word("True") ||
            is_word("False") || is_word("inf") || is_word("nan") || is_expression({}));
  }
  bool is_word(std::string_view w) {
    size_t from = at_;
    bool is = accept_word(w);
    at_ = from;
    return is;
  }
  op::Args of_size() {
    op::Value v(integer());
    return op::Args(std::span<const op::Value>(&v, 1));
  }
  op::Args scalar() {
    op::Value v(number(Type::Scalar));
    return op::Args(std::span<const op::Value>(&v, 1));
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

  std::shared_ptr<sym::Shapes> shapes_;
  std::unordered_map<std::string, SymInt> symbols_;
  int depth_;
  Place place_;
  std::vector<int> ids_;  // numbers of the inputs
  std::unordered_map<int, Tensor> values_;
  std::unordered_set<uint64_t> result_sizes_;  // sizes that are results of calls
  std::unordered_map<std::string, const op::Operator*> derived_;
};

}  // namespace

Graph parse_graph(std::string_view text) { return Parser(text).parse(); }

}  // namespace facula::graph
