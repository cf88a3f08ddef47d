// What follows what: a process notes in which order its program first wants things that take long to get and follow
// from a few words (primitives of oneDNN; kernels and plans by their names), and leaves that in the user's folder.
// When a program wants one of them again as its first, or after the same one, what followed then is made on the
// threads of ahead.h, some way ahead of the program.
//
// A wrong guess costs time of those threads and no more: things are made from their words as the program would make
// them, what fails is made again by who wants it, and where there are no such threads nothing is guessed. Files are
// bounded and trusted as kernels are (store.h).
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace facula::codegen {

using Words = std::span<const int64_t>;

// A kind of things, for the life of the process: how one is made from its words, on a thread of ahead.h, so that
// it is found by who wants it. The words are those that `wanted` got from a process of the same build. What takes
// long to make is begun two chapters earlier.
class Thing {
 public:
  Thing(std::string_view name, void (*make)(Words), bool takes_long = false);
  Thing(const Thing&) = delete;
  std::string_view name() const { return name_; }
  bool takes_long() const { return takes_long_; }
  void make(Words w) const { make_(w); }

 private:
  std::string_view name_;
  void (*make_)(Words);
  bool takes_long_;
};

// The program wants this, and does not have it yet.
void wanted(const Thing& thing, Words words);

std::vector<int64_t> words_of(std::string_view text);
std::string text_of(Words words);

}  // namespace facula::codegen
