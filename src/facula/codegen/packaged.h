// Objects of kernels that programs bring along in their files (io/program_file.h), for processes without a compiler.
// They are code that will be run: a package is trusted like a shared library.
#pragma once
#include <string>

namespace facula::codegen {

// `file`: an object as write_object writes it (codegen/store.h). Other files are ignored.
void add_packaged_object(const std::string& name, std::string file);
// The object of that name, or "".
std::string packaged_object(const std::string& name);
// The name of the instruction set that kernels are chosen for: "avx2" or "avx512".
const char* instruction_set();

}  // namespace facula::codegen
