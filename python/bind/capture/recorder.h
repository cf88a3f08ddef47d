// The records of one segment: which outside objects were read and from where, the guards that these reads leave, writes to
// outside objects, and the handles that operators returned.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "guards.h"

namespace facula::bind::capture {

// A write to an outside object, which every run of the segment repeats.
struct Write {
  enum class Kind : uint8_t { set_attribute, delete_attribute, set_item, delete_item, set_cell, call } kind;
  PyRef target, key, value;  // of a call: the method's name, and a tuple of arguments
};

// The sizes of a tensor that differed from those of an earlier call.
struct ChangedSizes {
  std::vector<bool> changed;  // by dimension
  Ints earlier;
};
// A rule that selects the sizes that become symbols. As soon as one size has changed, `related` selects all sizes of this tensor and of
// the arguments, since loaders change batches and lengths in turn.
enum class FreeSizes : uint8_t { all, related, changed, none };

// A capture stops in front of these, because an earlier capture of the same segment has failed by them.
struct Stops {
  bool at_sizes = false;     // that are known only when the program has run
  bool at_elements = false;  // of tensors, as indices of views whose place they determine
  bool at_hooks = false;     // of tensors that the function computes, and of modules
  bool at_backward = false;  // calls of backward(): a result has a history that they do not reach
};

class Recorder {
 public:
  GuardList list;
  std::vector<Write> writes;
  std::vector<PyRef> handles;  // results of operators
  // Handles that are the gradients of outside tensors at the end of the segment, with these.
  std::unordered_map<PyObject*, PyObject*> gradients;
  std::string failure;          // if not empty: the segment cannot be used, and its calls must not run
  bool program_failed = false;  // the program raised an error when it ran for the first time
  std::string once;             // if not empty: why later calls cannot run the segment
  int line = 0;                 // of the instruction that runs

  // Sizes that Python has read and that are known only when the program has run, or tuples of such. Operators on tensors take them;
  // where anything else keeps one, or an exception follows, the capture fails, and the next one stops in front of them.
  std::vector<PyRef> run_time_sizes;
  bool sizes_failed = false;
  Stops stops;
  bool keeps_sizes() const;

  // The line of the instruction that runs, and of the calls that it records.
  void at_line(PyObject* file, int number, PyObject* globals);
  // Warns of the instruction that runs, or of another line, and repeats it at each run. False: the filters made it an exception.
  bool warn(PyObject* category, PyObject* message);
  bool warn(PyObject* category, PyObject* message, PyObject* file, int number, PyObject* globals);

  // ---- sources
  SourceId source_of(PyObject* o) const;
  bool is_outside(PyObject* o) const { return source_of(o) != kNoSource; }
  SourceId constant(PyObject* o);  // an object that other guards make constant
  void serve_this_call_alone();    // adds a guard that never holds
  // The value `o` was read from `s`: registers it with its first guard. Later reads of the same source add nothing.
  // `number`: becomes the object that stands for a number that may change, if it does and the caller can use it.
  SourceId note(Source s, PyObject* o, PyRef* number = nullptr);
  SourceId root(Py_ssize_t slot, PyObject* o, PyRef* number = nullptr);
  void null_root(Py_ssize_t slot);

