// A scheduled loop nest, the IR that a target turns into code: statements over expressions. Loads and stores take one
// flat element offset, an expression over loop variables and integer parameters.
//   example: for i1 < p0 vector { store 1[i1] = add(load[0:float32](i1), 1:float32) }
//
// The semantics are serial, and exact up to the order of floating-point reductions. A target may run a `vector` loop
// in lanes: an accumulator that is declared outside of the loop and updated inside gets one copy per lane, and the
// copies are combined in a fixed tree after the loop. So the result depends on the vector width, but never on the
// number of threads or on the run.
//
// A nest for a grid (`threads` > 0; made by schedule/grid.h) is run by blocks of that many threads: a block runs a
// task, and each of its threads runs every statement. Only the iterations of a `threads` loop are divided among them,
// iteration k going to thread k modulo `threads`. The other threads of the block see what a thread stores after the
// next `barrier`, which all of them reach together; before it no other thread may access that element (the
// interpreter detects violations). Each thread has its own locals.
//
// A nest for lanes (`lanes` > 0; made by schedule/lanes.h) says how every `vector` loop runs in lanes. This fixes the
// order of floating-point additions, and the interpreter follows it.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "facula/loop/expr.h"

namespace facula::loop {

struct Statement;
struct TileProduct;  // tiles.h
using Block = std::vector<Statement>;

enum class LoopKind : uint8_t { serial, vector, unrolled, threads };

// How a loop of a nest for lanes runs. `width` iterations form a vector, and vectors run
//   - in strips: `strip` vectors side by side as one wide vector, as long as whole strips remain; if `strip` > 2,
//     then in pairs
//   - the rest, or all of them, in rounds of `unroll` vectors, one vector after the other
//   - the rest of that as single vectors, the last one under a mask if `tail`; without `tail` there is no rest
// An outer accumulator has a copy for each lane of each vector of a round, which starts with the identity; single
// vectors update the copies of the first vector. After the loop neighbouring copies are combined until one vector
// remains, then the lower half of its lanes with the upper half until one number remains, and finally the
// accumulator's former value with that.
// A serial loop inside that only accumulates has `chains` if it is in a vector outside of strips: iteration k updates
// chain k modulo `chains`, as long as all chains have equally many iterations; then neighbouring chains are combined,
// and the remaining iterations update their total.
// A serial loop with `unroll` runs that many iterations, one after the other, between two tests of its counter.
// A loop with `prefetch` prefetches, before each round (each group of `unroll` iterations of a serial loop), the elements of
// buffers that its body accesses `prefetch` iterations later at offsets that are linear in its index (prefetched_places).
// Values do not depend on it.
// A loop with `scan` reads outer accumulators that its iterations update, each once, before anything is stored. In a
// vector, each lane combines its element (the identity if it is masked off) with that of the lane at distance 1, 2,
// 4, ... before it, until it has the total from the first lane to itself. An iteration reads this total combined with
// the accumulator's value before the vector; the last lane's value becomes the accumulator's value after it.
struct Lanes {
  int width = 0;  // a power of two, like the others; 0: not a loop over lanes
  int unroll = 1, strip = 1, chains = 1;
  int prefetch = 0;
  bool tail = true;
  bool scan = false;
};

// How a load, or the store of a statement, inside a loop over lanes reaches the elements of its lanes. Values do not
// depend on it. A statement lists the accesses that are not direct; a direct one is of one element for all lanes, of
// neighbours in the order of the lanes, or of an array with an element per lane at an offset that is equal in all lanes.
//   example: access load 0[mul(i1, 3)] spaced 3
//            store 1[i1] = load[0:float32](mul(i1, 3))
// Under a mask `spaced` and `each` become one masked gather or scatter.
//
//   uniform, contiguous, own   direct, and never listed without `rows`
//   reversed     neighbours in reversed order
//   spaced n     every n-th element (of complex buffers: real number), shuffled out of whole vectors
//   repeated n from k   neighbours, each shared by n lanes and the first one by n - k, loaded once and shuffled
//   gathered     one gather or scatter instruction
//   each         one load or store per lane
//   packed       of a store at the position that a count has reached: counted lanes side by side, then the last lane
//   pairs        this store and the next one, of real and imaginary parts, as whole vectors. `moved`: from loads of
//                pairs in the order of the lanes (1) or in reversed order (-1)
//   neighbours n this store and the next ones, n in all, of neighbouring elements, as whole vectors
#define FACULA_ACCESSES(_) \
  _(uniform) _(contiguous) _(own) _(reversed) _(spaced) _(repeated) _(gathered) _(each) _(packed) _(pairs) _(neighbours)
struct Access {
#define FACULA_A(n) n,
  enum class Kind : uint8_t { FACULA_ACCESSES(FACULA_A) } kind;
#undef FACULA_A
  int slot = 0;   // load
  Expr offset{};  // load; null: the statement's store
  int count = 1, from = 0, moved = 0;
  // The unrolled loop whose steps access the elements of a row, one row per lane and one row behind the other: outside
  // of masks and of the branches of selects, whole vectors are transposed. -1: none.
  int rows = -1;
};

// The memory of an array. local: of each task or, inside a `threads` loop, of each iteration; shared: of a block, in
// its fast memory; scratch: of a block, of any size.
enum class Space : uint8_t { local, shared, scratch };

struct Statement {
  enum class Kind : uint8_t {
    loop,         // for var in [0, extent): body
    let,          // local var := value, constant from here to the end of the block
    accumulator,  // locals var..var+components-1 := identity of monoid for values of `dtype` (at `position`s)
    accumulate,   // locals := combine(locals, lift(values))
    assign,       // local var := value (var made by `accumulator` or by an earlier assign; mutable)
    array,  // local array `var` of `extent` elements of `dtype`, which loads and stores address by slot -1-var
    store,      // buffer[offset] := value, rounded to the buffer's dtype
    condition,  // if value: body
    barrier,    // waits for all threads of the block
    atomic,     // buffer[offset] := combine(buffer[offset], value), without interference from other threads
    tiles,      // buffer[offset..] := a product of tiles (tiles.h)
  } kind;
  int var = -1;
  LoopKind loop = LoopKind::serial;
  Expr extent;
  Monoid monoid{};
  // Accumulate of argmax, argmin: positions only increase, so the first of several equal values is visited first.
  bool rising = false;
  DType dtype{};
  DType position = DType::Int64;  // accumulator of argmax, argmin
  Space space = Space::local;     // array
  std::vector<Expr>
      values;  // let, assign, store, condition, atomic: one; accumulate: the arguments of `lift`; tiles: the first element of
               // the left and of the right panel, and the steps
  int buffer = -1;                             // store, atomic; -1-a: array a; tiles
  int part = 0;                                // store: 1 real, 2 imaginary component of a complex buffer
  Expr offset;                                 // store, atomic, tiles
  Block body;                                  // loop, condition, tiles
  Lanes lanes;                                 // loop, in a nest for lanes
  std::shared_ptr<const TileProduct> product;  // tiles
  std::vector<Access> accesses;                // in a loop over lanes
};

struct Buffer {
  DType dtype;
  bool written = false;
  std::string name;
  bool unique = true;  // no other buffer overlaps it (targets may assume so)
};

// A memoised text. Copies do not inherit it, since they may be changed.
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
  std::string name;  // for users and profilers; not part of the identity
  std::vector<Buffer> buffers;
  int params = 0;    // integer parameters (sizes and strides)
  int task_var = 0;  // the parallel loop: tasks [0, tasks) in any order and on any thread
  int end_var = -1;  // if set, the body runs all tasks [task_var, end_var) of a thread's piece at once
  Expr tasks;        // over params
  Expr cost;         // estimated scalar operations of one task, over params; determines the grain
  Block body;
  int threads = 0;  // threads of a block; 0: not for a grid
  int lanes = 0;    // 32-bit lanes of the machine that the nest is lowered for; 0: not lowered
  // 32: all indices, parameters and offsets, with their subexpressions, are between -2^30 and 2^30.
  int index_bits = 64;
  Memo identity;  // the text without names, once the nest is final; "" if it was not printed yet
};

