// The pickles of checkpoints: protocol 2 written, up to 5 read.
#pragma once
#include <functional>
#include <vector>

#include "facula/io/value.h"

namespace facula::io {

// A storage as a pickle names it: Tensor here is 1-d over all of its elements.
using LoadStorage = std::function<Tensor(const std::string& key, DType dtype, int64_t numel)>;

Value read_pickle(std::string_view data, const std::string& path, const LoadStorage& storage);
// Storages in the order of their keys 0, 1, ...: a tensor that holds each.
std::string write_pickle(const Value& value, std::vector<Tensor>& storages);

}  // namespace facula::io
