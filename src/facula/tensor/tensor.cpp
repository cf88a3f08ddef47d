#include "facula/tensor/tensor.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <vector>

#include "facula/sym/one_sided.h"
#include "facula/sym/run_time.h"
#include "facula/tensor/block.h"
#include "facula/tensor/change_strides.h"
#include "facula/tensor/in_order.h"
#include "facula/tensor/observe.h"

namespace facula {

void (*TensorImpl::release_py)(TensorImpl*) = nullptr;
bool (*TensorImpl::base_requires_grad)(const TensorImpl&) = nullptr;

TensorImpl::~TensorImpl() {
  if (owns_py && release_py) release_py(this);
}
void* TensorImpl::operator new(size_t) {
  return detail::FreeList<sizeof(TensorImpl), alignof(std::max_align_t), 1024>::take();
}
void TensorImpl::operator delete(void* p) {
  detail::FreeList<sizeof(TensorImpl), alignof(std::max_align_t), 1024>::give(p);
}

namespace {

// Larger sizes and strides are invalid; the limit is far below what a SymInt can hold.
constexpr int64_t kMaxElements = int64_t(1) << 60;

// Row-major strides; returns the number of elements, with empty dimensions counted as 1, or a negative number if it
// overflows.
int64_t row_major(SymSpan sizes, Dims& strides) {
  int64_t n = 1;
  for (size_t k = sizes.size(); k-- > 0;) {
    strides[k] = n;
    if (__builtin_mul_overflow(n, std::max<int64_t>(sizes[k].concrete(), 1), &n) || n > kMaxElements)
      return -1;
  }
  return n;
}

void check_sizes(SymSpan sizes) {
  for (auto s : sizes)
    runtime_check(s.concrete() >= 0, "empty")
        << "trying to create a tensor with negative dimension " << s << ": " << to_string(sizes);
}

[[noreturn]] void overflows(SymSpan sizes) {
  check_sizes(sizes);
  runtime_check(false, "empty") << "a tensor of shape " << to_string(sizes)
                                << " does not fit into memory: its size overflows";
  __builtin_unreachable();
}

}  // namespace

Tensor Tensor::empty(SymSpan sizes, DType dtype, Device device) {
  Dims strides(sizes.size());
  int64_t n = row_major(sizes, strides);
  if (n < 0 || n > kMaxElements / facula::itemsize(dtype)) [[unlikely]]
    overflows(sizes);
  for (auto s : sizes) {
    if (s.concrete() > 0) continue;
    check_sizes(sizes);
    n = 0;
  }
  auto storage = make_ref<StorageImpl>(size_t(n) * size_t(facula::itemsize(dtype)), device);
  return Tensor(make_ref<TensorImpl>(std::move(storage), sizes, strides, SymInt(), dtype, device));
}

namespace {
// The elements from the first to the last for these sizes and strides; RuntimeError if the distance overflows.
int64_t reach(const char* op, SymSpan sizes, SymSpan strides) {
  internal_check(sizes.size() == strides.size()) << to_string(sizes) << " and " << to_string(strides);
  check_sizes(sizes);
  int64_t last = 0;
  bool none = false, overflow = false;
  for (size_t k = 0; k < sizes.size(); ++k) {
    int64_t step = 0, n = sizes[k].concrete(), stride = strides[k].concrete();
    runtime_check(stride >= 0, op) << "negative strides are not supported: " << to_string(strides)
                                   << hint("copy the data into a contiguous array first");
    none |= n == 0;
    overflow |= n > kMaxElements || stride > kMaxElements ||
                __builtin_mul_overflow(std::max<int64_t>(n - 1, 0), stride, &step) ||
                __builtin_add_overflow(last, step, &last);
  }
  runtime_check(none || (!overflow && last < kMaxElements / 16), op)
      << "sizes " << to_string(sizes) << " and strides " << to_string(strides)
      << " do not fit into memory: the size overflows";
  return none ? 0 : last + 1;
}
}  // namespace

size_t storage_bytes(const char* op, SymSpan sizes, SymSpan strides, DType dtype) {
  return size_t(reach(op, sizes, strides)) * size_t(itemsize(dtype));
}

Tensor Tensor::empty_strided(SymSpan sizes, SymSpan strides, DType dtype, Device device) {
  auto storage = make_ref<StorageImpl>(storage_bytes("empty_strided", sizes, strides, dtype), device);
  return Tensor(make_ref<TensorImpl>(std::move(storage), sizes, strides, SymInt(), dtype, device));
}

Tensor Tensor::scalar(const Scalar& value, DType dtype, Device device) {
  Tensor t = empty(SymSpan{}, dtype, device);
  if (void* to = t.impl()->storage->data()) value.store(dtype, to);
  if (void* to = t.impl()->storage->device_data()) {
    alignas(16) std::byte host[16];
    value.store(dtype, host);
    memory_of(device.type)->from_host(to, host, size_t(facula::itemsize(dtype)));
  }
  return t;
}

Tensor Tensor::from_blob(void* data, IntSpan sizes, IntSpan strides, DType dtype,
                         std::function<void()> release) {
  auto bytes = storage_bytes("from_blob", symbolic(sizes), symbolic(strides), dtype);
  auto storage = make_ref<StorageImpl>(data, bytes, Device{}, std::move(release));
  return Tensor(make_ref<TensorImpl>(std::move(storage), Dims(symbolic(sizes)), Dims(symbolic(strides)),
                                     SymInt(), dtype, Device{}));
}

static size_t own_dim(const char* op, int d,
                      int rank) {  // wrap_dim treats a 0-d tensor as having one dimension
  index_check(rank > 0, op) << "Dimension specified as " << d << " but tensor has no dimensions";
  return size_t(wrap_dim(op, d, rank));
}
SymInt Tensor::size(int d) const { return impl_->sizes[own_dim("size", d, dim())]; }
SymInt Tensor::stride(int d) const { return impl_->strides[own_dim("stride", d, dim())]; }

// The rank that a format with the channels last demands; 0 for the other formats.
static int rank_of(MemoryFormat f) {
  return f == MemoryFormat::channels_last ? 4 : f == MemoryFormat::channels_last_3d ? 5 : 0;
}

bool Tensor::is_channels_last() const {
  return is_contiguous(dim() == 5 ? MemoryFormat::channels_last_3d : MemoryFormat::channels_last);
}

bool Tensor::is_contiguous(MemoryFormat f) const {
  auto &n = impl_->sizes, &s = impl_->strides;
  if (f == MemoryFormat::contiguous && elements_in_order(n, s) >= 0) [[likely]]
    return true;
  int rank = dim();
  // The stride that a dimension has to have, where sizes of 0 count as 1, and as they are, which is the same unless the
  // tensor is empty.
  SymInt expected = int64_t(1), product = int64_t(1);
  sym::OneSided compared;
  auto equal = [&](SymInt a, SymInt b) {
    bool symbolic = a.is_symbolic() || b.is_symbolic();
    bool later = symbolic && (sym::is_run_time(a) || sym::is_run_time(b));
    return later ? SymInt::surely_equal(a, b) : compared.equal(a, b);
  };
  auto fits = [&](size_t d) __attribute__((always_inline)) {
    bool in_place = sym::same(s[d], expected) || sym::same(s[d], product);
    if (!in_place && !equal(n[d], int64_t(1)) && !equal(s[d], expected)) return false;
    expected *= n[d].is_symbolic() ? max(n[d], SymInt(int64_t(1))) : n[d];
    product *= n[d];
    return true;
  };
  if (int images = rank_of(f)) {
    if (rank != images) return false;
    bool ok = fits(1);
    for (int d = rank - 1; ok && d >= 2; --d) ok = fits(size_t(d));
    return compared.answer(ok && fits(0));
  }
  for (int d = rank - 1; d >= 0; --d)
    if (!fits(size_t(d)))  // an empty tensor is in any order
      return compared.answer(std::ranges::any_of(n, [&](SymInt x) { return equal(x, int64_t(0)); }));
  return compared.answer(true);
}

namespace {
// True if the dimensions of size > 1, ordered by stride, nest: each stride is the extent of the smaller ones, or
// (unless `dense`) at least that.
bool nested(const Tensor& t, bool dense) {
  struct Extent {
    int64_t stride, n;
    auto operator<=>(const Extent&) const = default;
  };
  SmallVector<Extent, 8> dims;
  for (int k = 0; k < t.dim(); ++k) {
    int64_t n = t.sizes()[size_t(k)].hint();
    if (n == 0) return true;
    if (n > 1) dims.push_back({t.strides()[size_t(k)].hint(), n});
  }
  std::sort(dims.begin(), dims.end());
  int64_t extent = 1;
  for (auto& [stride, n] : dims) {
    if (dense ? stride != extent : stride < extent) return false;
    extent = dense ? extent * n : stride * (n - 1) + extent;
  }
  return true;
}
}  // namespace

bool Tensor::is_non_overlapping_and_dense() const { return is_contiguous() || nested(*this, true); }

// Exact: dimensions whose strides nest are removed from the largest down, and the rest is checked element by element.
bool Tensor::has_overlap() const {
  if (is_contiguous() || nested(*this, false)) return false;
  struct Extent {
    int64_t stride, n;
    auto operator<=>(const Extent&) const = default;
  };
  SmallVector<Extent, 8> dims;
  int64_t reach = 1, numel = 1;
  for (int k = 0; k < dim(); ++k) {
    int64_t n = sizes()[size_t(k)].hint(), s = strides()[size_t(k)].hint();
    if (n == 1) continue;
    if (s == 0) return true;
    dims.push_back({s, n});
    reach += (n - 1) * s;
    numel *= n;
  }
  std::sort(dims.begin(), dims.end());
  for (; !dims.empty(); dims.pop_back()) {
    auto [s, n] = dims.back();
    if (s < reach - (n - 1) * s) break;
    reach -= (n - 1) * s;
    numel /= n;
  }
  if (numel > reach) return true;
  std::vector<bool> taken(size_t(reach), false);
  std::vector<int64_t> at(dims.size(), 0);
  for (int64_t place = 0;;) {
    if (taken[size_t(place)]) return true;
    taken[size_t(place)] = true;
    size_t d = 0;
    for (; d < dims.size() && at[d] == dims[d].n - 1; ++d) {
      place -= at[d] * dims[d].stride;
      at[d] = 0;
    }
    if (d == dims.size()) return false;
    ++at[d];
    place += dims[d].stride;
  }
}

void TensorImpl::prepare_data() {
  runtime_check(storage, "data_ptr")
      << "this tensor has no data: it stands for a value being traced"
      << hint(
             "reading data (item, tolist, numpy, if tensor:) is not possible inside a composite or a compiled function");
  supported_check(device.type != DeviceType::meta, "data_ptr") << "Cannot copy out of meta tensor; no data!";
  runtime_check(device.type == DeviceType::cpu, "data_ptr")
      << "the CPU does not address the memory of device '" << device << "'"
      << hint("cpu() gives a copy that it does");
  storage->restore_logical();
}

namespace {

// Computes strides and offset in the memory of a physical layout. False if no strides can describe the tensor there.
bool strides_in_memory(const PhysicalOrder& o, const TensorImpl& t, Dims& strides, int64_t& offset) {
  // Dimensions that are neighbours in both orders form a group; innermost first.
  struct Group {
    int64_t size, logical, memory, first = 0, reach = 0;
  };
  SmallVector<Group, 8> groups;
  int64_t memory[8], next = 1;
  for (int k = o.rank; k-- > 0; next *= o.sizes[o.order[k]]) memory[o.order[k]] = next;
  next = 1;
  for (int d = o.rank; d-- > 0; next *= o.sizes[d]) {
    if (o.sizes[d] == 1) continue;
    if (!groups.empty() && memory[d] == groups.back().memory * groups.back().size)
      groups.back().size *= o.sizes[d];
    else groups.push_back({o.sizes[d], next, memory[d]});
  }
  int64_t rest = t.offset.concrete();
  offset = 0;
  for (size_t g = groups.size(); g-- > 0;) {
    groups[g].first = rest / groups[g].logical;
    rest %= groups[g].logical;
    offset += groups[g].first * groups[g].memory;
  }
  strides = Dims(t.sizes.size());
  bool none = rest != 0;
  for (size_t d = 0; d < t.sizes.size(); ++d) {
    int64_t n = t.sizes[d].concrete(), s = t.strides[d].concrete();
    strides[d] = n > 1 ? 0 : 1;
    none |= n == 0;
    if (n <= 1 || s == 0) continue;
    size_t g = groups.size();
    while (g > 0 && groups[g - 1].logical > s) --g;
    if (!g || s % groups[g - 1].logical) return false;
    Group& at = groups[g - 1];
    int64_t step = s / at.logical;
    at.reach += (n - 1) * step;
    strides[d] = step * at.memory;
  }
  for (auto& g : groups) none |= g.first + g.reach >= g.size;
  return !none;
}

}  // namespace

Tensor in_memory(const TensorImpl& t, bool restore) {
  StorageImpl::PhysicalLayout h;
  if (!t.storage->physical_layout(h)) return {};
  Dims strides;
  int64_t offset;
  if (h.order.itemsize != itemsize(t.dtype) || !strides_in_memory(h.order, t, strides, offset)) {
    if (restore) t.storage->restore_logical();
    return {};
  }
  auto r = make_ref<TensorImpl>(std::move(h.memory), Dims(t.sizes), std::move(strides), SymInt(offset),
                                t.dtype, t.device);
  r->wrapped_number = t.wrapped_number;
  return Tensor(std::move(r));
}

bool fills_storage(const TensorImpl& t) {
  int64_t n = 1;
  for (size_t d = t.sizes.size(); d-- > 0; n *= t.sizes[d].concrete())
    if (t.sizes[d].concrete() != 1 && t.strides[d].concrete() != n) {
      if (!Borrowed(const_cast<TensorImpl*>(&t))->is_non_overlapping_and_dense()) return false;
      n = product(t.sizes).concrete();
      break;
    }
  return t.offset.concrete() == 0 && int64_t(t.storage->bytes()) == n * itemsize(t.dtype);
}

Tensor flat_in_memory(const TensorImpl& t, PhysicalOrder& order) {
  StorageImpl::PhysicalLayout h;
  if (!t.storage->physical_layout(h) || h.order.itemsize != itemsize(t.dtype) || !fills_storage(t)) return {};
  order = h.order;
  return Tensor(
      make_ref<TensorImpl>(std::move(h.memory), Dims(t.sizes), Dims(t.strides), SymInt(), t.dtype, t.device));
}

void adopt_physical_order(const Tensor& fresh, const PhysicalOrder& order) {
  TensorImpl& t = *fresh.impl();
  internal_check(fills_storage(t) && t.storage->is_logical())
      << "adopt_physical_order: " << to_string(SymSpan(t.sizes));
  t.storage = make_ref<StorageImpl>(std::move(t.storage), order);
}

namespace {

// The dimensions of more than one element, outermost in memory first.
SmallVector<size_t, 8> by_stride(SymSpan sizes, SymSpan strides) {
  SmallVector<size_t, 8> order;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d].concrete() != 1) order.push_back(d);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return strides[a].concrete() > strides[b].concrete(); });
  return order;
}

