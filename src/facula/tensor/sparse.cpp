#include "facula/tensor/sparse.h"

namespace facula {

// A storage of parts is a storage in a physical layout whose order has no item size; its `memory` owns the parts.

Tensor make_sparse(SparseParts components, SymSpan sizes) {
  int64_t count = 1;
  for (auto s : sizes)
    runtime_check(!__builtin_mul_overflow(count, s.concrete(), &count), "sparse_coo_tensor")
        << "numel: integer multiplication overflow: a tensor of shape " << to_string(sizes)
        << " has more elements than can be counted";
  DType dtype = components.values.dtype();
  Device device = components.values.device();
  auto* parts = new SparseParts(std::move(components));
  auto memory =
      make_ref<StorageImpl>(static_cast<void*>(parts), size_t(0), device, [parts] { delete parts; });
  PhysicalOrder none;
  none.rank = 1;
  set_in_use(Interceptor::sparse);
  return Tensor(make_ref<TensorImpl>(make_ref<StorageImpl>(std::move(memory), none), Dims(sizes),
                                     contiguous_strides(sizes), SymInt(), dtype, device));
}

SparseParts* sparse_parts_of(const TensorImpl* t) {
  if (!is_in_use(Interceptor::sparse)) return nullptr;
  if (!t || !t->storage || t->storage->is_logical()) return nullptr;
  StorageImpl::PhysicalLayout layout;
  if (!t->storage->physical_layout(layout) || layout.order.itemsize) return nullptr;
  return static_cast<SparseParts*>(layout.memory->data());
}

const char* name(Layout layout) {
  switch (layout) {
    case Layout::strided: return "strided";
    case Layout::sparse_coo: return "sparse_coo";
    case Layout::sparse_csr: return "sparse_csr";
    case Layout::sparse_csc: return "sparse_csc";
  }
  return "";
}

}  // namespace facula
