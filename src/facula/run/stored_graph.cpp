#include "facula/run/stored_graph.h"

#include <bit>
#include <deque>
#include <unordered_map>
#include <vector>

#include "facula/autograd/formula.h"
#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/base/sha256.h"
#include "facula/codegen/build_id.h"
#include "facula/codegen/named.h"
#include "facula/codegen/store.h"
#include "facula/op/origin.h"
#include "facula/op/registry.h"
#include "facula/run/graph_body.h"
#include "facula/run/key.h"
#include "facula/run/stored_bytes.h"

namespace facula::run {

using graph::Graph;
using op::Tag;

namespace {

constexpr uint64_t kNone = ~uint64_t(0);

uint64_t word_of(Device d) { return uint64_t(d.type) << 8 | uint8_t(d.index); }
Device device_of(uint64_t word) { return {DeviceType(word >> 8 & 255), int8_t(word & 255)}; }

// ---- writing

class GraphWriter {
 public:
  explicit GraphWriter(Constants constants) : constants_(constants) {}

  GraphBytes write(const Graph& g) {
    symbols(*g.shapes);
    body_.word(g.values().size());
    for (size_t k = 0; k < g.values().size(); ++k) {
      auto& v = *g.values()[k];
      all_.is_readable &= v.id == int(k);
      meta(v.tensor);
      constant(v);
    }
    values(g.inputs);
    body_.word(g.nodes.size());
    for (auto& n : g.nodes) node(*n);
    values(g.outputs);
    body_.word(g.results);
    body_.word(g.mutated.size());
    for (auto& [i, v] : g.mutated) {
      body_.word(uint64_t(i));
      value(v);
    }
    all_.bytes = operators() + body_.bytes;
    return std::move(all_);
  }

 private:
  void symbols(const sym::Shapes& shapes) {
    body_.word(uint64_t(shapes.symbol_count()));
    for (int k = 0; k < shapes.symbol_count(); ++k) {
      auto* n = shapes.symbol(k).node();
      body_.text(n->name);
      body_.word(uint64_t(n->hint));
      body_.word(uint64_t(n->low));
      body_.word(uint64_t(n->high));
    }
    if (constants_ == Constants::layouts)
      return;  // plans may add guards, and have the name of the graph without them
    body_.word(shapes.guards().size());
    for (auto& g : shapes.guards()) {
      body_.word(uint64_t(g.relation));
      size(g.left);
      size(g.right);
    }
  }
  void size(SymInt s) {
    body_.word(s.is_symbolic());
    if (s.is_symbolic()) expression(s.node());
    else body_.word(uint64_t(s.concrete()));
  }
  void expression(const sym::Node* n) {
    body_.word(uint64_t(n->kind));
    if (!n->a) return body_.word(uint64_t(n->value));
    expression(n->a);
    expression(n->b);
  }
  void sizes(SymSpan all) {
    body_.word(all.size());
    for (auto s : all) size(s);
  }
  void scalar(const Scalar& s) {
    auto c = s.to_complex();
    body_.word(uint64_t(s.category()) | uint64_t(s.is_beyond_int64()) << 8);
    body_.word(s.category() <= Category::integral ? uint64_t(s.to_int()) : std::bit_cast<uint64_t>(c.real()));
    body_.word(std::bit_cast<uint64_t>(c.imag()));
  }
  void meta(const Tensor& t) {
    auto* v = graph::value_of(t);
    body_.word(uint64_t(t.dtype()) << 32 | uint64_t(v && v->held) << 17 |
               uint64_t(t.impl()->wrapped_number) << 16 | word_of(t.device()));
    sizes(t.sizes());
    sizes(t.strides());
  }
  void constant(const graph::Value& v) {
    auto& t = v.constant;
    body_.word(t.defined());
    if (!t.defined()) return;
    all_.has_constants = true;
    if (constants_ == Constants::layouts) return meta(t);
    bool is_number = t.impl()->wrapped_number && t.device().type == DeviceType::cpu;
    Scalar number = is_number ? t.item() : Scalar();
    bool is_plain = is_number && op::operand_dtype(number) == t.dtype();
    all_.is_reproducible &= is_plain;
    all_.is_readable &= is_plain;
    scalar(number);
  }
  void value(const graph::Value* v) { body_.word(v ? uint64_t(v->id) : kNone); }
  void values(const std::vector<graph::Value*>& all) {
    body_.word(all.size());
    for (auto* v : all) value(v);
  }
  void tensor(const TensorImpl* t) {
    all_.is_reproducible &= !t || t->traced;
    value(t ? t->traced : nullptr);
  }
  // `tensor`: writes a tensor among the arguments.
  template <class F>
  void argument(const op::Value& v, F&& tensor) {
    body_.word(uint64_t(v.tag));
    switch (v.tag) {
      case Tag::none: break;
      case Tag::tensor: tensor(v.tensor); break;
      case Tag::scalar: scalar(v.scalar); break;
      case Tag::integer: size(SymInt::from_identity(uint64_t(v.word))); break;
      case Tag::ints: sizes(v.ints()); break;
      case Tag::tensors:
        body_.word(v.list.count);
        for (auto* t : v.tensors()) tensor(t);
        break;
      case Tag::scalars:
        body_.word(v.list.count);
        for (auto& s : v.scalars()) scalar(s);
        break;
      case Tag::string: body_.text(v.string()); break;
      case Tag::dtype: body_.word(uint64_t(v.dtype)); break;
      case Tag::device: body_.word(word_of(v.device)); break;
      case Tag::format: body_.word(uint64_t(v.format)); break;
      case Tag::object:
      case Tag::generator: all_.is_reproducible = all_.is_readable = false; break;
    }
  }
  void node(const graph::Node& n) {
    body_.word(number_of(*n.op));
    body_.word(uint64_t(n.place.phase));
    body_.word(uint64_t(n.place.checkpoint));
    body_.word(n.again);
    auto args = n.args.values();
    body_.word(args.size());
    for (auto& v : args) argument(v, [&](const TensorImpl* t) { tensor(t); });
    values(n.results);
  }