// The order in memory of a tensor that fills a storage in the logical layout.
PhysicalOrder logical_order(const TensorImpl& t) {
  PhysicalOrder o;
  o.itemsize = uint8_t(itemsize(t.dtype));
  for (size_t d : by_stride(t.sizes, t.strides)) {
    o.order[o.rank] = o.rank;
    o.sizes[o.rank++] = t.sizes[d].concrete();
  }
  return o;
}

// The same order in memory for a tensor whose logical layout has `strides`. A dimension may be split into several parts of
// the order. Of rank 0 if the order joins dimensions.
PhysicalOrder order_for_strides(const PhysicalOrder& from, const TensorImpl& t, SymSpan strides) {
  int first[8] = {}, count[8] = {}, place[8] = {}, next = 0;
  for (size_t d : by_stride(t.sizes, t.strides)) {
    first[d] = next;
    for (int64_t n = 1; n < t.sizes[d].concrete() && next < from.rank; ++count[d]) n *= from.sizes[next++];
  }
  PhysicalOrder to;
  to.itemsize = from.itemsize;
  for (size_t d : by_stride(t.sizes, strides)) {
    int64_t n = 1;
    for (int k = first[d]; k < first[d] + count[d]; ++k) {
      place[k] = to.rank;
      to.sizes[to.rank++] = from.sizes[k];
      n *= from.sizes[k];
    }
    if (n != t.sizes[d].concrete()) return {};
  }
  if (to.rank != from.rank) return {};
  for (int k = 0; k < from.rank; ++k) to.order[k] = uint8_t(place[from.order[k]]);
  return to;
}

}  // namespace

