// Diagonals and triangles of matrices.
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/views.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
// The lower triangle of the matrix; an upper one is a lower one turned by half a turn.
Tensor triangle_indices(const Call& c, int64_t rows, int64_t columns, int64_t offset, bool upper) {
  runtime_check(rows >= 0 && columns >= 0, c.name())
      << "row and col must be non-negative, got " << rows << " and " << columns;
  DType t = c.maybe_dtype("dtype").value_or(DType::Int64);
  __int128 diagonal = upper ? __int128(columns) - rows - offset : __int128(offset);
  diagonal = std::clamp<__int128>(diagonal, -__int128(rows), columns);
  // Sum of min(j, columns) for j up to n; row k has the first k + diagonal + 1 columns.
  auto up_to = [&](__int128 n) {
    __int128 m = std::clamp<__int128>(n, 0, columns);
    return m * (m + 1) / 2 + (n > m ? (n - m) * columns : 0);
  };
  __int128 count = up_to(std::max<__int128>(0, diagonal + rows)) - up_to(std::max<__int128>(0, diagonal));
  runtime_check(count < __int128(1) << 58, c.name())
      << "a triangle of " << rows << " rows and " << columns << " columns has too many entries";
  auto skipped = int64_t(std::max<__int128>(0, -diagonal));
  auto length = int64_t(std::min<__int128>(columns, skipped + diagonal + 1));
  return _triangle_indices(Scalar(length), Scalar(columns), Scalar(upper ? rows - 1 - skipped : skipped),
                           int64_t(count), upper, t);
}
// Row and column of entry p of a triangle whose rows have length, length + 1, ..., columns, columns, ... entries. In float64, which
// is exact for as many as an address space holds; the row's estimate, off by less than 1/8, is lowered to be never the next one.
std::pair<Expr, Expr> triangle_entry(Expr p, Expr length, Expr columns) {
  Expr growing = columns - length, half = length - 0.5;
  auto before = [&](Expr k) {
    return k * (k * 0.5 + half);
  };  // in the rows that are shorter than all columns
  Expr corner = before(growing), grows = lt(p, corner), from = select(grows, p, p - corner);
  Expr k = select(grows, sqrt(half * half + p * 2.0) - half,
                  from * (1.0 / columns));  // before(k) = p, and k columns = from
  k = floor(select(k < 0.125, 0.0, k - 0.125));
  Expr column = from - k * select(grows, k * 0.5 + half, columns),
       entries = select(grows, length + k, columns);
  Expr next = ge(column, entries);
  k = select(grows, k, k + growing);
  return {select(next, k + 1.0, k), select(next, column - entries, column)};
}
}  // namespace

