// Sources and guards. A source says where an outside object is read from; a guard is a check of the value of a source.
// Both are data: a list of steps in the order in which the capture read them.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../tensor.h"
#include "facula/tensor/sparse.h"

namespace facula::bind::capture {

// Whether Python code has defined the class, and may change it. Classes of C are immutable, whether they are static or, as most
// since 3.12, made from a specification.
inline bool is_class_of_python(PyTypeObject* t) {
  return PyType_HasFeature(t, Py_TPFLAGS_HEAPTYPE) && !PyType_HasFeature(t, Py_TPFLAGS_IMMUTABLETYPE);
}

using SourceId = int;
constexpr SourceId kNoSource = -1;

struct Source {
  enum class Kind : uint8_t {
    constant,          // `key` itself
    root,              // slot `index` of the state at the beginning
    attribute,         // getattr(base, key)
    item,              // base[index], a list or tuple
    dict_item,         // base[key], a dict
    cell,              // the contents of a cell
    closure,           // cell `index` of a function
    fallback,          // default `index` of a function's positional parameters
    keyword_fallback,  // the default of the keyword-only parameter `key`
    size,              // expression `index` over the sizes of tensors
    computed,          // binary_of(index) of `base` and `other`
    applied,  // what the function `key` of C returns for the numbers `base` and `other`, which may be kNoSource
    upcoming,     // the item that an iterator of a tuple gives after `index` others
    cached_call,  // what a function of functools.lru_cache returns for `key`: a tuple, and a dict or None
  } kind;
  SourceId base = kNoSource;
  PyRef key;
  Py_ssize_t index = 0;
  SourceId other = kNoSource;
};

// The metadata of a tensor that a program depends on.
struct TensorFacts {
  DType dtype;
  Device device;
  Layout layout;
  Ints sizes, strides;
  // Dimensions whose size may be any from 2 on, if the tensor is contiguous; empty: none.
  std::vector<bool> free;
  bool requires_grad, is_leaf, conj, neg, inference;
  explicit TensorFacts(const TensorImpl& t);
  bool operator==(const TensorFacts&) const = default;
  bool match(const TensorImpl& t) const;  // equal to the facts about `t`, without collecting them
  std::string text() const;
};

struct Guard {
  enum class Kind : uint8_t {
    load,      // the source can be read
    is,        // the object itself
    type,      // its exact type
    members,   // the class gives these values for names: `expected` is a dict
    equal,     // an equal number, string or constant of the same type
    tensor,    // TensorFacts
    length,    // of a list or tuple
    keys,      // of a dict, in order: `expected` is a tuple
    elements,  // of a set: `expected` is a frozenset
    items,  // a list, tuple or dict has these very objects: `expected` is a tuple; of a dict, of keys and values
    absent,     // an instance or module has no attribute `expected`, or a dict no such key
    same,       // the same object as source `other`
    different,  // another object than source `other`
    function,   // its code and globals: `expected` is the code
    no_hooks,   // of a module
    null,       // an empty slot
  } kind;
  SourceId source;
  PyRef expected;
  int64_t number = 0;  // a length, a source, the index of TensorFacts, or of `absent`: 1 for a key
  int line = 0;
  unsigned version = 0;  // of `members`: the class's version tag when it was last checked
};

struct GuardList {
  std::vector<Source> sources;
  std::vector<Guard> guards;
  std::vector<TensorFacts> tensors;
  std::vector<SymInt> sizes;  // expressions over symbols
  // By symbol: the tensor and the dimension whose size it is.
  std::vector<std::pair<SourceId, size_t>> symbols;

  std::string path(SourceId s, const std::vector<std::string>& roots) const;
  std::string text(const Guard& g, const std::vector<std::string>& roots) const;
};

// True for numbers, strings, None, dtypes and other constants that are compared by value, and tuples of such.
bool is_atom(PyObject* o);
// A binary operator of Python by its number in bytecode (NB_ADD, ...), a comparison (kComparison + Py_LT, ...) or `b in a`; a new
// reference, or null with an exception.
constexpr int kComparison = 64, kContains = 128;
PyObject* binary_of(int kind, PyObject* a, PyObject* b);
// Whether the key of an `absent` guard is one of a dict: instances of Python's subclasses of dict have attributes too.
bool is_of_items(const Guard& absent, PyObject* o);
// The keys of a dict in order, without code of Python, as a list.
PyObject* keys_of(PyObject* dict);
// The item that an iterator of a tuple gives after k others, which it does not give; null if there is none.
PyRef upcoming_item(PyObject* iterator, Py_ssize_t k);
// The number of items that an iterator of a tuple has given; -1 at its end.
Py_ssize_t position_of(PyObject* iterator);
// Equal atoms of the same type; floats are compared by their bits.
bool same_atom(PyObject* a, PyObject* b);

// Checks the guards in order; `values` becomes the values of the sources. Returns the first guard that fails, or null. No exception
// of Python is set.
using Roots = std::span<PyObject* const>;
// The value of an expression over the sizes of tensors; nothing if one of these is no tensor of that rank.
std::optional<int64_t> size_now(const GuardList& list, SymInt size, const std::vector<PyRef>& values);
const Guard* first_failure(GuardList& list, Roots roots, std::vector<PyRef>& values);
// Whether one guard holds, whose base has its value.
bool holds(GuardList& list, Guard& g, Roots roots, std::vector<PyRef>& values);

// module.cpp: whether a call of a module goes directly to forward.
bool calls_forward_directly(PyObject* module);
bool is_module(PyObject* o);

}  // namespace facula::bind::capture
