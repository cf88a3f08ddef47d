// Nodes and hooks as Python objects.
#pragma once
#include "python.h"

#include "facula/autograd/node.h"

namespace facula::bind {
PyObject* wrap_node(Ref<autograd::Node> node);               // None for null
PyObject* add_tensor_hook(const Tensor& t, PyObject* hook);  // a HookHandle
bool is_grad_mode(PyObject* o);                              // no_grad and others, as context managers
std::vector<bool>& modes_to_restore(PyObject* grad_mode);    // one for each block that was entered
// For the garbage collector: the Python objects that only this tensor's hooks and custom function hold.
int visit_history(const TensorImpl& t, visitproc visit, void* arg);
void clear_history(const TensorImpl& t);
}  // namespace facula::bind
