#include "facula/autograd/formula.h"

#include <algorithm>
#include <mutex>
#include <sstream>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/node.h"
#include "facula/base/bounded.h"
#include "facula/base/fork.h"
#include "facula/loop/differentiate.h"
#include "facula/op/describe.h"
#include "facula/op/key.h"
#include "facula/op/origin.h"

namespace facula::autograd {

using loop::Expr;
using op::is_number;
using op::Tag;
using op::Type;

namespace {

constexpr int kGrad = 1 << 16, kResult = 1 << 17;  // slots of placeholders behind those of operands

bool is_one(const op::Value& v) {
  if (v.tag == Tag::integer) return !v.integer().is_symbolic() && v.integer() == 1;
  return v.tag == Tag::scalar && v.scalar.to_complex() == 1.0;
}

std::string tensor_type(const Operand& o) { return is_number(o.value) ? "Scalar " : "Tensor "; }
std::string unique_name(const Operand& o) {
  return std::string(o.name) + (o.item < 0 ? "" : "_" + std::to_string(o.item));
}

// `name`, or with underscores after it, so that no operand has it.
std::string free_name(std::string name, const std::vector<Operand>& operands) {
  while (std::any_of(operands.begin(), operands.end(), [&](auto& o) { return unique_name(o) == name; }))
    name += '_';
  return name;
}

// A derived operator, not yet registered.
std::unique_ptr<op::Operator> derive(const op::Operator& from, const std::string& parameters,
                                     const std::vector<std::string>& returns) {
  auto o = std::make_unique<op::Operator>();
  std::string result = "Tensor";
  if (returns.size() != 1) {
    result = "(";
    for (size_t k = 0; k < returns.size(); ++k) result += (k ? ", Tensor " : "Tensor ") + returns[k];
    result += ")";
  }
  o->schema = op::parse_schema(from.schema.name + "_backward(" + parameters + ") -> " + result);
  o->doc = "The gradient of " + from.schema.full_name() + ", derived from its definition.";
  o->namespaces = op::hidden;
  o->promote = op::Promote::none;
  o->result_type = op::ResultType::custom;
  o->parent = &from;
  o->dtypes = dtypes::any | from.dtypes;
  return o;
}

// A size's number in a derivation. That of a difference with a size which is known only later, and taken for a large one
// until then, may be negative.
int64_t example_of(SymInt size) { return std::abs(size.hint()); }

// Describes the call that a derived operator depends on: operands by dtype and rank, or with `shapes` by their known sizes (0, 1,
// and which others are equal); attributes by value.
//   self=float32[a,b], dim=[1], keepdim=False
std::string text_of(const op::Call& c, bool shapes) {
  std::ostringstream s;
  Ints sizes;
  auto size = [&](int64_t n) {
    if (n <= 1) return std::to_string(n);
    auto at = std::find(sizes.begin(), sizes.end(), n) - sizes.begin();
    if (size_t(at) == sizes.size()) sizes.push_back(n);
    return at < 26 ? std::string(1, char('a' + at)) : 'z' + std::to_string(at);
  };
  auto tensor = [&](const TensorImpl& t) {
    s << name(t.dtype) << (t.wrapped_number ? "'" : "") << '[';
    for (size_t d = 0; d < t.sizes.size(); ++d)
      s << (d ? "," : "") << (shapes ? size(example_of(t.sizes[d])) : "_");
    s << ']';
  };
  size_t shown = 0;
  auto parameter = [&](const std::string& name) { s << (shown++ ? ", " : "") << name << '='; };
  op::each_operand(c, [&](const Operand& o) {
    parameter(unique_name(o));
    if (o.value.tag == Tag::tensor) tensor(*o.value.tensor);
    else if (is_number(o.value)) s << name(op::operand_dtype(o.value)) << (is_one(o.value) ? " 1" : "");
    else s << "None";
  });
  auto& parameters = c.op().schema.parameters;
  for (size_t k = 0; k < parameters.size(); ++k) {
    if (parameters[k].is_operand()) continue;
    parameter(parameters[k].name);
    op::print_attribute(s, c.at(k));
  }
  return s.str();
}

bool has_symbolic_attribute(const op::Call& c) {
  auto symbolic = [](SymInt i) { return i.is_symbolic(); };
  auto& parameters = c.op().schema.parameters;
  for (size_t k = 0; k < parameters.size(); ++k) {
    auto& v = c.at(k);
    if (parameters[k].is_operand()) continue;  // a derived operator takes that as an operand too
    if (v.tag == Tag::integer && symbolic(v.integer())) return true;
    if (v.tag == Tag::ints && std::ranges::any_of(v.ints(), symbolic)) return true;
  }
  return false;
}

struct Derivations {
  TableMutex mutex;
  std::unordered_map<const op::Operator*, std::unique_ptr<const Derivation>> of;
};
Derivations& derivations() {
  static auto& all = *new Derivations;
  return all;
}

// The arguments without data. Sizes are examples, unless attributes are made of their symbols; a pointwise operator
// follows from ranks alone.
op::Args without_data(const op::Call& c, bool symbolic) {
  bool ranks = c.op().is<op::Pointwise>();
  op::Args args(c.args(), c.op().schema);
  if (!symbolic) args.each_size([](SymInt& s) { s = s.hint(); });
  args.each_tensor([&](size_t, Tensor& t) {
    if (!t.defined()) return;
    Dims sizes(t.sizes());
    if (!symbolic)
      for (auto& s : sizes) s = ranks ? 2 : example_of(s);
    bool number = t.impl()->wrapped_number;
    t = Tensor(
        make_ref<TensorImpl>(Storage(), sizes, contiguous_strides(sizes), SymInt(), t.dtype(), t.device()));
    t.impl()->wrapped_number = number;
  });
  return args;
}

// Gives the operator its full name and registers it. Symbols mean something in their trace alone: what follows
// from one has no name, and lives for ever too, because graphs and programs refer to it.
const op::Operator* registered(std::unique_ptr<op::Operator> derived, const op::Call& c,
                               const std::string& key, Flags wanted, GradTypes grads, int piece) {
  bool symbolic = has_symbolic_attribute(c);
  const op::Operator* o = nullptr;
  if (symbolic) {
    o = derived.release();
  } else {
    auto& from = c.op().schema.overload;
    derived->schema.overload = from + (from.empty() ? "" : ": ") + key;
    o = &op::register_derived(std::move(derived));
  }
  auto& all = derivations();
  std::lock_guard lock(all.mutex);
  auto& known = all.of[o];
  if (!known)
    known = std::make_unique<Derivation>(
        Derivation{&c.op(), without_data(c, symbolic), std::move(wanted), std::move(grads), piece});
  return o;
}

// ---- pointwise

std::vector<const loop::Node*> loads_in(std::span<const Expr> xs) {
  std::vector<const loop::Node*> out;
  for (auto x : xs) {
    if (!x.get()) continue;
    loop::visit(x, [&](Expr e) {
      if (e->kind == loop::Kind::load && std::find(out.begin(), out.end(), e.get()) == out.end())
        out.push_back(e.get());
    });
  }
  return out;
}

std::vector<int> slots_below(const std::vector<const loop::Node*>& loads, int limit, int from = 0) {
  std::vector<int> out;
  for (auto* l : loads)
    if (l->slot >= from && l->slot < limit) out.push_back(l->slot);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// A call whose formula is derived from its operator's definition.
class Deriver {
 public:
  Deriver(const op::Call& c, const std::vector<Operand>& operands, const Flags& wanted,
          const GradTypes& grads)
      : c_(c), operands_(operands), wanted_(wanted), grads_(grads) {
    f_->reads.resize(wanted.size());
    f_->reads_result.resize(grads.size());
  }

 protected:
  bool is_wanted(const Operand& o) const { return o.tensor >= 0 && wanted_[size_t(o.tensor)]; }

  const op::Call& c_;
  const std::vector<Operand>& operands_;
  const Flags& wanted_;
  const GradTypes& grads_;
  std::shared_ptr<Formula> f_ = std::make_shared<Formula>();
};

class PointwiseDeriver : Deriver {
 public:
  using Deriver::Deriver;

  std::shared_ptr<const Formula> run() {
    auto y = body();
    auto value = gradients(y);
    // The same through the results, if it reads no operand then. A result in place of one operand of several keeps no less
    // memory, and would forbid users to write to it.
    auto through = through_results(value, y);
    if (kept(through) == 0 && kept(value) > 0) value = std::move(through);
    pass_or_compute(value);
    if (results_.empty()) return f_;
    add_arguments();
    register_operator();
    return f_;
  }

 private:
  std::vector<Expr> body() {
    auto& o = c_.op();
    DType promoted = op::computing_dtype(o, c_.args()), computing = compute_type(promoted);
    op::check_accepted(o, promoted);  // in place this comes before the call itself
    std::vector<Expr> x;
    for (auto& operand : operands_) {
      if (operand.value.is_none()) {
        x.push_back(Expr());
        continue;
      }
      DType memory = op::operand_dtype(operand.value);
      DType own = o.promote == op::Promote::none ? compute_type(memory) : computing;
      x.push_back(is_one(operand.value) ? loop::constant(Scalar(int64_t(1)), own)
                                        : loop::cast(loop::load(operand.slot, memory, {}), own));
    }
    op::LoopCall lc(o, c_.args());
    return o.as<op::Pointwise>()->body(lc, x);
  }

  // By tensor, in terms of placeholders for the operands and the incoming gradients.
  std::vector<Expr> gradients(const std::vector<Expr>& y) {
    std::vector<Expr> value(wanted_.size());
    for (size_t r = 0; r < y.size() && r < grads_.size(); ++r) {
      if (!grads_[r] || !is_differentiable(y[r].dtype())) continue;
      Expr seed = loop::cast(loop::load(kGrad + int(r), *grads_[r], {}), y[r].dtype());
      for (auto& a : loop::differentiate(y[r], seed)) {
        for (auto& operand : operands_) {
          if (operand.slot != a.load->slot || !is_wanted(operand)) continue;
          Expr& sum = value[size_t(operand.tensor)];
          sum = sum ? sum + a.value : a.value;
        }
      }
    }
    for (auto& operand : operands_) {
      if (!is_wanted(operand)) continue;
      DType d = compute_type(operand.value.tensor->dtype);
      Expr& v = value[size_t(operand.tensor)];
      v = v ? loop::cast(v, d) : loop::constant(Scalar(int64_t(0)), d);
    }
    return value;
  }

  std::vector<Expr> through_results(std::vector<Expr> value, const std::vector<Expr>& y) {
    for (auto& v : value) {
      if (!v.get()) continue;
      v = loop::rewrite(v, [&](Expr e) {
        for (size_t r = 0; r < y.size() && r < grads_.size(); ++r)
          if (grads_[r] && loop::same(e, y[r]) && compute_type(*grads_[r]) == y[r].dtype() &&
              e->kind != loop::Kind::load && e->kind != loop::Kind::constant)
            return loop::load(kResult + int(r), *grads_[r], {});
        return Expr();
      });
    }
    return value;
  }
  int kept(const std::vector<Expr>& v) {
    int n = 0;
    for (int slot : slots_below(loads_in(v), kGrad)) n += operands_[size_t(slot)].value.tag == Tag::tensor;
    return n;
  }

  // Gradients that are an incoming one as it is, or zero whatever the operands are, need no kernel.
  void pass_or_compute(const std::vector<Expr>& value) {
    for (auto& operand : operands_) {
      if (!is_wanted(operand)) continue;
      Expr v = value[size_t(operand.tensor)];
      if (loop::same(v, loop::constant(Scalar(int64_t(0)), v.dtype())))
        f_->constant.push_back(operand.tensor);
      else if (v->kind == loop::Kind::load && v->slot >= kGrad && v->slot < kResult &&
               v->memory == operand.value.tensor->dtype)
        f_->passed.push_back({operand.tensor, v->slot - kGrad});
      else {
        f_->targets.push_back(operand.tensor);
        results_.push_back(v);
      }
    }
  }

  void add_argument(Formula::Source source, const std::string& type, const std::string& name,
                    int placeholder) {
    parameters_ += (parameters_.empty() ? "" : ", ") + type + name;
    f_->sources.push_back(source);
    placeholders_.push_back(placeholder);
  }
  void add_arguments() {
    auto loads = loads_in(results_);
    auto used = slots_below(loads, kResult, kGrad);
    if (used.empty())
      for (size_t r = 0; r < grads_.size(); ++r)
        if (grads_[r]) {
          used.push_back(kGrad + int(r));
          break;
        }
    for (int slot : used) {
      int r = slot - kGrad;
      add_argument({Formula::Source::grad, r}, "Tensor ",
                   free_name(r ? "grad_" + std::to_string(r) : "grad", operands_), slot);
    }
    for (int slot : slots_below(loads, kGrad)) {
      auto& operand = operands_[size_t(slot)];
      add_argument({Formula::Source::operand, slot}, tensor_type(operand), unique_name(operand), slot);
      if (operand.tensor >= 0 && !is_number(operand.value)) f_->reads[size_t(operand.tensor)] = true;
    }
    for (int slot : slots_below(loads, 2 * kResult, kResult)) {
      int r = slot - kResult;
      add_argument({Formula::Source::result, r}, "Tensor ",
                   free_name(r ? "result_" + std::to_string(r) : "result", operands_), slot);
      f_->reads_result[size_t(r)] = true;
    }
  }

  void register_operator() {
    std::vector<std::string> returns;
    std::vector<DType> types;
    for (int t : f_->targets)
      for (auto& operand : operands_)
        if (operand.tensor == t) {
          returns.push_back("grad_" + unique_name(operand));
          types.push_back(operand.value.tensor->dtype);
        }
    auto d = derive(c_.op(), parameters_, returns);
    d->dtype_rule = [types](const op::Call&) { return types; };
    auto body = [results = results_, placeholders = placeholders_](const op::LoopCall&,
                                                                   std::span<const Expr> given) {
      std::vector<Expr> out;
      for (auto v : results)
        out.push_back(loop::rewrite(v, [&](Expr e) {
          if (e->kind != loop::Kind::load) return Expr();
          auto at = std::find(placeholders.begin(), placeholders.end(), e->slot) - placeholders.begin();
          Expr x = given[size_t(at)];
          return e->part == 2 ? loop::imag(x) : e->part == 1 ? loop::real(x) : loop::cast(x, e.dtype());
        }));
      return out;
    };
    d->definition = op::Pointwise{body};
    std::string key = text_of(c_, false) + " ->";
    for (auto& r : returns) key += ' ' + r;
    for (auto& g : grads_) key += std::string(", ") + (g ? name(*g) : "None");
    f_->derived = registered(std::move(d), c_, key, wanted_, grads_, -1);
    auto short_float = [](DType t) { return t == DType::Float16 || t == DType::BFloat16; };
    if (std::ranges::any_of(types, short_float) && !has_symbolic_attribute(c_))
      f_->summed = &op::register_derived(with_sums(*f_->derived, returns, key));
  }

  // A program of the derived operator and the sums over broadcast dimensions, so that the intermediate is not rounded to 16 bits.
  std::unique_ptr<op::Operator> with_sums(const op::Operator& derived,
                                          const std::vector<std::string>& returns, const std::string& key) {
    std::string parameters = parameters_;
    for (auto& r : returns) parameters += ", int[] dims_of_" + r;
    auto all = derive(c_.op(), parameters, returns);
    all->schema.overload = c_.op().schema.overload + ": " + key + ", summed";
    std::vector<int> ranks;
    for (int t : f_->targets)
      for (auto& operand : operands_)
        if (operand.tensor == t) ranks.push_back(int(operand.value.tensor->sizes.size()));
    size_t given = f_->sources.size();
    all->definition = op::Composite{[&derived, ranks, given](const op::Call& c) {
      auto results = op::call(derived, c.args().first(given));
      for (size_t k = 0; k < ranks.size(); ++k) {
        SymSpan dims = c.args()[given + k].ints();
        if (!dims.empty()) results[k] = invoke("sum", {results[k], dims, true});
        while (results[k].dim() > ranks[k])
          results[k] = invoke("select", {results[k], int64_t(0), int64_t(0)});
      }
      return results;
    }};
    return all;
  }

  std::vector<Expr> results_;      // of the derived operator
  std::string parameters_;         // of its schema
  std::vector<int> placeholders_;  // slots, by parameter
};

// ---- loops

// A derived loop operator takes the gradient, the operands that the transposed loops read, the sizes of the
// others, and the attributes. From its call the original call is built again, whose loops are then
// transposed.
struct Transposed {
  const op::Operator* of;
  std::vector<Operand> operands;  // names and slots only
  std::vector<DType> dtypes;      // by operand
  std::vector<bool> kept, none;   // by operand
  int result, slot;               // the operand whose gradient this is
  size_t piece, pieces;           // which one of how many

  // The call may have an attribute of this name already, for example if it is a gradient itself.
  std::string sizes_name(const Operand& o) const {
    std::string name = unique_name(o) + "_sizes";
    auto& taken = of->schema.parameters;
    while (std::any_of(taken.begin(), taken.end(), [&](auto& p) { return p.name == name; })) name += '_';
    return name;
  }

  // In a compiled call the sizes of operands are symbols, and the sizes of absent operands are numbers. Equal ones are replaced by
  // one symbol, so that conditions on both cancel and kernels serve other sizes. In the trace of a user's function numbers stay.
  static bool is_compiled(const op::Call& c) {
    for (auto& v : c.args()) {
      if (v.tag == Tag::tensor)
        for (auto& d : v.tensor->sizes)
          if (!d.is_symbolic() && d.concrete() > 1) return false;
      for (auto& n : v.ints())
        if (n.is_symbolic()) return false;
    }
    return true;
  }
  static SymInt as_size_of_operand(const op::Call& c, SymInt n) {
    for (auto& v : c.args()) {
      if (v.tag != Tag::tensor) continue;
      for (auto& d : v.tensor->sizes)
        if (d.is_symbolic() && d.hint() == n.concrete() && d == n) return d;
    }
    return n;
  }

  // The original call, with tensors without data where only sizes are known.
  struct Original {
    std::vector<Tensor> made;
    std::vector<std::vector<TensorImpl*>> lists;
    std::vector<op::Value> args;
  };
  Original original(const op::Call& c) const {
    bool compiled = is_compiled(c);
    Original out;
    auto& parameters = of->schema.parameters;
    out.lists.resize(parameters.size());
    size_t k = 0;
    auto operand_value = [&](size_t k) -> op::Value {
      auto& o = operands[k];
      if (none[k]) return {};
      if (kept[k]) return c[unique_name(o)];
      Dims sizes(c.ints(sizes_name(o)));
      if (compiled)
        for (auto& n : sizes) n = as_size_of_operand(c, n);
      out.made.push_back(Tensor(
          make_ref<TensorImpl>(Storage(), sizes, contiguous_strides(sizes), SymInt(), dtypes[k], Device{})));
      return out.made.back();
    };
    for (size_t p = 0; p < parameters.size(); ++p) {
      bool operand = parameters[p].is_operand();
      if (operand && parameters[p].list) {
        for (; k < operands.size() && operands[k].name == parameters[p].name; ++k) {
          op::Value v = operand_value(k);
          out.lists[p].push_back(v.is_none() ? nullptr : v.tensor);
        }
        out.args.push_back(op::Value(std::span<TensorImpl* const>(out.lists[p])));
      } else if (operand) {
        out.args.push_back(operand_value(k++));
      } else {
        out.args.push_back(c[parameters[p].name]);
      }
    }
    return out;
  }

  std::vector<loop::Definition> transpose(const op::LoopCall& original, DType grad) const {
    auto d = of->as<op::Loop>()->body(original);
    auto result_sizes = of->shaped()->shape(original)[size_t(result)];
    auto v = operands_of(original)[size_t(slot)].value;  // a copy: the operands are temporary
    return loop::transpose(d, result, result_sizes, grad, int(operands.size()), slot, v.tensor->sizes);
  }
};

void remap(loop::Definition& d, const std::vector<int>& to) {
  auto moved = [&](Expr x) {
    std::function<Expr(Expr)> f = [&](Expr e) -> Expr {
      if (e->kind != loop::Kind::load) return Expr();
      std::vector<Expr> at;
      for (auto a : e->args) at.push_back(loop::rewrite(a, f));
      return loop::load(to[size_t(e->slot)], e->memory, std::move(at), e->part);
    };
    return loop::rewrite(x, f);
  };
  for (auto& v : d.values) v = moved(v);
  if (d.scatter) {
    for (auto& t : d.scatter->target) t = moved(t);
    d.scatter->value = moved(d.scatter->value);
    if (d.scatter->base >= 0) d.scatter->base = to[size_t(d.scatter->base)];
  }
}

void loads_of(const loop::Definition& d, std::vector<bool>& slots) {
  std::vector<Expr> all = d.values;
  if (d.scatter) {
    all.insert(all.end(), d.scatter->target.begin(), d.scatter->target.end());
    all.push_back(d.scatter->value);
    if (d.scatter->base >= 0) slots[size_t(d.scatter->base)] = true;
  }
  for (auto* l : loads_in(all)) slots[size_t(l->slot)] = true;
}

std::string attribute_type(const op::Parameter& p) {
  static const char* const names[] = {"Tensor", "Scalar", "SymInt", "float",        "bool",
                                      "str",    "dtype",  "Device", "MemoryFormat", "Generator"};
  return std::string(names[int(p.type)]) + (p.list ? "[]" : "") + "? ";
}

class LoopDeriver : Deriver {
 public:
  using Deriver::Deriver;

  std::shared_ptr<const Formula> run() {
    auto& o = c_.op();
    auto scatter = o.as<op::Loop>()->body(original_).scatter;
    using Combine = loop::Scatter::Combine;
    supported_check(!scatter || scatter->combine == Combine::sum || scatter->combine == Combine::assign,
                    o.name())
        << "has no gradient where elements meet but by sums, or one in place of another"
        << hint("index_put and prod have one");
    for (auto& operand : operands_) {
      if (!is_wanted(operand) || operand.value.tag != Tag::tensor) continue;
      size_t before = f_->pieces.size() + f_->passed.size();
      for (size_t r = 0; r < grads_.size(); ++r)
        if (grads_[r]) add_pieces(operand, int(r));
      if (f_->pieces.size() + f_->passed.size() == before) f_->constant.push_back(operand.tensor);
    }
    return f_;
  }

 private:
  void add_pieces(const Operand& operand, int r) {
    Transposed t{&c_.op(), operands_, {}, {}, {}, r, operand.slot, 0, 0};
    auto pieces = t.transpose(original_, *grads_[size_t(r)]);
    t.pieces = pieces.size();
    if (pieces.size() == 1 && is_whole_gradient(operand, r, pieces[0])) {
      f_->passed.push_back({operand.tensor, r});
      return;
    }
    for (size_t k = 0; k < pieces.size(); ++k) {
      t.piece = k;
      add_piece(operand, t, pieces[k], pieces.size() > 1);
    }
  }

  // Whether the gradient is the incoming gradient itself.
  bool is_whole_gradient(const Operand& operand, int r, const loop::Definition& piece) const {
    if (piece.scatter || *grads_[size_t(r)] != operand.value.tensor->dtype) return false;
    Expr v = piece.values[0];
    SymSpan own = operand.value.tensor->sizes;
    auto sizes = c_.op().shaped()->shape(original_)[size_t(r)];
    if (v->kind != loop::Kind::load || v->slot != int(operands_.size()) || v->part ||
        own.size() != sizes.size())
      return false;
    for (size_t k = 0; k < own.size(); ++k)
      if (!loop::same(v->args[k], loop::index(int(k))) || !SymInt::surely_equal(own[k], sizes[k]))
        return false;
    return true;
  }

  // Several pieces are added up in the dtype of sums.
  void add_piece(const Operand& operand, Transposed& t, const loop::Definition& piece, bool several) {
    auto arguments = arguments_of(piece, t);
    std::string target = "grad_" + unique_name(operand);
    auto d = derive(c_.op(), arguments.parameters, {target});
    for (auto& x : t.operands) x.value = {};
    DType own = operand.value.tensor->dtype, type = several ? compute_type(own) : own;
    DType grad = *grads_[size_t(t.result)];
    d->dtype_rule = [type](const op::Call&) { return std::vector<DType>{type}; };
    d->definition = definition(t, arguments.slots, grad);
    std::string key = text_of(c_, true) + " -> " + target + ", " + std::to_string(t.result) + ": " +
                      name(grad) + ", piece " + std::to_string(t.piece);
    Flags alone(wanted_.size());
    alone[size_t(operand.tensor)] = true;
    GradTypes one(grads_.size());
    one[size_t(t.result)] = grad;
    auto* o = registered(std::move(d), c_, key, std::move(alone), std::move(one), int(t.piece));
    f_->pieces.push_back({o, operand.tensor, t.result, t.kept});
  }

  struct Arguments {
    std::string parameters;
    std::vector<int> slots;  // by slot of the piece, whose last one is the gradient's
  };
  Arguments arguments_of(const loop::Definition& piece, Transposed& t) {
    std::vector<bool> loaded(operands_.size() + 1);
    loads_of(piece, loaded);
    t.kept.assign(operands_.size(), false);
    t.none.assign(operands_.size(), false);
    t.dtypes.assign(operands_.size(), DType::Float32);
    Arguments out{"Tensor " + free_name("grad", operands_), std::vector<int>(operands_.size() + 1, -1)};
    out.slots.back() = 0;
    int next = 1;
    size_t at = 0;
    auto add_operand = [&](size_t i) {
      auto& x = operands_[i];
      bool number = is_number(x.value);
      t.none[i] = x.value.is_none();
      t.kept[i] = number || (loaded[i] && !t.none[i]);
      if (t.none[i]) return;
      t.dtypes[i] = op::operand_dtype(x.value);
      if (t.kept[i]) {
        out.parameters += ", " + tensor_type(x) + unique_name(x);
        out.slots[i] = next++;
        if (!number) f_->reads[size_t(x.tensor)] = true;
      } else {
        out.parameters += ", SymInt[] " + t.sizes_name(x);
      }
    };
    for (auto& p : c_.op().schema.parameters) {
      if (!p.is_operand()) {
        out.parameters += ", " + attribute_type(p) + p.name;
        continue;
      }
      while (at < operands_.size() && operands_[at].name == p.name) add_operand(at++);
    }
    return out;
  }

  static op::Loop definition(const Transposed& t, const std::vector<int>& slots, DType grad) {
    op::Loop loop;
    loop.shape = [t](const op::Call& c) {
      auto original = t.original(c);
      return std::vector<Dims>{
          Dims(operands_of(op::Call(*t.of, original.args))[size_t(t.slot)].value.tensor->sizes)};
    };
    loop.body = [t, slots, grad](const op::LoopCall& c) {
      auto original = t.original(c);
      op::LoopCall lc(*t.of, original.args);
      auto pieces = t.transpose(lc, grad);
      internal_check(pieces.size() == t.pieces)
          << c.op().schema.full_name() << ": the transposed loops have another form at these sizes";
      remap(pieces[t.piece], slots);
      return pieces[t.piece];
    };
    return loop;
  }

  op::LoopCall original_{c_.op(), c_.args()};
};

// ---- the table

using Key = op::Words;

void append(Key& key, const TensorImpl* t, bool shapes, Ints& sizes) {
  if (!t) {
    key.push_back(0);
    return;
  }
  key.push_back(1 | uint64_t(t->dtype) << 8 | uint64_t(t->wrapped_number) << 16 |
                uint64_t(t->sizes.size()) << 24);
  if (!shapes) return;
  for (auto s : t->sizes) {
    int64_t n = s.hint();
    if (n > 1) {
      auto at = std::find(sizes.begin(), sizes.end(), n);
      n = 2 + (at - sizes.begin());
      if (at == sizes.end()) sizes.push_back(s.hint());
    }
    key.push_back(uint64_t(n));
  }
}

void append(Key& key, const Flags& wanted) {
  uint64_t word = 1;
  for (bool w : wanted) {
    word = word << 1 | w;
    if (word >> 63) {
      key.push_back(word);
      word = 1;
    }
  }
  key.push_back(word);
}

// `sizes` collects the distinct sizes above 1, in order of appearance: the key has only which of them are
// equal.
Key key_of(const op::Call& c, const Flags& wanted, const GradTypes& grads, bool shapes, Ints& sizes) {
  Key key;
  key.push_back(reinterpret_cast<uint64_t>(&c.op()));
  auto& parameters = c.op().schema.parameters;
  for (size_t k = 0; k < parameters.size(); ++k) {
    auto& v = c.at(k);
    auto& p = parameters[k];
    key.push_back(uint64_t(v.tag));
    switch (v.tag) {
      case Tag::none: break;
      case Tag::tensor: append(key, v.tensor, shapes, sizes); break;
      case Tag::tensors:
        key.push_back(v.list.count);
        for (auto* t : v.tensors()) append(key, t, shapes, sizes);
        break;
      case Tag::scalar:
      case Tag::integer:
        if (p.is_operand() && !c.op().vjp)
          key.push_back(uint64_t(op::operand_dtype(v)) << 1 | uint64_t(is_one(v)));
        else op::append_attributes(key, std::span(&v, 1));
        break;
      case Tag::generator: break;
      case Tag::object: break;  // the rule of its operator runs anew each time
      default: op::append_attributes(key, std::span(&v, 1));
    }
  }
  append(key, wanted);
  for (auto& g : grads) key.push_back(g ? uint64_t(*g) + 1 : 0);
  return key;
}

struct Entry {
  std::shared_ptr<sym::Shapes> shapes;
  std::shared_ptr<const Formula> formula;
};
constexpr size_t kMaxEntries = 1 << 14, kMaxGuarded = 256;

}  // namespace

bool has_formula(const op::Operator& o) { return o.vjp || o.is<op::Pointwise>() || o.is<op::Loop>(); }

std::shared_ptr<const Formula> formula_of(const op::Call& c, const Flags& wanted, const GradTypes& grads) {
  static TableMutex& mutex = *new TableMutex;
  static auto& table = *new Bounded<Key, std::vector<Entry>, op::WordsHash>(kMaxEntries);
  auto& o = c.op();
  Ints sizes;
  // A .vjp rule may depend on the sizes, even for a pointwise operator.
  Key key = key_of(c, wanted, grads, o.vjp || !o.is<op::Pointwise>(), sizes);
  {
    std::lock_guard lock(mutex);
    if (auto* known = table.find(key))
      for (auto& e : *known)
        if (!e.shapes || e.shapes->guards().empty() || e.shapes->hold(sizes)) return e.formula;
  }
  if (auto* shaped = o.shaped(); shaped && shaped->shape)
    (void)shaped->shape(c);  // definitions rely on what it refuses
  Entry entry;
  auto operands = operands_of(c);
  if (o.vjp) {
    auto reads = probe(c, wanted, grads.size());
    auto f = std::make_shared<Formula>();
    f->reads = reads.operands;
    f->reads_result = reads.results;
    entry = {reads.shapes, f};
  } else if (o.is<op::Pointwise>()) {
    entry.formula = PointwiseDeriver(c, operands, wanted, grads).run();
  } else {
    supported_check(o.is<op::Loop>(), o.name())
        << "has no gradient" << hint("its definition needs a .vjp(...), or .non_differentiable(...)");
    entry.formula = LoopDeriver(c, operands, wanted, grads).run();
  }
  std::lock_guard lock(mutex);
  auto* known = table.find(key);
  if (!known) known = &table.put(std::move(key), {});
  if (known->size() >= kMaxGuarded) known->erase(known->begin());
  known->push_back(entry);
  return entry.formula;
}

bool is_gradient(const op::Operator& o) { return o.parent && (derivation_of(o) || is_gradient(*o.parent)); }

const Derivation* derivation_of(const op::Operator& o) {
  auto& all = derivations();
  std::lock_guard lock(all.mutex);
  auto it = all.of.find(&o);
  return it == all.of.end() ? nullptr : it->second.get();
}

const op::Operator* gradient_of(const Derivation& d) {
  auto f = formula_of(op::Call(*d.of, d.args.values()), d.wanted, d.grads);
  if (d.piece < 0) return f->derived;
  return size_t(d.piece) < f->pieces.size() ? f->pieces[size_t(d.piece)].derived : nullptr;
}

namespace {
Tensor data_of(const op::Vjp& v, const Operand& o) { return o.item < 0 ? v[o.name] : v.item(o.name, o.item); }

void accumulate(Tensor& into, Tensor g) { into = into.defined() ? add(into, g) : std::move(g); }

Tensor fit(Tensor g, SymSpan sizes) {
  if (g.dim() == int(sizes.size()) && std::equal(sizes.begin(), sizes.end(), g.sizes().begin())) return g;
  return invoke("sum_to_size", {g, sizes});
}

class Application {
 public:
  Application(const Formula& f, const op::Call& c, const op::Vjp& v)
      : f_(f), c_(c), v_(v), operands_(operands_of(c)), out_(f.reads.size()) {}

