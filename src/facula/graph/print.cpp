#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>
#include <unordered_set>

#include "facula/autograd/formula.h"
#include "facula/graph/function.h"
#include "facula/graph/objects.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/describe.h"
#include "facula/sym/parse.h"
#include "facula/sym/run_time.h"

namespace facula::graph {

namespace {

using autograd::Derivation;

// True if it is contiguous for all sizes, not only for those of the trace: a comparison would be recorded as a guard.
// `singles`: strides of dimensions of size 1 count as well.
bool is_surely_contiguous(const Tensor& t, bool singles) {
  auto expected = contiguous_strides(t.sizes());
  for (size_t d = 0; d < expected.size(); ++d)
    if ((singles || !SymInt::surely_equal(t.sizes()[d], int64_t(1))) &&
        !SymInt::surely_equal(t.strides()[d], expected[d]))
      return false;
  return true;
}

// Strides of dimensions of size 1 may depend on how a view was made; they are printed like those of a dense tensor,
// except for tensors from outside, where they order the dimensions of results.
Dims shown_strides(const Tensor& t) {
  Dims strides(t.strides());
  for (size_t d = strides.size(); d-- > 0;)
    if (SymInt::surely_equal(t.size(int(d)), 1))
      strides[d] = d + 1 < strides.size() ? strides[d + 1] * t.size(int(d) + 1) : SymInt(int64_t(1));
  return strides;
}

std::string type_of(const Tensor& t, bool exact = true) {
  std::ostringstream s;
  s << t.dtype() << to_string(t.sizes());
  if (!is_surely_contiguous(t, exact))
    s << " strides " << to_string(SymSpan(exact ? Dims(t.strides()) : shown_strides(t)));
  if (t.impl()->wrapped_number) s << " number";
  if (t.device().type != DeviceType::cpu) s << " on " << t.device();
  return s.str();
}

class Printer {
 public:
  explicit Printer(const Lines* lines = nullptr) : lines_(lines) {}
  std::string print(const Graph& g) {
    rounds_ = std::ranges::any_of(g.values(), [](auto& v) { return is_16_bit_float(v->tensor.dtype()); });
    s_ << "graph(";
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      s_ << (i ? ", " : "");
      declare(*g.inputs[i], true);
    }
    s_ << ")\n";
    auto head = s_.str();
    s_.str("");
    body(g);
    auto rest = s_.str();
    return head + (g.shapes ? sizes(*g.shapes, head + rest) : "") + rest;
  }

 private:
  // `exact`: a tensor from outside, whose strides are printed exactly.
  void declare(const Value& v, bool exact) {
    s_ << '%' << v.id << ": " << type_of(v.tensor, exact)
       << (rounds_ && v.held && !v.constant.defined() ? " held" : "");
  }

  void body(const Graph& g) {
    for (auto& v : g.values()) {
      if (!v->constant.defined()) continue;
      s_ << "  ";
      declare(*v, true);
      s_ << " = constant";
      if (v->constant.impl()->wrapped_number) s_ << ' ' << v->constant.item();
      s_ << '\n';
    }
    for (auto& n : g.nodes) number(*n->op);
    Place at;
    for (auto& n : g.nodes) {
      Place before = std::exchange(at, n->place);
      if (at.phase != before.phase) s_ << "  phase " << at.phase << '\n';
      if (at.checkpoint != before.checkpoint) s_ << "  checkpoint " << at.checkpoint << '\n';
      s_ << "  ";
      for (size_t i = 0; i < n->results.size(); ++i) {
        s_ << (i ? ", " : "");
        declare(*n->results[i], false);
      }
      s_ << " = " << name_of(*n->op);
      call(*n->op, n->args, false);
      if (lines_)
        if (auto it = lines_->find(n.get()); it != lines_->end()) s_ << "  # " << to_string(it->second);
      s_ << '\n';
    }
    s_ << "  return ";
    for (size_t i = 0; i < g.outputs.size(); ++i) {
      if (i) s_ << ", ";
      if (g.outputs[i]) s_ << '%' << g.outputs[i]->id;
      else s_ << "None";
    }
    for (auto& [i, v] : g.mutated) s_ << "  mutates input " << i << " = %" << v->id;
    s_ << '\n';
  }

