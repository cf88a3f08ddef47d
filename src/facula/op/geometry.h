// Geometry: how a view lies over its base. View operators are written with these steps; a step changes sizes,
// strides and offset, and is recorded, so that the view's gradient (inverse steps on the gradient) and its
// functional form (an index map) follow from the same definition.
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
  Dims before;                 // sizes before this step
};

class Geometry {
 public:
  // `keeps_steps`: false for those who want the result only.
  Geometry(const char* op, SymSpan sizes, SymSpan strides, SymInt offset, bool keeps_steps = true);
  Geometry(const char* op, const Tensor& t, bool keeps_steps = true)
      : Geometry(op, t.sizes(), t.strides(), t.offset(), keeps_steps) {}

  int dim() const { return int(sizes_.size()); }
  SymSpan sizes() const { return sizes_; }
  SymSpan strides() const { return strides_; }
  SymInt offset() const { return offset_; }
  SymInt size(int d) const { return sizes_[size_t(d)]; }
  const std::vector<ViewStep>& steps() const { return steps_; }

  // Dimensions are already wrapped (Call::dim); a step that does not fit raises PyTorch's error for `op`.
  Geometry& permute(IntSpan order) &;
  Geometry& swap(int a, int b) &;
  Geometry& slice(int dim, SymInt start, SymInt length, SymInt step) &;  // start within [0, size], step > 0
  Geometry& select(int dim, SymInt index) &;                             // index within [0, size)
  Geometry& expand(SymSpan sizes) &;   // -1 keeps; new leading dimensions allowed
  Geometry& insert(int dim) &;         // a dimension of size 1
  Geometry& erase(int dim) &;          // of size 1
  Geometry& reshape(SymSpan sizes) &;  // no -1; needs can_view(sizes)
  Geometry& strided(SymSpan sizes, SymSpan strides, SymInt offset) &;
  Geometry& diagonal(int dim1, int dim2, SymInt offset) &;
  // Complex numbers of `d` as pairs of real ones, along a new last dimension; and the inverse, of real
  // numbers of `d`.
  Geometry& as_real(DType d) &;
  Geometry& as_complex(DType d) &;
  // The bytes of elements of `from` as elements of `to`: the last dimension is longer or shorter by the ratio
  // of sizes.
  Geometry& as_dtype(DType from, DType to) &;
  // The conjugates, or the negatives, of the base's elements, worked out when they are read (run/lazy.h).
  Geometry& conj() &;
  Geometry& neg() &;
  bool can_view(SymSpan sizes) const;
  DType dtype(DType base) const { return dtype_.value_or(base); }

  // For an element of the view at `at`, its index in a base of sizes steps().front().before. Only if it has
  // one.
  bool has_base_index() const;
  std::vector<loop::Expr> base_index(std::vector<loop::Expr> at) const;

  Tensor apply(const Tensor& base) const;

 private:
  ViewStep* begin(ViewStep::Kind kind);  // a step from the present sizes; null if none are kept
  const char* op_;
  Dims sizes_, strides_;
  SymInt offset_;
  std::optional<DType> dtype_;  // where it is not the base's; strides and offset count its elements
  bool conj_ = false, neg_ = false;
  bool keeps_steps_;
  std::vector<ViewStep> steps_;
};

// Elements of memory from the first of a tensor to its last; 0 of one without elements.
SymInt reach(SymSpan sizes, SymSpan strides);

// What a view rule gives: mostly one, which costs no allocation.
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

// Fills the -1 in a requested shape; RuntimeError as PyTorch's if it cannot.
Dims infer_shape(const char* op, SymSpan requested, SymInt numel);
// Strides under which a tensor can be seen as `to` without copying, or none.
std::optional<Dims> view_strides(SymSpan sizes, SymSpan strides, SymSpan to);

}  // namespace facula::op