FACULA_FAMILY(diagonal) {
  define("diag_embed(Tensor self, SymInt offset=0, int dim1=-2, int dim2=-1) -> Tensor")
      .grad_name("DiagEmbed")
      .doc("Matrices in dimensions dim1 and dim2 with the last dimension of self on a diagonal, 0 elsewhere.")
      .procedure([](const Call& c, const Tensor& self, SymInt offset) {
        int rank = self.dim() + 1, a = wrap_dim(c.name(), c.integer("dim1").guard_int(), rank),
            b = wrap_dim(c.name(), c.integer("dim2").guard_int(), rank);
        runtime_check(a != b, c.name()) << "diagonal dimensions cannot be identical " << a << ", " << b;
        index_check(self.dim() > 0, c.name()) << "expected a tensor with at least 1 dimension, got a 0-d one";
        SymInt n = self.size(-1) + max(offset, -offset);
        Dims sizes = without(self.sizes(), self.dim() - 1);
        sizes = inserted(sizes, std::min(a, b), n);
        return diagonal_backward(self, inserted(sizes, std::max(a, b), n), offset, a, b);
      })
      .samples({"self[3]", "self[2, 3], offset=1", "self[2, 3], offset=-1, dim1=0, dim2=2", "self[0]"});
  define("diagflat(Tensor self, SymInt offset=0) -> Tensor")
      .grad_name("DiagEmbed")
      .doc("The matrix with the elements of self, in row-major order, on a diagonal.")
      .procedure([](const Tensor& self, SymInt offset) {
        return diag_embed(reshape(self, Sizes{self.numel()}), offset);
      })
      .samples({"self[3]", "self[2, 2], offset=1", "self[]"});
  define("diag(Tensor self, SymInt diagonal=0) -> Tensor")
      .grad_name([](const Call& c) {
        return c.rank("self") == 1 ? grad_name("DiagEmbed") : "DiagonalBackward0_copy";
      })
      .doc("The matrix with the elements of a vector on a diagonal, or a matrix's diagonal.")
      .exact_out()
      .dtypes(d::stored)
      .procedure([](const Tensor& self, SymInt diagonal) {
        runtime_check(self.dim() == 1 || self.dim() == 2, "diag")
            << "Supports 1D or 2D tensors. Got " << self.dim() << "D";
        return self.dim() == 1 ? diag_embed(self, diagonal) : clone(facula::diagonal(self, diagonal));
      })
      .samples({"self[3]", "self[3], diagonal=-1", "self[3, 4], diagonal=1"});
  define("trace(Tensor self) -> Tensor")
      .doc("The sum of a matrix's diagonal.")
      .autocast(Autocast::fp32)
      .composite([](const Tensor& self) {
        supported_check(self.dtype() != DType::Bool, "trace")
            << "not implemented for '" << self.dtype() << "'";
        runtime_check(self.dim() == 2, "trace")
            << "expected a matrix, but got shape " << to_string(self.sizes());
        return sum(diagonal(self));
      })
      .samples({"self[3, 3]", "self[2, 4]", "self[0, 3]"});
  define("block_diag(Tensor[] tensors) -> Tensor")
      .doc("The matrix with the given ones along its diagonal, 0 elsewhere; numbers and vectors are rows.")
      .bind(hidden)
      .composite([](const std::vector<Tensor>& tensors) {
        SymInt columns = int64_t(0), before = int64_t(0);
        Promotion p;
        std::vector<Tensor> blocks;
        for (size_t k = 0; k < tensors.size(); ++k) {
          auto& t = tensors[k];
          runtime_check(t.dim() <= 2, "block_diag")
              << "input tensors must have 2 or fewer dimensions. Input " << k << " has " << t.dim();
          blocks.push_back(t.dim() == 2 ? t : reshape(t, Sizes{int64_t(1), t.numel()}));
          columns += blocks.back().size(1);
          p.add(t);
        }
        for (auto& t : blocks) {
          SymInt own = t.size(1);
          t = constant_pad_nd(to_dtype(t, p.result()), Sizes{before, columns - before - own}, 0);
          before += own;
        }
        return blocks.empty() ? zeros(Sizes{int64_t(1), int64_t(0)}) : cat(blocks, 0);
      })
      .samples({"tensors{[2, 3], [], [2]}", "tensors{[2, 0], [1, 2]}"});
  define(
      "_triangle_indices(Scalar length, Scalar columns, Scalar first, SymInt count, bool upper, dtype dtype) -> Tensor")
      .doc(
          "Rows and columns of `count` entries of a triangle: from row `first` on and from the left, `length` in the first row, in each other "
          "one more, up to all; of an upper one, from `first` up, from the right and from the last entry.")
      .bind(hidden)
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape([](const Call& c) { return Dims{int64_t(2), c.integer("count")}; })
      .loop([](const LoopCall& c, Index i) {
        auto number = [&](const char* name) { return cast(c.scalar(name, DType::Int64), DType::Float64); };
        bool upper = c.flag("upper");
        Expr p = upper ? loop::size(c.integer("count")) - i[1] - 1 : i[1], columns = number("columns"),
             first = number("first");
        auto [row, column] = triangle_entry(cast(p, DType::Float64), number("length"), columns);
        row = upper ? first - row : first + row;
        column = upper ? columns - 1.0 - column : column;
        return cast(cast(select(eq(i[0], integer(0)), row, column), DType::Int64),
                    compute_type(*c.maybe_dtype("dtype")));
      })
      .samples({"length=1, columns=4, first=0, count=14, upper=False, dtype=int64",
                "length=2, columns=3, first=3, count=11, upper=True, dtype=int64",
                "length=1, columns=1, first=0, count=0, upper=False, dtype=int64"});
  define("tril_indices(int row, int col, int offset=0, *, dtype? dtype=int64, Device? device=None) -> Tensor")
      .doc("Rows and columns, [2, count], of the entries of a lower triangle, in row-major order.")
      .bind(function)
      .procedure([](const Call& c, int64_t row, int64_t col, int64_t offset) {
        return triangle_indices(c, row, col, offset, false);
      })
      .samples({"row=3, col=4", "row=4, col=2, offset=-1", "row=0, col=2"});
  define("triu_indices(int row, int col, int offset=0, *, dtype? dtype=int64, Device? device=None) -> Tensor")
      .doc("Rows and columns, [2, count], of the entries of an upper triangle, in row-major order.")
      .bind(function)
      .procedure([](const Call& c, int64_t row, int64_t col, int64_t offset) {
        return triangle_indices(c, row, col, offset, true);
      })
      .samples({"row=3, col=4", "row=4, col=2, offset=-1", "row=0, col=2"});
}