  // ---- operators: by name, or as the gradient of a call
  size_t number_of(const op::Operator& o) {
    auto it = numbers_.find(&o);
    if (it != numbers_.end()) return it->second;
    auto* d = autograd::derivation_of(o);
    if (d) number_of(*d->of);  // the reader knows it before
    all_.is_reproducible &= op::is_reproducible(o);
    all_.is_readable &= op::is_found(o);
    operators_.push_back({&o, d});
    return numbers_[&o] = operators_.size() - 1;
  }
  std::string operators() {
    ByteWriter body = std::move(body_);
    body_ = {};
    body_.word(operators_.size());
    for (auto& [o, d] : operators_) {
      body_.text(o->schema.full_name());
      body_.word(d != nullptr);
      if (d) derivation(*d);
    }
    std::string text = std::move(body_.bytes);
    body_ = std::move(body);
    return text;
  }
  void derivation(const autograd::Derivation& d) {
    body_.word(numbers_.at(d.of));
    auto args = d.args.values();
    body_.word(args.size());
    for (auto& v : args)
      argument(v, [&](const TensorImpl* t) {
        body_.word(t != nullptr);
        if (t) meta(Tensor(Ref<TensorImpl>::share(const_cast<TensorImpl*>(t))));
      });
    body_.list(d.wanted);
    body_.word(d.grads.size());
    for (auto& g : d.grads) body_.word(g ? uint64_t(*g) : kNone);
    body_.word(uint64_t(d.piece));
  }

  Constants constants_;
  GraphBytes all_;
  ByteWriter body_;
  struct Called {
    const op::Operator* op;
    const autograd::Derivation* derivation;
  };
  std::vector<Called> operators_;
  std::unordered_map<const op::Operator*, size_t> numbers_;
};

// ---- reading

class GraphReader {
 public:
  explicit GraphReader(std::string_view bytes) : r_(bytes) {}

  std::optional<Graph> read() {
    g_.shapes = std::make_shared<sym::Shapes>();
    size_t operators = r_.count();
    for (size_t k = 0; k < operators && !r_.failed(); ++k) operators_.push_back(called());
    symbols();
    size_t count = r_.count();
    for (size_t k = 0; k < count && !r_.failed(); ++k) read_value();
    values(g_.inputs);
    size_t nodes = r_.count();
    for (size_t k = 0; k < nodes && !r_.failed(); ++k) node();
    values(g_.outputs);
    g_.results = r_.word();
    size_t mutated = r_.count();
    for (size_t k = 0; k < mutated && !r_.failed(); ++k) {
      int input = r_.index_under(g_.inputs.size());
      g_.mutated.push_back({input, value()});
      if (!g_.mutated.back().second) r_.refuse();
    }
    if (!r_.is_complete()) return {};
    return std::move(g_);
  }

