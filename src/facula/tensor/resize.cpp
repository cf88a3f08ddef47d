#include "facula/tensor/resize.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "facula/base/error.h"
#include "facula/base/fork.h"

namespace facula {

namespace {

// How often each storage is lent.
struct Loans {
  TableMutex mutex;
  std::unordered_map<const StorageImpl*, int> counts;
};
Loans& loans() {
  static auto* l = new Loans;
  return *l;
}

}  // namespace

Lent::Lent(Storage storage) : storage_(std::move(storage)) {
  if (!storage_) return;
  std::lock_guard lock(loans().mutex);
  ++loans().counts[storage_.get()];
}

Lent::~Lent() {
  if (!storage_) return;
  std::lock_guard lock(loans().mutex);
  auto it = loans().counts.find(storage_.get());
  if (!--it->second) loans().counts.erase(it);
}

bool is_resizable(const StorageImpl& storage) {
  if (storage.is_foreign()) return false;
  std::lock_guard lock(loans().mutex);
  return !loans().counts.contains(&storage);
}

bool is_released(const StorageImpl& storage) {
  StorageImpl::PhysicalLayout layout;
  return !storage.is_logical() && storage.physical_layout(layout) && !layout.order.itemsize &&
         !layout.memory->is_foreign();
}

void resize(StorageImpl& storage, size_t bytes, const char* op) {
  if (bytes == storage.bytes()) return;
  runtime_check(is_resizable(storage), op)
      << "trying to resize storage that is not resizable: its memory belongs to somebody else, or a NumPy array or "
         "DLPack capsule over it is alive";
  if (storage.device().type == DeviceType::meta) return storage.resize_foreign(bytes);
  supported_check(storage.device().type == DeviceType::cpu, op)
      << "cannot resize memory on device '" << to_string(storage.device()) << "'"
      << hint("storages on the CPU and on meta can be resized");
  // One reference is that of the tensor or storage object by which the caller names the storage.
  runtime_check(!bytes || bytes > storage.bytes() || storage.use_count() <= 1, op)
      << "cannot shrink a storage of " << storage.bytes() << " bytes to " << bytes << ": "
      << storage.use_count() << " tensors use it and may reach beyond that size"
      << hint("size 0 releases the memory; set_() gives a tensor other memory");
  if (!is_released(storage)) storage.restore_logical();
  storage.note_written();
  size_t before = storage.bytes();
  std::vector<char> elements(bytes ? before : 0);
  if (!elements.empty()) std::memcpy(elements.data(), storage.data(), before);
  PhysicalOrder none;
  none.rank = 1;
  if (!is_released(storage)) storage.reorder(none);
  auto allocate = [&](size_t size) {
    storage.resize_foreign(size);
    if (size) storage.restore_logical();
    if (size_t both = std::min(size, elements.size())) std::memcpy(storage.data(), elements.data(), both);
  };
  if (!bytes) return;
  try {
    allocate(bytes);
  } catch (...) {  // for want of memory
    allocate(before);
    throw;
  }
}

}  // namespace facula
