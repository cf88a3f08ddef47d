#include "facula/base/per_thread.h"

#include <atomic>

namespace facula::detail {

constinit thread_local std::vector<ThreadObject>* thread_objects = nullptr;

namespace {

struct Closer {
  std::vector<size_t> order;  // of the numbers of objects, oldest first
  ~Closer() {
    auto* all = thread_objects;
    for (; !order.empty(); order.pop_back()) {
      ThreadObject& o = (*all)[order.back()];
      auto* object = o.object;
      o.object = nullptr;
      o.destroy(object);
    }
    thread_objects = nullptr;
    delete all;
  }
};

std::vector<size_t>& order_of_objects() {
  static thread_local Closer closer;
  return closer.order;
}

}  // namespace

size_t next_thread_object() {
  static std::atomic<size_t> next{0};
  return next.fetch_add(1);
}

void add_thread_object(size_t number, ThreadObject object) {
  auto& order = order_of_objects();
  if (!thread_objects) thread_objects = new std::vector<ThreadObject>;
  if (thread_objects->size() <= number) thread_objects->resize(number + 1);
  (*thread_objects)[number] = object;
  order.push_back(number);
}

}  // namespace facula::detail
