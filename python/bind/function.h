// autograd.Function: custom functions written in Python. The ctx is an instance of the user's class; its node
// calls cls.backward(ctx, *grads).
#pragma once
#include "python.h"

#include "facula/autograd/node.h"

namespace facula::bind {
PyObject* context_of(const autograd::Node& node);  // borrowed; null unless the node is of a Python function
}  // namespace facula::bind
