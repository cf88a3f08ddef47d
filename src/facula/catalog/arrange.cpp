// Arrangements of tensors: stacks, parts, mirrored and turned ones, matrices from diagonals and blocks, lists of
// indices and of choices.
#include "facula/catalog/shifts.h"
#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/views.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

// Operator `name` joins what `raise` makes of each tensor along `dim`.
Definer stack_raised(const char* name, int dim, Tensor (*raise)(const Tensor&)) {
  return define(std::string(name) + "(Tensor[] tensors) -> Tensor")
      .converting_out()
      .bad_conversion(ErrorType::TypeError)
      .bind(function)
      .no_in_place()
      .procedure([dim, raise](const Call& c, const std::vector<Tensor>& tensors) {
        runtime_check(!tensors.empty(), c.name()) << "expects a non-empty list of tensors";
        std::vector<Tensor> raised;
        for (auto& t : tensors) raised.push_back(raise(t));
        return cat(raised, dim);
      });
}
Tensor as_column(const Tensor& t) { return t.dim() < 2 ? reshape(t, Sizes{t.numel(), int64_t(1)}) : t; }
Tensor as_row(const Tensor& t) { return t.dim() < 2 ? reshape(t, Sizes{int64_t(1), t.numel()}) : t; }
Tensor with_depth(const Tensor& t) { return t.dim() > 2 ? t : unsqueeze(as_row(t), -1); }
// Operator `name` gives a tensor, or each of several, what `raise` makes of it.
void at_least(const char* name, const char* doc, Tensor (*raise)(const Tensor&)) {
  define(std::string(name) + "(Tensor self) -> Tensor")
      .doc(doc)
      .dtypes(d::stored)
      .bind(function)
      .no_in_place()
      .procedure([raise](const Tensor& self) { return raise(self); })
      .samples({"self[]", "self[3]", "self[2, 3]"});
  define(std::string(name) + ".Sequence(Tensor[] tensors) -> Tensor[]")
      .doc(doc)
      .dtypes(d::stored)
      .bind(function)
      .procedure([raise](std::vector<Tensor> tensors) {
        for (Tensor& t : tensors) t = raise(t);
        return tensors;
      })
      .samples({"tensors{[], [3]}"});
}

// ---- channels and pixels
bool lies_channels_last(const Tensor& t) {
  return t.dim() == 4 && !t.is_contiguous() && t.is_channels_last();
}
struct Pixels {
  Tensor images;  // [*, channels, height, width], the channels last in memory where `is_last`
  bool is_last;
  Dims lead;
  SymInt channels, height, width;
};
Pixels pixels(const char* name, const Tensor& self, const char* factor, int64_t r) {
  runtime_check(r > 0, name) << "expects a positive " << factor << ", but got " << r;
  runtime_check(self.dim() >= 3, name)
      << "expects input to have at least 3 dimensions, but got " << self.dim();
  auto sizes = self.sizes();
  return {self,
          lies_channels_last(self),
          Dims(sizes.first(sizes.size() - 3)),
          self.size(-3),
          self.size(-2),
          self.size(-1)};
}
// The images seen with five dimensions, `apart`, in place of the last three: those that make up the channels and
// then those that make up a place become the dimensions `together`.
Tensor rearranged(const Pixels& p, const Dims& apart, Ints of_channels, Ints of_places, Dims together) {
  auto joined = [&](const Dims& of) {
    Dims sizes = p.lead;
    for (SymInt n : of) sizes.push_back(n);
    return sizes;
  };
  if (p.is_last) {
    std::swap(of_channels, of_places);
    together = {together[1], together[2], together[0]};
  }
  Ints order;
  for (size_t k = 0; k < p.lead.size(); ++k) order.push_back(int64_t(k));
  for (auto* part : {&of_channels, &of_places})
    for (int64_t k : *part) order.push_back(int64_t(p.lead.size()) + k);
  Tensor made = reshape(permute(reshape(p.images, joined(apart)), order), joined(together));
  return p.is_last ? movedim(made, {-1}, {1}) : made;
}

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

