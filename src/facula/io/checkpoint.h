// save and load, in PyTorch's file format (.pt): a zip archive with a pickle of the structure and a record for each
// storage. Facula in C++, Facula in Python and PyTorch read each other's files.
//
// Loading is safe: it creates tensors, containers, numbers and strings and executes nothing; other objects are refused by
// name. Damaged and hostile files raise one RuntimeError. Shared storages stay shared, and strides are preserved. Files
// are written atomically: under another name, which is then renamed.
#pragma once
#include "facula/io/value.h"

namespace facula::io {

void save(const std::string& path, const Value& value);
Value load(const std::string& path);

// A TorchScript archive of data alone, as PyTorch's C++ front end saves modules and tensors: a dict of attributes by
// name, in which a dict is a module within; `buffers` has the dotted names of tensors that are no parameters. Python's
// jit.load reads it. Reading takes the data of any TorchScript archive, and leaves its functions out.
void save_script(const std::string& path, const Dict& attributes, const std::vector<std::string>& buffers);
Dict load_script(const std::string& path);
bool is_script(const std::string& path);

}  // namespace facula::io
