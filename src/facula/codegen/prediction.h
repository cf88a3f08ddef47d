// Predicts what a program will need next. A process records in which order its program first needs things that are
// slow to get and follow from a few words (oneDNN primitives; kernels and plans by name), and writes this to the
// user's folder. When a program needs one of them again as its first, or after the same predecessor, the background
// threads (ahead.h) make what followed, some way before the program needs it.
//
// A wrong prediction only costs time of those threads: things are made from their words as the program would make
// them, failures are ignored (the program tries again), and without background threads nothing is predicted. Files
// are bounded and trusted like kernels (store.h).
//   example: a process needed kernels A, B, C, ...  ->  the next one that needs A first gets B, C, ... in the
//                                                   background
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace facula::codegen {

using Words = std::span<const int64_t>;

// A kind of things; lives as long as the process. `make` makes one from its words on a background thread and puts it
// where the program will look for it. The words come from `wanted` in a process of the same build. Things that take
// long to make are begun two chapters earlier.
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

// Tells that the program needs this thing and does not have it yet.
void wanted(const Thing& thing, Words words);

std::vector<int64_t> words_of(std::string_view text);
std::string text_of(Words words);

}  // namespace facula::codegen
