// Locates this library, and loads the libraries in its folder on demand.
#pragma once
#include <string>

namespace facula {

// The path of libfacula.so, or of the program that it is linked into; links are resolved.
const std::string& path_of_this_library();
std::string folder_of_this_library();

// The address of `symbol` in `library`, which is in the folder of this library. RuntimeError in the name of `what` if
// it is missing.
void* symbol_beside(const char* library, const char* symbol, const char* what);

}  // namespace facula
