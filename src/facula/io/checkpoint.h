// save and load, in PyTorch's file format (.pt): a zip archive with a pickle of the structure and a record
// for each storage. What one of Facula in C++, Facula in Python and PyTorch writes, the others read.
//
// Loading is safe: it makes tensors, containers, numbers and strings and executes nothing; anything else is
// refused with its name. Damaged and hostile files give one RuntimeError. Shared storages stay shared,
// strides are kept. A file appears whole or not at all: it is written beside and renamed.
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
