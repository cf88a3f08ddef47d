// Storages that change their size. The tensors over a storage stay as they are: a program that releases memory with a
// size of 0 and restores the size later gets the same tensors back, with undefined elements.
#pragma once
#include "facula/tensor/storage.h"

namespace facula {

// True for a storage whose memory was released: reading an element of a tensor over it raises a RuntimeError.
bool is_released(const StorageImpl& storage);
// False if the memory belongs to somebody else, or while its address is lent.
bool is_resizable(const StorageImpl& storage);
// Keeps the elements that fit into both sizes. RuntimeError for a storage that is not resizable, for memory that the CPU
// cannot address, and if a tensor could reach beyond a new size other than 0. `op` is the operator that messages name.
void resize(StorageImpl& storage, size_t bytes, const char* op);

// Lends the address of a storage's memory to code that does not ask the storage for it again, such as a NumPy array.
class Lent {
 public:
  explicit Lent(Storage storage);
  ~Lent();
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  Storage storage_;
};

}  // namespace facula
