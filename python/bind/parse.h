// From Python's arguments to the values of an operator's call, driven by the schema and without allocation: a
// Frame on the stack holds the values and the lists they point to.
#pragma once
#include <memory>
#include <vector>

#include "python.h"

#include "facula/op/operator.h"

namespace facula::bind {

constexpr int kMaxParameters = 40;

// A parameter as the parser wants it.
struct Param {
  PyObject* name;  // interned; in functions `self` is also `input`
  PyObject* also[4] =
      {};  // other names it is known by (axis for dim); the last is what the definition declares
  op::Type type;
  bool list, optional, optional_items, keyword_only, is_self;
  bool number = false;       // a Tensor parameter that takes a Python number
  bool operand = false;      // a number that is an operand: in a traced function a tensor may stand for it
  bool takes_sizes = false;  // a number that may be a size of a traced function
  bool has_default;
  int list_size;
  std::string_view class_name;  // of an Object
  op::Value fallback;
};

struct Overload {
  const op::Operator* op;
  std::vector<Param> params;
  int positional = 0;                           // parameters that may be given by position
  int self_at = 0;                              // where a method puts its object
  int varargs = -1;                             // the int[] that takes x.view(2, 3), or -1
  bool numbers_alone = false;                   // takes numbers even where none of its operands is a tensor
  bool factory = false;                         // makes a tensor: knows requires_grad=, layout=, pin_memory=
  int requires_grad = -1;                       // that parameter of a factory
  int dtype = -1;                               // the dtype? parameter that names the result's
  mutable PyTypeObject* result_type = nullptr;  // named results, made on first use
};
Overload make_overload(const op::Operator& op);

class Frame {
 public:
  Frame() = default;
  Frame(const Frame&) = delete;
  op::Value* values() { return reinterpret_cast<op::Value*>(values_); }
  // Room for n objects that live as long as the frame.
  template <class T>
  T* room(size_t n) {
    size_t bytes = (n * sizeof(T) + 15) & ~size_t(15);
    if (used_ + bytes > sizeof(inline_)) return static_cast<T*>(more(bytes));
    void* at = inline_ + used_;
    used_ += bytes;
    return static_cast<T*>(at);
  }
  void reset() {
    used_ = 0;
    override_ = false;
    number_first = false;
    sub = nullptr;
    out = nullptr;
    requires_grad = false;
  }
  void keep(Tensor t);
  void keep(PyRef o);

  // Results of the last parse besides the values.
  PyTypeObject* sub = nullptr;  // results become this subclass
  bool override_ = false;       // an argument has a __torch_function__
  PyObject* out = nullptr;      // out=
  bool number_first = false;    // a number was given for self
  bool requires_grad = false;   // of a factory

  // Why the last parse failed.
  enum class Failure : uint8_t {
    none,
    too_many,
    wrong_type,
    wrong_item,
    missing,
    unknown_keyword,
    wrong_option,
    twice,
    wrong_extra
  } failure = Failure::none;
  int at = 0;  // parameter, or positional count
  Py_ssize_t item = 0;
  PyObject* culprit = nullptr;

 private:
  void* more(size_t bytes);
  struct Extra {
    std::vector<std::unique_ptr<char[]>> blocks;
    std::vector<Tensor> tensors;
    std::vector<PyRef> objects;
  };
  alignas(16) char values_[kMaxParameters * sizeof(op::Value)];
  alignas(16) char inline_[512];
  size_t used_ = 0;
  std::unique_ptr<Extra> extra_;
};

// Fills the frame's values. False: these arguments do not fit this overload (frame.failure); exceptions only
// for values that are of the right type but cannot be represented. `numbers`: Tensor parameters may be Python
// numbers.
bool parse(const Overload& o, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames,
           bool numbers, bool out_ok, Frame& f);

// One argument of a hand-written function, by the same rules.
bool parse_ints(PyObject* o, Frame& f, op::Value& v);

// "(Tensor input, Tensor other, *, Number alpha=1) -> Tensor", as Python users know it.
std::string signature_of(const Overload& o, bool method, bool out);
// "(Tensor, dim=int)": the types of what was given.
std::string given_text(PyObject* const* args, Py_ssize_t n, PyObject* kwnames);
// "argument 'dim' (position 2)": the parameter that the frame's last parse was at.
std::string argument_text(const Overload& o, const Frame& f, bool method);
// Raises the TypeError for a call that fits no overload.
void raise_mismatch(const char* name, std::span<const Overload> overloads, PyObject* self,
                    PyObject* const* args, Py_ssize_t n, PyObject* kwnames, bool out_ok);

}  // namespace facula::bind
