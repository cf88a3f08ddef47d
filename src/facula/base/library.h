// The library that this is part of, and those that lie beside it and are loaded when they are first needed.
#pragma once
#include <string>

namespace facula {

// libfacula.so, or a program that its parts are linked into; resolved.
const std::string& path_of_this_library();
std::string folder_of_this_library();

// `symbol` of `library`, which belongs beside this one. RuntimeError in the name of `what` where it is missing.
void* symbol_beside(const char* library, const char* symbol, const char* what);

}  // namespace facula
