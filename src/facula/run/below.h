// What takes calls below the tape: after autocast, batches and tangents have seen a call, and before anything computes.
// It gives the results in place of the kernels, and the call is recorded as if they had, so that gradients are those of the
// operator whatever it did. Python's dispatch modes and tensor-like classes are made of this (python/bind/torch_dispatch.cpp).
// A program that never had one pays for a look at a flag.
//
// One call or several. What takes calls sees primitives and composites as one call. A procedure is the calls of its body,
// and so is a composite that draws random numbers or writes what has history; the catalog names the exceptions
// (catalog/decompositions.cpp), which hold as far as those can be traced for their gradients.
#pragma once
#include <atomic>
#include <functional>
#include <span>

#include "facula/op/call.h"

namespace facula::run {

class Below {
 public:
  virtual ~Below() = default;
  // The results, in place of a kernel's. History is off; calls that it makes are seen by the next one further down.
  virtual op::Results take(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                           std::span<const Tensor> out) = 0;
};

// Of this call on this thread; null: kernels compute. `find` is asked where the flag is up.
using FindBelow = Below* (*)(std::span<const op::Value> args, std::span<const Tensor> out);
extern std::atomic<bool> below_in_use;  // up once a process has made one
void set_find_below(FindBelow find);
Below* find_below(std::span<const op::Value> args, std::span<const Tensor> out);

// An exception to what an operator's kind says. `parts`: the calls that stand for it, which are recorded one by one;
// empty: it is one call although it is a procedure.
using Parts = std::function<op::Results(const op::Call&)>;
struct Decomposition {
  const char* op;  // full name
  Parts parts;
};
// The catalog gives all before the first call; they live as long as the process.
void set_decompositions(std::span<const Decomposition> all);

// Is this call seen as one? Else `parts` tells its calls; null: those of its body.
bool seen_whole(const op::Operator& o, op::Form form, bool recording, const Parts*& parts);
// By `below`, checked and as the form wants them: results that are no operands, self, or the destinations.
op::Results taken(Below& below, const op::Operator& o, std::span<const op::Value> args, op::Form form,
                  std::span<const Tensor> out);

}  // namespace facula::run
