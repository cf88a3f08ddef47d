// The common part of walks over a pickle: reading its bytes, the stack with marks, and an account of copies. Malformed
// input raises a RuntimeError in the name of `op`: "<where> is damaged: ...".
#pragma once
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "facula/base/error.h"

namespace facula::io {

template <class Item>
class PickleMachine {
 public:
  PickleMachine(std::string_view data, const char* op, const std::string& where)
      : p_(data.data()), end_(p_ + data.size()), size_(data.size()), op_(op), where_(where) {}

 protected:
  [[noreturn]] void damaged(const std::string& why) const {
    user_check(false, op_) << where_ << " is damaged: " << why;
    __builtin_unreachable();
  }
  const char* take(uint64_t n) {
    if (n > uint64_t(end_ - p_)) damaged("its pickle ends too early");
    return std::exchange(p_, p_ + n);
  }
  template <class T>
  T take() {
    T x;
    std::memcpy(&x, take(sizeof x), sizeof x);
    return x;
  }
  std::string_view line() {
    auto* nl = static_cast<const char*>(std::memchr(p_, '\n', size_t(end_ - p_)));
    if (!nl) damaged("its pickle ends too early");
    std::string_view s(p_, size_t(nl - p_));
    p_ = nl + 1;
    return s;
  }
  Item& top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
      damaged("its pickle takes from an empty stack");
    return stack_.back();
  }
  Item pop() {
    Item i = std::move(top());
    stack_.pop_back();
    return i;
  }
  std::vector<Item> pop_mark() {
    if (marks_.empty()) damaged("its pickle lacks a mark");
    size_t from = marks_.back();
    marks_.pop_back();
    std::vector<Item> items(std::make_move_iterator(stack_.begin() + long(from)),
                            std::make_move_iterator(stack_.end()));
    stack_.resize(from);
    return items;
  }

  // Calls copy their arguments. A normal writer passes each argument once; a few bytes that copy a large container again
  // and again are an attack.
  void pay(uint64_t items) {
    if (items > kFreeCopies + size_ || (copied_ += items) > kFreeCopies + size_)
      damaged("its pickle copies its containers over and over");
  }
  static constexpr uint64_t kFreeCopies = 1 << 20;  // items, in addition to one for each byte of the pickle

  const char* p_;
  const char* end_;
  size_t size_;
  uint64_t copied_ = 0;
  const char* op_;
  const std::string& where_;
  std::vector<Item> stack_;
  std::vector<size_t> marks_;
};

}  // namespace facula::io
