// Kernels made beside the running program: what will be wanted soon is made by a few threads of its own, and who
// wants it first waits for it, or makes it if nobody began yet. So nothing but the time depends on them: what
// they find or compile is what `kernel` would have, and what they fail at is tried again, and reported, by
// whoever wants it.
//
// There are none where the program has one thread or the machine one processor, none in a forked child, and they
// end before the process does: a kernel that is being compiled then is finished first.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "facula/loop/lazy_nest.h"

namespace facula::codegen {

// How many threads would make kernels: 0 if jobs are of no use.
int ahead_threads();
// Runs the job on one of them, the last one given first; what it throws is dropped. Drops it at once where there
// are none.
void ahead(std::function<void()> job);
// For a job: these come next, in this order.
void ahead_of_others(std::vector<std::function<void()>> jobs);
// These are wanted next, in this order.
void expect(std::vector<std::shared_ptr<const loop::LazyNest>> nests);
// Is this one of the threads?
bool is_ahead();
// On one of them: throws if the process ends, so that a job does so before its next kernel.
void check_ahead();
// Waits until no job is left (for tests).
void finish_ahead();
// Drops the jobs that nobody began, waits for the others, and takes no more: for the end of a process.
void end_ahead();

}  // namespace facula::codegen
