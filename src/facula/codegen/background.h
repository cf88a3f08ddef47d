// Compiles kernels in the background: a few threads make kernels before the program needs them. The program makes a
// kernel itself if no thread has begun it, and waits for it otherwise. So background threads only affect time: they
// find or compile what `kernel` would, and if they fail, the program tries again and reports the error.
//
// There are no such threads if the program has one thread, if the machine has one processor, or in a forked child.
// They end before the process does; a kernel that is being compiled is finished first.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "facula/loop/lazy_nest.h"

namespace facula::codegen {

// The number of background threads; 0 if jobs are of no use.
int background_threads();
// Runs the job in the background, before all jobs that were added earlier, and drops its exceptions. Drops the job if
// there are no threads.
void run_in_background(std::function<void()> job);
// Adds jobs that run next, in this order; may be called from a job.
void run_in_background_next(std::vector<std::function<void()>> jobs);
// Makes the kernels of these nests next, in this order.
void expect(std::vector<std::shared_ptr<const loop::LazyNest>> nests);
// True on a background thread.
bool is_background_thread();
// On a background thread: throws if the process is ending, so that a job stops before its next kernel.
void check_background();
// Waits until no job is left (for tests).
void finish_background();
// Drops the jobs that have not begun, waits for the others, and refuses new ones: for the end of a process.
void end_background();

}  // namespace facula::codegen
