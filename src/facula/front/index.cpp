#include "facula/front/index.h"

#include <cstring>

#include "facula/base/error.h"
#include "facula/ops.h"

namespace facula::front {

IndexItem::IndexItem(const char* dots) : item_(Ellipsis) {
  index_check(std::strcmp(dots, "...") == 0, "index")
      << "the only text that is an index is \"...\", not \"" << dots << '"';
}

namespace {
bool is_mask(const Tensor& t) { return t.dtype() == DType::Bool || t.dtype() == DType::UInt8; }

// The number of dimensions of the indexed tensor that an item stands for.
int dimensions_of(const IndexItem& item) {
  auto& x = item.get();
  if (auto* t = std::get_if<Tensor>(&x)) return is_mask(*t) ? t->dim() : 1;
  return std::holds_alternative<int64_t>(x) || std::holds_alternative<Slice>(x);
}

// The view that integers, slices, None and Ellipsis select, and the tensors to look up in it, by dimension of the view;
// undefined: the whole dimension. A mask stands for as many dimensions as it has. The list is empty if there are none.
struct Selected {
  Tensor view;
  std::vector<Tensor> lookups;
};

class Selection {
 public:
  Selection(const Tensor& t, std::span<const IndexItem> items) : view_(t) {
    int indexed_dims = 0, ellipses = 0;
    for (auto& item : items) {
      indexed_dims += dimensions_of(item);
      ellipses += std::holds_alternative<Ellipsis_>(item.get());
    }
    index_check(indexed_dims <= t.dim(), "index")
        << "too many indices for tensor of dimension " << t.dim() << ": " << indexed_dims << " were given";
    index_check(ellipses <= 1, "index") << "an index can only have a single ellipsis ('...')";
    skipped_ = t.dim() - indexed_dims;
    for (auto& item : items) std::visit([this](auto& x) { take(x); }, item.get());
  }
  Selected result() && { return {std::move(view_), std::move(lookups_)}; }

 private:
  void take(int64_t k) { view_ = select(view_, dim_, k); }
  void take(bool on) {  // indexes by a bool: a new dimension of size 1 or 0
    view_ = unsqueeze(view_, dim_);
    look_up(full(Ints{1}, Scalar(on), DType::Bool));
  }
  void take(None_) {
    view_ = unsqueeze(view_, dim_);
    ++dim_;
  }
  void take(Ellipsis_) { dim_ += skipped_; }
  void take(const Slice& s) {
    if (s.start || s.stop || s.step) {
      std::optional<SymInt> start, stop;
      if (s.start) start = SymInt(*s.start);
      if (s.stop) stop = SymInt(*s.stop);
      view_ = slice(view_, dim_, start, stop, s.step.value_or(1));
    }
    ++dim_;
  }
  void take(const Tensor& t) {
    index_check(t.defined(), "index") << "an index is an undefined tensor";
    if (t.dim() == 0 && !is_mask(t) && !is_floating(t.dtype())) return take(t.item().to_int());
    if (t.dim() == 0 && is_mask(t)) return take(t.item().to_bool());
    look_up(t);
  }
  void look_up(const Tensor& t) {
    int covered = is_mask(t) ? t.dim() : 1, at = dim_ - merged_;
    lookups_.resize(size_t(at));
    lookups_.push_back(t);
    merged_ += covered - 1;
    dim_ += covered;
  }

  Tensor view_;
  std::vector<Tensor> lookups_;
  int dim_ = 0, skipped_ = 0;
  int merged_ = 0;  // how many more dimensions than entries of lookups_ there are, because of masks
};
}  // namespace

Tensor index(const Tensor& t, std::span<const IndexItem> items) {
  Selected s = Selection(t, items).result();
  if (!s.lookups.empty()) return facula::index(s.view, s.lookups);
  return s.view.is_same(t) ? alias(t) : s.view;
}

void index_put_(const Tensor& t, std::span<const IndexItem> items, const Tensor& value) {
  Selected s = Selection(t, items).result();
  Tensor from = value;
  while (from.dim() > s.view.dim() && from.size(0).guard_int() == 1) from = squeeze(from, 0);
  if (s.lookups.empty()) copy_(s.view, from);
  else facula::index_put_(s.view, s.lookups, to(from, s.view.dtype()));
}
void index_put_(const Tensor& t, std::span<const IndexItem> items, const Scalar& value) {
  Selected s = Selection(t, items).result();
  if (s.lookups.empty()) fill_(s.view, value);
  else facula::index_put_(s.view, s.lookups, Tensor::scalar(value, s.view.dtype(), s.view.device()));
}

}  // namespace facula::front
