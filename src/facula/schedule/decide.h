// Decides everything that determines a nest: the order and merging of axes, the loops that run in lanes, and whether
// a reduction is split. Equal decisions about one analysis give equal nests; sizes and strides remain parameters.
//   example: x.sum(0) of a contiguous 4096x64 matrix  ->  the 64 columns are rows that run in lanes, and the domain of
//            4096 elements is split into chunks
//   cost:    linear in accesses, times variables
#pragma once
#include <string>

#include "facula/schedule/analysis.h"
#include "facula/schedule/schedule.h"

namespace facula::schedule {

// The product of two sizes, at most 2^61. A size can be near 2^61 where another one is 0 (an expanded empty tensor).
int64_t times(int64_t a, int64_t b);

// A loop of the nest: variables merged into one loop, outermost first. The last one stands for the loop.
using Merged = std::vector<int>;

// The numbers of one call.
struct Numbers {
  const Analysis* analysis = nullptr;
  const Layout* layout = nullptr;
  Ints extents;  // by variable; 1 for ragged ones
  // The distance in elements by which an access moves when the variable grows by one.
  int64_t coefficient(const Access& a, int var) const {
    auto access = size_t(&a - analysis->accesses.data());
    return coefficients[access * extents.size() + size_t(var)];
  }
  SmallVector<int64_t, 32> coefficients;  // by access, then by variable
  int64_t stride(int buffer, size_t dim) const;
  int64_t count(const Merged& loop) const;  // elements
  int64_t count(const std::vector<Merged>& loops) const;
};
Numbers numbers(const Analysis& a, const Layout& l);
int64_t evaluate(loop::Expr e, const Layout& l);  // of sizes and constants

struct Decisions {
  std::vector<Merged> rows;                  // outermost first; a loop that runs in lanes comes last
  std::vector<std::vector<Merged>> domains;  // the same for each domain
  int row_vector = -1;                       // the row loop that runs in lanes, or -1
  std::vector<int> domain_vectors;           // by domain: its loop that runs in lanes, or -1
  bool chunked = false;  // a task is a piece of one row of vectors (otherwise one or more whole rows)
  // A task is a tile of rows by lanes, because some operand is contiguous along another loop than the lanes.
  bool tiled = false;
  int split = -1;  // the reduced variable that is split into chunks
  // Rows of this many elements, stored one behind the other, run in lanes with their domain unrolled.
  int64_t short_rows = 0;
  // Number of neighbours along row_vector that one lane computes, because their indices repeat.
  int64_t phases = 1;
  bool keeps_row = false;  // a value that a row needs twice may be stored in a local array
  // The rows of a scatter first write their base, in lanes along this dimension of the result.
  int begins_along = -1;
  // Lanes precompute the places to which a scatter's innermost loop goes, as a tensor gives them.
  bool lists_places = false;
  // Threads share a scatter's places, or slices of them: each runs the whole domain and updates its own.
  bool shares_places = false;
  // By access and variable: the stride if the nest knows it, or -1 (a parameter).
  std::vector<int8_t> classes;
  std::vector<int8_t>
      computed_strides;          // by computed dimension: the stride if the nest knows it, or 0 (a parameter)
  std::vector<int8_t> overlaps;  // by output
  int8_t stride_class(size_t access, int var, size_t vars) const {
    return classes[access * vars + size_t(var)];
  }
  std::string key() const;
  std::string text() const;  // the decisions in words, for users
};
Decisions decide(const Analysis& a, const Numbers& n);

// The number of elements between the first and the last element of the first output, both included.
int64_t span_of_result(const Numbers& n);

constexpr int64_t kKeptRow = 2048;  // most elements of a row that a local array holds

// The number of elements of the full space that one task should compute.
int64_t task_elements(const Analysis& a);

}  // namespace facula::schedule