bool change_strides(const Tensor& fresh, SymSpan strides) {
  TensorImpl& t = *fresh.impl();
  bool same =
      product(t.sizes) == SymInt(int64_t(0)) || by_stride(t.sizes, t.strides) == by_stride(t.sizes, strides);
  if (same) {
    t.strides = Dims(strides);
    return true;
  }
  bool alone = t.device.type == DeviceType::cpu && t.storage->use_count() == 1 && fills_storage(t);
  if (t.sizes.size() > 8 || !alone) return false;
  StorageImpl::PhysicalLayout h;
  bool physical = t.storage->physical_layout(h);
  if (physical && h.order.itemsize != itemsize(t.dtype)) return false;
  PhysicalOrder order = order_for_strides(physical ? h.order : logical_order(t), t, strides);
  if (order.is_logical()) return false;
  auto memory = physical ? std::move(h.memory) : std::move(t.storage);
  bool is_logical = std::is_sorted(order.order, order.order + order.rank);
  t.storage = is_logical ? std::move(memory) : make_ref<StorageImpl>(std::move(memory), order);
  t.strides = Dims(strides);
  return true;
}

thread_local constinit ReadObserver read_observer = nullptr;

Scalar Tensor::item() const {
  runtime_check(numel() == SymInt(int64_t(1)), "item")
      << "a Tensor with " << numel() << " elements cannot be converted to Scalar (shape "
      << to_string(sizes()) << ")";
  runtime_check(device().type != DeviceType::meta, "item")
      << "Tensor.item() cannot be called on meta tensors";
  if (device().type != DeviceType::cpu) [[unlikely]]
    return on_host().item();
  note_read(*this);
  return load(impl_->data_ptr());
}

