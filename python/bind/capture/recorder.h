// What a capture keeps of one segment: which outside objects were read and from where, the guards that these reads leave, writes to
// outside objects, and the handles that operators returned.
#pragma once
#include <set>
#include <unordered_map>

#include "guards.h"

namespace facula::bind::capture {

// A write to an outside object, which every run of the segment repeats.
struct Write {
  enum class Kind : uint8_t { set_attribute, delete_attribute, set_item, delete_item, set_cell, call } kind;
  PyRef target, key, value;  // of a call: the method's name, and a tuple of arguments
};

class Recorder {
 public:
  GuardList list;
  std::vector<Write> writes;
  std::vector<PyRef> handles;  // results of operators
  int line = 0;                // of the instruction that runs

  // ---- sources
  SourceId source_of(PyObject* o) const;
  bool is_outside(PyObject* o) const { return source_of(o) != kNoSource; }
  SourceId constant(PyObject* o);  // an object that other guards make constant
  // The value `o` was read from `s`: registers it with its first guard. Later reads of the same source add nothing.
  SourceId note(Source s, PyObject* o);
  SourceId root(Py_ssize_t slot, PyObject* o);
  void null_root(Py_ssize_t slot);

  // ---- reads
  void attribute(PyObject* base, PyObject* name, PyObject* value);
  void item(PyObject* list, Py_ssize_t k, PyObject* value);
  void dict_item(PyObject* dict, PyObject* key, PyObject* value);  // value null: absent
  void cell(PyObject* cell);
  void absent(PyObject* o, PyObject* name);
  void member(PyObject* o, PyObject* name, PyObject* value);  // of the class of o, or of the class o; null: absent
  void no_hooks(PyObject* module);
  void function(PyObject* f);
  void identity(PyObject* o);  // Python depends on which object it is
  void distinct(PyObject* a, PyObject* b);
  // The contents of an outside list, tuple, dict or set, one level deep, or completely.
  void contents(PyObject* container);
  void deep_contents(PyObject* o, int depth = 0);

  // ---- writes
  // True if the location was written before, so that it no longer has the value from outside.
  bool is_written(PyObject* o, PyObject* key) const;
  // Before a write to a list, dict or set: its contents decide what it is afterwards.
  void before_write(PyObject* container) { contents(container); }
  void write(Write::Kind kind, PyObject* target, PyObject* key, PyObject* value, bool by_key = false);
  void distinguish_written();  // at the end: written objects are different from all others

  // A result of an operator: registers its handles.
  void result(PyObject* o);

 private:
  void add(Guard::Kind kind, SourceId s, PyObject* expected = nullptr, int64_t number = 0);
  void first_guard(SourceId id, PyObject* o);

  std::unordered_map<PyObject*, SourceId> outside_;
  std::vector<PyRef> alive_;
  std::set<std::tuple<int, SourceId, PyObject*, Py_ssize_t>> read_;  // sources that exist
  std::set<std::tuple<int, SourceId, PyObject*, int64_t>> added_;    // guards that exist
  std::set<std::pair<PyObject*, PyObject*>> written_;
  std::unordered_map<SourceId, size_t> members_;  // the guard of a class
  std::set<PyObject*> full_;                      // containers whose contents were read
};

}  // namespace facula::bind::capture
