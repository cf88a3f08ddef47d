// Helpers of the families matmul, einsum and linear.
#pragma once
#include <algorithm>
#include <cctype>

#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::matmul_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

inline std::string swapped(SymSpan sizes) {
  Dims s(sizes);
  std::swap(s[s.size() - 2], s[s.size() - 1]);
  return to_string(SymSpan(s));
}
// self @ other fits: equal dtypes, and the dimension they share. Vectors count as a row on the left, a column
// on the right.
inline void check_product(const char* name, const char* left, const char* right, const Tensor& a,
                          const Tensor& b) {
  runtime_check(a.dtype() == b.dtype(), name)
      << "expected `" << left << "` and `" << right << "` to have the same dtype, but got: " << a.dtype()
      << " != " << b.dtype() << hint(right, ".to(facula.", facula::name(a.dtype()), ") converts");
  SymInt inner = a.size(-1), other = b.dim() == 1 ? b.size(0) : b.size(-2);
  if (inner == other) return;
  std::string fix = b.dim() == 1 ? std::string("the vector must have ") + to_string(inner) + " elements"
                    : b.size(-1) == inner
                        ? std::string(right) + ".mT fits: " + swapped(b.sizes())
                        : std::string(right) + ".mT has shape " + swapped(b.sizes()) + "; " + left + " @ " +
                              right + ".mT would need " + left + " to end in " + to_string(b.size(-1));
  runtime_check(false, name) << "the last dimension of `" << left << "` must equal the "
                             << (b.dim() == 1 ? "size" : "second to last") << " of `" << right
                             << "`: " << to_string(a.sizes()) << " @ " << to_string(b.sizes()) << " ("
                             << inner << " vs " << other << ")." << hint(fix);
}
inline void check_rank(const char* name, const char* arg, const Tensor& t, int rank, const char* what) {
  index_check(t.dim() > 0 || rank < 2, name) << "`" << arg << "` must be " << what << ", got shape []";
  runtime_check(t.dim() == rank, name)
      << "`" << arg << "` must be " << what << ", got shape " << to_string(t.sizes());
}
inline Dims matrix_product(const Call& c, const char* left, const char* right) {
  Tensor a = c.tensor(left), b = c.tensor(right);
  check_rank(c.name(), left, a, 2, "a matrix");
  check_rank(c.name(), right, b, 2, "a matrix");
  check_product(c.name(), left, right, a, b);
  return Dims{a.size(0), b.size(1)};
}
inline Dims batch_product(const Call& c, const char* left, const char* right) {
  Tensor a = c.tensor(left), b = c.tensor(right);
  check_rank(c.name(), left, a, 3, "a 3-D batch of matrices");
  check_rank(c.name(), right, b, 3, "a 3-D batch of matrices");
  runtime_check(a.size(0) == b.size(0), c.name())
      << "`" << left << "` and `" << right << "` must have the same batch size: " << to_string(a.sizes())
      << " and " << to_string(b.sizes());
  check_product(c.name(), left, right, a, b);
  return Dims{a.size(0), a.size(1), b.size(2)};
}
inline Expr inner_product(const LoopCall& c, SymInt n, const std::function<Expr(Expr)>& a,
                          const std::function<Expr(Expr)>& b) {
  return reduce(c, monoid::sum, {n}, [&](Index k) { return a(k[0]) * b(k[0]); });
}
// Index of the element of an operand with `rank` dimensions and these sizes that meets index `i` when
// broadcast.
inline Index broadcast_index(const Index& i, SymSpan sizes) {
  Index j;
  for (size_t k = 0; k < sizes.size(); ++k)
    j.push_back(sizes[k] == SymInt(int64_t(1)) ? integer(0) : i[i.size() - sizes.size() + k]);
  return j;
}
// ---- batches of calls (vmap)

// t with its batch in front and `rank` dimensions behind it; what is the same in all calls stays without a batch.
inline Tensor with_rank(const Batched& b, ParameterName arg, int rank) {
  Tensor t = b[arg];
  if (!b.is_batched(arg)) return t;
  Dims sizes{t.size(0)};
  for (int d = t.dim() - 1; d < rank; ++d) sizes.push_back(SymInt(int64_t(1)));
  for (int d = 1; d < t.dim(); ++d) sizes.push_back(t.size(d));
  return int(sizes.size()) == t.dim() ? t : view(t, sizes);
}
// The products of all calls: one of taller matrices where the right factor is the same in all.
inline Tensor products(const Batched& b, ParameterName left, ParameterName right) {
  auto& c = b.logical();
  int rank = std::max(c.rank(left), c.rank(right));
  Tensor x = b[left], y = b[right];
  if (!b.is_batched(left) && !b.is_batched(right)) return rank == 2 ? mm(x, y) : _matmul(x, y);
  if (rank == 2 && !b.is_batched(right)) {
    return view(mm(reshape(x, Sizes{x.size(0) * x.size(1), x.size(2)}), y),
                Sizes{x.size(0), x.size(1), y.size(1)});
  }
  x = with_rank(b, left, rank), y = with_rank(b, right, rank);
  return x.dim() == 3 && y.dim() == 3 ? bmm(x, y) : _matmul(x, y);
}

}  // namespace facula::catalog::matmul_helpers