Tensor Tensor::on_host() const {
  auto* t = impl();
  auto* memory = memory_of(t->device.type);
  if (!memory) return *this;
  auto host = make_ref<StorageImpl>(t->storage->bytes(), Device{});
  if (host->bytes()) memory->to_host(host->data(), t->storage->device_data(), host->bytes());
  auto copy = make_ref<TensorImpl>(std::move(host), t->sizes, t->strides, t->offset, t->dtype, Device{});
  copy->conj = t->conj;
  copy->neg = t->neg;
  return Tensor(std::move(copy));
}

Scalar Tensor::load(const void* at) const {
  Scalar v = Scalar::load(dtype(), at);
  if (impl_->conj) v = Scalar(std::conj(v.to_complex()));
  if (impl_->neg) v = is_complex(dtype()) ? Scalar(-v.to_complex()) : Scalar(-v.to_double());
  return v;
}

Tensor Tensor::alias(SymSpan sizes, SymSpan strides, SymInt offset) const {
  auto r = make_ref<TensorImpl>(impl_->storage, sizes, strides, offset, dtype(), device());
  if (!is_traced()) r->version = version_counter();
  r->inference = impl_->inference;
  r->conj = impl_->conj;
  r->neg = impl_->neg;
  return Tensor(std::move(r));
}

