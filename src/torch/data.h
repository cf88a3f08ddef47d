// torch::data: data sets, transforms of their examples, samplers of indices, and loaders of batches.
//
//   auto dataset = data::datasets::MNIST("data").map(data::transforms::Normalize<>(0.13, 0.31)).map(data::transforms::Stack<>());
//   auto loader = data::make_data_loader(std::move(dataset), data::DataLoaderOptions().batch_size(64).workers(2));
//   for (auto& batch : *loader) use(batch.data, batch.target);
#pragma once
#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "facula/data/loader.h"
#include "facula/io/idx.h"
#include "torch/types.h"

namespace torch::data {

// ---- examples

namespace example {
struct NoTarget {};
}  // namespace example

template <class Data = Tensor, class Target = Tensor>
struct Example {
  using DataType = Data;
  using TargetType = Target;
  Example() = default;
  Example(Data d, Target t) : data(std::move(d)), target(std::move(t)) {}
  Data data;
  Target target;
};
template <class Data>
struct Example<Data, example::NoTarget> {
  using DataType = Data;
  using TargetType = example::NoTarget;
  Example() = default;
  Example(Data d) : data(std::move(d)) {}
  operator Data&() { return data; }
  operator const Data&() const { return data; }
  Data data;
};
using TensorExample = Example<Tensor, example::NoTarget>;

// ---- data sets

namespace datasets {

template <class Source, class Transform>
class MapDataset;

// A data set that gives batches for requests, which are mostly lists of indices.
template <class Self, class Batch = std::vector<Example<>>, class Request = ArrayRef<size_t>>
class BatchDataset {
 public:
  using SelfType = Self;
  using BatchType = Batch;
  using BatchRequestType = Request;
  virtual ~BatchDataset() = default;
  virtual Batch get_batch(Request request) = 0;
  virtual std::optional<size_t> size() const = 0;  // nullopt: unknown
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) & {
    return {static_cast<Self&>(*this), std::move(transform)};
  }
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) && {
    return {std::move(static_cast<Self&>(*this)), std::move(transform)};
  }
};

// A data set that gives one example for each index.
template <class Self, class SingleExample = Example<>>
class Dataset : public BatchDataset<Self, std::vector<SingleExample>> {
 public:
  using ExampleType = SingleExample;
  virtual ExampleType get(size_t index) = 0;
  std::vector<ExampleType> get_batch(ArrayRef<size_t> indices) override {
    std::vector<ExampleType> batch;
    batch.reserve(indices.size());
    for (size_t k : indices) batch.push_back(get(k));
    return batch;
  }
};

// The batches of a data set, transformed.
template <class Source, class Transform>
class MapDataset : public BatchDataset<MapDataset<Source, Transform>, typename Transform::OutputBatchType,
                                       typename Source::BatchRequestType> {
 public:
  using DatasetType = Source;
  using TransformType = Transform;
  using OutputBatchType = typename Transform::OutputBatchType;
  MapDataset(Source source, Transform transform)
      : source_(std::move(source)), transform_(std::move(transform)) {}
  OutputBatchType get_batch(typename Source::BatchRequestType request) override {
    return transform_.apply_batch(source_.get_batch(std::move(request)));
  }
  std::optional<size_t> size() const noexcept override { return source_.size(); }
  const Source& dataset() const noexcept { return source_; }
  const Transform& transform() const noexcept { return transform_; }

 private:
  Source source_;
  Transform transform_;
};
template <class Source, class Transform>
MapDataset<std::decay_t<Source>, std::decay_t<Transform>> map(Source&& source, Transform&& transform) {
  return {std::forward<Source>(source), std::forward<Transform>(transform)};
}

// A handle on a data set that several loaders use.
template <class Source>
class SharedBatchDataset : public BatchDataset<SharedBatchDataset<Source>, typename Source::BatchType,
                                               typename Source::BatchRequestType> {
 public:
  SharedBatchDataset(std::shared_ptr<Source> source) : source_(std::move(source)) {}
  typename Source::BatchType get_batch(typename Source::BatchRequestType request) override {
    return source_->get_batch(std::move(request));
  }
  std::optional<size_t> size() const override { return source_->size(); }
  Source& operator*() { return *source_; }
  Source* operator->() { return source_.get(); }

 private:
  std::shared_ptr<Source> source_;
};
template <class Source, class... A>
SharedBatchDataset<Source> make_shared_dataset(A&&... arguments) {
  return {std::make_shared<Source>(std::forward<A>(arguments)...)};
}

