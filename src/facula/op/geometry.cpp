#include "facula/op/geometry.h"

#include <algorithm>

#include "facula/sym/one_sided.h"
#include "facula/sym/run_time.h"
#include "facula/tensor/in_order.h"

namespace facula::op {
namespace {

bool is_one(SymInt s) { return SymInt::surely_equal(s, 1); }
bool is_zero(SymInt s) { return SymInt::surely_equal(s, 0); }

loop::Expr integer(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }
loop::Expr times(loop::Expr x, SymInt n) { return is_one(n) ? x : x * loop::size(n); }
loop::Expr plus(loop::Expr x, SymInt n) { return is_zero(n) ? x : x + loop::size(n); }

// The index before a reshape that corresponds to index `at` after it. Dimensions are matched in groups of equal
// extent; within a group the position is composed from one radix and decomposed in the other.
std::vector<loop::Expr> before_reshape(SymSpan before, SymSpan after, std::span<const loop::Expr> at) {
  std::vector<loop::Expr> out(before.size(), integer(0));
  std::vector<size_t> from, to;  // dimensions whose size is not 1
  for (size_t d = 0; d < before.size(); ++d)
    if (!is_one(before[d])) from.push_back(d);
  for (size_t d = 0; d < after.size(); ++d)
    if (!is_one(after[d])) to.push_back(d);
  for (size_t d : from)
    if (is_zero(before[d])) return out;  // there are no elements

  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    size_t i0 = i, j0 = j;
    SymInt left = before[from[i++]], right = after[to[j++]];
    while (!SymInt::surely_equal(left, right) && (i < from.size() || j < to.size())) {
      if (j == to.size() || (i < from.size() && left.hint() <= right.hint())) left *= before[from[i++]];
      else right *= after[to[j++]];
    }
    // Dimensions that are left over on one side have size 1, which only a guard knows: they join the last group.
    if (i == from.size()) j = to.size();
    if (j == to.size()) i = from.size();

    loop::Expr linear = at[to[j0]];
    for (size_t k = j0 + 1; k < j; ++k) linear = linear * loop::size(after[to[k]]) + at[to[k]];
    SymInt inner = 1;
    for (size_t k = i; k-- > i0;) {
      loop::Expr x = is_one(inner) ? linear : loop::floordiv(linear, loop::size(inner));
      out[from[k]] = k == i0 ? x : loop::remainder(x, loop::size(before[from[k]]));
      inner *= before[from[k]];
    }
  }
  return out;
}

}  // namespace

Geometry::Geometry(const char* op, SymSpan sizes, SymSpan strides, SymInt offset, bool keeps_steps)
    : op_(op), sizes_(sizes), strides_(strides), offset_(offset), keeps_steps_(keeps_steps) {}

ViewStep* Geometry::begin(ViewStep::Kind kind) {
  if (!keeps_steps_) return nullptr;
  auto& s = steps_.emplace_back();
  s.kind = kind;
  s.before = sizes_;
  return &s;
}

Geometry& Geometry::permute(IntSpan order) & {
  user_check(int(order.size()) == dim(), op_)
      << "number of dimensions in the tensor input does not match the length of the desired ordering of dimensions "
      << "i.e. input.dim() = " << dim() << " is not equal to len(dims) = " << order.size();
  if (auto* s = begin(ViewStep::Kind::permute)) s->order = Ints(order);
  Ints seen(order.size(), 0);
  Dims sizes, strides;
  for (int64_t d : order) {
    user_check(!seen[size_t(d)]++, op_) << "duplicate dims are not allowed.";
    sizes.push_back(sizes_[size_t(d)]);
    strides.push_back(strides_[size_t(d)]);
  }
  sizes_ = sizes;
  strides_ = strides;
  return *this;
}

Geometry& Geometry::swap(int a, int b) & {
  if (dim() == 0 || a == b) return *this;
  Ints order;
  for (int d = 0; d < dim(); ++d) order.push_back(d == a ? b : d == b ? a : d);
  return permute(order);
}

