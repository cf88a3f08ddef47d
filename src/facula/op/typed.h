// Lets `define` take C++ functions with natural types: adapters from lambdas to the function types of Operator, and
// the conversion of call values to the C++ parameters of composites.
//
// A composite's parameters follow the schema's:
//   Tensor            Tensor, std::optional<Tensor>    Scalar   Scalar (baked into the program) or Tensor (an operand)
//   Tensor[]          std::vector<Tensor>              Tensor?[]  also std::vector<std::optional<Tensor>>
//   int, SymInt       int64_t, int, SymInt             int[]    SymSpan, Sizes, Dims, Ints, std::vector<int64_t>
//   float             double (baked), or Tensor (an operand)
//   bool              bool                             float[]  std::vector<double>, std::vector<Scalar>
//   a user's class    Ref<T>
//   str               std::string_view, std::string    dtype, Device, MemoryFormat, Generator   the type; Generator*
// each as std::optional<...> if the schema has `?`. A parameter `const Call&` at any position receives the call and
// does not count; a body that only takes the call may omit the others.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "facula/op/argument.h"
#include "facula/op/operator.h"

namespace facula::op {
namespace typed {

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Result = std::decay_t<R>;
  using Arguments = std::tuple<std::decay_t<A>...>;
};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...)> : Signature<R (*)(A...)> {};

template <class T>
struct is_tuple : std::false_type {};
template <class... T>
struct is_tuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct is_tuple<std::pair<A, B>> : std::true_type {};
template <class T, size_t N>
struct is_tuple<std::array<T, N>> : std::true_type {};

// ---- loops and pointwise bodies
template <class R>
std::vector<loop::Expr> expressions(R&& r) {
  using T = std::decay_t<R>;
  if constexpr (std::is_same_v<T, loop::Expr>) return {r};
  else if constexpr (is_tuple<T>::value)
    return std::apply([](auto... x) { return std::vector<loop::Expr>{x...}; }, r);
  else return std::forward<R>(r);
}

// Raises unless the schema has `count` operands; a list may have any number.
void check_operand_count(const Schema& schema, size_t count);
Index result_index(const LoopCall& c);

template <class F, class... A>
PointwiseBody pointwise(const Schema& schema, F f, std::tuple<A...>*) {
  constexpr bool with_call = (std::is_same_v<A, LoopCall> || ...);
  constexpr bool any_number = (std::is_same_v<A, std::span<const loop::Expr>> || ...);
  constexpr size_t operands = (size_t(std::is_same_v<A, loop::Expr>) + ... + 0);
  static_assert(with_call + any_number + operands == sizeof...(A),
                "a pointwise body takes (const LoopCall&)?, then Expr... or std::span<const Expr>");
  if constexpr (any_number) {
    return [f](const LoopCall& c, std::span<const loop::Expr> x) {
      if constexpr (with_call) return expressions(f(c, x));
      else return expressions(f(x));
    };
  } else {
    check_operand_count(schema, operands);
    return [f](const LoopCall& c, std::span<const loop::Expr> x) {
      return [&]<size_t... K>(std::index_sequence<K...>) {
        if constexpr (with_call) return expressions(f(c, x[K]...));
        else return ((void)c, expressions(f(x[K]...)));
      }(std::make_index_sequence<operands>());
    };
  }
}

template <class F>
LoopBody loop_body(F f) {
  if constexpr (std::is_invocable_v<F&, const LoopCall&, Index>) {
    return [f](const LoopCall& c) {
      Index at = result_index(c);
      loop::Definition d;
      d.rank = int(at.size());
      d.values = expressions(f(c, std::move(at)));
      return d;
    };
  } else {
    static_assert(
        std::is_invocable_r_v<loop::Definition, F&, const LoopCall&>,
        "a loop is f(const LoopCall&, Index) -> Expr or std::vector<Expr>, or f(const LoopCall&) -> Definition");
    return LoopBody(std::move(f));
  }
}

template <class F>
ViewRule view_rule(F f) {
  return [f](const Call& c, Geometry&& g) { return Views(f(c, std::move(g))); };
}

// ---- composites
[[noreturn]] void wrong_value(const Call& c, size_t parameter, const char* expected);
Dims expanded_ints(const Call& c, size_t parameter);  // int[n]: a single integer is repeated

template <class T>
struct Read;  // fits(parameter): the type can represent it; get(call, k): the value of parameter k
#define FACULA_READ(T, FITS, GET)                                                               \
  template <> struct Read<T> {                                                                  \
    static bool fits([[maybe_unused]] const Parameter& p) { return FITS; }                      \
    static T get(const Call& c, size_t k) { [[maybe_unused]] const Value& v = c.at(k); GET }    \
  };
inline bool is(const Parameter& p, Type t, bool list = false) { return p.type == t && p.list == list; }

Tensor read_tensor(const Call& c, size_t k);
std::vector<Tensor> read_tensors(const Call& c, size_t k);
Scalar read_number(const Call& c, size_t k);
std::vector<Scalar> read_numbers(const Call& c, size_t k);