Tensor Tensor::detached() const { return alias(sizes(), strides(), offset()); }

const Ref<VersionCounter>& Tensor::version_counter() const {
  if (!impl_->version) impl_->version = make_ref<VersionCounter>();
  return impl_->version;
}
void Tensor::bump_version() const {
  version_counter()->value.fetch_add(1, std::memory_order_relaxed);
  if (impl_->storage) impl_->storage->note_written();
}

bool Tensor::requires_grad() const {
  if (impl_->requires_grad || impl_->has_node) return true;
  return impl_->grad_slot && TensorImpl::base_requires_grad && TensorImpl::base_requires_grad(*impl_);
}

Dims contiguous_strides(SymSpan sizes) {
  Dims strides(sizes.size());
  SymInt next = int64_t(1);
  for (size_t k = sizes.size(); k-- > 0;) {
    strides[k] = next;
    next *= max(sizes[k], SymInt(int64_t(1)));
  }
  return strides;
}

Dims channels_last_strides(SymSpan sizes) {
  runtime_check(sizes.size() == 4 || sizes.size() == 5, "channels_last")
      << "needs a tensor of rank 4 (channels_last) or 5 (channels_last_3d), got shape " << to_string(sizes);
  Dims strides(sizes.size());
  strides[1] = int64_t(1);
  SymInt next = sizes[1];
  for (size_t k = sizes.size(); k-- > 2;) {
    strides[k] = next;
    next *= sizes[k];
  }
  strides[0] = next;
  return strides;
}