Geometry& Geometry::slice(int d, SymInt start, SymInt length, SymInt step) & {
  auto k = size_t(d);
  internal_check(sym::may_be_at_most(0, start) && sym::may_be_at_most(0, length) && step > 0)
      << op_ << ": slice " << start << ", " << length << ", " << step;
  if (auto* s = begin(ViewStep::Kind::slice)) {
    s->dim = d;
    s->start = start;
    s->length = length;
    s->step = step;
  }
  offset_ += start * strides_[k];
  sizes_[k] = length;
  // A step far beyond the size reaches a single element; its stride is limited to remain countable.
  constexpr int64_t kFar = 1 << 20;
  bool far = !step.is_symbolic() && !length.is_symbolic() && step > kFar && length <= 1;
  strides_[k] *= far ? SymInt(kFar) : step;
  return *this;
}

Geometry& Geometry::select(int d, SymInt index) & {
  auto k = size_t(d);
  index_check(k < sizes_.size(), op_) << "select() cannot be applied to a 0-dim tensor.";
  index_check(sym::may_be_at_most(0, index) && sym::may_be_less(index, sizes_[k]), op_)
      << "index " << index << " out of range for tensor of size " << to_string(SymSpan(sizes_))
      << " at dimension " << d;
  if (auto* s = begin(ViewStep::Kind::select)) {
    s->dim = d;
    s->start = index;
  }
  offset_ += index * strides_[k];
  sizes_.erase(k);
  strides_.erase(k);
  return *this;
}

// Views take no memory, so nothing else bounds the number of their elements.
static void check_countable(SymSpan sizes, const char* op) {
  if (any_symbolic(sizes)) return;
  constexpr int64_t kMost = int64_t(1) << 60;
  int64_t n = 1;
  bool overflow = false;
  for (int64_t size : concrete(sizes)) {
    if (size == 0) return;
    overflow |= __builtin_mul_overflow(n, size, &n) || n > kMost;
  }
  user_check(!overflow, op) << "a tensor of shape " << to_string(sizes)
                            << " has too many elements: their number overflows";
}

Geometry& Geometry::expand(SymSpan to) & {
  user_check(to.size() >= sizes_.size(), op_)
      << "the number of sizes provided (" << to.size()
      << ") must be greater or equal to the number of dimensions in the tensor (" << dim() << ")";
  size_t added = to.size() - sizes_.size();
  Dims sizes, strides;
  for (size_t d = 0; d < to.size(); ++d) {
    SymInt wanted = to[d];
    bool keep = SymInt::surely_equal(wanted, -1);
    if (d < added) {
      user_check(!keep && wanted >= 0, op_) << "The expanded size of the tensor (" << wanted
                                            << ") isn't allowed in a leading, non-existing dimension " << d;
      sizes.push_back(wanted);
      strides.push_back(0);
      continue;
    }
    SymInt size = sizes_[d - added], stride = strides_[d - added];
    if (keep || SymInt::surely_equal(size, wanted)) {
      sizes.push_back(size);
      strides.push_back(stride);
    } else if ((sym::is_run_time(size) || size.hint() != wanted.hint()) && size == 1) {
      user_check(wanted >= 0, op_) << "invalid expanded size " << wanted << " at dimension " << d;
      sizes.push_back(wanted);
      strides.push_back(wanted.hint() == 1 && wanted == 1 ? stride : SymInt(0));
    } else {
      user_check(!sym::is_run_time(size) && sym::may_equal(size, wanted), op_)
          << "The expanded size of the tensor (" << wanted << ") must match the existing size (" << size
          << ") at non-singleton dimension " << d << ".  Target sizes: " << to_string(to)
          << ".  Tensor sizes: " << to_string(SymSpan(sizes_));
      sizes.push_back(size);
      strides.push_back(stride);
    }
  }
  check_countable(sizes, op_);
  if (auto* s = begin(ViewStep::Kind::expand)) s->sizes = sizes;
  sizes_ = sizes;
  strides_ = strides;
  return *this;
}

