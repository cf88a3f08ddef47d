// Value: one argument of an operator call. It borrows (owns nothing) and is trivially copyable, so a call from Python
// or C++ allocates nothing. `Args` owns values with everything that they refer to, for nodes.
#pragma once
#include <concepts>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "facula/base/random.h"
#include "facula/tensor/tensor.h"

namespace facula::op {

struct Schema;

enum class Tag : uint8_t {
  none,
  tensor,
  scalar,
  integer,
  ints,
  tensors,
  scalars,
  string,
  dtype,
  device,
  format,
  generator,
  object
};

struct Value {
  Tag tag = Tag::none;
  union {
    TensorImpl* tensor;  // tensor; an undefined tensor is `none`
    int64_t word;        // integer: the bits of a SymInt
    DType dtype;
    Device device;
    MemoryFormat format;
    Generator* generator;
    CustomClassHolder* object;
    struct {
      const void* data;
      size_t count;
    } list;  // ints: SymInt, tensors: TensorImpl* (null: none), scalars: Scalar, string: char
  };
  Scalar scalar;  // a Python number; bool arguments too

  Value() : word(0) {}
  Value(const Tensor& t) : tag(t.defined() ? Tag::tensor : Tag::none), tensor(t.impl()) {}
  Value(TensorImpl* t) : tag(t ? Tag::tensor : Tag::none), tensor(t) {}
  Value(const Scalar& s) : tag(Tag::scalar), word(0), scalar(s) {}
  template <std::same_as<bool> B>
  Value(B b) : Value(Scalar(b)) {}  // rejects pointers
  Value(double d) : Value(Scalar(d)) {}
  Value(int i) : Value(SymInt(int64_t(i))) {}
  Value(int64_t i) : Value(SymInt(i)) {}
  Value(SymInt i) : tag(Tag::integer), word(int64_t(i.identity())) {}
  Value(SymSpan s) : tag(Tag::ints), list{s.data(), s.size()} {}
  Value(std::string_view s) : tag(Tag::string), list{s.data(), s.size()} {}
  Value(const char* s) : Value(std::string_view(s)) {}
  Value(std::span<TensorImpl* const> t) : tag(Tag::tensors), list{t.data(), t.size()} {}
  Value(std::span<const Tensor> t);  // a Tensor is one pointer, so the memory has the same form
  Value(std::span<const Scalar> s) : tag(Tag::scalars), list{s.data(), s.size()} {}
  Value(DType d) : tag(Tag::dtype), word(0) { dtype = d; }
  Value(Device d) : tag(Tag::device), word(0) {
    device = d;
    note_device(d);
  }
  Value(MemoryFormat f) : tag(Tag::format), word(0) { format = f; }
  Value(Generator* g) : tag(g ? Tag::generator : Tag::none), generator(g) {}
  Value(CustomClassHolder* o) : tag(o ? Tag::object : Tag::none), object(o) {}

