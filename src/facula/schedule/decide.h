// The choices that make the class of a layout: how axes are ordered and merged, which are vectors, whether a
// reduction is split. Equal decisions of one analysis give equal nests; sizes and strides are parameters.
#pragma once
#include <string>

#include "facula/schedule/analysis.h"
#include "facula/schedule/schedule.h"

namespace facula::schedule {

// The product of two sizes, each of which may be near 2^61 beside one of 0 (an expanded empty tensor): 2^61 if it is
// larger.
int64_t times(int64_t a, int64_t b);

// A loop of the nest: variables merged into one, outermost first. The last stands for all.
using Merged = std::vector<int>;

// The numbers of one call.
struct Numbers {
  const Analysis* analysis = nullptr;
  const Layout* layout = nullptr;
  Ints extents;  // by variable; 1 for ragged ones
  // Elements that an access of the analysis moves when the variable grows by one.
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
  std::vector<Merged> rows;                  // outermost first; the vector, if it is one, last
  std::vector<std::vector<Merged>> domains;  // likewise
  int row_vector = -1;                       // rows run in lanes; else
  std::vector<int> domain_vectors;           // the loop of each domain that does, or -1
  bool chunked = false;                      // a task is a piece of one row of vectors (else some whole ones)
  bool tiled = false;      // a task is a tile of rows and lanes: some operand lies the other way
  int split = -1;          // the reduced variable that is cut in chunks
  int64_t short_rows = 0;  // rows of this many elements side by side run in lanes, their domain unrolled
  int64_t phases = 1;      // neighbours along row_vector that one lane computes: indices repeat with them
  bool keeps_row = false;  // what a row needs twice may wait in an array
  int begins_along =
      -1;  // a scatter's rows write their base first, in lanes along this dimension of the result
  bool lists_places =
      false;  // places that a tensor picks for a scatter's innermost loop are computed in lanes beforehand
  bool shares_places =
      false;  // threads share a scatter's places, or slices of them: each goes through the whole domain and changes its own
  std::vector<int8_t> classes;  // by access and variable: a known stride, or -1 (a parameter)
  std::vector<int8_t>
      computed_strides;          // of computed dimensions in order: a known stride, or 0 (a parameter)
  std::vector<int8_t> overlaps;  // by output
  int8_t stride_class(size_t access, int var, size_t vars) const {
    return classes[access * vars + size_t(var)];
  }
  std::string key() const;
  std::string text() const;  // what was decided, for people
};
Decisions decide(const Analysis& a, const Numbers& n);

// Elements from the first one of the first output to its last.
int64_t span_of_result(const Numbers& n);

constexpr int64_t kKeptRow = 2048;  // elements of a row that an array holds

// Elements of the full space that one task should compute.
int64_t task_elements(const Analysis& a);

}  // namespace facula::schedule