Dims strides_for(SymSpan sizes, MemoryFormat f) {
  int rank = rank_of(f);
  if (!rank) return contiguous_strides(sizes);
  runtime_check(int(sizes.size()) == rank, "memory_format")
      << (rank == 4 ? "channels_last" : "channels_last_3d") << " requires a tensor of rank " << rank
      << (rank == 4 ? " [N, C, H, W]" : " [N, C, D, H, W]") << ", got shape " << to_string(sizes);
  return channels_last_strides(sizes);
}

Dims dense_strides_like(SymSpan sizes, std::span<const Tensor> operands) {
  // If all operands agree, the result takes their strides.
  bool same = !operands.empty(), contiguous = same, channels_last = same;
  sym::OneSided compared;  // the strides of other sizes are computed, which is right for equal sizes too
  auto equal = [&](SymInt a, SymInt b) { return compared.equal(a, b); };
  for (auto& t : operands) same = same && std::ranges::equal(t.sizes(), sizes, equal);
  for (auto& t : operands) {
    contiguous = same && contiguous && t.is_contiguous();
    channels_last =
        same && channels_last && sizes.size() == 4 && t.is_contiguous(MemoryFormat::channels_last);
  }
  if (operands.empty() || contiguous) return contiguous_strides(sizes);
  if (channels_last) return channels_last_strides(sizes);
  for (auto& t : operands)
    same = same && std::ranges::equal(t.strides(), operands[0].strides(), equal) &&
           t.is_non_overlapping_and_dense();
  if (compared.answer(same)) return Dims(operands[0].strides());

  size_t rank = sizes.size();
  // The stride of an operand along a dimension of the result, 0 if it broadcasts.
  auto stride = [&](const Tensor& t, size_t d) -> int64_t {
    size_t lead = rank - size_t(t.dim());
    if (d < lead || (t.sizes()[d - lead].hint() == 1 && sizes[d].hint() != 1)) return 0;
    return t.strides()[d - lead].hint();
  };
  // 1: a is outside of b; -1: inside; 0: no operand decides.
  auto compare = [&](size_t a, size_t b) {
    for (auto& t : operands) {
      int64_t x = stride(t, a), y = stride(t, b);
      if (x == 0 || y == 0) continue;
      if (x != y) return x < y ? -1 : 1;
      if (sizes[a].hint() > sizes[b].hint()) return 1;
    }
    return 0;
  };
  // An insertion sort that skips undecided pairs. order[0] is the innermost dimension.
  Ints order;
  for (size_t k = rank; k-- > 0;) order.push_back(int64_t(k));
  for (size_t i = 1; i < rank; ++i) {
    size_t moving = i;
    for (size_t j = i; j-- > 0;) {
      int c = compare(size_t(order[j]), size_t(order[moving]));
      if (c > 0) {
        std::swap(order[j], order[moving]);
        moving = j;
      } else if (c < 0) {
        break;
      }
    }
  }
  if (std::ranges::is_sorted(order, std::ranges::greater())) return contiguous_strides(sizes);
  Dims result(rank);
  SymInt next = int64_t(1);
  for (auto d : order) {
    result[size_t(d)] = next;
    next *= sizes[size_t(d)];
  }
  return result;
}

