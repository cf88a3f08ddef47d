// The pickles of checkpoints: writes protocol 2, reads up to 5.
#pragma once
#include <functional>
#include <vector>

#include "facula/io/value.h"

namespace facula::io {

// Returns the elements of a storage that a pickle names, as a 1-d tensor.
using LoadStorage = std::function<Tensor(const std::string& key, DType dtype, int64_t numel)>;

Value read_pickle(std::string_view data, const std::string& path, const LoadStorage& storage);
// `storages` receives, in the order of their keys 0, 1, ..., a tensor that uses each storage.
std::string write_pickle(const Value& value, std::vector<Tensor>& storages);

}  // namespace facula::io
