// Householder reflections of real matrices by strips of columns (column_strips.h). The reflections of a panel are applied
// together: H1 H2 ... = 1 - V T V^T, where T^-1 is the upper triangle of V^T V with 1 / tau on its diagonal (Joffrain and
// others, "Accumulating Householder transformations, revisited", 2006).
#pragma once
#include <limits>
#include <vector>

#include "facula/numerics/blocked.h"
#include "facula/numerics/column_strips.h"

namespace facula::numerics {

constexpr int kFewestReflected = 32;  // rows and columns from which this is faster than LAPACK

// 1 - V T V^T for V [rows, count], which is read where it is stored, apart from the rows with the triangle.
template <class T>
class ReflectionBlock {
 public:
  enum class Order { forward, backward };  // H1 H2 ..., or its transpose
  static constexpr int64_t kRoom = 2 * kStrip * kStrip;

  ReflectionBlock() = default;
  // Takes reflections as geqrf leaves them in `a`, from its first row on; `room` has kRoom elements.
  ReflectionBlock(int64_t rows, int64_t count, RowMajor<const T> a, const T* tau, T* room);
  // Replaces c [rows, columns], whose columns are full panels, by the product of this block and c.
  void apply(Order order, int64_t columns, RowMajor<T> c) const;

 private:
  int64_t count_ = 0, near_ = 0, far_ = 0;
  RowMajor<T> top_{}, inverse_{};
  RowMajor<const T> rest_{};
};

// Blocks of kStrip reflections each, with their temporary memory.
template <class T>
class ReflectionBlocks {
 public:
  explicit ReflectionBlocks(int64_t count) : blocks_(size_t(count)), rooms_(blocks_.size() * Block::kRoom) {}
  int64_t count() const { return int64_t(blocks_.size()); }
  const ReflectionBlock<T>& operator[](int64_t k) const { return blocks_[size_t(k)]; }
  void make(int64_t k, int64_t rows, int64_t count, RowMajor<const T> a, const T* tau) {
    blocks_[size_t(k)] = Block(rows, count, a, tau, rooms_.data() + k * Block::kRoom);
  }

 private:
  using Block = ReflectionBlock<T>;
  std::vector<Block> blocks_;
  Workspace<T> rooms_;
};

// `count` reflections with `rows` elements each, the first of which acts on all rows, in strips.
template <class T>
class Reflections {
 public:
  Reflections(int64_t rows, int64_t count)
      : v(rows, count), tau(static_cast<size_t>(count)), blocks_(v.count()) {}
  Strips<T> v;  // below the diagonal
  std::vector<T> tau;
  void finish();  // to be called once v and tau are written
  // Replaces a strip c of `columns`, full panels, by H1 H2 ... c; only the first `blocks` blocks of kStrip reflections
  // are applied, because the rest would find zeros only.
  void apply(int64_t columns, RowMajor<T> c, int64_t blocks = std::numeric_limits<int64_t>::max()) const;

 private:
  ReflectionBlocks<T> blocks_;
};

// Writes R and the reflections of a [m, n] to x, and tau [min(m, n)], as geqrf does. Returns false, with undefined
// contents of x, if squares of a column are not normal numbers: LAPACK defines the factors of such matrices.
template <class T>
bool reflect_in_rows(int64_t m, int64_t n, const T* a, T* x, T* tau);

// Writes the first n columns of the product of `count` reflections a [m, n] to x [m, n], as orgqr does.
template <class T>
void multiply_reflections_in_rows(int64_t m, int64_t n, int64_t count, const T* a, const T* tau, T* x);

}  // namespace facula::numerics
