// Steps that may raise errors about elements: of indices, probabilities, divisors.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "facula/schedule/fuse.h"

namespace facula::run {

// The number of the last step that may refuse elements which no earlier step has accepted; -1 if there is none. Elements of constants
// do not count: a step refuses them in each run or in none. After the step, a run raises no more errors about elements, so results may be written to tensors that are visible outside.
int last_refusal(std::span<const schedule::Step> steps);

// Tensors that the next run of a plan on this thread holds until it can no longer raise such an error: after one, they are given
// back to where they come from.
class Held {
 public:
  explicit Held(std::vector<Tensor>& tensors) : tensors_(tensors) { next() = this; }
  ~Held() { next() = nullptr; }
  Held(const Held&) = delete;
  static Held* take() { return std::exchange(next(), nullptr); }
  void release() { tensors_.clear(); }

 private:
  static Held*& next();
  std::vector<Tensor>& tensors_;
};

}  // namespace facula::run
