// Data sets, and loaders that iterate over their batches.
//
//   data::TensorDataset train(images, labels);
//   data::Loader loader(train, {.batch_size = 64, .shuffle = true});
//   for (auto [x, y] : loader) ...
//
// A data set has size() and get(index), which returns a sample: a Tensor, or a std::array of tensors. A batch is the
// stack of its samples; a data set with batch(indices) creates it at once. Orders are those of Python's DataLoader for
// the same seed, and consume the same random numbers. With prefetch, a thread prepares that many batches in advance.
#pragma once
#include <array>
#include <concepts>
#include <functional>
#include <memory>
#include <vector>

#include "facula/base/random.h"
#include "facula/tensor/tensor.h"

namespace facula::data {

template <class D>
concept Dataset = requires(const D& d, int64_t k) {
  { d.size() } -> std::convertible_to<int64_t>;
  d.get(k);
};

// Slices of tensors along their first dimension, which must have equal sizes.
template <size_t N>
class TensorDataset {
 public:
  template <std::same_as<Tensor>... T>
    requires(sizeof...(T) == N)
  explicit TensorDataset(T... tensors);
  int64_t size() const { return tensors[0].size(0).concrete(); }
  std::array<Tensor, N> get(int64_t k) const;
  std::array<Tensor, N> batch(const Tensor& indices) const;
  std::array<Tensor, N> tensors;
};
template <std::same_as<Tensor>... T>
TensorDataset(T...) -> TensorDataset<sizeof...(T)>;

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false, drop_last = false;
  int prefetch = 0;                // batches that a thread prepares in advance
  Generator* generator = nullptr;  // of the order; null: the default one
};

namespace detail {
void check_rows(std::span<const Tensor> tensors);
void check(const LoaderOptions& options);
Tensor row(const Tensor& t, int64_t k);
Tensor rows(const Tensor& t, const Tensor& indices);
Tensor stacked(const std::vector<Tensor>& samples);
// The order of one pass over n samples, drawn like that of Python's DataLoader.
Tensor order_of(int64_t n, const LoaderOptions& options);
Tensor piece(const Tensor& order, int64_t from, int64_t to);
std::vector<int64_t> integers(const Tensor& indices);

// Makes batch 0, 1, ... count - 1, or up to the first that is null, here or in a thread that is `ahead`. An error in the
// thread is raised by next().
class Producer {
 public:
  Producer(std::function<std::shared_ptr<void>(int64_t)> make, int64_t count, int prefetch);
  ~Producer();
  std::shared_ptr<void> next();  // null at the end

 private:
  struct Thread;
  std::function<std::shared_ptr<void>(int64_t)> make_;
  int64_t count_, at_ = 0;
  std::unique_ptr<Thread> thread_;
};
}  // namespace detail

// Iterates over batches of D; a batch has the form of a sample.
template <Dataset D>
class Loader {
 public:
  using Batch = std::decay_t<decltype(std::declval<const D&>().get(0))>;

  Loader(D dataset, LoaderOptions options)
      : dataset_(std::make_shared<D>(std::move(dataset))), options_(options) {
    detail::check(options);
  }
  int64_t size() const {  // batches of a pass
    int64_t n = dataset_->size(), b = options_.batch_size;
    return options_.drop_last ? n / b : (n + b - 1) / b;
  }
  const D& dataset() const { return *dataset_; }

  class Iterator {
   public:
    const Batch& operator*() const { return *static_cast<const Batch*>(batch_.get()); }
    Iterator& operator++() {
      batch_ = producer_->next();
      return *this;
    }
    bool operator==(std::nullptr_t) const { return !batch_; }

   private:
    friend class Loader;
    std::unique_ptr<detail::Producer> producer_;
    std::shared_ptr<void> batch_;
  };
  Iterator begin() const {
    int64_t n = dataset_->size(), size = options_.batch_size;
    Tensor order = detail::order_of(n, options_);
    Iterator it;
    it.producer_ = std::make_unique<detail::Producer>(
        [dataset = dataset_, order, n, size](int64_t k) -> std::shared_ptr<void> {
          return std::make_shared<Batch>(
              batch_of(*dataset, detail::piece(order, k * size, std::min(n, (k + 1) * size))));
        },
        this->size(), options_.prefetch);
    return std::move(++it);
  }
  std::nullptr_t end() const { return nullptr; }

 private:
  static Batch batch_of(const D& dataset, const Tensor& indices) {
    if constexpr (requires {
                    { dataset.batch(indices) } -> std::convertible_to<Batch>;
                  }) {
      return dataset.batch(indices);
    } else if constexpr (std::same_as<Batch, Tensor>) {
      std::vector<Tensor> samples;
      for (int64_t k : detail::integers(indices)) samples.push_back(dataset.get(k));
      return detail::stacked(samples);
    } else {
      std::vector<Batch> samples;
      for (int64_t k : detail::integers(indices)) samples.push_back(dataset.get(k));
      Batch batch;
      for (size_t i = 0; i < batch.size(); ++i) {
        std::vector<Tensor> column;
        for (auto& s : samples) column.push_back(s[i]);
        batch[i] = detail::stacked(column);
      }
      return batch;
    }
  }
  std::shared_ptr<const D> dataset_;
  LoaderOptions options_;
};

template <size_t N>
template <std::same_as<Tensor>... T>
  requires(sizeof...(T) == N)
TensorDataset<N>::TensorDataset(T... given) : tensors{std::move(given)...} {
  detail::check_rows(tensors);
}
template <size_t N>
std::array<Tensor, N> TensorDataset<N>::get(int64_t k) const {
  std::array<Tensor, N> sample;
  for (size_t i = 0; i < N; ++i) sample[i] = detail::row(tensors[i], k);
  return sample;
}
template <size_t N>
std::array<Tensor, N> TensorDataset<N>::batch(const Tensor& indices) const {
  std::array<Tensor, N> b;
  for (size_t i = 0; i < N; ++i) b[i] = detail::rows(tensors[i], indices);
  return b;
}

}  // namespace facula::data