  bool is_none() const { return tag == Tag::none; }
  SymInt integer() const;  // of integer or an integral scalar
  Scalar number() const;   // of scalar or integer
  SymSpan ints() const {   // of ints, or of one integer
    if (tag == Tag::integer) return {reinterpret_cast<const SymInt*>(&word), 1};
    return tag == Tag::ints ? SymSpan{static_cast<const SymInt*>(list.data), list.count} : SymSpan{};
  }
  std::span<const Scalar> scalars() const { return {static_cast<const Scalar*>(list.data), list.count}; }
  std::span<TensorImpl* const> tensors() const {
    return {static_cast<TensorImpl* const*>(list.data), list.count};
  }
  std::string_view string() const { return {static_cast<const char*>(list.data), list.count}; }
};
static_assert(sizeof(Tensor) == sizeof(TensorImpl*));

// True if f(TensorImpl*) is true for one of the tensors among the values, including items of lists, which may be
// null.
template <class F>
bool any_tensor(std::span<const Value> values, F&& f) {
  for (auto& v : values) {
    if (v.tag == Tag::tensor && f(v.tensor)) return true;
    if (v.tag == Tag::tensors)
      for (auto* t : v.tensors())
        if (f(t)) return true;
  }
  return false;
}

// Owned copies. Tensors may be replaced or reset (the tape keeps only what a gradient needs).
class Args {
 public:
  Args() = default;
  explicit Args(std::span<const Value> values);
  // With the schema, every Tensor parameter has a slot, even if its value is None or a number (an undefined tensor),
  // so that slots are those of `Grads` and `Call::tensor_slot`.
  Args(std::span<const Value> values, const Schema& schema);
  Args(Args&&) = default;
  Args& operator=(Args&&) = default;
  std::span<const Value> values() const { return values_; }
  const Value& operator[](size_t i) const { return values_[i]; }
  Args clone() const;
  // Calls f(slot, Tensor&) for every tensor in order (slot: running number over tensors and list items); f may
  // replace or reset the tensor.
  template <class F>
  void each_tensor(F&& f) {
    for (size_t k = 0; k < tensors_.size(); ++k) { f(k, tensors_[k]); }
    rebind();
  }
  // Calls f(SymInt&) for every integer and list item; f may replace it.
  template <class F>
  void each_size(F&& f) {
    for (auto& v : values_) {
      if (v.tag != Tag::integer) continue;
      SymInt s = SymInt::from_identity(uint64_t(v.word));
      f(s);
      v.word = int64_t(s.identity());
    }
    if (lists_)
      for (auto& l : lists_->ints)
        for (auto& s : l) f(s);
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Sets the tensor of an empty slot without a reference; valid while the caller keeps the tensor alive, and until
  // each_tensor() is called.
  void borrow(size_t slot, TensorImpl* t) { put(slot, t); }

 private:
  void put(size_t slot, TensorImpl* t) {
    Value& v = values_[at_[slot].argument];
    if (v.tag == Tag::tensors) static_cast<TensorImpl**>(const_cast<void*>(v.list.data))[at_[slot].item] = t;
    else if (t) v = Value(t);
    else if (v.tag == Tag::tensor) v = Value();
  }
  void take(const Value& v, bool tensor_slot);
  void rebind();
  struct Place {
    uint32_t argument, item;
  };
  SmallVector<Value, 6> values_;
  std::vector<Tensor> tensors_;  // by slot
  SmallVector<Place, 6> at_;     // by tensor: its position
  // The memory of list and string values; most calls have none.
  struct Lists {
    std::deque<std::vector<SymInt>> ints;
    std::deque<std::vector<TensorImpl*>> tensors;
    std::deque<std::vector<Scalar>> scalars;
    std::deque<std::string> strings;
  };
  Lists& lists() {
    if (!lists_) lists_ = std::make_unique<Lists>();
    return *lists_;
  }
  std::unique_ptr<Lists> lists_;
  std::vector<Ref<RefCounted>> objects_;  // generators and users' objects
};

// The dtype of an operand in memory: a tensor's own dtype; for a number (a Scalar, or a number passed for a Tensor)
// the widest one of its category: Bool, Int64, Float64 or Complex128.
DType operand_dtype(const Value& v);

// A 0-d tensor that wraps a Python number, in its operand_dtype; it has the lowest promotion priority.
Tensor wrapped_number(const Scalar& number, Device device = {});

// The results of a call: up to three are stored inline, more in the vector.
class Results {
 public:
  Results() = default;
  Results(Tensor t) { push_back(std::move(t)); }
  Results(std::initializer_list<Tensor> l) {
    for (auto& t : l) push_back(t);
  }
  void push_back(Tensor t) {
    if (size_ < kFew) {
      inline_[size_++] = std::move(t);
      return;
    }
    if (size_ == kFew)
      for (auto& x : inline_) more_.push_back(std::move(x));
    more_.push_back(std::move(t));
    ++size_;
  }
  size_t size() const { return size_; }
  Tensor& operator[](size_t i) { return size_ <= kFew ? inline_[i] : more_[i]; }
  const Tensor& operator[](size_t i) const { return size_ <= kFew ? inline_[i] : more_[i]; }
  std::span<const Tensor> all() const { return {size_ <= kFew ? inline_ : more_.data(), size_}; }
  std::vector<Tensor> to_vector() const {
    auto a = all();
    return {a.begin(), a.end()};
  }

 private:
  static constexpr size_t kFew = 3;
  Tensor inline_[kFew];
  std::vector<Tensor> more_;
  size_t size_ = 0;
};

}  // namespace facula::op
