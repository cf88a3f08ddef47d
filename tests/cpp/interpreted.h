// Eager calls without a compiler: op::call by the loop interpreter, and a small catalog, so that the tape and
// the graph passes are tested before anything generates code. Include in one file of a test program.
#pragma once
#include <algorithm>
#include <map>

#include "facula/autograd/autograd.h"
#include "facula/autograd/formula.h"
#include "facula/loop/interpret.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/tensor/promotion.h"

namespace facula::test {

inline Tensor make(std::vector<double> values, std::vector<int64_t> sizes, DType d = DType::Float64) {
  Tensor t = Tensor::empty(IntSpan(sizes), d);
  for (size_t i = 0; i < values.size(); ++i)
    Scalar(values[i]).store(d, static_cast<char*>(t.data_ptr()) + i * size_t(itemsize(d)));
  return t;
}
inline Tensor leaf(std::vector<double> values, std::vector<int64_t> sizes, DType d = DType::Float64) {
  Tensor t = make(std::move(values), std::move(sizes), d);
  autograd::set_requires_grad(t, true);
  return t;
}

inline std::vector<double> values_of(const Tensor& t) {
  std::vector<double> out;
  auto sizes = t.int_sizes();
  auto strides = t.int_strides();
  int64_t n = t.numel().concrete();
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, at = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      at += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    out.push_back(
        Scalar::load(t.dtype(), static_cast<const char*>(t.data_ptr()) + at * t.itemsize()).to_double());
  }
  return out;
}

inline Tensor call(std::string_view name, std::initializer_list<op::Value> args,
                   op::Form form = op::Form::functional) {
  auto& o = op::get(name);
  std::vector<op::Value> all(args);
  all.resize(o.schema.parameters.size());
  return op::call(o, all, form)[0];
}
inline std::vector<Tensor> calls(std::string_view name, std::initializer_list<op::Value> args) {
  auto& o = op::get(name);
  std::vector<op::Value> all(args);
  all.resize(o.schema.parameters.size());
  return op::call(o, all).to_vector();
}

inline void write(const Tensor& from, const Tensor& to) {
  auto sizes = to.int_sizes();
  auto values = values_of(from);
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t rest = int64_t(i), at = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      at += rest % sizes[d] * to.int_strides()[d];
      rest /= sizes[d];
    }
    Scalar(values[i]).store(to.dtype(), static_cast<char*>(to.data_ptr()) + at * to.itemsize());
  }
}

inline op::Results computed(const op::Operator& o, std::span<const op::Value> args) {
  op::LoopCall c(o, args);
  std::vector<Tensor> operands;
  std::vector<SymSpan> shapes;
  for (auto& x : autograd::operands_of(c)) {
    bool number = x.value.tag == op::Tag::scalar || x.value.tag == op::Tag::integer;
    operands.push_back(x.value.is_none() ? Tensor::empty(IntSpan(), DType::Float64)
                       : number          ? Tensor::scalar(x.value.number(), op::operand_dtype(x.value))
                                         : Tensor(Ref<TensorImpl>::share(x.value.tensor)));
    if (x.value.tag == op::Tag::tensor) shapes.push_back(x.value.tensor->sizes);
  }
  loop::Definition d;
  std::vector<Dims> sizes;
  DType computing = op::computing_dtype(o, args);
  if (auto* pointwise = o.as<op::Pointwise>()) {
    Dims shape = broadcast_sizes(o.name(), shapes);
    d.rank = int(shape.size());
    std::vector<loop::Expr> x;
    for (size_t k = 0; k < operands.size(); ++k) {
      auto& t = operands[k];
      std::vector<loop::Expr> at;
      for (int i = 0; i < t.dim(); ++i)
        at.push_back(t.size(i) == 1 ? op::integer(0) : loop::index(d.rank - t.dim() + i));
      auto e = loop::load(int(k), t.dtype(), at);
      x.push_back(o.promote == op::Promote::none ? e : loop::cast(e, compute_type(computing)));
    }
    d.values = pointwise->body(c, x);
    sizes.assign(d.values.size(), shape);
  } else {
    d = o.as<op::Loop>()->body(c);
    sizes = o.shaped()->shape(c);
    for (auto& t : operands)
      if (t.dim()) {
        computing = t.dtype();
        break;
      }
  }
  auto types = o.dtype_rule
                   ? o.dtype_rule(c)
                   : std::vector<DType>(sizes.size(),
                                        o.result_type == op::ResultType::boolean ? DType::Bool : computing);
  op::Results out;
  for (auto& t : loop::interpret(d, operands, sizes, types)) out.push_back(t);
  return out;
}

}  // namespace facula::test

