// Nodes and hooks as Python objects.
#pragma once
#include "python.h"

#include "facula/autograd/node.h"

namespace facula::bind {
PyObject* wrap_node(Ref<autograd::Node> node);             // None for null
PyObject* add_tensor_hook(const Tensor& t, PyObject* hook);  // a HookHandle
}  // namespace facula::bind
