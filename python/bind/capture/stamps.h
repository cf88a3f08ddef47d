// Versions of dicts and classes, taken when all guards of a segment held. If they are unchanged, most guards of a tree of
// modules hold without being evaluated: one comparison of a dict's version stands for all attributes that it contains.
#pragma once
#include <memory>
#include <span>

#include "guards.h"

namespace facula::bind::capture {

class Stamps {
 public:
  // Called when all guards have held, with the values of the sources. `used`: the sources whose values a run needs.
  Stamps(GuardList& list, const std::vector<PyRef>& values, std::span<const SourceId> used);
  // Whether nothing has changed since, so that the guards in `rest` decide alone. `values` then has the values that
  // these and a run need.
  bool hold(std::span<PyObject* const> roots, std::vector<PyRef>& values) const;
  // Sets the values back to null that hold() and the guards in rest() have set.
  void clear(std::vector<PyRef>& values) const;
  std::span<const size_t> rest() const { return rest_; }  // numbers of guards
  bool useful() const { return covered_ > rest_.size(); }

 private:
  // In an order in which each step keeps the objects of later ones alive.
  struct Step {
    enum class Kind : uint8_t { root, cell, global, type, dict_of, dict } kind;
    PyObject* object;  // borrowed, like all others here; of a cell or a global: the value
    size_t index = 0;  // of a root
    PyTypeObject* type = nullptr;
    PyObject* dict = nullptr;   // or the cell
    uint64_t version = 0;       // of the dict
    PyObject* key = nullptr;    // of a global
    PyObject** slot = nullptr;  // of an instance: where its dict is
  };
  struct Class {
    PyTypeObject* type;
    unsigned version;
  };
  struct Fact {
    PyObject* tensor;
    PyTypeObject* type;
    const TensorFacts* facts;
  };

  bool anchor(size_t source);
  bool anchor_place(Step place, PyObject* value);
  void stamp_dict_of(PyObject* o);
  bool stamp_dict(PyObject* dict);  // false: its version does not tell of all writes
  void stamp_type(PyObject* o);
  bool anchor_attribute(PyObject* base, PyObject* key, PyObject* value);
  bool is_anchored(SourceId s) const { return s >= 0 && anchored_[size_t(s)]; }
  bool cover(Guard& g);
  bool cover_hooks(PyObject* module);
  bool cover_class(Guard& g, PyObject* o);

  const GuardList* list_;
  std::vector<bool> anchored_;   // by source: its value follows from the steps
  std::vector<PyObject*> last_;  // by source: its value then
  std::vector<Step> steps_;
  std::vector<Class> classes_;
  std::vector<Fact> facts_;
  std::vector<size_t> rest_;
  std::vector<SourceId> needed_;    // anchored sources whose values are asked for
  std::vector<SourceId> set_;       // sources whose values are set
  std::vector<PyObject*> stamped_;  // dicts and objects that have a step
  std::vector<PyObject*> held_;     // objects that guards keep alive, sorted
  size_t covered_ = 0;
};

// The object of the instance dict of o, which may be null; null if o has no place for one.
PyObject** instance_dict_of(PyObject* o);

}  // namespace facula::bind::capture
