// The interceptors of operator calls (base/interceptors.h), in the order in which they see a call:
//   sparse, lazy            before the mode of the thread (a trace, vmap, forward mode, autocast)
//   profiled, logged, interposed, device    behind it
// Each returns the results of the call, or changes the invocation and passes it on.
#pragma once
#include "facula/run/invocation.h"

namespace facula::run {

// The rest of the way of an invocation.
using Destination = op::Results (*)(Invocation& call);

// The results of a call that passes the interceptors in use and then goes to the thread's mode, or else to the kernels.
op::Results pass_before_mode(Invocation& call, Destination then);
// The same behind the thread's mode.
op::Results pass_behind_mode(Invocation& call, Destination then);

// Whether some interceptor in use sees calls.
inline bool any_interceptor() { return interceptors.load(std::memory_order_relaxed) != 0; }

}  // namespace facula::run
