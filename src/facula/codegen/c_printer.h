// Prints statements and expressions of a nest as lines of C, for C99 (c99.h) and CUDA C (cuda.h). It makes no
// decisions. c_prelude.h has the functions that the lines call.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "facula/loop/nest.h"

namespace facula::codegen {

class CPrinter {
 public:
  explicit CPrinter(const loop::Nest& n) : n_(n) {}  // `n` has to outlive the printer
  virtual ~CPrinter() = default;
  CPrinter(const CPrinter&) = delete;

  // The function `name`, with the nest's name in a comment.
  std::string function(const std::string& name);
  // The elementary functions (loop/elementary.h) and special functions (loop/special_functions.h) that `code` calls,
  // directly or indirectly, to be printed before it.
  std::string functions(const std::string& code);
  // From now on computes both sides of a select, however rare one is, if both may be computed.
  void go_straight() { straight_ = true; }

 protected:
  using Expr = loop::Expr;
  using Statement = loop::Statement;

  // ---- differences between the languages
  virtual void open_function(const std::string& name) = 0;  // also opens the loop over tasks
  virtual std::string param(int k) const = 0;
  virtual std::string reports_to() const = 0;  // the last argument of a check: the failure report
  virtual void threads_loop(const Statement& s);
  virtual void array(const Statement& s) = 0;
  virtual void barrier();
  virtual void atomic(const Statement& s);
  // Whether the index of this check is known to be in range.
  virtual bool is_in_range(Expr) { return false; }

  static const char* type_of(DType d);
  static const char* memory_type(DType d);  // of an element in memory; complex numbers are pairs
  static std::string index(int v) { return "i" + std::to_string(v); }
  static std::string local(int v);
  const char* index_type() const { return n_.index_bits == 32 ? "int32_t" : "int64_t"; }

  void line(const std::string& text) { out_ += std::string(size_t(depth_) * 2, ' ') + text + "\n"; }
  void open(const std::string& text) {
    line(text);
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  // Declares b0, b1, ...: the pointers to buffers. `qualifier` is for buffers that are only read.
  void pointers(const std::string& from, const std::string& qualifier);
  void block(const loop::Block& b);
  // The values of a statement. The next statement cannot reuse them, since stores and assignments change what was
  // read.
  std::vector<std::string> values_of(const std::vector<Expr>& values);
  std::string extent(const Statement& s);  // of a loop; the body does not change it
  // Element `at` of a buffer, or of an array.
  std::string place(int buffer, DType d, const std::string& at, int part);
  DType memory(int buffer) const {
    return buffer >= 0 ? n_.buffers[size_t(buffer)].dtype : arrays_.at(-1 - buffer);
  }
  static std::string bare(const std::string& text);  // without parentheses around all of it

  const loop::Nest& n_;
  std::map<int, DType> arrays_;  // by local in scope: the dtype of the array

 private:
  std::string fresh() { return "t" + std::to_string(++temporaries_); }
  const char* type_of_local(int v, Expr value) {
    return places_.count(v) ? index_type() : type_of(value.dtype());
  }
  const char* type(Expr e) { return is_place(e) ? index_type() : type_of(e.dtype()); }

  std::string elementary(loop::Fn f, DType d);
  void find_places();  // sets `places_`
  void statement(const Statement& s);
  void accumulate(const Statement& s);
  void store(const Statement& s);
  void set(int v, const char* type, const std::string& value);
  void set(int v, const std::vector<Expr>& values);

  std::string value(Expr e);
  bool is_total(Expr e);
  using Nodes = std::unordered_set<const loop::Node*>;
  const Nodes& always(Expr e);
  std::string branch(Expr e);
  std::string named(Expr e);
  bool is_place(Expr e);
  std::string computed(Expr e);
  std::string cast(Expr e);
  std::string call(Expr e);

  std::string entry(Expr e);
  bool is_read(int v);

  std::optional<std::set<int>> read_;  // locals that expressions of the nest mention
  std::set<int64_t> rows_;             // rows of tables that were used
  std::string out_;
  int depth_ = 0, temporaries_ = 0;
  bool straight_ = false;
  std::set<int> declared_;  // locals in scope
  std::set<int> places_;    // locals that only ever hold offsets, sizes and the like
  std::unordered_map<const loop::Node*, bool> is_place_;
  std::unordered_map<const loop::Node*, std::string>
      names_;                                        // by expression computed in this statement: its name
  std::unordered_map<const loop::Node*, int> uses_;  // by expression: uses in this statement
  std::unordered_map<const loop::Node*, Nodes> always_;
};

// The common functions. The macros and facula_fail(status, what, index, size) have to be defined before
// (c_prelude.h).
std::string c_prelude();

}  // namespace facula::codegen
