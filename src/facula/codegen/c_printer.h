// What the texts of C99 (c99.h) and of CUDA C (cuda.h) have in common: statements and expressions of a nest as lines of
// C. It decides nothing. The functions that the lines call stand in c_prelude.h, each the counterpart of one of
// loop/number.cpp.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "facula/loop/nest.h"

namespace facula::codegen {

class CPrinter {
 public:
  explicit CPrinter(const loop::Nest& n) : n_(n) {}  // which lives as long
  virtual ~CPrinter() = default;
  CPrinter(const CPrinter&) = delete;

  // The function with its name and, in a comment, the nest's.
  std::string function(const std::string& name);
  // The elementary (loop/elementary.h) and special functions (loop/special_functions.h) that `code` calls and what those
  // call, before it.
  std::string functions(const std::string& code);
  // From now on both sides of a choice are computed if they may be, however rare one is.
  void go_straight() { straight_ = true; }

 protected:
  using Expr = loop::Expr;
  using Statement = loop::Statement;

  // ---- where the languages differ
  virtual void open_function(const std::string& name) = 0;  // and the loop over tasks
  virtual std::string param(int k) const = 0;
  virtual std::string reports_to() const = 0;  // the last argument of a check: who hears of a failure
  virtual void threads_loop(const Statement& s);
  virtual void array(const Statement& s) = 0;
  virtual void barrier();
  virtual void atomic(const Statement& s);

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
  // b0, b1, ...: the buffers; `qualifier`: of those that are only read.
  void pointers(const std::string& from, const std::string& qualifier);
  void block(const loop::Block& b);
  // The values of a statement, of which the next one knows nothing: stores and assignments change what was read.
  std::vector<std::string> values_of(const std::vector<Expr>& values);
  std::string extent(const Statement& s);  // of a loop, which the loop does not change
  // Element `at` of a buffer, or of an array.
  std::string place(int buffer, DType d, const std::string& at, int part);
  DType memory(int buffer) const {
    return buffer >= 0 ? n_.buffers[size_t(buffer)].dtype : arrays_.at(-1 - buffer);
  }
  static std::string bare(const std::string& text);  // without brackets around all of it

  const loop::Nest& n_;
  std::map<int, DType> arrays_;  // in scope

 private:
  std::string fresh() { return "t" + std::to_string(++temporaries_); }
  const char* type(Expr e) { return is_place(e) ? index_type() : type_of(e.dtype()); }

  std::string elementary(loop::Fn f, DType d);
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

  std::set<int64_t> rows_;  // of tables, that were named
  std::string out_;
  int depth_ = 0, temporaries_ = 0;
  bool straight_ = false;
  std::set<int> declared_;  // locals in scope
  std::set<int> places_;    // locals that hold places in memory, sizes and the like
  std::unordered_map<const loop::Node*, bool> is_place_;
  std::unordered_map<const loop::Node*, std::string>
      known_;                                        // in this statement: computed already, by which name
  std::unordered_map<const loop::Node*, int> uses_;  // in this statement
  std::unordered_map<const loop::Node*, Nodes> always_;
};

// The functions that the lines call, of which `specifier` is the storage and the like. `status` is the type of the last
// argument of a check; facula_fail(status, what, index, size) has to stand before.
std::string c_prelude();

}  // namespace facula::codegen