// n over k, or `far` where it is no less.
int64_t binomial(__int128 n, __int128 k, int64_t far) {
  __int128 count = 1;
  k = std::min(k, n - k);
  for (__int128 i = 1; i <= k && count < far; ++i) count = count * (n - k + i) / i;
  return int64_t(std::min<__int128>(count, far));
}

// The rows of r places below n: each increasing, or not falling where places may come again.
Tensor choices(int64_t n, int64_t r, bool again) {
  if (n == 0 || (!again && r > n)) return empty(Sizes{int64_t(0), r}, DType::Int64);
  int64_t rows = binomial(again ? __int128(n) + r - 1 : n, r, int64_t(1) << 60);
  Tensor t = Tensor::empty(IntSpan(Ints{rows, r}), DType::Int64);
  auto* at = t.data<int64_t>();
  for (int64_t k = 0; k < r; ++k) at[k] = again ? 0 : k;
  for (int64_t row = 1; row < rows; ++row) {
    int64_t* before = std::exchange(at, at + r);
    int64_t k = r - 1;
    for (int64_t last = n - 1; before[k] == last; --k) last -= again ? 0 : 1;
    std::copy(before, before + k, at);
    for (int64_t next = before[k] + 1; k < r; ++k) at[k] = again ? next : next++;
  }
  return _to_device(t, default_device());  // that of the call
}

Tensor turned(const Tensor& self, int64_t k, int a, int b) {
  switch (((k % 4) + 4) % 4) {
    case 1: return transpose(flip(self, Sizes{int64_t(b)}), a, b);
    case 2: return flip(self, Sizes{int64_t(a), int64_t(b)});
    case 3: return flip(transpose(self, a, b), Sizes{int64_t(b)});
    default: return clone(self, MemoryFormat::contiguous);
  }
}

}  // namespace

