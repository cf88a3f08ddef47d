// Helpers for operators that create many views of one tensor.
#pragma once
#include <vector>

#include "facula/op/geometry.h"

namespace facula::op {

// While a CallLimit lives, a call on its thread may create at most `most` views, and at most `most` calls are traced;
// readers of untrusted programs use it to bound memory.
class CallLimit {
 public:
  explicit CallLimit(int64_t most);
  ~CallLimit();
  static int64_t now();
  static bool lives();  // on this thread

 private:
  int64_t outer_;
};

// Whether the views of one call share a node, so that writes to them are refused. PyTorch makes some of them slice by slice; these
// can be written.
class Operator;
bool shares_node(const Operator& view);
// Whether autograd takes the views that a call gives for tensors without a base, as those of unsafe_split.
bool gives_separate_parts(const Operator& o);

// RuntimeError if `op` may not create that many.
void check_views(const char* op, int64_t count);

// `count` views of g; make(view, k) creates the k-th.
template <class F>
std::vector<Geometry> views(const char* op, const Geometry& g, int64_t count, F&& make) {
  check_views(op, count);
  std::vector<Geometry> all(size_t(count), g);
  for (int64_t k = 0; k < count; ++k) make(all[size_t(k)], k);
  return all;
}

}  // namespace facula::op