FACULA_READ(Tensor, is(p, Type::Tensor) || is(p, Type::Scalar) || is(p, Type::Float),
            return read_tensor(c, k);)
FACULA_READ(std::vector<Tensor>, is(p, Type::Tensor, true), return read_tensors(c, k);)
FACULA_READ(std::vector<std::optional<Tensor>>, is(p, Type::Tensor, true), {
  std::vector<std::optional<Tensor>> out;
  for (auto& t : read_tensors(c, k)) out.push_back(t.defined() ? std::optional(t) : std::nullopt);
  return out;
})
FACULA_READ(Scalar, is(p, Type::Scalar) || is(p, Type::Float) || is(p, Type::Int) || is(p, Type::Bool),
            return read_number(c, k);)
FACULA_READ(double, is(p, Type::Float) || is(p, Type::Scalar), return read_number(c, k).to_double();)
FACULA_READ(bool, is(p, Type::Bool), return read_number(c, k).to_bool();)
FACULA_READ(SymInt, is(p, Type::Int), return v.integer();)
FACULA_READ(int64_t, is(p, Type::Int), return v.integer().guard_int();)
FACULA_READ(int, is(p, Type::Int), return int(v.integer().guard_int());)
FACULA_READ(SymSpan, is(p, Type::Int, true), return v.ints();)
FACULA_READ(Sizes, is(p, Type::Int, true), if (v.is_none()) return std::nullopt; return v.ints();)
FACULA_READ(Dims, is(p, Type::Int, true), return expanded_ints(c, k);)
FACULA_READ(Ints, is(p, Type::Int, true), Ints out;
            for (SymInt i : expanded_ints(c, k)) out.push_back(i.guard_int()); return out;)
FACULA_READ(std::vector<int64_t>, is(p, Type::Int, true), std::vector<int64_t> out;
            for (SymInt i : expanded_ints(c, k)) out.push_back(i.guard_int()); return out;)
FACULA_READ(std::vector<Scalar>, p.list&& p.type != Type::Tensor, return read_numbers(c, k);)
FACULA_READ(std::vector<double>, is(p, Type::Float, true) || is(p, Type::Scalar, true),
            std::vector<double> out;
            for (auto& s : read_numbers(c, k)) out.push_back(s.to_double()); return out;)
FACULA_READ(std::vector<bool>, is(p, Type::Bool, true), std::vector<bool> out;
            for (auto& s : read_numbers(c, k)) out.push_back(s.to_bool()); return out;)
FACULA_READ(std::string_view, is(p, Type::String), if (v.tag != Tag::string) wrong_value(c, k, "a string");
            return v.string();)
FACULA_READ(std::string, is(p, Type::String), return std::string(Read<std::string_view>::get(c, k));)
FACULA_READ(DType, is(p, Type::DType), if (v.tag != Tag::dtype) wrong_value(c, k, "a dtype"); return v.dtype;)
FACULA_READ(Device, is(p, Type::Device), if (v.tag != Tag::device) wrong_value(c, k, "a device");
            return v.device;)
FACULA_READ(MemoryFormat, is(p, Type::Format), if (v.tag != Tag::format) wrong_value(c, k, "a memory format");
            return v.format;)
FACULA_READ(Generator*, is(p, Type::Generator), return v.is_none() ? nullptr : v.generator;)
#undef FACULA_READ
// An object of a user's class, which the caller keeps alive.
template <std::derived_from<CustomClassHolder> T>
struct Read<Ref<T>> {
  static bool fits(const Parameter& p) { return p.type == Type::Object && !p.list; }
  static Ref<T> get(const Call& c, size_t k) {
    const Value& v = c.at(k);
    if (v.is_none()) return {};
    auto* object = v.tag == Tag::object ? dynamic_cast<T*>(v.object) : nullptr;
    if (!object) wrong_value(c, k, ("an object of " + c.op().schema.parameters[k].class_name).c_str());
    return Ref<T>::share(object);
  }
};
template <class T>
struct Read<std::optional<T>> {
  static bool fits(const Parameter& p) { return p.optional && Read<T>::fits(p); }
  static std::optional<T> get(const Call& c, size_t k) {
    if (c.at(k).is_none()) return std::nullopt;
    return Read<T>::get(c, k);
  }
};