Dims broadcast_sizes(const char* op, std::span<const SymSpan> sizes) {
  size_t rank = 0;
  for (auto& s : sizes) rank = std::max(rank, s.size());
  Dims out(rank, SymInt(int64_t(1)));
  for (auto& s : sizes)
    for (size_t k = 0; k < s.size(); ++k) {
      auto& to = out[rank - s.size() + k];
      if (auto both = sym::broadcast_size(to, s[k])) {
        to = *both;
      } else {
        std::ostringstream all;
        for (size_t j = 0; j < sizes.size(); ++j)
          all << (j ? j + 1 == sizes.size() ? " and " : ", " : "") << to_string(sizes[j]);
        runtime_check(false, op) << "shapes " << all.str() << " do not broadcast: the size of dimension "
                                 << int64_t(rank - s.size() + k) << " is " << to << " and " << s[k]
                                 << hint("sizes must match or be 1, counted from the last dimension");
      }
    }
  return out;
}

// True if `from` equals `to`, or is 1.
static bool fits(SymInt from, SymInt to) {
  constexpr int64_t kOne = 1;
  if (sym::same(from, to) || sym::same(from, kOne)) return true;
  if (sym::is_run_time(from) || sym::is_run_time(to)) return from == SymInt(kOne) || from == to;
  return (from.hint() == to.hint() && from == to) || from == SymInt(kOne);
}

bool broadcasts_to(SymSpan from, SymSpan to) {
  if (from.size() > to.size()) return false;
  for (size_t k = 0; k < from.size(); ++k)
    if (!fits(from[k], to[to.size() - from.size() + k])) return false;
  return true;
}

int wrap_dim(const char* op, int64_t dim, int rank) {
  int n = std::max(rank, 1);
  index_check(dim >= -n && dim < n, op) << "Dimension out of range (expected to be in range of [" << -n
                                        << ", " << n - 1 << "], but got " << dim << ")";
  return int(dim < 0 ? dim + n : dim);
}

std::string shapes_of(std::span<const Tensor> tensors) {
  std::string s;
  for (auto& t : tensors)
    s += (s.empty() ? "" : ", ") + (t.defined() ? to_string(t.sizes()) + " " + name(t.dtype()) : "None");
  return s;
}

}  // namespace facula