Geometry& Geometry::insert(int d) & {
  auto k = size_t(d);
  if (auto* s = begin(ViewStep::Kind::insert)) s->dim = d;
  SymInt stride = k < sizes_.size() ? sizes_[k] * strides_[k] : SymInt(1);
  sizes_.insert(k, 1);
  strides_.insert(k, stride);
  return *this;
}

Geometry& Geometry::erase(int d) & {
  auto k = size_t(d);
  internal_check(sizes_[k] == 1) << op_ << ": dimension " << d << " of " << to_string(SymSpan(sizes_))
                                 << " is erased";
  if (auto* s = begin(ViewStep::Kind::erase)) s->dim = d;
  sizes_.erase(k);
  strides_.erase(k);
  return *this;
}

// The contiguous strides of sizes with that many elements; false if the number of elements differs.
static bool lie_in_order(SymSpan sizes, int64_t elements, Dims& strides) {
  strides.resize(sizes.size());
  int64_t next = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    SymInt size = sizes.data()[d];
    strides.data()[d] = next;
    if (size.is_symbolic() || size.concrete() <= 0 || __builtin_mul_overflow(next, size.concrete(), &next))
      return false;
  }
  return next == elements;
}

Geometry& Geometry::reshape(SymSpan to) & {
  int64_t n = keeps_steps_ || sizes_.empty() ? 0 : elements_in_order(sizes_, strides_);
  if (n > 0) {  // the usual case
    Dims strides;
    if (lie_in_order(to, n, strides)) {
      sizes_ = Dims(to);
      strides_ = strides;
      return *this;
    }
  }
  SymInt numel = product(sizes_);
  user_check(sym::may_equal(product(to), numel), op_)
      << "shape '" << to_string(to) << "' is invalid for input of size " << numel;
  auto strides = view_strides(sizes_, strides_, to);
  user_check(strides, op_)
      << "view size is not compatible with input tensor's size and stride (at least one dimension spans "
         "across two contiguous subspaces). Use .reshape(...) instead."
      << hint("the tensor has sizes ", to_string(SymSpan(sizes_)), " and strides ",
              to_string(SymSpan(strides_)), "; the view would be ", to_string(to));
  if (auto* s = begin(ViewStep::Kind::reshape)) s->sizes = Dims(to);
  sizes_ = Dims(to);
  strides_ = *strides;
  return *this;
}

Geometry& Geometry::as_real(DType d) & {
  user_check(is_complex(d), op_) << "is only supported for complex tensors, got " << d;
  begin(ViewStep::Kind::as_real);
  for (auto& s : strides_) s *= 2;
  sizes_.push_back(2);
  strides_.push_back(1);
  offset_ *= 2;
  dtype_ = real_of(d);
  return *this;
}

Geometry& Geometry::as_complex(DType d) & {
  user_check(is_floating(d) && real_of(complex_of(d)) == d, op_)
      << "is only supported for float16, float32 and float64 tensors, got " << d;
  user_check(dim() > 0 && sizes_.back() == SymInt(2), op_)
      << "Tensor must have a last dimension of size 2, got shape " << to_string(SymSpan(sizes_));
  user_check(strides_.back() == SymInt(1), op_)
      << "Tensor must have a last dimension with stride 1, got strides " << to_string(SymSpan(strides_));
  bool even = offset_ % SymInt(2) == SymInt(0);
  for (int k = 0; k + 1 < dim(); ++k) even &= strides_[size_t(k)] % SymInt(2) == SymInt(0);
  user_check(even, op_)
      << "Tensor must have a stride divisible by 2 for all but last dimension, and such an offset, got strides "
      << to_string(SymSpan(strides_)) << " and offset " << offset_;
  begin(ViewStep::Kind::as_complex);
  sizes_.pop_back();
  strides_.pop_back();
  for (auto& s : strides_) s = s / SymInt(2);
  offset_ = offset_ / SymInt(2);
  dtype_ = complex_of(d);
  return *this;
}

