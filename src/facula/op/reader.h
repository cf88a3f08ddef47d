// Reads the text of schemas and graphs: words, and values as print_attribute writes them.
#pragma once
#include <string>
#include <string_view>

#include "facula/op/schema.h"

namespace facula::op {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  virtual ~Reader() = default;

 protected:
  // Raises what is wrong at `at_`, as users of the text want it told.
  [[noreturn]] virtual void fail(std::string_view what) const = 0;
  // An item of a list of sizes, or a size.
  virtual SymInt integer() { return number(Type::Int).to_int(); }

  static bool in_word(char c);
  void skip();  // blanks
  bool next_is(char c);
  bool accept(char c);
  bool accept_word(std::string_view w);
  void expect(char c);
  std::string word(std::string_view what);
  Scalar number(Type t);               // as a parameter of that type wants it
  std::string text();                  // in quotes
  Args attribute(const Parameter& p);  // one value, which is no tensor but the empty list

  std::string_view text_;
  size_t at_ = 0;

 private:
  template <class Read>
  Value named(const char* what, Read read);
};

}  // namespace facula::op
