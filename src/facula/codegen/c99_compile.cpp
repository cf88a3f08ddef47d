#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "facula/base/settings.h"
#include "facula/codegen/c99.h"
#include "facula/loop/mapped.h"

extern char** environ;

namespace facula::codegen {
namespace {

// A folder that goes with its files.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "facula-c99-XXXXXX").string()) {
    runtime_check(mkdtemp(path_.data()), "codegen") << "cannot make the folder " << path_;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// What it prints goes to the file `said`.
bool run(const std::vector<std::string>& command, const std::string& said) {
  std::vector<char*> args;
  for (auto& a : command) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int stream : {1, 2})
    posix_spawn_file_actions_addopen(&actions, stream, said.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  pid_t child;
  int failed = posix_spawnp(&child, args[0], &actions, nullptr, args.data(), environ), status = 0;
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return false;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The special functions of this library, for a file that is linked with nothing else.
struct Special {
  const char* name;
  int arity;
  const void* address;
};
const Special kSpecial[] = {
#define FACULA_FN(n, ...) {#n, 1, reinterpret_cast<const void*>(static_cast<double (*)(double)>(loop::mapped::n))},
    FACULA_MAPPED_UNARY(FACULA_FN)
#undef FACULA_FN
#define FACULA_FN(n, ...) \
  {#n, 2, reinterpret_cast<const void*>(static_cast<double (*)(double, double)>(loop::mapped::n))},
        FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
};
// Those that `code` calls.
std::string special_functions(const std::string& code) {
  std::string s;
  for (auto& f : kSpecial) {
    std::string name = f.name, pointer = "facula_at_" + name;
    if (code.find("facula_" + name + "(") == code.npos) continue;
    bool one = f.arity == 1;
    s += "double (*" + pointer + ")(" + (one ? "double" : "double, double") + ");\n";
    s += "double facula_" + name + (one ? "(double x) { return " : "(double x, double y) { return ") +
         pointer + (one ? "(x); }\n" : "(x, y); }\n");
  }
  return s;
}

}  // namespace

bool uses_c99() {
  static const bool c99 = [] {
    auto& target = settings().target;
    runtime_check(target == "llvm" || target == "c99", "codegen")
        << "FACULA_TARGET is \"" << target << "\"" << hint("it may be llvm or c99");
    return target == "c99";
  }();
  return c99;
}

std::vector<KernelFn> c99_kernels(std::span<const loop::Nest* const> nests) {
  Folder folder;
  std::string source = folder.file("kernels.c"), library = folder.file("kernels.so"),
              said = folder.file("said");
  {
    std::string code;
    for (size_t k = 0; k < nests.size(); ++k)
      code += c99_function(*nests[k], "facula_kernel_" + std::to_string(k)) + "\n";
    std::ofstream out(source);
    out << c99_prelude() << special_functions(code) << code;
    out.flush();
    runtime_check(bool(out), "codegen") << "cannot write " << source;
  }
  // Buffers of one kernel may overlap, as tensors do that share memory.
  bool ok = run({"cc", "-std=c99", "-pedantic-errors", "-O0", "-ffp-contract=off", "-fno-strict-aliasing",
                 "-fPIC", "-shared", "-o", library, source, "-lm"},
                said);
  runtime_check(ok, "codegen") << "cc could not compile the C of "
                               << (nests.empty() ? "nothing" : nests[0]->name) << ": " << read(said)
                               << hint("FACULA_TARGET=c99 needs a C compiler named cc");
  void* loaded =
      dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // for the life of the process, as kernels are
  runtime_check(loaded, "codegen") << dlerror();
  for (auto& f : kSpecial)
    if (void* at = dlsym(loaded, ("facula_at_" + std::string(f.name)).c_str()))
      *static_cast<const void**>(at) = f.address;
  std::vector<KernelFn> all;
  for (size_t k = 0; k < nests.size(); ++k)
    all.push_back(reinterpret_cast<KernelFn>(dlsym(loaded, ("facula_kernel_" + std::to_string(k)).c_str())));
  return all;
}

}  // namespace facula::codegen