// The rows of a tensor, without targets.
class TensorDataset : public Dataset<TensorDataset, TensorExample> {
 public:
  explicit TensorDataset(const std::vector<Tensor>& rows) : tensor(stack(rows)) {}
  explicit TensorDataset(Tensor rows) : tensor(std::move(rows)) {}
  TensorExample get(size_t index) override { return tensor[int64_t(index)]; }
  std::optional<size_t> size() const override { return size_t(tensor.size(0)); }
  Tensor tensor;
};

// The digits of MNIST and what has its format, in a folder with the four IDX files, plain or with .gz. Images are
// [1, 28, 28] in [0, 1], targets int64.
class MNIST : public Dataset<MNIST> {
 public:
  enum class Mode { kTrain, kTest };
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain) : mode_(mode) {
    std::string prefix =
        root + (root.empty() || root.back() == '/' ? "" : "/") + (is_train() ? "train" : "t10k");
    images_ = Tensor(read(prefix + "-images-idx3-ubyte")).to(kFloat32).div_(255).unsqueeze_(1);
    targets_ = Tensor(read(prefix + "-labels-idx1-ubyte")).to(kInt64);
    user_check(images_.size(0) == targets_.size(0), "MNIST")
        << "there are " << images_.size(0) << " images and " << targets_.size(0) << " labels in " << root;
  }
  Example<> get(size_t index) override { return {images_[int64_t(index)], targets_[int64_t(index)]}; }
  std::optional<size_t> size() const override { return size_t(images_.size(0)); }
  bool is_train() const noexcept { return mode_ == Mode::kTrain; }
  const Tensor& images() const { return images_; }
  const Tensor& targets() const { return targets_; }

 private:
  static facula::Tensor read(const std::string& path) {
    return facula::io::read_idx(std::ifstream(path).good() ? path : path + ".gz");
  }
  Mode mode_;
  Tensor images_, targets_;
};

}  // namespace datasets

// ---- transforms

namespace transforms {

template <class InputBatch, class OutputBatch>
class BatchTransform {
 public:
  using InputBatchType = InputBatch;
  using OutputBatchType = OutputBatch;
  virtual ~BatchTransform() = default;
  virtual OutputBatch apply_batch(InputBatch batch) = 0;
};
// A transform of single examples.
template <class Input, class Output>
class Transform : public BatchTransform<std::vector<Input>, std::vector<Output>> {
 public:
  using InputType = Input;
  using OutputType = Output;
  virtual Output apply(Input input) = 0;
  std::vector<Output> apply_batch(std::vector<Input> batch) override {
    std::vector<Output> outputs;
    outputs.reserve(batch.size());
    for (auto& x : batch) outputs.push_back(apply(std::move(x)));
    return outputs;
  }
};
template <class Input, class Output = Input>
class BatchLambda : public BatchTransform<Input, Output> {
 public:
  using FunctionType = std::function<Output(Input)>;
  explicit BatchLambda(FunctionType f) : function_(std::move(f)) {}
  Output apply_batch(Input batch) override { return function_(std::move(batch)); }

 private:
  FunctionType function_;
};
template <class Input, class Output = Input>
class Lambda : public Transform<Input, Output> {
 public:
  using FunctionType = std::function<Output(Input)>;
  explicit Lambda(FunctionType f) : function_(std::move(f)) {}
  Output apply(Input input) override { return function_(std::move(input)); }