  op::Grads run() {
    for (auto& [tensor, r] : f_.passed) {
      auto& o = operand_of(tensor);
      if (Tensor g = v_.grad(r); g.defined() && is_wanted(o))
        accumulate(out_[size_t(tensor)], fit(g, o.value.tensor->sizes));
    }
    if (f_.derived) call_derived();
    for (auto& piece : f_.pieces) {
      auto& target = operand_of(piece.tensor);
      Tensor g = v_.grad(piece.result);
      if (!g.defined() || !is_wanted(target)) continue;
      accumulate(out_[size_t(piece.tensor)], gradient_of(piece, g));
    }
    for (auto& piece : f_.pieces) {
      Tensor& sum = out_[size_t(piece.tensor)];
      DType own = operand_of(piece.tensor).value.tensor->dtype;
      if (sum.defined() && sum.dtype() != own && is_floating(own) == is_floating(sum.dtype()))
        sum = invoke("to_dtype", {sum, own});
    }
    bool zeros = !is_gradient(c_.op());
    for (int tensor : f_.constant)
      if (auto& o = operand_of(tensor); zeros && is_wanted(o)) {
        auto& t = *o.value.tensor;
        out_[size_t(tensor)] = filled(0, t.sizes, t.dtype, t.device);
      }
    return std::move(out_);
  }

