// Validates an untrusted pickle before CPython's unpickler executes it, which trusts the properties that are checked
// here. A walk over the instructions with a stack of abstract values: a few nanoseconds per instruction.
//   sizes       an array of bytes is allocated before its bytes are read; the memo grows to any index
//   copies      a call of `list` or `set` copies its argument, in very few bytes of pickle
//   tensors     containers created from a tensor or a storage have its elements, whose number strides of 0 inflate
//   storages    their attributes contain the address of the elements
//   classes     BUILD sets attributes of classes and functions like those of any object
//   hashes      hashing of tuples recurses without limit, and visits shared items repeatedly
#pragma once
#include <string>
#include <string_view>

namespace facula::io {

// Returns the length of the pickle that `data` begins with. Raises RuntimeError "load: <where> is damaged: its pickle
// ..." if it contains something that checkpoints do not need.
size_t check_pickle(std::string_view data, const std::string& where);

}  // namespace facula::io