 private:
  FunctionType function_;
};
// A batch of examples becomes one.
template <class Batch, class Single = Batch>
using Collation = BatchTransform<std::vector<Single>, Batch>;
template <class Batch, class Single = Batch>
using Collate = BatchLambda<std::vector<Single>, Batch>;

// A transform of the data of each example, which are tensors.
template <class Target = Tensor>
class TensorTransform : public Transform<Example<Tensor, Target>, Example<Tensor, Target>> {
 public:
  virtual Tensor operator()(Tensor input) = 0;
  Example<Tensor, Target> apply(Example<Tensor, Target> example) override {
    example.data = (*this)(std::move(example.data));
    return example;
  }
};
template <class Target = Tensor>
class TensorLambda : public TensorTransform<Target> {
 public:
  using FunctionType = std::function<Tensor(Tensor)>;
  explicit TensorLambda(FunctionType f) : function_(std::move(f)) {}
  Tensor operator()(Tensor input) override { return function_(std::move(input)); }

 private:
  FunctionType function_;
};
// (x - mean) / stddev, by channel where there are several.
template <class Target = Tensor>
class Normalize : public TensorTransform<Target> {
 public:
  Normalize(ArrayRef<double> mean, ArrayRef<double> stddev)
      : mean(by_channel(mean)), stddev(by_channel(stddev)) {}
  Tensor operator()(Tensor input) override { return input.sub(mean).div(stddev); }
  Tensor mean, stddev;

 private:
  static Tensor by_channel(ArrayRef<double> numbers) {
    return tensor(numbers.vec(), TensorOptions(kFloat32)).unsqueeze(1).unsqueeze(2);
  }
};

// A batch of examples of tensors as one example of their stacks.
template <class T = Example<>>
class Stack;
template <>
class Stack<Example<>> : public Collation<Example<>> {
 public:
  Example<> apply_batch(std::vector<Example<>> batch) override {
    std::vector<Tensor> data, targets;
    for (auto& x : batch) {
      data.push_back(std::move(x.data));
      targets.push_back(std::move(x.target));
    }
    return {torch::stack(data), torch::stack(targets)};
  }
};
template <>
class Stack<TensorExample> : public Collation<TensorExample> {
 public:
  TensorExample apply_batch(std::vector<TensorExample> batch) override {
    std::vector<Tensor> data;
    for (auto& x : batch) data.push_back(std::move(x.data));
    return torch::stack(data);
  }
};

}  // namespace transforms

// ---- samplers

namespace samplers {

template <class Request = std::vector<size_t>>
class Sampler {
 public:
  using BatchRequestType = Request;
  virtual ~Sampler() = default;
  virtual void reset(std::optional<size_t> new_size) = 0;
  virtual std::optional<Request> next(size_t batch_size) = 0;  // nullopt at the end
};

// Indices in an order that a subclass makes at each reset.
class IndexSampler : public Sampler<> {
 public:
  explicit IndexSampler(size_t size) : size_(size) {}
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    if (at_ >= size_) return std::nullopt;
    std::vector<size_t> batch;
    for (size_t end = std::min(size_, at_ + batch_size); at_ < end; ++at_) batch.push_back(index_at(at_));
    return batch;
  }
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    if (new_size) size_ = *new_size;
    at_ = 0;
  }
  size_t index() const noexcept { return at_; }

 protected:
  virtual size_t index_at(size_t k) const = 0;
  size_t size_, at_ = 0;
};
class SequentialSampler : public IndexSampler {
 public:
  using IndexSampler::IndexSampler;

 private:
  size_t index_at(size_t k) const override { return k; }
};
// Each index once, in an order that the default generator draws.
class RandomSampler : public IndexSampler {
 public:
  explicit RandomSampler(int64_t size, Dtype = kInt64) : IndexSampler(size_t(size)) { reset(); }
  void reset(std::optional<size_t> new_size = std::nullopt) override {
    IndexSampler::reset(new_size);
    order_ = facula::data::detail::integers(randperm(int64_t(size_), kInt64));
  }

 private:
  size_t index_at(size_t k) const override { return size_t(order_[k]); }
  std::vector<int64_t> order_;
};

}  // namespace samplers

// ---- loaders