namespace facula::op {
Results call(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out) {
  auto* mode = Mode::current();
  return mode ? mode->take(o, args, form, out) : perform(o, args, form, out);
}
Results perform(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor>) {
  bool recording = autograd::needs_record(args);
  if (auto* body = o.calls()) return (*body)(Call(o, args));
  if (auto* view = o.as<View>()) {
    Tensor base(Ref<TensorImpl>::share(args[0].tensor));
    Results results;
    auto views = view->rule(Call(o, args), Geometry(o.name(), base));
    int k = 0;
    for (auto& g : views) {
      results.push_back(g.apply(base));
      autograd::track_view(results[results.size() - 1], base, views.size() > 1, o.name(), k++);
    }
    if (recording) autograd::record(o, args, form, results);
    return results;
  }
  Tensor original;
  if (form == Form::in_place) {
    Tensor self(Ref<TensorImpl>::share(args[0].tensor));
    autograd::check_in_place(o.name(), self, recording);
    if (recording) original = autograd::original_of(o, args);
  }
  Results results = test::computed(o, args);
  if (form == Form::in_place) {
    Tensor self(Ref<TensorImpl>::share(args[0].tensor));
    test::write(results[0], self);
    results = Results(self);
    self.bump_version();
  }
  if (recording) autograd::record(o, args, form, results, original);
  return results;
}
}  // namespace facula::op