 private:
  const Operand& operand_of(int tensor) const {
    return *std::find_if(operands_.begin(), operands_.end(), [&](auto& o) { return o.tensor == tensor; });
  }
  bool is_wanted(const Operand& o) const { return v_.needs(o.name, std::max(o.item, 0)); }

  void call_derived() {
    std::vector<Tensor> kept;
    std::vector<op::Value> args;
    kept.reserve(f_.sources.size());
    args.reserve(f_.sources.size() + f_.targets.size());  // sums that follow are told dimensions
    for (auto& s : f_.sources) {
      if (s.kind == Formula::Source::operand && is_number(operands_[size_t(s.index)].value)) {
        args.push_back(operands_[size_t(s.index)].value);
        continue;
      }
      kept.push_back(s.kind == Formula::Source::grad     ? v_.grad(s.index)
                     : s.kind == Formula::Source::result ? v_.result(s.index)
                                                         : data_of(v_, operands_[size_t(s.index)]));
      internal_check(kept.back().defined()) << f_.derived->schema.text << ": an argument is missing";
      args.push_back(kept.back());
    }
    auto results = call_summed(args);
    for (size_t k = 0; k < f_.targets.size(); ++k) {
      auto& o = operand_of(f_.targets[k]);
      if (is_wanted(o)) out_[size_t(f_.targets[k])] = fit(results[k], o.value.tensor->sizes);
    }
  }