  // ---- numbers that have changed between calls
  // Such a number is free as long as only arithmetic, variables, attributes and operators on tensors use it: its guard
  // checks the type alone. A copy stands for it, so that its address identifies it. Everything else pins it,
  // which adds a guard of its value.
  const std::set<std::string>* changing =
      nullptr;                          // paths of these numbers, and of generators that have changed
  std::vector<std::string> root_names;  // for paths
  bool is_begin = false;                // while the slots of the state are registered
  // By path: the tensors whose sizes have changed. The Python object of a tensor with free sizes gets a handle whose sizes
  // are symbols, until the segment ends; in Python its sizes are free numbers, which are symbols as arguments of
  // operators.
  const std::map<std::string, ChangedSizes>* changing_sizes = nullptr;
  FreeSizes free_sizes = FreeSizes::none;
  std::vector<std::pair<PyRef, Ref<TensorImpl>>> replaced;  // these objects, with their tensors
  void restore();                                           // gives these objects their tensors
  Recorder() = default;
  Recorder(const Recorder&) = delete;
  ~Recorder() { restore(); }
  PyRef without_symbols(PyRef o);   // a result of C code, with free numbers for symbols
  PyRef with_symbols(PyObject* o);  // an argument, with symbols for free numbers; others are pinned
  bool has_symbols() const { return !list.symbols.empty(); }
  bool has_free() const { return !free_.empty(); }
  bool is_free(PyObject* o) const { return has_free() && free_.count(o); }
  bool are_sizes(PyObject* a, PyObject* b) const;  // fixed numbers, or sizes that are symbols
  bool is_changing(PyObject* o) const;             // its path is one of `changing`
  void pin(PyObject* o);
  // Returns the object to use in place of `result`, which binary_of(kind) gave for a and b. A comparison becomes a guard of its value
  // and not of the numbers.
  PyRef computed(int kind, PyObject* a, PyObject* b, PyRef result);
  // The same for `number in container`, and for what a function of C without effects returned for one or two numbers.
  PyRef contains(PyObject* container, PyObject* number, PyRef result);
  PyRef applied(PyObject* function, std::span<PyObject* const> numbers, PyRef result);
  PyObject* operand_of(PyObject* number);  // its handle, borrowed; null if it is too large

  // ---- reads
  void attribute(PyObject* base, PyObject* name, PyObject* value, PyRef* number = nullptr);
  void item(PyObject* list, Py_ssize_t k, PyObject* value, PyRef* number = nullptr);
  PyRef items_of_tuple(PyObject* tuple,
                       PyObject* slice);  // null with an exception if the slice is no slice of integers
  // The next item of an iterator of a tuple from outside, which later calls advance too; null at its end.
  PyRef advance(PyObject* iterator, PyRef* number);
  // value null: absent
  void dict_item(PyObject* dict, PyObject* key, PyObject* value, PyRef* number = nullptr);
  void cell(PyObject* cell, PyRef* number = nullptr);
  void absent(PyObject* o, PyObject* name);
  void member(PyObject* o, PyObject* name,
              PyObject* value);  // of the class of o, or of the class o; null: absent
  void no_hooks(PyObject* module);
  void function(PyObject* f);
  void identity(PyObject* o);  // Python depends on which object it is
  void distinct(PyObject* a, PyObject* b);
  // `item` is looked up in a set or among the keys of a dict, or added to it if `adds`: later calls depend on whether it is one of
  // the elements, which are compared by identity. If there are more than a few, which object each of them is decides.
  void tell_apart(PyObject* item, PyObject* keyed, bool adds);
  void tell_apart(PyObject* items);  // of a container or the view of a dict, which become elements of one set
  void tell_apart(std::span<PyObject* const> containers);  // all of their items
  // The contents of an outside list, tuple, dict or set, one level deep, or completely.
  void contents(PyObject* container);
  void deep_contents(PyObject* o, int depth = 0);
  // `value` is the gradient, or None, that the outside tensor `leaf` had before the segment.
  void gradient(PyObject* leaf, PyObject* value);
  // The number dict[key], or item k of this tuple, is an operand of the program: gives its handle, and leaves a guard of its type,
  // and if it `decides` something, of whether it is 0.
  PyObject* operand(PyObject* dict, PyObject* key, Py_ssize_t k, bool decides);
  bool is_changing(PyObject* dict, PyObject* key, Py_ssize_t k);  // the same number

  // ---- functions of this package that run on the real objects under the open trace
  // The object that such functions tell what they read (python/facula/_dynamo/observer.py); borrowed.
  PyObject* observer();
  // Guards for what it was told.
  void take_observations();

