// Whether a gradient rule runs only so that the tape learns which tensors it reads. All results then have a gradient, which no
// user has asked for, so the rule must not refuse any.
#pragma once

namespace facula::autograd {

bool is_probing();  // on this thread

}  // namespace facula::autograd
