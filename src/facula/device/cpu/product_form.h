// The part that the nests of products (product_nest.h, skinny_nest.h) share: the dtypes of their operands, and the epilogue of their
// sums.
#pragma once
#include <compare>

#include "facula/device/cpu/nest_builder.h"
#include "facula/loop/expr.h"
#include "facula/schedule/epilogue.h"

namespace facula::device::cpu {

using schedule::Epilogue;

struct ProductForm {
  Epilogue epilogue{};
  bool beside = false;  // the epilogue's values go to another buffer than the sums
  Epilogue saved{};     // a sum's value in the other buffer, over the operands of `epilogue`
  DType operands = DType::Float32, result = DType::Float32;  // in memory
  auto operator<=>(const ProductForm&) const = default;
};

// The value of the epilogue for `element` at this row and column. Its operands are the buffers from `buffer` on, and its params
// those of the nest from `param` on.
inline loop::Expr applied(const Epilogue& e, loop::Expr element, loop::Expr row, loop::Expr column,
                          int buffer, int param) {
  using loop::Expr, loop::Kind;
  const loop::Rewrite place = [&](Expr x) -> Expr {
    switch (x->kind) {
      case Kind::local: return x->slot == schedule::kResultElement ? element : x;
      case Kind::index: return x->slot == 0 ? row : column;
      case Kind::param: return loop::param(param + x->slot);
      case Kind::load: return loop::load(buffer + x->slot, x->memory, {rewrite(x->args[0], place)});
      default: return {};
    }
  };
  return e.value ? rewrite(e.value, place) : element;
}

// The nest of a product's tasks without its body, cost, and the buffers that its algorithm adds. Buffer numbers `a`, `out`, `tile`,
// `out_before`, `result` and `count`, behind which the operands of the epilogue follow, and the numbers of its params.
template <class Buffer, class Param>
loop::Nest nest_of_product(const char* name, const ProductForm& form, int task_var) {
  loop::Nest n;
  n.name = name;
  for (int k = 0; k < Buffer::count; ++k) n.buffers.push_back({DType::Float32, false, "", true});
  n.buffers[Buffer::a].dtype = form.operands, n.buffers[Buffer::result].dtype = form.result;
  for (DType d : form.epilogue.operands) n.buffers.push_back({d, false, "", true});
  for (int k : {Buffer::out, Buffer::tile, Buffer::result}) n.buffers[size_t(k)].written = true;
  for (int k : {Buffer::out, Buffer::out_before}) n.buffers[size_t(k)].unique = false;
  // The result of an epilogue may take the memory of an operand.
  for (int k = Buffer::result; form.beside && k < int(n.buffers.size()); ++k)
    n.buffers[size_t(k)].unique = false;
  n.params = Param::count + form.epilogue.params;
  n.task_var = task_var;
  n.tasks = loop::param(Param::tasks);
  return n;
}

}  // namespace facula::device::cpu
