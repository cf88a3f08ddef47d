// Calls that write to tensors which the user chose: in place, or `out=`. Destinations are checked and resized, results are
// converted to their dtypes, and destinations whose elements share memory are written element by element in order.
#pragma once
#include <optional>
#include <span>

#include "facula/op/written.h"
#include "facula/run/invocation.h"

namespace facula::run {

// Prepares an in-place or out= call: checks its destinations and sets `call.out` and `call.original`. Returns the results if
// the call has been done here, as other calls: over tensors whose elements share memory, by an in-place body of its own, or
// after converting an operand to the dtype of `out`.
std::optional<op::Results> prepare_write(Invocation& call);
// Copies the results of a functional call to the call's destinations; the results themselves for a functional call.
op::Results deliver(const Invocation& call, op::Results results);
// Counts the write to every argument that the schema marks as written.
void bump_written(const Invocation& call);

using op::check_conversion;
using op::takes_exact_out;
// Raises if result `k`, as `m` describes it, cannot be written to `out`. Resizes an out= tensor of other sizes; true if it did.
bool check_destination(const op::Operator& o, size_t k, const op::Meta& m, const Tensor& out,
                       std::span<const op::Value> args, op::Form form);

}  // namespace facula::run