Geometry& Geometry::as_dtype(DType from, DType to) & {
  int64_t a = itemsize(from), b = itemsize(to);
  user_check(dim() > 0 || a == b, op_)
      << "self.dim() cannot be 0 to view " << from << " as " << to << " (different element sizes)";
  user_check(a == b || strides_.back() == SymInt(1), op_)
      << "self.stride(-1) must be 1 to view " << from << " as " << to
      << " (different element sizes), but got strides " << to_string(SymSpan(strides_));
  if (a < b) {
    SymInt ratio = b / a;
    bool fits = sizes_.back() % ratio == SymInt(0) && offset_ % ratio == SymInt(0);
    for (int k = 0; k + 1 < dim(); ++k) fits &= strides_[size_t(k)] % ratio == SymInt(0);
    user_check(fits, op_)
        << "self.size(-1), self.storage_offset() and all strides but the last must be divisible by " << ratio
        << " to view " << from << " as " << to << ", got shape " << to_string(SymSpan(sizes_)) << ", strides "
        << to_string(SymSpan(strides_)) << " and offset " << offset_;
  }
  begin(ViewStep::Kind::as_dtype);
  if (a != b) {
    auto scaled = [&](const SymInt& n) { return a > b ? n * SymInt(a / b) : n / SymInt(b / a); };
    for (int k = 0; k + 1 < dim(); ++k) strides_[size_t(k)] = scaled(strides_[size_t(k)]);
    sizes_.back() = scaled(sizes_.back());
    strides_.back() = 1;
    offset_ = scaled(offset_);
  }
  dtype_ = to;
  return *this;
}

Geometry& Geometry::conj() & {
  begin(ViewStep::Kind::conj);
  conj_ = !conj_;
  return *this;
}

Geometry& Geometry::neg() & {
  begin(ViewStep::Kind::neg);
  neg_ = !neg_;
  return *this;
}

bool Geometry::has_base_index() const {
  using Kind = ViewStep::Kind;
  for (auto& s : steps_)
    if (s.kind == Kind::strided || s.kind == Kind::as_real || s.kind == Kind::as_complex ||
        s.kind == Kind::as_dtype || s.kind == Kind::conj || s.kind == Kind::neg)
      return false;
  return true;
}

Tensor Geometry::apply(const Tensor& base) const {
  Tensor t = base.alias(sizes_, strides_, offset_);
  if (dtype_) {
    auto* storage = base.impl()->storage.get();
    if (storage && !storage->is_logical())
      storage->restore_logical();  // an offset counts elements in logical order
    t.impl()->dtype = *dtype_;
  }
  if (conj_ || neg_) {
    t.impl()->conj ^= conj_;
    t.impl()->neg ^= neg_;
    set_in_use(Interceptor::lazy);
  }
  return t;
}

Geometry& Geometry::strided(SymSpan sizes, SymSpan strides, SymInt offset) & {
  user_check(sizes.size() == strides.size(), op_) << "mismatch in length of strides and shape: sizes "
                                                  << to_string(sizes) << ", strides " << to_string(strides);
  for (SymInt n : sizes)
    user_check(sym::may_be_at_most(0, n), op_) << "negative size in " << to_string(sizes);
  for (SymInt n : strides)
    user_check(n >= 0, op_) << "Negative strides are not supported at the moment, got strides: "
                            << to_string(strides);
  user_check(offset >= 0, op_) << "invalid storage offset " << offset;
  check_countable(sizes, op_);
  if (auto* s = begin(ViewStep::Kind::strided)) {
    s->sizes = Dims(sizes);
    s->strides = Dims(strides);
    s->start = offset;
  }
  sizes_ = Dims(sizes);
  strides_ = Dims(strides);
  offset_ = offset;
  return *this;
}