template <class R>
Results results(R&& r) {
  using T = std::decay_t<R>;
  if constexpr (std::is_same_v<T, Results>) return std::forward<R>(r);
  else if constexpr (std::is_same_v<T, Tensor>) return Results(std::forward<R>(r));
  else if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
    Results out;
    for (auto& t : r) out.push_back(t);
    return out;
  } else if constexpr (is_tuple<T>::value) {
    return std::apply([](auto&&... t) { return Results{t...}; }, r);
  } else if constexpr (std::is_same_v<T, SymInt>) return Results(Tensor::scalar(r.guard_int(), DType::Int64));
  else if constexpr (std::is_same_v<T, Scalar>) return Results(Tensor::scalar(r, operand_dtype(r)));
  else if constexpr (std::is_same_v<T, bool>) return Results(Tensor::scalar(r, DType::Bool));
  else if constexpr (std::is_integral_v<T>) return Results(Tensor::scalar(int64_t(r), DType::Int64));
  else {
    static_assert(std::is_floating_point_v<T>,
                  "a composite gives Tensor, a tuple or vector of them, Results or a number");
    return Results(Tensor::scalar(double(r), DType::Float64));
  }
}
// The number of results according to a C++ return type; -1: any number.
template <class R>
constexpr int result_count() {
  if constexpr (std::is_same_v<R, Results> || std::is_same_v<R, std::vector<Tensor>>) return -1;
  else if constexpr (std::is_void_v<R>) return 0;
  else if constexpr (is_tuple<R>::value) return int(std::tuple_size_v<R>);
  else return 1;
}

struct BodyParameter {
  bool is_call = false;
  bool by_value = true;
  bool (*fits)(const Parameter&) = nullptr;
};
// Determines how the body takes its numbers; raises unless its parameters and results fit the schema. `body` remains
// unset.
Composite check_composite(const Schema& schema, std::span<const BodyParameter> parameters, int results);

template <class T>
BodyParameter body_parameter() {
  if constexpr (std::is_same_v<T, Call>) return {true, false, nullptr};
  else
    return {false, !std::is_same_v<T, Tensor> && !std::is_same_v<T, std::optional<Tensor>>, &Read<T>::fits};
}
// A Tensor for a body: the caller's tensor, without counting a reference, or a tensor that wraps a number.
class TensorArgument {
 public:
  TensorArgument(const Call& c, size_t k)
      : TensorArgument(c.at(k).tag == Tag::tensor ? Tensor() : read_tensor(c, k), c.at(k)) {}
  operator const Tensor&() const { return tensor_; }

 private:
  TensorArgument(Tensor wrapped, const Value& v)
      : wrapped_(std::move(wrapped)), tensor_(v.tag == Tag::tensor ? v.tensor : wrapped_.impl()) {}
  Tensor wrapped_;
  Borrowed tensor_;
};
template <class T>
decltype(auto) body_argument(const Call& c, size_t k) {
  if constexpr (std::is_same_v<T, Call>) return static_cast<const Call&>(c);
  else if constexpr (std::is_same_v<T, Tensor>) return TensorArgument(c, k);
  else return Read<T>::get(c, k);
}

template <class F, class... A>
Composite composite(const Schema& schema, F f, std::tuple<A...>*) {
  using R = typename Signature<F>::Result;
  const std::array<BodyParameter, sizeof...(A)> parameters{body_parameter<A>()...};
  Composite composite = check_composite(schema, parameters, result_count<R>());
  composite.body = [f](const Call& c) -> Results {
    return [&]<size_t... K>(std::index_sequence<K...>) -> Results {
      // The position in the schema of body parameter k: the number of parameters before it other than the call.
      constexpr bool is_call[] = {std::is_same_v<A, Call>..., false};
      constexpr auto position = [](size_t k, const bool* calls) {
        size_t n = 0;
        for (size_t i = 0; i < k; ++i) n += !calls[i];
        return n;
      };
      if constexpr (std::is_void_v<R>) {
        f(body_argument<A>(c, position(K, is_call))...);
        return {};
      } else return results(f(body_argument<A>(c, position(K, is_call))...));
    }(std::index_sequence_for<A...>());
  };
  return composite;
}
template <class F>
Composite composite(const Schema& schema, F f) {
  return composite(schema, std::move(f), static_cast<typename Signature<F>::Arguments*>(nullptr));
}

}  // namespace typed

template <class F>
Definer& Definer::pointwise(F f) {
  op_->definition =
      Pointwise{typed::pointwise(op_->schema, std::move(f),
                                 static_cast<typename typed::Signature<F>::Arguments*>(nullptr))};
  return *this;
}
template <class F>
Definer& Definer::loop(F f) {
  op_->definition = Loop{{}, typed::loop_body(std::move(f))};
  return *this;
}
template <class F>
Definer& Definer::view(F f) {
  op_->definition = View{typed::view_rule(std::move(f))};
  return *this;
}
template <class F>
Definer& Definer::composite(F f) {
  op_->definition = typed::composite(op_->schema, std::move(f));
  return *this;
}
template <class F>
Definer& Definer::procedure(F f) {
  op_->definition = Procedure{typed::composite(op_->schema, std::move(f)).body, {}};
  return *this;
}
template <class F>
Definer& Definer::in_place(F f) {
  draft_->in_place = typed::composite(op_->schema, std::move(f)).body;
  return in_place();
}
template <class F>
Definer& Definer::reference(F f) {
  using First = std::decay_t<std::tuple_element_t<0, typename typed::Signature<F>::Arguments>>;
  if constexpr (std::is_same_v<First, LoopCall>) draft_->backed.reference = typed::loop_body(std::move(f));
  else draft_->backed.composed_reference = typed::composite(op_->schema, std::move(f)).body;
  return *this;
}

}  // namespace facula::op
