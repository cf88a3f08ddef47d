// Interposers compute the results of calls in place of kernels: Python's dispatch modes and tensor-like classes are made of
// this (python/bind/torch_dispatch.cpp). Autocast, vmap and forward mode see a call before its interposer; the tape records
// the call as if a kernel had computed it, so gradients are those of the operator.
//
// An interposer sees primitives and composites as one call. It sees a procedure as the calls of its body, and so a composite
// that draws random numbers, writes to a tensor with history or is defined `.in_parts()`; catalog/decompositions.cpp lists the
// exceptions. What a body refuses before it has made a call is taken as one call, too.
#pragma once
#include <functional>
#include <span>

#include "facula/run/invocation.h"

namespace facula::run {

class Interposer {
 public:
  virtual ~Interposer() = default;
  // The results of the call. Gradient recording is off; calls made inside go to the next outer interposer.
  virtual op::Results take(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                           std::span<const Tensor> out) = 0;
};

// Finds the interposer of a call on this thread; null: kernels compute it. Asked only after set_interposer_source.
using FindInterposer = Interposer* (*)(std::span<const op::Value> args, std::span<const Tensor> out);
void set_interposer_source(FindInterposer find);
Interposer* find_interposer(std::span<const op::Value> args, std::span<const Tensor> out);

// The calls that stand for an operator, which are recorded one by one.
using Parts = std::function<op::Results(const op::Call&)>;
struct Decomposition {
  const char* op;  // full name
  Parts parts;
};
// Exceptions to how interposers see operators: the catalog registers them before the first call; they live as long as the
// process. A procedure for which `is_one_call` is true is seen as one call, and checks its operands no more than a primitive.
void set_decompositions(std::span<const Decomposition> all, bool (*is_one_call)(const op::Operator&));

// Whether the interposer sees the call as one. If not, it sees the calls that `parts` makes, or, if that is null, those of the
// operator's body.
bool is_seen_as_one_call(const Invocation& call, const Parts*& parts);
// The interposer's results, in the form of the call: new tensors, self, or the destinations.
op::Results interposed_results(const Invocation& call);
uint64_t interposed_calls();  // how many calls interposers have taken on this thread

}  // namespace facula::run
