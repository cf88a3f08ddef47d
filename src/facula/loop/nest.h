// A scheduled loop nest: statements over expressions; what a target turns into code. Loads and stores take
// one flat element offset, an expression over loop variables and integer parameters.
//
// Semantics are serial and exact up to the order of floating-point reductions. A target may run a `vector`
// loop in lanes: accumulators declared outside the loop and updated in it get one lane each and are combined
// in a fixed tree after it, so the result depends on the vector width but never on the number of threads or
// on the run.
//
// A nest of a grid (`threads` > 0; schedule/grid.h makes them) is run by blocks of so many threads: a task is one
// block's, and every thread of the block runs every statement. Only a `threads` loop shares its iterations among
// them, iteration k going to thread k modulo `threads`. What a thread stores is seen by the others of its block
// behind the next `barrier`, which all of them reach together; before it nobody else may read or write that element
// (the interpreter finds who does). Locals are each thread's own.
//
// A nest for lanes (`lanes` > 0; schedule/lanes.h makes them) says of every `vector` loop how it runs in them. So the
// order in which floating numbers are added up is known, and the interpreter adds them up in it.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "facula/loop/expr.h"

namespace facula::loop {

struct Statement;
using Block = std::vector<Statement>;

enum class LoopKind : uint8_t { serial, vector, unrolled, threads };

// How a loop of a nest for lanes runs. Iterations go `width` side by side, as a vector, and vectors
//   - in strips: `strip` of them beside each other as one wide one, as far as there are whole strips; where `strip` > 2 then
//     in pairs
//   - what is left, or all, in rounds of `unroll` of them, one after the other
//   - what is left of that by single vectors, the last one under a mask if `tail`; without it nothing is left
// An accumulator of outside has a copy for each lane of each vector of a round, from its identity on; single vectors
// change the first one's. Behind the loop neighbouring copies are combined until one vector is left, then the lower half of
// its lanes with the upper until one number is, and what the accumulator had with that.
// A serial loop inside that only adds up has `chains` where it is in a vector of no strip: iteration k adds to the sums of
// chain k modulo `chains`, as far as they all have as many; neighbouring chains are added, and the rest to their total.
// A serial loop goes by `unroll` iterations, one after the other, which only spares counting.
// A loop with `scan` reads the accumulators of outside that its iterations add to, each once, before anything is stored. In
// a vector, lanes take their elements (the identity, where the mask is off) together with those of the lane 1, 2, 4, ...
// before them, until each has the total from the first lane to its own; what an iteration reads is that behind what the
// accumulator had before the vector, and what the last lane has is what it has then.
struct Lanes {
  int width = 0;  // a power of two, as the others; 0: no loop over lanes
  int unroll = 1, strip = 1, chains = 1;
  bool tail = true;
  bool scan = false;
};

// Where an array lies. Of each task or, inside of a `threads` loop, of each iteration; of a block, in its fast memory;
// of a block, in memory of any size.
enum class Space : uint8_t { local, shared, scratch };

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
    barrier,    // of the threads of a block
    atomic,     // buffer[offset] := combine(buffer[offset], value), during which no other thread changes it
  } kind;
  int var = -1;
  LoopKind loop = LoopKind::serial;
  Expr extent;
  Monoid monoid{};
  // Accumulate of argmax, argmin: positions only rise, so the earlier of equal values is there already.
  bool rising = false;
  DType dtype{};
  DType position = DType::Int64;  // accumulator of argmax, argmin
  Space space = Space::local;     // array
  std::vector<Expr> values;       // let, assign, store, condition, atomic: one; accumulate: as lift takes
  int buffer = -1;                // store, atomic; -1-a: array a
  int part = 0;                   // store: 1 real, 2 imaginary component of a complex buffer
  Expr offset;                    // store, atomic
  Block body;                     // loop, condition
  Lanes lanes;                    // loop, in a nest for lanes
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
  int end_var =
      -1;  // if there is one, the body is run for all tasks [task_var, end_var) of a thread's piece at once
  Expr tasks;  // over params
  Expr cost;   // scalar operations of one task, roughly, over params: sets the grain
  Block body;
  int threads = 0;  // in a block; 0: no grid
  int lanes = 0;    // of 32 bits of the machine that the nest is lowered for; 0: none
  int index_bits =
      64;         // 32: indices, parameters and offsets, with all parts of them, lie between -2^30 and 2^30
  Memo identity;  // its text without names, once it will not change any more; "" if not known
};

// f of every statement of a block, outer ones first, and of every expression of a statement itself.
template <class F>
void each_statement(const Block& block, F&& f) {
  for (auto& s : block) {
    f(s);
    each_statement(s.body, f);
  }
}
template <class S, class F>
void each_expression(S& s, F&& f) {
  if (s.extent) f(s.extent);
  for (auto& v : s.values) f(v);
  if (s.offset) f(s.offset);
}

std::string print(const Nest& n);
std::string identity(const Nest& n);     // the text without the names that people gave
Nest parse_nest(std::string_view text);  // ValueError with the position of the mistake
void verify(const Nest& n);

// What the machine of a grid bears.
struct GridLimits {
  int threads = 256;                 // in a block
  int64_t shared_bytes = 48 * 1024;  // of a block's fast memory
  int index_bits = 64;               // as Nest::index_bits
};
void verify(const Nest& n, const GridLimits& limits);  // RuntimeError (internal) also if it asks for more

// What the lanes of a machine bear, and how much of it is worth while.
struct LaneLimits {
  int lanes = 16;     // of 32 bits in a vector
  int strip = 8;      // vectors beside each other, at most
  int unroll = 4;     // vectors of a round, each with accumulators of its own, at most
  int chains = 4;     // of the sums of a loop inside
  int unrolled = 16;  // steps of an unrolled loop, at most
};
void verify(const Nest& n, const LaneLimits& limits);  // as for a grid

// The locals that may differ from thread to thread outside of `threads` loops.
std::set<int> divergent_locals(const Nest& n);

// May several threads change an element of dtype `d` by this, in any order, and always get the same bits? Of integers;
// of floating numbers even the sign of the zero that is the larger of two depends on the order.
bool is_order_free(Monoid m, DType d);

}  // namespace facula::loop
