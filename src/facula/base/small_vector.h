// A vector that stores up to N trivially copyable elements inline.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

namespace facula {

// True for element types whose lists may be indexed by untrusted numbers: an index that is out of range raises
// IndexError.
template <class T>
inline constexpr bool kCheckedLists = false;
[[noreturn]] void no_such_element(size_t at, size_t size);

template <class T, size_t N>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SmallVector() = default;
  explicit SmallVector(size_t n, T fill = T{}) { resize(n, fill); }
  SmallVector(std::initializer_list<T> l) { assign(l.begin(), l.size()); }
  template <class U>
    requires std::is_convertible_v<U, T>
  explicit SmallVector(std::span<U> s) {
    if constexpr (std::is_same_v<std::remove_const_t<U>, T>) assign(s.data(), s.size());
    else {
      reserve(s.size());
      for (auto& x : s) push_back(T(x));
    }
  }
  SmallVector(const SmallVector& o) { assign(o.data(), o.size()); }
  SmallVector(SmallVector&& o) noexcept { take(o); }
  SmallVector& operator=(const SmallVector& o) {
    if (this != &o) assign(o.data(), o.size());
    return *this;
  }
  SmallVector& operator=(SmallVector&& o) noexcept {
    if (this != &o) {
      release();
      take(o);
    }
    return *this;
  }
  ~SmallVector() { release(); }

  size_t size() const { return size_; }
  bool empty() const { return !size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[checked(i, size_)]; }
  const T& operator[](size_t i) const { return data_[checked(i, size_)]; }
  T& back() { return data_[checked(size_ - size_t(1), size_)]; }
  const T& back() const { return data_[checked(size_ - size_t(1), size_)]; }
  T& front() { return data_[checked(0, size_)]; }
  const T& front() const { return data_[checked(0, size_)]; }
  void clear() { size_ = 0; }
  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void resize(size_t n, T fill = T{}) {
    reserve(n);
    for (size_t i = size_; i < n; ++i) data_[i] = fill;
    size_ = uint32_t(n);
  }
  void push_back(T x) {
    if (size_ == capacity_) grow(size_t(capacity_) * 2);
    data_[size_++] = x;
  }
  T* append(size_t n) {  // returns n elements to be written
    reserve(size_ + n);
    size_ += uint32_t(n);
    return data_ + size_ - n;
  }
  void pop_back() { size_ = uint32_t(checked(size_ - size_t(1), size_)); }
  void insert(size_t at, T x) {
    checked(at, size_ + size_t(1));
    push_back(x);
    std::rotate(data_ + at, data_ + size_ - 1, data_ + size_);
  }
  void erase(size_t at) {
    checked(at, size_);
    std::copy(data_ + at + 1, data_ + size_, data_ + at);
    --size_;
  }
  void assign(const T* from, size_t n) {
    reserve(n);
    if (N <= 8 && n <= N) copy_unrolled(from, n, std::make_index_sequence<N>());
    else if (n) std::memmove(static_cast<void*>(data_), from, n * sizeof(T));
    size_ = uint32_t(n);
  }
  operator std::span<const T>() const { return {data_, size_}; }
  operator std::span<T>() { return {data_, size_}; }
  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static size_t checked(size_t at, size_t size) {
    if constexpr (kCheckedLists<T>)
      if (at >= size) [[unlikely]]
        no_such_element(at, size);
    return at;
  }
  // Unrolled, because the compiler would turn a loop into a call of memmove.
  template <size_t... I>
  void copy_unrolled(const T* from, size_t n, std::index_sequence<I...>) {
    (void)((I < n && (data_[I] = from[I], true)) && ...);
  }
  T* inline_data() { return reinterpret_cast<T*>(inline_); }
  bool is_inline() const { return data_ == reinterpret_cast<const T*>(inline_); }
  void release() {
    if (!is_inline()) ::operator delete(data_);
  }
  void take(SmallVector& o) {
    if (o.is_inline()) {
      data_ = inline_data();
      std::memcpy(inline_, o.inline_, sizeof inline_);
      capacity_ = N;
    } else {
      data_ = o.data_;
      capacity_ = o.capacity_;
    }
    size_ = o.size_;
    o.data_ = o.inline_data();
    o.size_ = 0;
    o.capacity_ = N;
  }
  void grow(size_t n) {
    T* bigger = static_cast<T*>(::operator new(n * sizeof(T)));
    std::memcpy(static_cast<void*>(bigger), data_, size_ * sizeof(T));
    release();
    data_ = bigger;
    capacity_ = uint32_t(n);
  }
  T* data_ = inline_data();
  uint32_t size_ = 0, capacity_ = N;
  alignas(T) unsigned char inline_[N * sizeof(T)];
};

}  // namespace facula
