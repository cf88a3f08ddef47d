// Reference-counted objects and the counting pointer (atomic; one word).
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace facula {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  virtual ~RefCounted() = default;
  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  // Calls destroy() when the last reference is released. The sole owner avoids the locked instruction.
  void release() const {
    if (count_.load(std::memory_order_acquire) == 1 || count_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      const_cast<RefCounted*>(this)->destroy();
  }
  uint32_t use_count() const { return count_.load(std::memory_order_relaxed); }

 protected:
  virtual void destroy() { delete this; }

 private:
  mutable std::atomic<uint32_t> count_{1};
};

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  static Ref adopt(T* p) {
    Ref r;
    r.p_ = p;
    return r;
  }  // takes over one reference
  static Ref share(T* p) {
    if (p) p->retain();
    return adopt(p);
  }
  Ref(const Ref& o) : p_(o.p_) {
    if (p_) p_->retain();
  }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  Ref(Ref<U> o) : p_(o.detach()) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_) p_->release();
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_; }
  T* detach() { return std::exchange(p_, nullptr); }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  T* p_ = nullptr;
};
template <class T, class... A>
Ref<T> make_ref(A&&... a) {
  return Ref<T>::adopt(new T(std::forward<A>(a)...));
}

// The base class of users' C++ classes (extend/class.h).
struct CustomClassHolder : RefCounted {
  CustomClassHolder() = default;
  CustomClassHolder(const CustomClassHolder&) {}  // the count belongs to the object, not to its value
  CustomClassHolder& operator=(const CustomClassHolder&) { return *this; }
};

}  // namespace facula
