#include "facula/schedule/epilogue.h"

#include <algorithm>
#include <map>

namespace facula::schedule {

using loop::Expr;
using loop::Kind;

namespace {

class Translation {
 public:
  Translation(const Group& g, int result, const Layout& l) : g_(g), l_(l), result_(result) {
    for (size_t d = 0; d < sizes().size(); ++d)
      if (int64_t axis = g.outputs[0].axes[d]; axis >= 0) dimension_of_[axis] = d;
  }

  std::optional<GroupEpilogue> run() {
    Expr value = loop::rewrite(g_.outputs[0].value, [&](Expr e) { return translated(e); });
    if (!possible_) return {};
    e_.function.value = value;
    e_.function.params = int(e_.params.size());
    return std::move(e_);
  }

 private:
  const Ints& sizes() const { return l_.input_sizes[size_t(result_)]; }
  Expr refused(Expr e) {
    possible_ = false;
    return e;
  }
  Expr translated(Expr e) {
    switch (e->kind) {
      case Kind::constant: return e;
      case Kind::cast:
      case Kind::call:
      case Kind::select: return {};
      case Kind::size: return parameter(l_.size_of(e->size));
      case Kind::load: return e->slot == result_ ? element(e) : operand(e);
      default: return refused(e);
    }
  }
  Expr parameter(int64_t value) {
    e_.params.push_back(value);
    return loop::param(int(e_.params.size()) - 1);
  }
  // The dimension of the result along which an index of a load runs; empty: none, the index is 0.
  struct Along {
    bool is_one = false;  // the index is 0 or that of one dimension
    std::optional<size_t> dimension;
  };
  Along along(Expr index) const {
    if (index->kind == Kind::constant) return {index->value.to_int() == 0, {}};
    if (index->kind != Kind::index) return {};
    auto it = dimension_of_.find(index->slot);
    return it == dimension_of_.end() ? Along{} : Along{true, it->second};
  }
  Expr element(Expr e) {
    bool own = e->args.size() == sizes().size();
    for (size_t d = 0; own && d < sizes().size(); ++d) {
      auto at = along(e->args[d]);
      own = at.is_one && (at.dimension ? *at.dimension == d : sizes()[d] == 1);
    }
    return own ? loop::local(kResultElement, e.dtype()) : refused(e);
  }
  Expr operand(Expr e) {
    if (e->part) return refused(e);
    Ints strides(sizes().size());
    for (size_t d = 0; d < e->args.size(); ++d) {
      auto at = along(e->args[d]);
      if (!at.is_one) return refused(e);
      if (at.dimension) strides[*at.dimension] += l_.input_strides[size_t(e->slot)][d];
    }
    // Rows are counted over all dimensions but the last, so these have to be evenly spaced.
    size_t last = sizes().size() - 1;
    std::optional<int64_t> row;
    int64_t rows = 1;
    for (size_t d = last; d-- > 0;) {
      if (sizes()[d] == 1) continue;
      if (!row) row = strides[d];
      if (strides[d] != *row * rows) return refused(e);
      rows *= sizes()[d];
    }
    int64_t column = sizes()[last] == 1 ? 0 : strides[last];
    // Lanes are those of float32 elements, so wider ones are taken only if all lanes share one.
    bool narrow = column == 1 && !is_complex(e->memory) && itemsize(e->memory) <= 4;
    if (column != 0 && !narrow) return refused(e);
    Expr offset = loop::constant(Scalar(int64_t(0)), DType::Int64);
    if (row.value_or(0)) offset = loop::index(0) * parameter(*row);
    if (column) offset = offset + loop::index(1);
    return loop::load(slot_of(e->slot, e->memory), e->memory, {offset});
  }
  int slot_of(int input, DType d) {
    auto it = std::find(e_.inputs.begin(), e_.inputs.end(), input);
    if (it != e_.inputs.end()) return int(it - e_.inputs.begin());
    e_.inputs.push_back(input);
    e_.function.operands.push_back(d);
    return int(e_.inputs.size()) - 1;
  }

  const Group& g_;
  const Layout& l_;
  int result_;
  std::map<int64_t, size_t> dimension_of_;  // by axis: the dimension of the result
  GroupEpilogue e_;
  bool possible_ = true;
};

bool is_row_major(const Ints& sizes, const Ints& strides) {
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != step) return false;
    step *= sizes[d];
  }
  return true;
}

}  // namespace

std::optional<GroupEpilogue> as_epilogue(const Group& g, int result, const Layout& l) {
  auto k = size_t(result);
  if (g.scatter || g.outputs.size() != 1 || g.inputs[k].dtype != DType::Float32) return {};
  auto& out = g.outputs[0];
  auto& sizes = l.input_sizes[k];
  bool like = out.dtype == DType::Float32 && out.value.dtype() == DType::Float32 && sizes.size() >= 2 &&
              l.output_sizes[0] == sizes && out.axes.size() == sizes.size() &&
              is_row_major(sizes, l.input_strides[k]) && is_row_major(sizes, l.output_strides[0]);
  if (!like) return {};
  // Rows and columns of the loop over elements are those of the result: every axis is one of its dimensions.
  size_t named = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t axis = out.axes[d];
    if (axis < 0 && sizes[d] != 1) return {};
    named += axis >= 0 && l.extents[size_t(axis)] != 1;
  }
  size_t axes = size_t(std::ranges::count_if(l.extents, [](int64_t n) { return n != 1; }));
  return named == axes ? Translation(g, result, l).run() : std::nullopt;
}

}  // namespace facula::schedule
