// Ctrl-C. Facula handles no signals itself: a front end that does installs a check, which throws if the user wants
// the running operation to end (Python's raises KeyboardInterrupt, or whatever a handler of the user raises). The
// check is called on the main thread between the nodes of a backward pass, between the pieces of long loops and
// before a kernel is compiled, at most every 20 ms. Calls of libraries (oneDNN, BLAS, sorting one row) and the kernel
// of a single row run to their end. If a check ends an operation, operands that are written in place may be partly
// written; everything else is unchanged.
#pragma once

namespace facula {

// `check` is called on the main thread, without our locks, with or without the front end's own lock; nullptr removes
// it.
void set_interrupt_check(void (*check)());
// Throws what the check throws. Costs a few nanoseconds; does nothing on other threads.
void check_interrupt();

// Disables the check in a scope, for work that must not end half-way or that holds a lock.
class Uninterrupted {
 public:
  Uninterrupted();
  ~Uninterrupted();
  Uninterrupted(const Uninterrupted&) = delete;
};

}  // namespace facula
