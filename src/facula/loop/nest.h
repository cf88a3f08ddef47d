// A scheduled loop nest: statements over expressions; what a target turns into code. Loads and stores take
// one flat element offset, an expression over loop variables and integer parameters.
//
// Semantics are serial and exact up to the order of floating-point reductions. A target may run a `vector`
// loop in lanes: accumulators declared outside the loop and updated in it get one lane each and are combined
// in a fixed tree after it, so the result depends on the vector width but never on the number of threads or
// on the run.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "facula/loop/expr.h"

namespace facula::loop {

struct Statement;
using Block = std::vector<Statement>;

enum class LoopKind : uint8_t { serial, vector, unrolled };

struct Statement {
  enum class Kind : uint8_t {
    loop,         // for var in [0, extent): body
    let,          // local var := value, constant from here to the end of the block
    accumulator,  // locals var..var+components-1 := identity of monoid for values of `dtype` (at `position`s)
    accumulate,   // locals := combine(locals, lift(values))
    assign,       // local var := value (var made by `accumulator` or by an earlier assign; mutable)
    array,  // local array `var` of `extent` elements of `dtype` (a small per-task scratch, indexed by load/store slot -1-var)
    store,  // buffer[offset] := value, rounded to the buffer's dtype
    condition,  // if value: body
  } kind;
  int var = -1;
  LoopKind loop = LoopKind::serial;
  Expr extent;
  Monoid monoid{};
  // Accumulate of argmax, argmin: positions only rise, so the earlier of equal values is there already.
  bool rising = false;
  DType dtype{};
  DType position = DType::Int64;  // accumulator of argmax, argmin
  std::vector<Expr> values;       // let, assign, store, condition: one; accumulate: as lift takes
  int buffer = -1;                // store; -1-a: array a
  int part = 0;                   // store: 1 real, 2 imaginary component of a complex buffer
  Expr offset;                    // store
  Block body;                     // loop, condition
};

struct Buffer {
  DType dtype;
  bool written = false;
  std::string name;
  bool unique = true;  // no other buffer overlaps it (targets may assume so)
};

// A text that a copy does not have: the copy may be changed.
struct Memo {
  std::string text;
  Memo() = default;
  Memo(Memo&&) = default;
  Memo(const Memo&) {}
  Memo& operator=(Memo&&) = default;
  Memo& operator=(const Memo&) {
    text.clear();
    return *this;
  }
};

struct Nest {
  std::string name;  // for people and profilers; not part of the identity
  std::vector<Buffer> buffers;
  int params = 0;    // integer parameters (sizes and strides)
  int task_var = 0;  // the parallel loop: tasks [0, tasks) in any order and on any thread
  Expr tasks;        // over params
  Expr cost;         // scalar operations of one task, roughly, over params: sets the grain
  Block body;
  Memo identity;  // its text without names, once it will not change any more; "" if not known
};

std::string print(const Nest& n);
std::string identity(const Nest& n);     // the text without the names that people gave
Nest parse_nest(std::string_view text);  // ValueError with the position of the mistake
void verify(const Nest& n);

}  // namespace facula::loop
