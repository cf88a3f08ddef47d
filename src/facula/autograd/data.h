// The data of a tensor without its history: what Python's x.data gives and takes.
#pragma once
#include "facula/tensor/tensor.h"

namespace facula::autograd {

// Shares storage but not the version: nobody checks writes through it.
Tensor data_of(const Tensor& t);
// Gives `t` the storage, sizes, dtype and device of `from`, in place: who holds `t` sees the new data.
void set_data(const Tensor& t, const Tensor& from);

}  // namespace facula::autograd