 private:
  void symbols() {
    size_t count = r_.count();
    for (size_t k = 0; k < count && !r_.failed(); ++k) {
      std::string name(r_.text());
      int64_t hint = int64_t(r_.word()), low = int64_t(r_.word()), high = int64_t(r_.word());
      g_.shapes->fresh(std::move(name), hint, low, high);
    }
    size_t guards = r_.count();
    for (size_t k = 0; k < guards && !r_.failed(); ++k) {
      auto relation = sym::Guard::Relation(r_.index_under(size_t(sym::Guard::Relation::ge) + 1));
      SymInt left = size();
      g_.shapes->guard({relation, left, size()});
    }
  }
  SymInt size() { return r_.word() ? expression(0) : SymInt(int64_t(r_.word())); }
  SymInt expression(int depth) {
    using sym::Kind;
    auto kind = Kind(r_.index_under(size_t(Kind::max) + 1));
    if (kind == Kind::constant) return int64_t(r_.word());
    if (kind == Kind::symbol) {
      int k = r_.index_under(size_t(g_.shapes->symbol_count()));
      return r_.failed() ? SymInt() : g_.shapes->symbol(k);
    }
    if (depth > kMostDepth) r_.refuse();
    if (r_.failed()) return {};
    SymInt a = expression(depth + 1), b = expression(depth + 1);
    switch (kind) {
      case Kind::add: return a + b;
      case Kind::mul: return a * b;
      case Kind::floordiv: return a / b;
      case Kind::mod: return a % b;
      case Kind::min: return min(a, b);
      default: return max(a, b);
    }
  }
  Dims sizes() {
    Dims all;
    size_t n = r_.count();
    all.reserve(n);
    for (size_t k = 0; k < n; ++k) all.push_back(size());
    return all;
  }
  Scalar scalar() {
    uint64_t kind = r_.word(), first = r_.word(), second = r_.word();
    switch (Category(kind & 255)) {
      case Category::boolean: return Scalar(first != 0);
      case Category::integral: return kind >> 8 ? Scalar::of_unsigned(first) : Scalar(int64_t(first));
      case Category::floating: return Scalar(std::bit_cast<double>(first));
      default:
        return Scalar(std::complex<double>(std::bit_cast<double>(first), std::bit_cast<double>(second)));
    }
  }
  // A value of the graph with the metadata that follow.
  graph::Value* add_value() {
    uint64_t type = r_.word();
    Dims of = sizes(), strides = sizes();
    if (of.size() != strides.size()) r_.refuse();
    auto* v = g_.add_value(of, strides, DType(type >> 32), device_of(type));
    v->tensor.impl()->wrapped_number = type >> 16 & 1;
    v->held = type >> 17 & 1;
    return v;
  }
  void read_value() {
    auto* v = add_value();
    if (r_.word()) v->constant = op::wrapped_number(scalar());
  }
  graph::Value* value() {
    uint64_t id = r_.word();
    if (id == kNone) return nullptr;
    if (id < g_.values().size()) return g_.values()[id].get();
    r_.refuse();
    return nullptr;
  }
  void values(std::vector<graph::Value*>& all) {
    size_t n = r_.count();
    all.reserve(n);
    for (size_t k = 0; k < n; ++k) all.push_back(value());
  }

  // Arguments of one call; the lists have to live as long as the values.
  struct Arguments {
    SmallVector<op::Value, 8> values;
    std::deque<Dims> ints;
    std::deque<std::vector<TensorImpl*>> tensors;
    std::deque<std::vector<Scalar>> scalars;
    std::vector<Tensor> alive;
  };
  template <class F>
  void argument(Arguments& a, F&& tensor) {
    auto tag = Tag(r_.index_under(size_t(Tag::object) + 1));
    auto& out = a.values;
    switch (tag) {
      case Tag::none: out.push_back({}); break;
      case Tag::tensor: out.push_back(op::Value(tensor(a))); break;
      case Tag::scalar: out.push_back(op::Value(scalar())); break;
      case Tag::integer: out.push_back(op::Value(size())); break;
      case Tag::ints: out.push_back(op::Value(SymSpan(a.ints.emplace_back(sizes())))); break;
      case Tag::tensors: {
        auto& list = a.tensors.emplace_back(r_.count());
        for (auto& t : list) t = tensor(a);
        out.push_back(op::Value(std::span<TensorImpl* const>(list)));
        break;
      }
      case Tag::scalars: {
        auto& list = a.scalars.emplace_back(r_.count());
        for (auto& s : list) s = scalar();
        out.push_back(op::Value(std::span<const Scalar>(list)));
        break;
      }
      case Tag::string: out.push_back(op::Value(r_.text())); break;
      case Tag::dtype: out.push_back(op::Value(DType(r_.word()))); break;
      case Tag::device: out.push_back(op::Value(device_of(r_.word()))); break;
      case Tag::format: out.push_back(op::Value(MemoryFormat(r_.word()))); break;
      default: r_.refuse();
    }
  }
  template <class F>
  void arguments(Arguments& a, const op::Operator& o, F&& tensor) {
    size_t n = r_.count();
    for (size_t k = 0; k < n && !r_.failed(); ++k) argument(a, tensor);
    if (a.values.size() != o.schema.parameters.size()) r_.refuse();
  }
  void node() {
    int number = r_.index_under(operators_.size());
    graph::Place place{int(r_.word()), int(r_.word())};
    bool again = r_.word();
    if (r_.failed()) return;
    auto& o = *operators_[size_t(number)];
    Arguments a;
    arguments(a, o, [&](Arguments&) -> TensorImpl* {
      auto* v = value();
      return v ? v->tensor.impl() : nullptr;
    });
    std::vector<graph::Value*> results;
    values(results);
    for (auto* v : results)
      if (!v || v->producer) r_.refuse();
    if (r_.failed()) return;
    auto* n = g_.add_node(o, a.values, std::move(results));
    n->place = place;
    n->again = again;
  }

