// The pickles of checkpoints: writes protocol 2, reads up to 5.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "facula/io/value.h"

namespace facula::io {

// Returns the elements of a storage that a pickle names, as a 1-d tensor.
using LoadStorage = std::function<Tensor(const std::string& key, DType dtype, int64_t numel)>;

// With `objects`, an object of a TorchScript class is a dict of its attributes; without, it is refused.
Value read_pickle(std::string_view data, const std::string& path, const LoadStorage& storage,
                  bool objects = false);
// Storages in the order of their keys 0, 1, ...: a tensor that holds each.
// A dict in `classes`, by its identity, is written as an object of that class ("__torch__.Module").
using Classes = std::unordered_map<const void*, std::string>;
std::string write_pickle(const Value& value, std::vector<Tensor>& storages, const Classes& classes = {});

}  // namespace facula::io
