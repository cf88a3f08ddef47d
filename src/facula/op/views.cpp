#include "facula/op/views.h"

#include <algorithm>
#include <utility>

#include "facula/base/thread_state.h"
#include "facula/op/grad_name.h"
#include "facula/op/operator.h"

namespace facula::op {

CallLimit::CallLimit(int64_t limit)
    : outer_(std::exchange(thread_state.most_views, std::min(limit, thread_state.most_views))) {}
CallLimit::~CallLimit() { thread_state.most_views = outer_; }
int64_t CallLimit::now() { return thread_state.most_views; }
bool CallLimit::lives() { return thread_state.most_views < ThreadState().most_views; }

bool shares_node(const Operator& view) {
  auto* fixed = view.grad_name.target<FixedGradName>();
  return view.schema.returns[0].list && !(fixed && fixed->text == grad_name("Slice"));
}

bool gives_separate_parts(const Operator& o) {
  auto* fixed = o.grad_name.target<FixedGradName>();
  return fixed && fixed->text.starts_with("UnsafeSplit");
}

void check_views(const char* op, int64_t count) {
  runtime_check(count <= thread_state.most_views, op) << "cannot make " << count << " tensors";
}

}  // namespace facula::op
