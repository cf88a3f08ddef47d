// A collective operation as one rank calls it, and the work that executes it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "facula/base/intrusive.h"
#include "facula/distributed/reduce.h"
#include "facula/tensor/tensor.h"

namespace facula::distributed {

enum class Kind : uint8_t {
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
  send,
  recv
};
const char* name(Kind kind);

struct Buffer {
  char* data = nullptr;
  size_t bytes = 0;
};

struct Call {
  Kind kind = Kind::barrier;
  Reduction reduction = Reduction::sum;
  DType dtype = DType::UInt8;
  int root = 0;
  int64_t tag = 0;
  double timeout = 1800;              // seconds
  std::vector<Buffer> input, output;  // contiguous memory
  std::vector<int64_t> sizes;         // of the tensor that all ranks have to agree on; not for all_to_all
  std::vector<Tensor> tensors;        // keeps the memory alive
  std::string site;                   // file:line of the program
};

// An operation that was submitted. Any thread may wait for it.
class Work : public RefCounted {
 public:
  explicit Work(Call call) : call(std::move(call)) {}
  Call call;
  uint64_t sequence = 0;
  std::atomic<int> source{-1};  // the rank that a message came from
  std::atomic<int64_t> duration_ns{0};

  bool is_done() const { return state_.load(std::memory_order_acquire) != 0; }
  std::exception_ptr error() const;
  // Waits up to `seconds`; false if the work is not done then. `idle` is called every 20 ms.
  bool wait(double seconds, const std::function<void()>& idle = {});
  void finish(std::exception_ptr error);
  // Calls `f` when the work is done, on the thread that finished it, or now.
  void then(std::function<void()> f);

 private:
  std::atomic<int> state_{0};
  std::exception_ptr error_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace facula::distributed
