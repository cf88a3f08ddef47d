// One object per thread. The memory for thread-local variables of shared libraries is scarce (some 1,600 bytes
// for all libraries that a process loads later), so that a thread holds its objects by one pointer to a table.
#pragma once
#include <cstddef>
#include <vector>

namespace facula {

namespace detail {

struct ThreadObject {
  void* object = nullptr;
  void (*destroy)(void*) = nullptr;
};
// By number; null before the thread has an object.
extern __attribute__((
    tls_model("initial-exec"))) constinit thread_local std::vector<ThreadObject>* thread_objects;

size_t next_thread_object();  // a number for a type
void add_thread_object(size_t number, ThreadObject object);

}  // namespace detail

// The object of type T of the calling thread, made by T() at the first call. It is destroyed when the thread ends, the
// youngest object first. `Tag` tells several objects of one type apart.
template <class T, class Tag = T>
T& per_thread() {
  static const size_t number = detail::next_thread_object();
  auto* all = detail::thread_objects;
  if (!all || all->size() <= number || !(*all)[number].object) [[unlikely]] {
    detail::add_thread_object(number, {new T(), [](void* object) { delete static_cast<T*>(object); }});
    all = detail::thread_objects;
  }
  return *static_cast<T*>((*all)[number].object);
}

}  // namespace facula
