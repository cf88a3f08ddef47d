// Layers: modules that are called with a tensor. Arguments after the sizes are fields of an options struct,
// with PyTorch's names and defaults: nn::Conv2d(1, 32, 3, {.padding = 1}).
#pragma once
#include <concepts>
#include <optional>

#include "facula/nn/module.h"

namespace facula::nn {

template <class M>
concept Layer = std::derived_from<M, Module> && requires(const M& m, const Tensor& x) {
  { m(x) } -> std::convertible_to<Tensor>;
};

// One number for both directions, or {height, width}.
struct Pair {
  int64_t height, width;
  Pair(int64_t both) : height(both), width(both) {}
  Pair(int both) : Pair(int64_t(both)) {}
  Pair(int64_t h, int64_t w) : height(h), width(w) {}
};

// input @ weight.T + bias: [*, in_features] to [*, out_features].
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias = true,
         std::optional<DType> dtype = std::nullopt);
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;  // [out_features, in_features]; [out_features], undefined without
};

// Cross-correlation over [N, C, H, W] or [C, H, W].
class Conv2d : public Module {
 public:
  struct Options {
    Pair stride = 1, padding = 0, dilation = 1;
    int64_t groups = 1;
    bool bias = true;
    std::optional<DType> dtype = std::nullopt;
  };
  Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel_size)
      : Conv2d(in_channels, out_channels, kernel_size, Options()) {}
  Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel_size, Options options);
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;  // [out_channels, in_channels / groups, kernel height, width]; [out_channels]

 private:
  Options options_;
};

// Normalises channels with the statistics of the batch, or when evaluating with running ones.  Ioffe and
// Szegedy, 2015.
class BatchNorm : public Module {
 public:
  struct Options {
    double eps = 1e-5;
    std::optional<double> momentum = 0.1;  // nullopt: running statistics are plain means
    bool affine = true, track_running_stats = true;
    std::optional<DType> dtype = std::nullopt;
  };
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  BatchNorm(const char* kind, int lowest_rank, int highest_rank, int64_t num_features, Options options);

 private:
  Options options_;
  int lowest_rank_, highest_rank_;
};
struct BatchNorm1d : BatchNorm {  // [N, C] or [N, C, L]
  explicit BatchNorm1d(int64_t num_features) : BatchNorm1d(num_features, Options()) {}
  BatchNorm1d(int64_t num_features, Options options)
      : BatchNorm("BatchNorm1d", 2, 3, num_features, options) {}
};
struct BatchNorm2d : BatchNorm {  // [N, C, H, W]
  explicit BatchNorm2d(int64_t num_features) : BatchNorm2d(num_features, Options()) {}
  BatchNorm2d(int64_t num_features, Options options)
      : BatchNorm("BatchNorm2d", 4, 4, num_features, options) {}
};

// Normalises the last dimensions, whose sizes are normalized_shape.  Ba, Kiros, Hinton, 2016.
class LayerNorm : public Module {
 public:
  struct Options {
    double eps = 1e-5;
    bool elementwise_affine = true, bias = true;
    std::optional<DType> dtype = std::nullopt;
  };
  explicit LayerNorm(std::vector<int64_t> normalized_shape)
      : LayerNorm(std::move(normalized_shape), Options()) {}
  LayerNorm(std::vector<int64_t> normalized_shape, Options options);
  explicit LayerNorm(int64_t size) : LayerNorm(std::vector<int64_t>{size}) {}
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;

 private:
  std::vector<int64_t> shape_;
  double eps_;
};

// Rows of a table [num_embeddings, embedding_dim] by integer index: [*] to [*, embedding_dim].
class Embedding : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim, std::optional<int64_t> padding_idx = std::nullopt,
            std::optional<DType> dtype = std::nullopt);
  Tensor operator()(const Tensor& indices) const;
  Tensor weight;

 private:
  int64_t padding_idx_;  // -1: none
};

// In training, zeroes each element with probability p and scales the others by 1 / (1 - p).
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor operator()(const Tensor& x) const;

 private:
  double p_;
};

struct ReLU : Module {
  ReLU();
  Tensor operator()(const Tensor& x) const;
};
class GELU : public Module {
 public:
  explicit GELU(std::string approximate = "none");  // or "tanh"
  Tensor operator()(const Tensor& x) const;

 private:
  std::string approximate_;
};

// Largest value of each window of [N, C, H, W] or [C, H, W].
class MaxPool2d : public Module {
 public:
  struct Options {
    std::optional<Pair> stride = std::nullopt;  // the window's size
    Pair padding = 0, dilation = 1;
    bool ceil_mode = false;
  };
  explicit MaxPool2d(Pair kernel_size) : MaxPool2d(kernel_size, Options()) {}
  MaxPool2d(Pair kernel_size, Options options);
  Tensor operator()(const Tensor& x) const;

 private:
  Pair kernel_size_;
  Options options_;
};

// Merges dimensions start_dim to end_dim.
class Flatten : public Module {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1);
  Tensor operator()(const Tensor& x) const;

 private:
  int64_t start_dim_, end_dim_;
};

// Layers applied one after the other, named "0", "1", ... Write nn::Sequential{a, b}, with braces: C++ makes
// what stands in them from left to right, as Python does, and what stands in parentheses in any order, which
// changes the random numbers.
class Sequential : public Module {
 public:
  template <Layer... M>
    requires(!(sizeof...(M) == 1 && (std::same_as<M, Sequential> && ...)))
  explicit Sequential(M... layers) : Module("Sequential") {
    (push_back(std::move(layers)), ...);
  }
  template <Layer M>
  void push_back(M layer) {
    add(std::to_string(child_count()), layer);
    calls_->push_back([layer = std::move(layer)](const Tensor& x) -> Tensor { return layer(x); });
  }
  size_t size() const { return calls_->size(); }
  Tensor operator()(const Tensor& x) const;

 private:
  std::shared_ptr<std::vector<std::function<Tensor(const Tensor&)>>> calls_ =
      std::make_shared<std::vector<std::function<Tensor(const Tensor&)>>>();
};

// A list of modules of one type: for (auto& block : blocks) x = block(x);
template <std::derived_from<Module> M>
class ModuleList : public Module {
 public:
  ModuleList() : Module("ModuleList") {}
  explicit ModuleList(std::vector<M> modules) : ModuleList() {
    for (auto& m : modules) push_back(std::move(m));
  }
  void push_back(M m) {
    add(std::to_string(child_count()), m);
    items_->push_back(std::move(m));
  }
  size_t size() const { return items_->size(); }
  const M& operator[](size_t k) const { return items_->at(k); }
  auto begin() const { return items_->cbegin(); }
  auto end() const { return items_->cend(); }

 private:
  std::shared_ptr<std::vector<M>> items_ = std::make_shared<std::vector<M>>();
};

}  // namespace facula::nn