Geometry& Geometry::diagonal(int dim1, int dim2, SymInt offset) & {
  user_check(dim1 != dim2, op_) << "diagonal dimensions cannot be identical " << dim1 << ", " << dim2;
  auto a = size_t(dim1), b = size_t(dim2);
  auto* s = begin(ViewStep::Kind::diagonal);
  bool above = offset >= 0;
  SymInt length = above ? min(sizes_[a], sizes_[b] - offset) : min(sizes_[a] + offset, sizes_[b]);
  if (sym::is_run_time(length)) length = max(length, 0);
  else if (length <= 0) length = 0;
  if (!SymInt::surely_equal(length, 0)) offset_ += above ? offset * strides_[b] : -offset * strides_[a];
  SymInt stride = strides_[a] + strides_[b];
  for (size_t d : {std::max(a, b), std::min(a, b)}) {
    sizes_.erase(d);
    strides_.erase(d);
  }
  sizes_.push_back(length);
  strides_.push_back(stride);
  if (s) {
    s->dim = dim1;
    s->dim2 = dim2;
    s->start = offset;
    s->length = length;
  }
  return *this;
}

bool Geometry::can_view(SymSpan sizes) const {
  sym::Comparing comparing(
      op_, sym::Comparing::assumes);  // sizes 0 and 1 allow more views, and have the same result
  return view_strides(sizes_, strides_, sizes).has_value();
}

std::vector<loop::Expr> Geometry::base_index(std::vector<loop::Expr> at) const {
  using Kind = ViewStep::Kind;
  for (size_t k = steps_.size(); k-- > 0;) {
    const ViewStep& s = steps_[k];
    auto d = at.begin() + s.dim;
    switch (s.kind) {
      case Kind::permute: {
        std::vector<loop::Expr> old(at.size());
        for (size_t i = 0; i < at.size(); ++i) old[size_t(s.order[i])] = at[i];
        at = std::move(old);
        break;
      }
      case Kind::slice: *d = plus(times(*d, s.step), s.start); break;
      case Kind::select: at.insert(d, loop::size(s.start)); break;
      case Kind::expand:
        at.erase(at.begin(), at.begin() + std::ptrdiff_t(s.sizes.size() - s.before.size()));
        for (size_t i = 0; i < at.size(); ++i)
          if (is_one(s.before[i])) at[i] = integer(0);
        break;
      case Kind::insert: at.erase(d); break;
      case Kind::erase: at.insert(d, integer(0)); break;
      case Kind::reshape: at = before_reshape(s.before, s.sizes, at); break;
      case Kind::diagonal: {
        bool above = s.start >= 0;
        loop::Expr along = at.back();
        loop::Expr row = above ? along : plus(along, -s.start), column = above ? plus(along, s.start) : along;
        at.pop_back();
        bool row_first = s.dim < s.dim2;
        at.insert(at.begin() + std::min(s.dim, s.dim2), row_first ? row : column);
        at.insert(at.begin() + std::max(s.dim, s.dim2), row_first ? column : row);
        break;
      }
      case Kind::strided:
      case Kind::as_real:
      case Kind::as_complex:
      case Kind::as_dtype:
      case Kind::conj:
      case Kind::neg: internal_check(false) << op_ << ": this view has no index map";
    }
  }
  return at;
}

Dims infer_shape(const char* op, SymSpan requested, SymInt numel) {
  Dims out(requested);
  std::optional<size_t> inferred;
  SymInt product = 1;
  for (size_t d = 0; d < out.size(); ++d) {
    if (SymInt::surely_equal(out[d], -1)) {
      user_check(!inferred, op) << "only one dimension can be inferred";
      inferred = d;
    } else {
      user_check(sym::may_be_at_most(0, out[d]), op) << "invalid shape dimension " << out[d];
      product *= out[d];
    }
  }
  auto invalid = [&](bool fits) {
    user_check(fits, op) << "shape '" << to_string(requested) << "' is invalid for input of size " << numel;
  };
  if (!inferred) {
    invalid(sym::may_equal(product, numel));
    return out;
  }
  if (sym::is_run_time(product) ? is_zero(product) : product == 0) {
    invalid(sym::may_equal(numel, 0));
    user_check(false, op) << "cannot reshape tensor of 0 elements into shape " << to_string(requested)
                          << " because the unspecified dimension size -1 can be any value and is ambiguous";
  }
  invalid(sym::may_equal(numel % product, 0));
  out[*inferred] = numel / product;
  return out;
}