  const op::Operator* called() {
    std::string name(r_.text());
    auto* o = op::find(name);
    if (!r_.word()) {
      if (!o) r_.refuse();
      return o;
    }
    autograd::Derivation d = derivation();
    if (o || r_.failed()) return o;
    o = autograd::gradient_of(d);
    if (!o || op::find(name) != o) r_.refuse();
    return o;
  }
  autograd::Derivation derivation() {
    autograd::Derivation d{};
    int of = r_.index_under(operators_.size());
    if (r_.failed()) return d;
    d.of = operators_[size_t(of)];
    Arguments a;
    arguments(a, *d.of, [&](Arguments& all) -> TensorImpl* {
      if (!r_.word()) return nullptr;
      uint64_t type = r_.word();
      Dims of_tensor = sizes(), strides = sizes();
      all.alive.push_back(Tensor(
          make_ref<TensorImpl>(Storage(), of_tensor, strides, SymInt(), DType(type >> 32), device_of(type))));
      all.alive.back().impl()->wrapped_number = type >> 16 & 1;
      return all.alive.back().impl();
    });
    if (r_.failed()) return d;
    d.args = op::Args(a.values, d.of->schema);
    r_.list(d.wanted);
    size_t grads = r_.count();
    for (size_t k = 0; k < grads; ++k) {
      uint64_t type = r_.word();
      d.grads.push_back(type == kNone ? std::nullopt : std::optional(DType(type)));
    }
    d.piece = int(int64_t(r_.word()));
    return d;
  }

  static constexpr int kMostDepth = 1000;
  ByteReader r_;
  Graph g_;
  std::vector<const op::Operator*> operators_;
};

}  // namespace

GraphBytes bytes_of(const Graph& g, Constants constants) { return GraphWriter(constants).write(g); }

std::optional<Graph> read_graph(std::string_view bytes) { return GraphReader(bytes).read(); }

// ---- the store

bool stores_plans() {
  return !codegen::build_id().empty() && !settings().verify && !codegen::records_kernels();
}

std::string stored_digest(std::string_view kind, std::string_view contents) {
  ByteWriter of;
  of.text(codegen::build_id());
  of.text(codegen::target_features());
  return hex(sha256({kind, of.bytes, contents}));
}

std::string stored_name_of_call(const op::Operator& o, std::span<const op::Value> operands) {
  auto* body = graph_body(o);
  if (!body || !stores_plans() || codegen::user_folder().empty()) return "";
  auto all = bytes_of(body->graph(), Constants::values);
  if (!all.is_reproducible) return "";
  ByteWriter w;
  w.word(uint64_t(default_dtype()) << 8 | uint64_t(o.effects.writes));
  Key key;
  for (auto& v : operands) append(key, v);
  w.list(key);
  return stored_digest("graph of a program", all.bytes + w.bytes);
}

namespace {
bool has_type_of(const graph::Value* a, const graph::Value* b) {
  if (!a || !b) return !a && !b;
  return a->tensor.dtype() == b->tensor.dtype() && a->tensor.dim() == b->tensor.dim();
}
bool has_types_of(const std::vector<graph::Value*>& a, const std::vector<graph::Value*>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), has_type_of);
}
}  // namespace

std::optional<Graph> load_graph(const std::string& name, const Graph& captured) {
  auto bytes =
      codegen::read_entry(codegen::user_folder(), codegen::Stored::graph, name, codegen::Owner::user);
  auto g = bytes.empty() ? std::nullopt : read_graph(bytes);
  if (g && !has_types_of(g->inputs, captured.inputs)) g = {};
  if (log_on(Log::cache)) log_line(Log::cache, (g ? "hit graph " : "miss graph ") + name);
  return g;
}

void store_graph(const std::string& name, const Graph& g) {
  auto all = bytes_of(g, Constants::values);
  if (all.is_reproducible && all.is_readable)
    codegen::write_at_exit(codegen::Stored::graph, name, std::move(all.bytes));
}

}  // namespace facula::run
