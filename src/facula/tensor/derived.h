// Derived data: memory that was computed from the elements of a storage and is retained until these are written, such as a weight
// packed for matrix products. It saves time and nothing else: what is computed from retained data has the bits of what is
// computed from the elements.
//
// Writers call StorageImpl::note_written(); calls of operators do (run/call.cpp), and programs behind each of their steps. A
// storage whose address is known outside has no derived data, because it may be written without notice.
//
// Data is retained at the second request for one version of the elements. A weight that is trained is read in one direction by the
// forward pass, in the other one by the backward pass, and then written; so a request in the other direction drops what
// was retained, and training takes no more memory. All retained data takes no more than tensors do (or 16 MiB),
// nor than FACULA_RETAINED_PACKS; what was not asked for lately gives way.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "facula/tensor/storage.h"

namespace facula {

// Returns the memory that is retained under `key`, or memory of so many bytes that `fill` has written and that is retained from now on.
// Null: neither, because this is the first request, or there is no memory for it. `key` says what is computed from which
// elements; `direction` differs between a forward and a backward pass. Any thread may ask, and several may fill at once.
Storage derived(StorageImpl& elements, std::span<const int64_t> key, int direction, size_t bytes,
                const std::function<void(void*)>& fill);

struct DerivedCounts {
  int64_t bytes = 0;                            // retained now
  int64_t retained = 0, used = 0, dropped = 0;  // since the process began
};
DerivedCounts derived_counts();

}  // namespace facula
