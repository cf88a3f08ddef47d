// Fuzz targets: programs' texts and files that come from elsewhere. Each source of this folder is one target:
// a function that takes any bytes, its seeds, and the promise it checks. `make fuzz` drives them by
// libFuzzer; the ordinary tests replay the seeds, the findings of the past in corpus/<target>/ and some
// thousand mutations (replay_test.cpp).
#pragma once
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "facula/tensor/tensor.h"

namespace facula::fuzz {

using Random = std::minstd_rand;
struct Target {
  const char* name;
  void (*run)(std::string_view data);
  std::vector<std::string> (*seeds)();
  std::string (*mutate)(std::string input,
                        Random& random) = nullptr;  // of what has a form; null: bytes alone
};
inline std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}

[[noreturn]] inline void broken(std::string_view promise, std::string_view detail) {
  std::cerr << "broken promise: " << promise << "\n" << detail << std::endl;
  std::abort();
}
// Runs f; the only error that it may raise is one of this type by the user's doing.
template <class F>
void raises_only(ErrorType type, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    if (e.type() != type || e.kind() == ErrorKind::internal) broken("an error of another type", e.what());
  }
}

inline Tensor zeros(std::initializer_list<int64_t> sizes, DType dtype) {
  Ints n;
  for (int64_t size : sizes) n.push_back(size);
  Tensor t = Tensor::empty(IntSpan(n), dtype);
  if (t.numel().concrete()) std::memset(t.data_ptr(), 0, size_t(t.numel().concrete() * itemsize(dtype)));
  return t;
}

// The input with a change that keeps it in form more often than changed bytes do: another number, value, operator or
// dtype, an item or a line less or twice.
std::string mutated_text(std::string text, Random& random);
// Texts of graphs: a call of every operator, by its samples, and its gradient.
std::vector<std::string> graph_texts();

// The path of a file in memory with these bytes, until the next call.
const std::string& file_of(std::string_view data);
std::string bytes_of(const std::string& path);

// What others read as text: the string literals of a source file of the project, raw ones too.
std::vector<std::string> literals(const std::string& path);
std::vector<std::string> sources(const std::string& folder,
                                 const std::string& suffix);  // paths below the project

}  // namespace facula::fuzz

#ifdef FACULA_LIBFUZZER
extern "C" size_t LLVMFuzzerMutate(unsigned char* data, size_t n, size_t most);
#define FACULA_FUZZ_ENTRY(run)                                                 \
  extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t n) { \
    run({reinterpret_cast<const char*>(data), n});                             \
    return 0;                                                                  \
  }
#define FACULA_FUZZ_MUTATOR(mutate)                                                                          \
  extern "C" size_t LLVMFuzzerCustomMutator(unsigned char* data, size_t n, size_t most, unsigned seed) {     \
    facula::fuzz::Random random(seed);                                                                       \
    if (random() % 4 == 0) return LLVMFuzzerMutate(data, n, most);                                           \
    std::string made = mutate(std::string(reinterpret_cast<char*>(data), n), random).substr(0, most);        \
    std::memcpy(data, made.data(), made.size());                                                             \
    return made.size();                                                                                      \
  }
#else
#define FACULA_FUZZ_ENTRY(run)
#define FACULA_FUZZ_MUTATOR(mutate)
#endif
#define FACULA_FUZZ_REGISTER(...) \
  [[maybe_unused]] static const bool registered = (facula::fuzz::targets().push_back({__VA_ARGS__}), true)
#define FACULA_FUZZ(name, run, seeds)     \
  FACULA_FUZZ_REGISTER(name, run, seeds); \
  FACULA_FUZZ_ENTRY(run)
#define FACULA_FUZZ_FORMED(name, run, seeds, mutate) \
  FACULA_FUZZ_REGISTER(name, run, seeds, mutate);    \
  FACULA_FUZZ_ENTRY(run)                             \
  FACULA_FUZZ_MUTATOR(mutate)
