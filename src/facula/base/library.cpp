#include "facula/base/library.h"

#include <climits>
#include <cstdlib>

#include <dlfcn.h>

#include "facula/base/error.h"

namespace facula {

const std::string& path_of_this_library() {
  static auto& path = *new const std::string([] {  // lives on: threads may ask while the process ends
    Dl_info info;
    std::string found =
        dladdr(reinterpret_cast<const void*>(&symbol_beside), &info) && info.dli_fname ? info.dli_fname : "";
    if (found.find('/') == std::string::npos) found = "/proc/self/exe";  // a program found through PATH
    char whole[PATH_MAX];
    return std::string(realpath(found.c_str(), whole) ? whole : found.c_str());
  }());
  return path;
}

std::string folder_of_this_library() {
  return path_of_this_library().substr(0, path_of_this_library().rfind('/'));
}

void* symbol_beside(const char* library, const char* symbol, const char* what) {
  std::string path = folder_of_this_library() + '/' + library;
  void* loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  runtime_check(loaded, what) << library << " could not be loaded: " << dlerror()
                              << hint("it belongs beside libfacula.so");
  void* found = dlsym(loaded, symbol);
  runtime_check(found, what) << path << " has no " << symbol;
  return found;
}

}  // namespace facula
