// Reads the text of schemas and graphs: words, and values in the form of print_attribute.
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
  // Raises an error about the text at `at_`, in words for users of the text.
  [[noreturn]] virtual void fail(std::string_view what) const = 0;
  // A size, or an item of a list of sizes.
  virtual SymInt integer() { return number(Type::Int).to_int(); }

  static bool in_word(char c);
  void skip();  // skips blanks
  bool next_is(char c);
  bool accept(char c);
  bool accept_word(std::string_view w);
  void expect(char c);
  std::string word(std::string_view what);
  Scalar number(Type t);               // a number for a parameter of that type
  std::string text();                  // in quotes
  Args attribute(const Parameter& p);  // one value other than a tensor; the empty list may be one of tensors

  std::string_view text_;
  size_t at_ = 0;

 private:
  template <class Read>
  Value named(const char* what, Read read);
};

}  // namespace facula::op