FACULA_FAMILY(arrange) {
  stack_raised("column_stack", 1, as_column)
      .doc("Joined along dimension 1, vectors as columns.")
      .samples({"tensors{[3], [3, 2]}", "tensors{[], []}"});
  stack_raised("dstack", 2, with_depth)
      .doc("Joined along dimension 2; what has fewer dimensions is raised to [1, n, 1] or [n, m, 1].")
      .samples({"tensors{[3], [3]}", "tensors{[2, 3], [2, 3, 2]}"});

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
      .differs("\\w+ error: a result for RuntimeError .*(to have dtype of long|represented as a SymInt)",
               "any integer says where, and one before the beginning is the beginning")
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

  define("fliplr(Tensor self) -> Tensor")
      .doc("Order reversed along dimension 1.")
      .no_in_place()
      .procedure([](const Tensor& self) {
        runtime_check(self.dim() >= 2, "fliplr")
            << "input must be >= 2-d, got shape " << to_string(self.sizes());
        return flip(self, Sizes{int64_t(1)});
      })
      .samples({"self[2, 3]"});
  define("flipud(Tensor self) -> Tensor")
      .doc("Order reversed along dimension 0.")
      .no_in_place()
      .procedure([](const Tensor& self) {
        runtime_check(self.dim() >= 1, "flipud")
            << "input must be >= 1-d, got shape " << to_string(self.sizes());
        return flip(self, Sizes{int64_t(0)});
      })
      .samples({"self[2, 3]", "self[3]"});
  define("rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor")
      .grad_name("Rot90")
      .doc(
          "Turned k times by a right angle in the plane of `dims`, from the first dimension towards the second.")
      .no_in_place()
      .procedure([](const Tensor& self, int64_t k, SymSpan dims) {
        runtime_check(dims.size() == 2, "rot90")
            << "expected total rotation dims == 2, but got dims = " << to_string(dims);
        runtime_check(self.dim() >= 2, "rot90")
            << "expected total dims >= 2, but got shape " << to_string(self.sizes());
        check_shift("rot90", "k", k);
        int a = wrap_dim("rot90", dims[0].guard_int(), self.dim()),
            b = wrap_dim("rot90", dims[1].guard_int(), self.dim());
        runtime_check(a != b, "rot90")
            << "expected rotation dims to be different, but got " << to_string(dims);
        return turned(self, k, a, b);
      })
      .samples({"self[2, 3]", "self[2, 3, 4], k=-1, dims=[1, 2]", "self[2, 3], k=2", "self[2, 3], k=4"});

  define("diag_embed(Tensor self, SymInt offset=0, int dim1=-2, int dim2=-1) -> Tensor")
      .grad_name("DiagEmbed")
      .doc("Matrices in dimensions dim1 and dim2 with the last dimension of self on a diagonal, 0 elsewhere.")
      .no_in_place()
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
      .no_in_place()
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
      .no_in_place()
      .procedure([](const Tensor& self, SymInt diagonal) {
        runtime_check(self.dim() == 1 || self.dim() == 2, "diag")
            << "Supports 1D or 2D tensors. Got " << self.dim() << "D";
        return self.dim() == 1 ? diag_embed(self, diagonal) : clone(facula::diagonal(self, diagonal));
      })
      .samples({"self[3]", "self[3], diagonal=-1", "self[3, 4], diagonal=1"});
  define("trace(Tensor self) -> Tensor")
      .doc("The sum of a matrix's diagonal.")
      .autocast(Autocast::fp32)
      .no_in_place()
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
      .no_in_place()
      .procedure([](const std::vector<Tensor>& tensors) {
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
      .no_in_place()
      .non_differentiable()
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
      .non_differentiable()
      .procedure([](const Call& c, int64_t row, int64_t col, int64_t offset) {
        return triangle_indices(c, row, col, offset, false);
      })
      .samples({"row=3, col=4", "row=4, col=2, offset=-1", "row=0, col=2"});
  define("triu_indices(int row, int col, int offset=0, *, dtype? dtype=int64, Device? device=None) -> Tensor")
      .doc("Rows and columns, [2, count], of the entries of an upper triangle, in row-major order.")
      .bind(function)
      .non_differentiable()
      .procedure([](const Call& c, int64_t row, int64_t col, int64_t offset) {
        return triangle_indices(c, row, col, offset, true);
      })
      .samples({"row=3, col=4", "row=4, col=2, offset=-1", "row=0, col=2"});
  at_least("atleast_1d", "self, as a vector where it is 0-d.",
           [](const Tensor& t) { return t.dim() ? t : reshape(t, Sizes{int64_t(1)}); });
  at_least("atleast_2d", "self, as a matrix of one row where it has fewer dimensions.", as_row);
  at_least("atleast_3d", "self, with dimensions of size 1 in front and behind where it has fewer than 3.",
           with_depth);
  define("broadcast_tensors(Tensor[] tensors) -> Tensor[]")
      .doc("Views of all tensors with the shape that they broadcast to.")
      .bind(function)
      .procedure([](const std::vector<Tensor>& tensors) {
        std::vector<SymSpan> shapes;
        for (auto& t : tensors) shapes.push_back(t.sizes());
        Dims sizes = broadcast_sizes("broadcast_tensors", shapes);
        std::vector<Tensor> out;
        for (auto& t : tensors) out.push_back(expand(t, sizes));
        return out;
      })
      .samples({"tensors{[2, 1], [3], []}"});
  define("meshgrid(Tensor[] tensors, *, str? indexing=None) -> Tensor[]")
      .doc(
          "Coordinates of a grid from one vector for each dimension; indexing='xy' exchanges the first two dimensions, 'ij', as None, "
          "does not.")
      .bind(function)
      .check([](const Call& c) {
        if (!c.has("indexing"))
          warn_once(
              "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.");
      })
      .procedure([](const std::vector<Tensor>& tensors, std::optional<std::string> given) {
        std::string indexing = given.value_or("ij");
        runtime_check(!tensors.empty(), "meshgrid") << "expects at least one tensor";
        runtime_check(indexing == "ij" || indexing == "xy", "meshgrid")
            << "indexing must be 'ij' or 'xy', not '" << indexing << "'";
        bool exchanged = indexing == "xy" && tensors.size() > 1;
        std::vector<Tensor> vectors;
        for (auto& t : tensors) {
          runtime_check(t.dim() <= 1, "meshgrid")
              << "expected vectors or 0-d tensors, got shape " << to_string(t.sizes());
          runtime_check(t.dtype() == tensors[0].dtype(), "meshgrid")
              << "expects all tensors to have the same dtype, got " << tensors[0].dtype() << " and "
              << t.dtype();
          vectors.push_back(reshape(t, Sizes{t.numel()}));
        }
        if (exchanged) std::swap(vectors[0], vectors[1]);
        Dims sizes;
        for (auto& v : vectors) sizes.push_back(v.size(0));
        for (size_t k = 0; k < vectors.size(); ++k) {
          Dims along(vectors.size(), SymInt(int64_t(1)));
          along[k] = sizes[k];
          vectors[k] = expand(view(vectors[k], along), sizes);
        }
        if (exchanged) std::swap(vectors[0], vectors[1]);
        return vectors;
      })
      .samples({"tensors{[2], [3]}, indexing='ij'", "tensors{[2], [3], []}, indexing='xy'"});
  define("cartesian_prod(Tensor[] tensors) -> Tensor")
      .doc("All choices of one element of each vector, one a row; of a single vector itself.")
      .bind(function)
      .no_in_place()
      .procedure([](const std::vector<Tensor>& tensors) {
        for (auto& t : tensors)
          runtime_check(t.dim() == 1, "cartesian_prod")
              << "expected 1D vectors, but got shape " << to_string(t.sizes());
        if (tensors.size() == 1) return tensors[0];
        std::vector<Tensor> columns = meshgrid(tensors, "ij");
        for (Tensor& t : columns) t = reshape(t, Sizes{t.numel()});
        return stack(columns, 1);
      })
      .samples({"tensors{[2], [3]}", "tensors{[2]}"});
  define("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor")
      .grad_name("PixelShuffle")
      .doc("[*, C r^2, H, W] to [*, C, H r, W r].  Shi et al., 2016.")
      .dtypes(d::stored)
      .bind(function | nn_functional)
      .no_in_place()
      .procedure([](const Tensor& self, int64_t upscale_factor) {
        Pixels p = pixels("pixel_shuffle", self, "upscale_factor", upscale_factor);
        SymInt r(upscale_factor), squared = r * r;
        runtime_check(p.channels % squared == SymInt(int64_t(0)), "pixel_shuffle")
            << "expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
            << "input.size(-3)=" << p.channels << " is not divisible by " << squared;
        return rearranged(p, {p.channels / squared, r, r, p.height, p.width}, {0}, {3, 1, 4, 2},
                          {p.channels / squared, p.height * r, p.width * r});
      })
      .samples({"self[2, 8, 2, 3], upscale_factor=2", "self[4, 1, 2], upscale_factor=2"});
  define("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor")
      .differs("\\w+ shape: \\[.*\\b0\\b.*\\] for \\[.*\\b0\\b.*\\] with sizes \\d+ as 0",
               "nothing has the shape that something has; PyTorch gives it back as it was")
      .grad_name("PixelUnshuffle")
      .doc("[*, C, H r, W r] to [*, C r^2, H, W]: the inverse of pixel_shuffle.")
      .dtypes(d::stored)
      .bind(function | nn_functional)
      .no_in_place()
      .procedure([](const Tensor& self, int64_t downscale_factor) {
        Pixels p = pixels("pixel_unshuffle", self, "downscale_factor", downscale_factor);
        SymInt r(downscale_factor), none(int64_t(0));
        runtime_check(p.height % r == none && p.width % r == none, "pixel_unshuffle")
            << "expects height and width to be divisible by downscale_factor, but input "
            << to_string(self.sizes()) << " is not by " << r;
        return rearranged(p, {p.channels, p.height / r, r, p.width / r, r}, {0, 2, 4}, {1, 3},
                          {p.channels * r * r, p.height / r, p.width / r});
      })
      .samples({"self[2, 2, 4, 6], downscale_factor=2", "self[1, 2, 4], downscale_factor=2"});
  define("channel_shuffle(Tensor self, int groups) -> Tensor")
      .grad_name("ChannelShuffle")
      .doc(
          "Channels [N, C, ...] in groups of C / groups, dealt out one of each group in turn.  Zhang et al., 2018.")
      .dtypes(d::stored)
      .bind(function | nn_functional)
      .alias("native_channel_shuffle")
      .no_in_place()
      .procedure([](const Tensor& self, int64_t groups) {
        runtime_check(groups > 0, "channel_shuffle")
            << "number of groups to divide channels in must be positive, got " << groups;
        runtime_check(self.dim() >= 3, "channel_shuffle")
            << "expects input with > 2 dims, but got shape " << to_string(self.sizes());
        SymInt each = self.size(1) / SymInt(groups);
        runtime_check(each * SymInt(groups) == self.size(1), "channel_shuffle")
            << "number of channels must be divisible by groups, got " << self.size(1) << " channels and "
            << groups << " groups";
        bool last = lies_channels_last(self);
        Tensor x = last ? movedim(self, {1}, {-1}) : contiguous(self);
        int k = last ? 3 : 1;
        Dims apart = inserted(with(x.sizes(), k, SymInt(groups)), k + 1, each);
        Tensor dealt = reshape(transpose(view(x, apart), k, k + 1), x.sizes());
        return last ? movedim(dealt, {-1}, {1}) : dealt;
      })
      .samples({"self[2, 6, 2, 2], groups=3", "self[1, 4, 3], groups=2"});
  define("unravel_index(Tensor indices, SymInt[1] shape) -> Tensor[]")
      .doc(
          "The coordinates, a tensor a dimension, of positions in row-major order in a tensor of `shape`; of one beyond it "
          "modulo the sizes.")
      .bind(function)
      .non_differentiable()
      .reads_data()
      .procedure([](const Tensor& indices, SymSpan shape) {
        type_check(is_integral(indices.dtype()) && indices.dtype() != DType::Bool, "unravel_index")
            << "expected 'indices' to be integer dtype, but got " << indices.dtype();
        for (SymInt n : shape)
          value_check(!(n < SymInt(int64_t(0))), "unravel_index")
              << "'shape' cannot have negative values, but got " << to_string(shape);
        bool none = std::ranges::any_of(shape, [](SymInt n) { return n == SymInt(int64_t(0)); });
        runtime_check(!none || indices.numel() == SymInt(int64_t(0)), "unravel_index")
            << "a tensor of shape " << to_string(shape) << " has no elements, got " << indices.numel()
            << " positions";
        std::vector<Tensor> out(shape.size());
        Tensor wide = to_dtype(indices, DType::Int64);
        SymInt one = int64_t(1), stride = one;
        for (size_t k = shape.size(); k-- > 0; stride *= max(shape[k], one))
          out[k] = remainder(floor_divide(wide, stride), max(shape[k], one));
        return out;
      })
      .samples({"indices<12>[5], shape=[3, 4]", "indices<2>[], shape=[2, 1, 3]"});
  define("combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor")
      .grad_name("Stack")
      .doc(
          "All choices of r elements of a vector in their order, one a row; an element again where `with_replacement`.")
      .no_in_place()
      .procedure([](const Tensor& self, int64_t r, bool again) {
        runtime_check(self.dim() == 1, "combinations")
            << "expects a 1D vector, but got shape " << to_string(self.sizes());
        runtime_check(r >= 0, "combinations") << "expects a non-negative number, but got " << r;
        if (r == 0) return empty(Sizes{int64_t(0)}, self.dtype());
        Tensor at = choices(self.size(0).guard_int(), r, again);
        return view(index_select(self, 0, reshape(at, Sizes{at.numel()})), at.sizes());
      })
      .samples({"self[4]", "self[3], r=3, with_replacement=True", "self[3], r=1", "self[2], r=3"});
}