  // Prints the symbols that occur in the graph, with their values during the trace and their guards.
  static std::string sizes(const sym::Shapes& shapes, const std::string& graph) {
    std::ostringstream s;
    std::string guards;
    for (auto& g : shapes.guards()) guards += "  requires " + sym::to_string(g) + '\n';
    std::unordered_set<std::string_view> named;
    add_words(graph, named);
    add_words(guards, named);
    for (int k = 0; k < shapes.symbol_count(); ++k) {
      auto* symbol = shapes.symbol(k).node();
      if (!named.count(symbol->name)) continue;
      s << "  size " << symbol->name;
      bool run_time = sym::is_run_time(shapes.symbol(k));
      if (!run_time) s << " = " << symbol->hint;
      if (run_time || symbol->low != sym::kLeastSize || symbol->high != sym::kMostSize)
        s << " from " << symbol->low << " to " << symbol->high;
      s << '\n';
    }
    return s.str() + guards;
  }
  static void add_words(std::string_view text, std::unordered_set<std::string_view>& words) {
    for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
      for (end = at; end < text.size() && (std::isalnum(uint8_t(text[end])) || text[end] == '_');) ++end;
      if (end > at) words.insert(text.substr(at, end - at));
    }
  }

  // Numbers derived operators and users' functions, and prints a line for each that says what it follows from.
  void number(const op::Operator& o) {
    if (auto* f = function_of(o)) {
      if (!numbers_.try_emplace(&o, 0).second) return;
      numbers_[&o] = ++count_;
      std::istringstream lines(name_of(o) + graph::print(*f));
      for (std::string line; std::getline(lines, line);) s_ << "  " << line << '\n';
      return;
    }
    auto* d = autograd::derivation_of(o);
    if (!d || !numbers_.try_emplace(&o, 0).second) return;
    number(*d->of);
    numbers_[&o] = ++count_;
    s_ << "  " << name_of(o) << " = gradient of " << name_of(*d->of);
    call(*d->of, d->args, true);
    s_ << " wanted [";
    for (size_t k = 0; k < d->wanted.size(); ++k) s_ << (k ? ", " : "") << (d->wanted[k] ? "True" : "False");
    s_ << "] given [";
    for (size_t r = 0; r < d->grads.size(); ++r)
      s_ << (r ? ", " : "") << (d->grads[r] ? name(*d->grads[r]) : "None");
    s_ << ']';
    if (d->piece >= 0) s_ << " piece " << d->piece;
    s_ << '\n';
  }
  std::string name_of(const op::Operator& o) const {
    auto it = numbers_.find(&o);
    return it == numbers_.end() ? o.schema.full_name() : o.schema.name + "#" + std::to_string(it->second);
  }

  // `types`: prints tensors by their types instead of their values.
  void call(const op::Operator& o, const op::Args& args, bool types) {
    auto tensor = [&](const TensorImpl* t) {
      if (!t) s_ << "None";
      else if (types) s_ << type_of(Tensor(Ref<TensorImpl>::share(const_cast<TensorImpl*>(t))));
      else s_ << '%' << t->traced->id;
    };
    s_ << '(';
    auto values = args.values();
    for (size_t k = 0; k < values.size(); ++k) {
      auto& p = o.schema.parameters[k];
      s_ << (k ? ", " : "");
      if (p.type != op::Type::Tensor) s_ << p.name << '=';
      auto& v = values[k];
      if (v.tag == op::Tag::tensor) {
        tensor(v.tensor);
      } else if (v.tag == op::Tag::tensors) {
        s_ << '[';
        for (size_t i = 0; i < v.list.count; ++i) {
          s_ << (i ? ", " : "");
          tensor(v.tensors()[i]);
        }
        s_ << ']';
      } else if (v.tag == op::Tag::object) {
        auto it = std::find(objects_.begin(), objects_.end(), v.object);
        s_ << "object " << it - objects_.begin();
        if (it == objects_.end()) objects_.push_back(v.object);
      } else {
        op::print_attribute(s_, v);
      }
    }
    s_ << ')';
  }

  const Lines* lines_;
  std::ostringstream s_;
  bool rounds_ = false;  // the graph has 16-bit values
  std::map<const op::Operator*, int> numbers_;
  std::vector<const CustomClassHolder*> objects_;  // by number
  int count_ = 0;
};

}  // namespace

Objects objects_of(const Graph& g) {
  Objects objects;
  for (auto& n : g.nodes)
    for (auto& v : n->args.values())
      if (v.tag == op::Tag::object &&
          std::none_of(objects.begin(), objects.end(), [&](auto& o) { return o.get() == v.object; }))
        objects.push_back(Ref<CustomClassHolder>::share(v.object));
  return objects;
}

std::string print(const Graph& g) { return Printer().print(g); }
std::string print(const Graph& g, const Lines* lines) { return Printer(lines).print(g); }

}  // namespace facula::graph