namespace facula::test {

// The operators that the tape itself calls, and some to try it on.
inline void define_small_catalog() {
  using namespace op;
  using loop::Expr;
  static bool done = false;
  if (std::exchange(done, true)) return;
  define_late([] {
    define("add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
        .pointwise([](Expr a, Expr b, Expr alpha) { return a + alpha * b; });
    define("sub(Tensor self, Tensor other) -> Tensor").pointwise([](Expr a, Expr b) { return a - b; });
    define("mul(Tensor self, Tensor other) -> Tensor").pointwise([](Expr a, Expr b) { return a * b; });
    define("exp(Tensor self) -> Tensor").pointwise([](Expr a) { return exp(a); });
    define("sin(Tensor self) -> Tensor").pointwise([](Expr a) { return sin(a); });
    define("relu(Tensor self) -> Tensor").pointwise([](Expr a) { return relu(a); });
    define("floor(Tensor self) -> Tensor").pointwise([](Expr a) { return floor(a); });
    define("real(Tensor self) -> Tensor").result(ResultType::real).pointwise([](Expr a) {
      return is_complex(a.dtype()) ? real(a) : a;
    });
    define("to_dtype(Tensor self, dtype dtype) -> Tensor")
        .promote(Promote::none)
        .result([](const Call& c) { return std::vector<DType>{c["dtype"].dtype}; })
        .pointwise([](const LoopCall& c, Expr x) { return loop::cast(x, compute_type(c["dtype"].dtype)); });
    define("copy(Tensor self, Tensor src) -> Tensor")
        .promote(Promote::none)
        .result([](const Call& c) { return std::vector<DType>{c.dtype("self")}; })
        .pointwise([](Expr a, Expr b) { return loop::cast(b, a.dtype()); });
    define("_copied(Tensor self) -> Tensor").pointwise([](Expr a) { return a; });
    define("clone(Tensor self) -> Tensor").pointwise([](Expr a) { return a; });
    define("full(SymInt[] size, Scalar fill_value, *, dtype? dtype=None, Device? device=None) -> Tensor")
        .result([](const Call& c) { return std::vector<DType>{c["dtype"].dtype}; })
        .shape([](const Call& c) { return Dims(c.ints("size")); })
        .loop(
            [](const LoopCall& c, Index) { return c.scalar("fill_value", compute_type(c["dtype"].dtype)); });
    define("sum(Tensor self, int[1] dim=(), bool keepdim=False) -> Tensor")
        .shape(reduced())
        .loop([](const LoopCall& c, Index i) {
          return reduce_over(c, loop::monoid::sum, i, [&](Index j) { return c.load("self", j); });
        });
    define("mm(Tensor self, Tensor mat2) -> Tensor")
        .shape([](const Call& c) { return Dims{c.size("self", 0), c.size("mat2", 1)}; })
        .loop([](const LoopCall& c, Index i) {
          return reduce(c, loop::monoid::sum, {c.size("self", 1)},
                        [&](Index k) { return c.load("self", {i[0], k[0]}) * c.load("mat2", {k[0], i[1]}); });
        });
    define("gather_rows(Tensor self, Tensor index) -> Tensor")
        .shape([](const Call& c) { return Dims{c.size("index", 0), c.size("self", 1)}; })
        .loop([](const LoopCall& c, Index i) {
          return c.load("self", {c.index_load("index", {i[0]}, c.size("self", 0)), i[1]});
        });
    define("sum_to_size(Tensor self, SymInt[] size) -> Tensor")
        .procedure([](const Tensor& self, SymSpan size) {
          Dims over;
          int leading = self.dim() - int(size.size());
          for (int k = 0; k < self.dim(); ++k)
            if (k < leading || (size[size_t(k - leading)] == 1 && self.size(k) != 1))
              over.push_back(int64_t(k));
          if (over.empty()) return self;
          Tensor t = test::call("sum", {self, SymSpan(over), true});
          return leading ? test::call("view", {t, size}) : t;
        });
    define("cube(Tensor self) -> Tensor").pointwise([](Expr a) { return a * a * a; }).vjp([](const Vjp& v) {
      return grads(
          test::call("mul", {v.grad(), test::call("mul", {test::call("mul", {v["self"], v["self"]}), 3.0})}));
    });
    define("view(Tensor(a) self, SymInt[] size) -> Tensor(a)").view([](const Call& c, Geometry g) {
      g.reshape(c.ints("size"));
      return g;
    });
    define("reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)")
        .procedure([](const Tensor& self, SymSpan to) {
          return test::call("view",
                            {Geometry("reshape", self).can_view(to) ? self : test::call("contiguous", {self}),
                             to});
        });
    define("contiguous(Tensor self) -> Tensor")
        .shape([](const Call& c) { return Dims(c.sizes("self")); })
        .loop([](const LoopCall& c, Index i) { return c.load("self", i); });
    define("permute(Tensor(a) self, int[] dims) -> Tensor(a)").view([](const Call& c, Geometry g) {
      Ints order;
      for (auto d : c.ints("dims")) order.push_back(d.concrete());
      g.permute(order);
      return g;
    });
    define("select(Tensor(a) self, int dim, SymInt index) -> Tensor(a)").view([](const Call& c, Geometry g) {
      g.select(int(c.integer("dim").concrete()), c.integer("index"));
      return g;
    });
    define("slice(Tensor(a) self, int dim, SymInt start, SymInt length, SymInt step) -> Tensor(a)")
        .view([](const Call& c, Geometry g) {
          g.slice(int(c.integer("dim").concrete()), c.integer("start"), c.integer("length"),
                  c.integer("step"));
          return g;
        });
    define("expand(Tensor(a) self, SymInt[] size) -> Tensor(a)").view([](const Call& c, Geometry g) {
      g.expand(c.ints("size"));
      return g;
    });
    define(
        "as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)")
        .view([](const Call& c, Geometry g) {
          g.strided(c.ints("size"), c.ints("stride"), c.integer("storage_offset"));
          return g;
        });
    define("unbind(Tensor(a) self) -> Tensor(a)[]").view([](const Call&, Geometry g) {
      std::vector<Geometry> out;
      for (int64_t k = 0; k < g.size(0).concrete(); ++k) {
        out.push_back(g);
        out.back().select(0, k);
      }
      return out;
    });
    define("stack(Tensor[] tensors, int dim=0) -> Tensor")
        .shape([](const Call& c) {
          return inserted(c.tensors("tensors")[0].sizes(), 0, int64_t(c.tensors("tensors").size()));
        })
        .loop([](const LoopCall& c, Index i) {
          Expr x;
          for (size_t k = c.tensors("tensors").size(); k-- > 0;) {
            Expr here = c.load("tensors", Index(i.begin() + 1, i.end()), int(k));
            x = x ? loop::select(loop::eq(i[0], integer(int64_t(k))), here, x) : here;
          }
          return x;
        });
    define(
        "slice_backward(Tensor grad, SymInt[] input_sizes, int dim, SymInt start, SymInt end, SymInt step) -> Tensor")
        .shape([](const Call& c) { return Dims(c.ints("input_sizes")); })
        .loop([](const LoopCall& c, Index i) {
          auto d = size_t(c.integer("dim").concrete());
          Expr at = i[d] - loop::size(c.integer("start")), step = loop::size(c.integer("step"));
          Expr inside = (at >= integer(0)) & (at < loop::size(c.size("grad", int(d)) * c.integer("step"))) &
                        eq(remainder(at, step), integer(0));
          return loop::select(inside, c.load("grad", with(i, int(d), floordiv(at, step))), Scalar(0.0));
        });
    define("select_backward(Tensor grad, SymInt[] input_sizes, int dim, SymInt index) -> Tensor")
        .shape([](const Call& c) { return Dims(c.ints("input_sizes")); })
        .loop([](const LoopCall& c, Index i) {
          int d = int(c.integer("dim").concrete());
          return loop::select(eq(i[size_t(d)], loop::size(c.integer("index"))), c.load("grad", without(i, d)),
                              Scalar(0.0));
        });
    define(
        "as_strided_backward(Tensor grad, SymInt[] input_sizes, SymInt[] input_strides, SymInt input_offset, SymInt[] size, SymInt[] stride, SymInt offset) -> Tensor")
        .shape([](const Call& c) { return Dims(c.ints("input_sizes")); })
        .loop([](const LoopCall& c) {  // contiguous inputs
          loop::Definition d;
          auto sizes = c.ints("input_sizes");
          d.rank = int(sizes.size());
          loop::Scatter s;
          s.domain = Dims(c.sizes("grad"));
          Expr place = loop::size(c.integer("offset") - c.integer("input_offset"));
          Index at;
          for (size_t k = 0; k < s.domain.size(); ++k) {
            at.push_back(loop::index(int(k)));
            place = place + at.back() * loop::size(c.ints("stride")[k]);
          }
          for (size_t k = 0; k < sizes.size(); ++k)
            s.target.push_back(
                remainder(floordiv(place, loop::size(c.ints("input_strides")[k])), loop::size(sizes[k])));
          s.value = c.load("grad", at);
          d.scatter = s;
          return d;
        });
  });
}

}  // namespace facula::test
