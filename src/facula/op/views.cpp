#include "facula/op/views.h"

#include <algorithm>
#include <utility>

namespace facula::op {

namespace {
constexpr int64_t kMostViews = 1 << 24;
thread_local int64_t most_views = kMostViews;
}  // namespace

ViewLimit::ViewLimit(int64_t most) : outer_(std::exchange(most_views, std::min(most, most_views))) {}
ViewLimit::~ViewLimit() { most_views = outer_; }
int64_t ViewLimit::now() { return most_views; }

void check_views(const char* op, int64_t count) {
  runtime_check(count <= most_views, op)
      << "cannot make " << count << " tensors";
}

}  // namespace facula::op
