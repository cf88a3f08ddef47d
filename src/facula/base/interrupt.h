// Ctrl-C. Facula handles no signal itself: a front end that does installs a check, which throws when the user
// wants the running operation to end (Python's raises KeyboardInterrupt, or whatever a handler of the user's
// raises). It is consulted on the main thread between the nodes of a backward pass, between the pieces of
// long loops and before a kernel is made, at most every 20 ms. A call into a library (oneDNN, BLAS, a sort of
// one line) and the kernel of a single row run to their end. Operations that a check ends leave operands
// written in place partly written, and everything else as it was.
#pragma once

namespace facula {

// `check` is called on the main thread, without locks of ours, with or without the front end's own; nullptr
// takes it back.
void set_interrupt_check(void (*check)());
// Throws what the check throws. A few nanoseconds; nothing on other threads.
void check_interrupt();

// No check in this scope: for work that must not end half-way, or that holds a lock.
class Uninterrupted {
 public:
  Uninterrupted();
  ~Uninterrupted();
  Uninterrupted(const Uninterrupted&) = delete;
};

}  // namespace facula