// o.batch_size(64) sets and gives o; o.batch_size() is the value.
class DataLoaderOptions {
 public:
  DataLoaderOptions(size_t batch_size = 1) : batch_size_(batch_size) {}
#define FACULA_TORCH_LOADER_OPTION(Type, name, initial) \
  DataLoaderOptions& name(Type value) {                 \
    name##_ = value;                                    \
    return *this;                                       \
  }                                                     \
  Type name() const { return name##_; }
  FACULA_TORCH_LOADER_OPTION(size_t, batch_size, 1)
  FACULA_TORCH_LOADER_OPTION(size_t, workers, 0)  // with any, one thread prepares batches ahead, in order
  FACULA_TORCH_LOADER_OPTION(std::optional<size_t>, max_jobs, nullopt)
  FACULA_TORCH_LOADER_OPTION(std::optional<std::chrono::milliseconds>, timeout, nullopt)
  FACULA_TORCH_LOADER_OPTION(bool, enforce_ordering, true)
  FACULA_TORCH_LOADER_OPTION(bool, drop_last, false)
#undef FACULA_TORCH_LOADER_OPTION

 private:
  size_t batch_size_, workers_ = 0;
  std::optional<size_t> max_jobs_;
  std::optional<std::chrono::milliseconds> timeout_;
  bool enforce_ordering_ = true, drop_last_ = false;
};

template <class Batch>
class Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;
  Iterator() = default;  // the end
  explicit Iterator(std::shared_ptr<facula::data::detail::Producer> producer)
      : producer_(std::move(producer)) {
    ++*this;
  }
  Iterator& operator++() {
    batch_ = producer_->next();
    return *this;
  }
  void operator++(int) { ++*this; }
  Batch& operator*() const { return *static_cast<Batch*>(batch_.get()); }
  Batch* operator->() const { return &**this; }
  friend bool operator==(const Iterator& a, const Iterator& b) { return a.batch_ == b.batch_; }

 private:
  std::shared_ptr<facula::data::detail::Producer> producer_;
  std::shared_ptr<void> batch_;  // null at the end
};

// Batches of a data set, once through for each begin().
template <class Dataset, class Sampler>
class StatelessDataLoader {
 public:
  using BatchType = typename Dataset::BatchType;
  StatelessDataLoader(Dataset dataset, Sampler sampler, DataLoaderOptions options)
      : dataset_(std::move(dataset)), sampler_(std::move(sampler)), options_(options) {
    user_check(options.batch_size() > 0, "DataLoader") << "a batch has at least one example";
  }
  StatelessDataLoader(const StatelessDataLoader&) = delete;
  ~StatelessDataLoader() { join(); }
  Iterator<BatchType> begin() {
    join();
    sampler_.reset(dataset_.size());
    int prefetched = options_.workers() ? int(options_.max_jobs().value_or(2 * options_.workers())) : 0;
    producer_ =
        std::make_shared<facula::data::detail::Producer>([this](int64_t) { return make(); },
                                                         std::numeric_limits<int64_t>::max(), prefetched);
    return Iterator<BatchType>(producer_);
  }
  Iterator<BatchType> end() { return {}; }
  // Ends the preparation of batches of the last begin().
  void join() { producer_.reset(); }
  const DataLoaderOptions& options() const noexcept { return options_; }

 private:
  std::shared_ptr<void> make() {
    auto request = sampler_.next(options_.batch_size());
    if (!request) return nullptr;
    if constexpr (requires { request->size(); })
      if (options_.drop_last() && request->size() < options_.batch_size()) return nullptr;
    return std::make_shared<BatchType>(dataset_.get_batch(std::move(*request)));
  }
  Dataset dataset_;
  Sampler sampler_;
  DataLoaderOptions options_;
  std::shared_ptr<facula::data::detail::Producer> producer_;
};

template <class Dataset, class Sampler>
  requires requires(Sampler s) { s.next(size_t(1)); }
std::unique_ptr<StatelessDataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset, Sampler sampler,
                                                                        DataLoaderOptions options = {}) {
  return std::make_unique<StatelessDataLoader<Dataset, Sampler>>(std::move(dataset), std::move(sampler),
                                                                 options);
}
template <class Sampler = samplers::RandomSampler, class Dataset>
std::unique_ptr<StatelessDataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset,
                                                                        DataLoaderOptions options = {}) {
  auto size = dataset.size();
  user_check(size, "make_data_loader")
      << "the size of the data set is unknown" << facula::hint("give a sampler");
  return make_data_loader(std::move(dataset), Sampler(*size), options);
}

}  // namespace torch::data
