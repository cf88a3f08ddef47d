// Geometry: the sizes, strides and offset of a view in the memory of its base. View operators are written with these
// steps. A step changes the geometry and is recorded, so that the view's gradient (inverse steps applied to the
// gradient) and its functional form (an index map) follow from the same definition.
//   example: transpose(x, 0, 1) of sizes [2, 3], strides [3, 1]  ->  sizes [3, 2], strides [1, 3], step permute [1,
//                                                                0]
#pragma once
#include <optional>
#include <vector>

#include "facula/loop/expr.h"
#include "facula/tensor/tensor.h"

namespace facula::op {

struct ViewStep {
  enum class Kind : uint8_t {
    permute,
    slice,
    select,
    expand,
    insert,
    erase,
    reshape,
    strided,
    diagonal,
    as_real,
    as_complex,
    as_dtype,
    conj,
    neg
  } kind;
  int dim = 0, dim2 = 0;
  SymInt start, step, length;  // slice; select: start; diagonal: start = offset
  Dims sizes, strides;         // reshape, expand: new sizes; strided: both and start = offset
  Ints order;                  // permute
  Dims before;                 // sizes before the step
};

class Geometry {
 public:
  // `keeps_steps`: false if only the resulting geometry is needed.
  Geometry(const char* op, SymSpan sizes, SymSpan strides, SymInt offset, bool keeps_steps = true);
  Geometry(const char* op, const Tensor& t, bool keeps_steps = true)
      : Geometry(op, t.sizes(), t.strides(), t.offset(), keeps_steps) {}

  int dim() const { return int(sizes_.size()); }
  SymSpan sizes() const { return sizes_; }
  SymSpan strides() const { return strides_; }
  SymInt offset() const { return offset_; }
  SymInt size(int d) const { return sizes_[size_t(d)]; }
  const std::vector<ViewStep>& steps() const { return steps_; }

  // Dimensions are wrapped already (Call::dim); a step that does not fit raises PyTorch's error for `op`.
  Geometry& permute(IntSpan order) &;
  Geometry& swap(int a, int b) &;
  Geometry& slice(int dim, SymInt start, SymInt length, SymInt step) &;  // start within [0, size], step > 0
  Geometry& select(int dim, SymInt index) &;                             // index within [0, size)
  Geometry& expand(SymSpan sizes) &;   // -1 keeps a size; new leading dimensions are allowed
  Geometry& insert(int dim) &;         // adds a dimension of size 1
  Geometry& erase(int dim) &;          // removes a dimension of size 1
  Geometry& reshape(SymSpan sizes) &;  // no -1; needs can_view(sizes)
  Geometry& strided(SymSpan sizes, SymSpan strides, SymInt offset) &;
  Geometry& diagonal(int dim1, int dim2, SymInt offset) &;
  // Complex numbers of `d` as pairs of real ones along a new last dimension; and the inverse, for real numbers of
  // `d`.
  Geometry& as_real(DType d) &;
  Geometry& as_complex(DType d) &;
  // Reinterprets the bytes of elements of `from` as elements of `to`: the last dimension changes by the ratio of the
  // element sizes.
  Geometry& as_dtype(DType from, DType to) &;
  // The conjugates, or the negatives, of the base's elements, which are computed when they are read (run/lazy.h).
  Geometry& conj() &;
  Geometry& neg() &;
  bool can_view(SymSpan sizes) const;
  DType dtype(DType base) const { return dtype_.value_or(base); }

  // The index in a base of sizes steps().front().before of the element at index `at` of the view. Requires
  // has_base_index().
  bool has_base_index() const;
  std::vector<loop::Expr> base_index(std::vector<loop::Expr> at) const;

  Tensor apply(const Tensor& base) const;

 private:
  ViewStep* begin(
      ViewStep::Kind kind);  // begins a step from the current sizes; null if steps are not recorded
  const char* op_;
  Dims sizes_, strides_;
  SymInt offset_;
  std::optional<DType> dtype_;  // if it differs from the base's; strides and offset count its elements
  bool conj_ = false, neg_ = false;
  bool keeps_steps_;
  std::vector<ViewStep> steps_;
};

// The extent in memory: elements from the first to the last of a tensor; 0 if it has none.
SymInt reach(SymSpan sizes, SymSpan strides);

// The results of a view rule: usually one, which needs no allocation.
class Views {
 public:
  explicit Views(Geometry g) : one_(std::move(g)) {}
  explicit Views(std::vector<Geometry> all) : all_(std::move(all)) {}
  size_t size() const { return one_ ? 1 : all_.size(); }
  const Geometry* begin() const { return one_ ? &*one_ : all_.data(); }
  const Geometry* end() const { return begin() + size(); }
  const Geometry& operator[](size_t k) const { return begin()[k]; }

 private:
  std::optional<Geometry> one_;
  std::vector<Geometry> all_;
};

// Infers the -1 in a requested shape; raises PyTorch's RuntimeError if that is impossible.
Dims infer_shape(const char* op, SymSpan requested, SymInt numel);
// The strides with which a tensor can be viewed as sizes `to` without a copy, or none.
std::optional<Dims> view_strides(SymSpan sizes, SymSpan strides, SymSpan to);

}  // namespace facula::op
