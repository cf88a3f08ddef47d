// Looks at somebody else's pickle before CPython's unpickler runs on it, which takes on trust what is checked
// here. A walk over the instructions with a stack of what matters of each value: a few nanoseconds an
// instruction.
//   sizes       an array of bytes is made before its bytes are there; the memo grows to any index
//   copies      a call of `list` or `set` copies its argument, in as few bytes as one likes
//   tensors     containers made of a tensor or a storage hold its elements, of which strides of 0 make any number
//   storages    attributes of one say where its elements are
//   classes     BUILD sets attributes of classes and functions as of any object
//   hashes      of tuples recurse without limit, and walk shared items again and again
#pragma once
#include <string>
#include <string_view>

namespace facula::io {

// The length of the pickle that `data` begins with. RuntimeError "load: <where> is damaged: its pickle ..." if unpickling
// it would need what no checkpoint needs.
size_t check_pickle(std::string_view data, const std::string& where);

}  // namespace facula::io
