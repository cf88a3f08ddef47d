#include "facula/op/views.h"

#include <algorithm>
#include <utility>

namespace facula::op {

namespace {
constexpr int64_t kMost = 1 << 24;
thread_local int64_t most_calls = kMost;
}  // namespace

CallLimit::CallLimit(int64_t limit) : outer_(std::exchange(most_calls, std::min(limit, most_calls))) {}
CallLimit::~CallLimit() { most_calls = outer_; }
int64_t CallLimit::now() { return most_calls; }
bool CallLimit::lives() { return most_calls < kMost; }

void check_views(const char* op, int64_t count) {
  runtime_check(count <= most_calls, op) << "cannot make " << count << " tensors";
}

}  // namespace facula::op
