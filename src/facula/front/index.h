// Indexing as Python writes it: x[0, ..., 1:5, None, mask] is index(x, {0, Ellipsis, Slice(1, 5), None, mask}).
#pragma once
#include <initializer_list>
#include <optional>
#include <span>
#include <variant>

#include "facula/tensor/scalar.h"
#include "facula/tensor/tensor.h"

namespace facula::front {

struct None_ {};
struct Ellipsis_ {};
inline constexpr None_ None{};
inline constexpr Ellipsis_ Ellipsis{};

// start:stop:step of one dimension; a part that is None is not given.
struct Slice {
  struct Part : std::optional<int64_t> {
    Part(None_ = {}) {}
    Part(std::nullopt_t) {}
    template <std::integral T>
    Part(T k) : std::optional<int64_t>(int64_t(k)) {}
  };
  Slice(Part start_ = {}, Part stop_ = {}, Part step_ = {}) : start(start_), stop(stop_), step(step_) {}
  Part start, stop, step;
};

// An integer selects, None adds a dimension, a tensor of integers or a mask looks elements up.
class IndexItem {
 public:
  template <std::integral T>
  IndexItem(T k) : item_(widened(k)) {}
  IndexItem(None_) : item_(None) {}
  IndexItem(std::nullopt_t) : item_(None) {}
  IndexItem(Ellipsis_) : item_(Ellipsis) {}
  IndexItem(const char* dots);  // "..."; IndexError for any other text
  IndexItem(Slice s) : item_(s) {}
  IndexItem(Tensor t) : item_(std::move(t)) {}
  const auto& get() const { return item_; }

 private:
  template <class T>
  static auto widened(T k) {
    if constexpr (std::is_same_v<T, bool>) return k;
    else return int64_t(k);
  }
  std::variant<int64_t, bool, None_, Ellipsis_, Slice, Tensor> item_;
};

// The part of a tensor at these indices: a view, unless a tensor or a bool is among them.
Tensor index(const Tensor& t, std::span<const IndexItem> items);
// Writes that part; `value` is broadcast to it, leading dimensions of size 1 apart.
void index_put_(const Tensor& t, std::span<const IndexItem> items, const Tensor& value);
void index_put_(const Tensor& t, std::span<const IndexItem> items, const Scalar& value);

}  // namespace facula::front