std::optional<Dims> view_strides(SymSpan sizes, SymSpan strides, SymSpan to) {
  if (!sizes.empty() && elements_in_order(sizes, strides) > 0 && !any_symbolic(to))
    return product(to) == product(sizes) ? std::optional(contiguous_strides(to)) : std::nullopt;
  sym::OneSided compared;
  auto result = [&](bool possible, const Dims& of) {
    return compared.answer(possible) ? std::optional(of) : std::nullopt;
  };
  if (compared.equal(product(sizes), 0)) {
    bool same = sizes.size() == to.size();
    for (size_t d = 0; same && d < to.size(); ++d) same = compared.equal(sizes[d], to[d]);
    compared.answer(true);
    return same ? Dims(strides) : contiguous_strides(to);
  }
  if (sizes.empty()) return result(compared.equal(product(to), 1), Dims(to.size(), 1));
  auto is_run_time = [](SymInt s) { return s.is_symbolic() && sym::is_run_time(s); };
  bool run_time = std::ranges::any_of(sizes, is_run_time) || std::ranges::any_of(to, is_run_time);
  Dims out(to.size(), 0);
  size_t v = to.size();  // dimensions of the view from here on have strides
  size_t d = sizes.size();
  while (d > 0) {
    // The maximal run of dimensions without gaps between them that ends with dimension d - 1. Strides are compared
    // before sizes, since equal strides rely on nothing.
    // Strides count a size of 0 as 1 (contiguous_strides), which makes no difference to an empty tensor.
    auto counted = [](SymInt n) { return n.is_symbolic() ? max(n, SymInt(int64_t(1))) : n; };
    SymInt inner = strides[d - 1], extent = sizes[--d], steps = counted(extent);
    auto joins = [&] {
      SymInt next = extent * inner;
      return sym::same(strides[d - 1], next) || sym::same(strides[d - 1], steps * inner) ||
             compared.equal(sizes[d - 1], 1) || compared.equal(strides[d - 1], next);
    };
    while (d > 0 && joins()) {
      extent *= sizes[--d];
      steps *= counted(sizes[d]);
    }
    SymInt filled = 1;
    // The last run takes all remaining dimensions: its size follows from the numbers of elements.
    if (run_time && d == 0) {
      while (v > 0) {
        out[--v] = filled * inner;
        filled *= to[v];
      }
      return result(true, out);
    }
    auto fills = [&] {  // for all values of the symbols
      return extent.is_symbolic() && !SymInt::surely_equal(filled, extent) &&
             SymInt::surely_equal(filled * to[v - 1], extent);
    };
    // The hints decide which run takes a dimension; each run has to be filled exactly for all sizes.
    auto is_less = [&] { return run_time ? filled < extent : filled.hint() < extent.hint(); };
    while (v > 0 && (fills() || is_less() || compared.equal(to[v - 1], 1))) {
      out[--v] = filled * inner;
      filled *= to[v];
    }
    if (!compared.equal(filled, extent)) return result(false, out);
  }
  return result(v == 0, out);
}

SymInt reach(SymSpan sizes, SymSpan strides) {
  SymInt last = int64_t(0);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == SymInt(int64_t(0))) return int64_t(0);
    last += (sizes[d] - SymInt(int64_t(1))) * strides[d];
  }
  return last + SymInt(int64_t(1));
}

}  // namespace facula::op
