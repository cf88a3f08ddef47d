#include "facula/autograd/data.h"

#include "facula/autograd/autograd.h"
#include "facula/base/error.h"

namespace facula::autograd {

Tensor data_of(const Tensor& t) {
  if (t.is_traced()) return detach(t);
  Tensor data = t.alias(t.sizes(), t.strides(), t.offset());
  data.impl()->version = nullptr;
  return data;
}

void set_data(const Tensor& t, const Tensor& from) {
  TensorImpl *to = t.impl(), *source = from.impl();
  supported_check(!from.is_traced() && !to->traced, "data")
      << "is assigned while a function is traced, which cannot be recorded"
      << hint("copy_() writes the elements");
  runtime_check(is_differentiable(source->dtype) || !to->requires_grad, "data")
      << "data set to a tensor that requires gradients must be floating point or complex dtype";
  to->storage = source->storage;
  to->sizes = source->sizes;
  to->strides = source->strides;
  to->offset = source->offset;
  to->conj = source->conj;
  to->neg = source->neg;
  to->dtype = source->dtype;
  to->device = source->device;
}

}  // namespace facula::autograd