// Calls f for every statement of a block, outer ones first; for every expression of a statement itself.
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
std::string identity(const Nest& n);     // the text without the names that users gave
Nest parse_nest(std::string_view text);  // ValueError with the position of the mistake
void verify(const Nest& n);

// Limits of a machine that runs grids.
struct GridLimits {
  int threads = 256;                 // of a block
  int64_t shared_bytes = 48 * 1024;  // of a block's fast memory
  int index_bits = 64;               // see Nest::index_bits
};
void verify(const Nest& n,
            const GridLimits& limits);  // RuntimeError (internal) also if it exceeds the limits

// Limits of a machine with vectors, and how far unrolling pays.
struct LaneLimits {
  int lanes = 16;        // 32-bit lanes of a vector
  int strip = 8;         // most vectors of a strip
  int unroll = 4;        // most vectors of a round, each with its own accumulators
  int chains = 4;        // most chains of an inner loop
  int unrolled = 16;     // most steps of an unrolled loop
  int prefetch = 512;    // prefetch distance in iterations, for loops with little work: one or two pages
  bool gathers = false;  // a gather is faster than one load per lane
  int packed_bytes = 0;  // size of the vectors whose lanes can be compressed by a mask; 0: none
};
// The places that a loop with `prefetch` prefetches, over its index: loads, then stores.
struct PrefetchedPlace {
  int slot, part;
  Expr offset;
};
std::vector<PrefetchedPlace> prefetched_places(const Statement& loop);

void verify(const Nest& n,
            const LaneLimits& limits);  // RuntimeError (internal) also if it exceeds the limits

// The locals that may differ between threads outside of `threads` loops.
std::set<int> divergent_locals(const Nest& n);

// True if several threads can update an element of dtype `d` with this monoid in any order and always get the same
// bits. This holds for integers; for floating-point numbers even the sign of the larger of two zeros depends on the
// order.
bool is_order_free(Monoid m, DType d);

}  // namespace facula::loop