  // The derived operator, with the sums that follow if both are one program.
  op::Results call_summed(std::vector<op::Value>& args) const {
    if (!f_.summed || grad_enabled() || op::Mode::current()) return op::call(*f_.derived, args);
    SymSpan from;  // the sizes of the result
    for (size_t r = 0; r < c_.op().schema.returns.size() && from.empty(); ++r)
      if (Tensor g = v_.grad(int(r)); g.defined()) from = SymSpan(g.impl()->sizes);
    std::vector<Dims> dims;
    bool any = false;
    for (int tensor : f_.targets) {
      auto& to = operand_of(tensor).value.tensor->sizes;
      size_t leading = from.size() - to.size();
      auto& over = dims.emplace_back();
      for (size_t d = 0; d < from.size(); ++d)
        if (d < leading || from[d] != to[d - leading]) over.push_back(int64_t(d));
      any = any || !over.empty();
    }
    if (!any) return op::call(*f_.derived, args);
    for (auto& d : dims) args.push_back(SymSpan(d));
    return op::call(*f_.summed, args);
  }

  Tensor gradient_of(const Formula::Piece& piece, const Tensor& g) {
    std::vector<Tensor> kept;
    kept.reserve(operands_.size());
    auto& parameters = c_.op().schema.parameters;
    std::vector<op::Value> args;
    args.reserve(parameters.size() + operands_.size() + 1);
    args.push_back(g);
    size_t at = 0;
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (!parameters[p].is_operand()) {
        args.push_back(c_.at(p));
        continue;
      }
      for (; at < operands_.size() && operands_[at].name == parameters[p].name; ++at) {
        auto& o = operands_[at];
        if (o.value.is_none()) continue;
        if (is_number(o.value)) args.push_back(o.value);
        else if (piece.kept[at]) {
          kept.push_back(data_of(v_, o));
          args.push_back(kept.back());
        } else {
          args.push_back(SymSpan(o.value.tensor->sizes));
        }
      }
    }
    return op::call(*piece.derived, args)[0];
  }