  // ---- writes
  // True if the location was written before, so that it no longer has the value from outside.
  bool is_written(PyObject* o, PyObject* key) const;
  // Before a write to a list, dict or set: its contents decide what it is afterwards.
  void before_write(PyObject* container) {
    contents(container);
    remember(container, nullptr);
  }
  // Before `value` is appended to the outside list `o`, which depends on no contents.
  void append(PyObject* o, PyObject* value);
  void write(Write::Kind kind, PyObject* target, PyObject* key, PyObject* value, bool by_key = false);
  // While a Region lives, writes to objects from outside are remembered, and undo() takes them back.
  class Region {
   public:
    explicit Region(Recorder& r) : recorder_(r), writes_(r.writes.size()), past_(r.past_.size()) {
      ++r.regions_;
    }
    ~Region();
    bool has_writes() const { return recorder_.writes.size() > writes_; }
    void undo();

   private:
    Recorder& recorder_;
    size_t writes_, past_;
  };
  // Before a write of an attribute (`key`), a cell, or the contents of a container (`key` null).
  void remember(PyObject* target, PyObject* key);
  bool shares_memory(const Tensor& t) const;  // with a tensor from outside
  void distinguish_written();                 // at the end: written objects are different from all others

  void read_attribute(PyObject* o, const char* name);

  // A result of an operator: registers its handles.
  void result(PyObject* o);

 private:
  void add(Guard::Kind kind, SourceId s, PyObject* expected = nullptr, int64_t number = 0);
  void first_guard(SourceId id, PyObject* o);

  void fixed_items(PyObject* container);
  void item_of(PyObject* container, PyObject* key);

  // The content of a place from outside before a write, for Region.
  struct Past {
    PyRef target, key, value;  // of an attribute: null if there was none; of a container: a copy
  };
  std::vector<Past> past_;
  int regions_ = 0;

  PyRef observer_;
  std::map<SourceId, PyRef> operands_;
  std::set<PyObject*> free_;
  std::unordered_map<PyObject*, SymInt> symbolic_;  // of free numbers
  std::map<uint64_t, PyRef> by_size_;               // free numbers by their expressions
  bool is_argument(SourceId id) const;
  bool replace(SourceId id, PyObject* o);
  int64_t unchanged_sizes_ = 0;  // stand for the earlier sizes of dimensions that have not changed
  PyRef free_size(SymInt size);
  SourceId source_of_item(PyObject* dict, PyObject* key, Py_ssize_t k);
  SourceId source_of_number(PyObject* o);  // of a free one, or a constant
  // Adds a source and its guard: of the type if `result` is a number, which becomes free, else of the value.
  PyRef follow(Source s, PyRef result);
  std::optional<SymInt> computed_size(int kind, PyObject* a, PyObject* b) const;
  void register_free(PyObject* number, SourceId id);
  PyObject *file_ = nullptr, *globals_ = nullptr;  // of the instruction that runs
  const char* file_name_ = "";
  std::unordered_map<PyObject*, SourceId> outside_;
  std::vector<PyRef> alive_;
  using SourceKey = std::tuple<int, SourceId, PyObject*, Py_ssize_t>;
  std::map<SourceKey, SourceId> read_;  // sources that exist
  std::map<SourceKey, PyRef> numbers_;  // the objects that stand for numbers that may change
  std::set<std::tuple<int, SourceId, PyObject*, int64_t>> added_;  // guards that exist
  std::set<std::pair<PyObject*, PyObject*>> written_;
  std::unordered_map<SourceId, size_t> members_;   // the guard of a class
  std::unordered_map<PyObject*, PyRef> appended_;  // what lists contained before the first append
  std::set<PyObject*> full_;                       // containers whose contents were read
  std::set<PyObject*> fixed_;                      // containers whose items are fixed objects
};

// A float, or an integer of 64 bits, as an operand of a program.
bool to_operand(PyObject* o, Scalar& number);
bool is_changeable(PyObject* o);  // an exact int or float

extern thread_local Recorder* current_recorder;  // of the capture on this thread; null: none

}  // namespace facula::bind::capture
