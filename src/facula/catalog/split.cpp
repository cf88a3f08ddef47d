// Tensors divided into parts along a dimension.
#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/views.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
// ---- parts along a dimension
std::vector<Geometry> nearly_equal_parts(const Call& c, const Geometry& g, int dim, int64_t parts) {
  runtime_check(parts > 0, c.name()) << "number of sections must be larger than 0, got " << parts;
  int64_t n = g.size(dim).guard_int();
  auto cut = [&](int64_t k) { return k * (n / parts) + std::min(k, n % parts); };
  return views(c.name(), g, parts, [&](Geometry& piece, int64_t k) {
    piece.slice(dim, cut(k), cut(k + 1) - cut(k), int64_t(1));
  });
}
std::vector<Geometry> parts_at(const Call& c, const Geometry& g, int dim, SymSpan indices) {
  SymInt n = g.size(dim), none = int64_t(0);
  std::vector<SymInt> cuts{none};
  for (SymInt i : indices) {
    if (sym::is_run_time(i) || sym::is_run_time(n))
      cuts.push_back(max(min(sym::from_the_end(i, n), n), none));
    else cuts.push_back(i < -n ? none : i < none ? i + n : i > n ? n : i);
  }
  cuts.push_back(n);
  return views(c.name(), g, int64_t(cuts.size()) - 1, [&](Geometry& piece, int64_t part) {
    auto k = size_t(part);
    piece.slice(dim, cuts[k], max(cuts[k + 1] - cuts[k], none), int64_t(1));
  });
}
void check_splittable(const char* name, int rank, int needed) {
  runtime_check(rank >= needed, name) << "requires a tensor with at least " << needed << " dimension"
                                      << (needed > 1 ? "s" : "") << ", got one with " << rank;
}
// hsplit, vsplit and dsplit: parts of equal size, or those between indices, along dimension `dim`.
void define_splits(const char* name, int dim, int rank, const char* doc, const char* sections,
                   const char* indices) {
  auto along = [dim](const Geometry& g) { return dim == 1 && g.dim() == 1 ? 0 : dim; };
  define(std::string(name) + "(Tensor(a) self, int sections) -> Tensor(a)[]")
      .doc(doc)
      .grad_name("Slice")
      .view([=](const Call& c, Geometry g) {
        check_splittable(c.name(), g.dim(), rank);
        int d = along(g);
        int64_t n = g.size(d).guard_int(), parts = c.integer("sections").guard_int();
        runtime_check(parts > 0 && n % parts == 0, c.name())
            << "attempted to split along dimension " << d << ", but the size of the dimension " << n
            << " is not divisible by the split_size " << parts << "!";
        return nearly_equal_parts(c, g, d, parts);
      })
      .samples({sections});
  define(std::string(name) + ".indices(Tensor(a) self, int[] indices) -> Tensor(a)[]")
      .doc(doc)
      .grad_name("Slice")
      .view([=](const Call& c, Geometry g) {
        check_splittable(c.name(), g.dim(), rank);
        return parts_at(c, g, along(g), c.ints("indices"));
      })
      .samples({indices});
}
}  // namespace

FACULA_FAMILY(split) {
  define("tensor_split(Tensor(a) self, SymInt sections, int dim=0) -> Tensor(a)[]")
      .also("sections", "indices_or_sections")
      .doc("`sections` views of nearly equal size along `dim`; the first ones are larger by one.")
      .grad_name("Slice")
      .view([](const Call& c, Geometry g) {
        check_splittable(c.name(), g.dim(), 1);
        return nearly_equal_parts(c, g, c.dim("dim"), c.integer("sections").guard_int());
      })
      .samples({"self[7], sections=3", "self[2, 5], sections=2, dim=1"});
  define("tensor_split.indices(Tensor(a) self, SymInt[] indices, int dim=0) -> Tensor(a)[]")
      .also("indices", "indices_or_sections")
      .doc("Views of the parts along `dim` between the indices.")
      .grad_name("Slice")
      .view([](const Call& c, Geometry g) {
        check_splittable(c.name(), g.dim(), 1);
        return parts_at(c, g, c.dim("dim"), c.ints("indices"));
      })
      .samples({"self[7], indices=[2, 4]", "self[2, 5], indices=[-1, 9], dim=1"});
  define("tensor_split.tensor(Tensor(a) self, Tensor tensor_indices_or_sections, int dim=0) -> Tensor(a)[]")
      .also("tensor_indices_or_sections", "indices_or_sections")
      .doc("The same by a tensor on the CPU: 0-d the number of parts, else the indices.")
      .reads_data()
      .procedure([](const Tensor& self, const Tensor& at, int64_t dim) {
        runtime_check(at.dtype() == DType::Int64 && at.dim() <= 1, "tensor_split")
            << "expected indices or sections of dtype int64 and at most 1 dimension, but got " << at.dtype()
            << " of shape " << to_string(at.sizes());
        if (at.dim() == 0) return tensor_split(self, SymInt(at.item().to_int()), dim);
        Dims indices;
        for (auto& t : unbind(at)) indices.push_back(t.item().to_int());
        return tensor_split(self, Sizes(indices), dim);
      })
      .samples({"self[7], tensor_indices_or_sections<7>[2]"});
  define_splits("hsplit", 1, 1,
                "Parts along dimension 1 (0 of a vector): `sections` equal ones, or those between indices.",
                "self[2, 4], sections=2", "self[5], indices=[2, 3]");
  define_splits("vsplit", 0, 2, "Parts along dimension 0: `sections` equal ones, or those between indices.",
                "self[4, 2], sections=2", "self[5, 2], indices=[2, 3]");
  define_splits("dsplit", 2, 3, "Parts along dimension 2: `sections` equal ones, or those between indices.",
                "self[1, 2, 4], sections=2", "self[1, 2, 5], indices=[2, 3]");
}