  const Formula& f_;
  const op::Call& c_;
  const op::Vjp& v_;
  std::vector<Operand> operands_;
  op::Grads out_;
};

// The operator that joins views which cover one dimension of their base; null: they do not.
const char* joining(const op::Views& views, const Tensor& base) {
  using Kind = op::ViewStep::Kind;
  bool slices = true, selects = true;
  SymInt at = 0;
  for (size_t k = 0; k < views.size(); ++k) {
    auto& steps = views[k].steps();
    bool one = steps.size() == 1 && steps[0].dim == views[0].steps()[0].dim;
    slices = slices && one && steps[0].kind == Kind::slice && SymInt::surely_equal(steps[0].start, at) &&
             SymInt::surely_equal(steps[0].step, 1);
    selects =
        selects && one && steps[0].kind == Kind::select && SymInt::surely_equal(steps[0].start, int64_t(k));
    if (slices) at += steps[0].length;
  }
  int dim = views[0].steps().empty() ? 0 : views[0].steps()[0].dim;
  slices = slices && SymInt::surely_equal(at, base.size(dim));
  selects = selects && SymInt::surely_equal(base.size(dim), int64_t(views.size()));
  return slices ? "cat" : selects ? "stack" : nullptr;
}

Tensor joined(const char* how, const op::Views& views, const Tensor& base, const op::Vjp& v) {
  std::vector<Tensor> parts;
  DType d = base.dtype();
  for (size_t k = 0; k < views.size(); ++k)
    if (v.grad(int(k)).defined()) d = v.grad(int(k)).dtype();
  for (size_t k = 0; k < views.size(); ++k) {
    Tensor g = v.grad(int(k));
    parts.push_back(g.defined() ? g : filled(0, views[k].sizes(), d, base.device()));
  }
  return invoke(how, {std::span<const Tensor>(parts), views[0].steps()[0].dim});
}

Tensor undone(const Tensor& g, const op::ViewStep& s, const Tensor& base) {
  using Kind = op::ViewStep::Kind;
  SymSpan before = s.before;
  switch (s.kind) {
    case Kind::permute: {
      Dims inverse(s.order.size());
      for (size_t d = 0; d < s.order.size(); ++d) inverse[size_t(s.order[d])] = int64_t(d);
      return invoke("permute", {g, SymSpan(inverse)});
    }
    case Kind::slice:
      return invoke("slice_backward", {g, before, s.dim, s.start, s.start + s.length * s.step, s.step});
    case Kind::select: return invoke("select_backward", {g, before, s.dim, s.start});
    case Kind::expand: return fit(g, before);
    case Kind::insert:
    case Kind::erase:
    case Kind::reshape: return invoke("reshape", {g, before});
    case Kind::diagonal: return invoke("diagonal_backward", {g, before, s.start, s.dim, s.dim2});
    case Kind::as_real: return invoke("view_as_complex", {invoke("contiguous", {g})});
    case Kind::as_complex: return invoke("view_as_real", {g});
    case Kind::conj: return invoke("conj_physical", {g});
    case Kind::neg: return invoke("neg", {g});
    case Kind::as_dtype: internal_check(false) << "bytes have no gradient"; break;
    case Kind::strided:
      return invoke("as_strided_backward", {g, before, base.strides(), base.offset(), SymSpan(s.sizes),
                                            SymSpan(s.strides), s.start});
  }
  return g;
}
}  // namespace

op::Grads apply(const Formula& f, const op::Call& c, const op::Vjp& v) { return Application(f, c, v).run(); }

op::Grads view_gradient(const op::Call& c, const op::Vjp& v) {
  auto& o = c.op();
  Tensor base = c.tensor(o.schema.parameters[0].name);
  auto views = o.as<op::View>()->rule(c, op::Geometry(o.name(), base));

  // Pieces that cover one dimension are joined; that is cheaper than a sum of padded ones.
  if (views.size() > 1)
    if (auto* how = joining(views, base)) return {joined(how, views, base, v)};

  Tensor sum;
  for (size_t r = 0; r < views.size(); ++r) {
    Tensor g = v.grad(int(r));
    if (!g.defined()) continue;
    auto& steps = views[r].steps();
    for (size_t k = steps.size(); k-- > 0;) {
      internal_check(k == 0 || steps[k].kind != op::ViewStep::Kind::strided)
          << o.name() << ": a strided step comes first";
      g = undone(g, steps[k], base);
    }
    accumulate(sum, g);
  }
  return {sum};
}

}  // namespace facula::autograd
