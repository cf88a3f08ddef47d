#include "facula/data/loader.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "facula/autograd/autograd.h"
#include "facula/ops.h"

namespace facula::data::detail {

void check_rows(std::span<const Tensor> tensors) {
  for (auto& t : tensors) {
    value_check(t.defined() && t.dim() > 0, "TensorDataset")
        << "every tensor needs a first dimension, the samples'";
    value_check(t.size(0) == tensors[0].size(0), "TensorDataset")
        << "Size mismatch between tensors: " << shapes_of(tensors);
  }
}
void check(const LoaderOptions& o) {
  value_check(o.batch_size > 0, "Loader")
      << "batch_size should be a positive integer value, but got batch_size=" << o.batch_size;
  value_check(o.prefetch >= 0, "Loader") << "prefetch should be non-negative, but got " << o.prefetch;
}
Tensor row(const Tensor& t, int64_t k) { return select(t, 0, k); }
Tensor rows(const Tensor& t, const Tensor& indices) { return index_select(t, 0, indices); }
Tensor stacked(const std::vector<Tensor>& samples) { return stack(samples); }
Tensor piece(const Tensor& order, int64_t from, int64_t to) { return slice(order, 0, from, to); }
std::vector<int64_t> integers(const Tensor& indices) {
  Tensor t = contiguous(indices);
  const int64_t* p = t.data<int64_t>();
  return {p, p + t.numel().concrete()};
}

namespace {
int64_t draw_seed(Generator* generator) {
  return randint(Scalar(0), Scalar(int64_t(INT64_MAX)), Sizes(1), generator).item().to_int();
}
}  // namespace

Tensor order_of(int64_t n, const LoaderOptions& o) {
  draw_seed(o.generator);  // drawn as with Python's workers, so that later random numbers are the same
  if (!o.shuffle) return arange(n, DType::Int64);
  if (o.generator) return randperm(n, o.generator);
  Ref<Generator> own = make_ref<Generator>(uint64_t(draw_seed(nullptr)));
  return randperm(n, own.get());
}

struct Producer::Thread {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<void>> ready;
  std::exception_ptr error;
  bool stop = false, done = false;
  std::thread thread;
};

Producer::Producer(std::function<std::shared_ptr<void>(int64_t)> make, int64_t count, int prefetch)
    : make_(std::move(make)), count_(count) {
  if (!prefetch) return;
  thread_ = std::make_unique<Thread>();
  thread_->thread = std::thread([this, t = thread_.get(), prefetch, grad = autograd::grad_enabled()] {
    autograd::GradMode mode(grad);
    try {
      for (int64_t k = 0; k < count_; ++k) {
        auto batch = make_(k);
        if (!batch) break;
        std::unique_lock lock(t->mutex);
        t->changed.wait(lock, [&] { return t->stop || t->ready.size() < size_t(prefetch); });
        if (t->stop) return;
        t->ready.push_back(std::move(batch));
        t->changed.notify_all();
      }
    } catch (...) {
      std::lock_guard lock(t->mutex);
      t->error = std::current_exception();
    }
    std::lock_guard lock(t->mutex);
    t->done = true;
    t->changed.notify_all();
  });
}
Producer::~Producer() {
  if (!thread_) return;
  {
    std::lock_guard lock(thread_->mutex);
    thread_->stop = true;
  }
  thread_->changed.notify_all();
  thread_->thread.join();
}
std::shared_ptr<void> Producer::next() {
  if (at_ == count_) return nullptr;
  ++at_;
  if (!thread_) {
    auto batch = make_(at_ - 1);
    if (!batch) at_ = count_;
    return batch;
  }
  std::unique_lock lock(thread_->mutex);
  thread_->changed.wait(lock, [&] { return !thread_->ready.empty() || thread_->done; });
  if (thread_->ready.empty()) {
    at_ = count_;
    if (thread_->error) std::rethrow_exception(thread_->error);
    return nullptr;
  }
  auto batch = std::move(thread_->ready.front());
  thread_->ready.pop_front();
  thread_->changed.notify_all();
  return batch;
}

}  // namespace facula::data::detail
