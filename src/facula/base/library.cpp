#include "facula/base/library.h"

#include <climits>
#include <cstdlib>

#include <dlfcn.h>

#include "facula/base/error.h"

namespace facula {

const std::string& path_of_this_library() {
  static auto& path = *new const std::string([] {  // never destroyed: threads may ask while the process ends
    Dl_info info;
    std::string name =
        dladdr(reinterpret_cast<const void*>(&symbol_beside), &info) && info.dli_fname ? info.dli_fname : "";
    if (name.find('/') == std::string::npos)
      name = "/proc/self/exe";  // a program that was started through PATH
    char absolute[PATH_MAX];
    return std::string(realpath(name.c_str(), absolute) ? absolute : name.c_str());
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
  void* address = dlsym(loaded, symbol);
  runtime_check(address, what) << path << " has no " << symbol;
  return address;
}

}  // namespace facula
