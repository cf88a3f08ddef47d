#include "facula/codegen/printed.h"

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
#include "facula/codegen/cuda.h"
#include "facula/schedule/grid.h"

extern char** environ;

namespace facula::codegen {
namespace {

// A temporary folder, removed with its files.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "facula-kernels-XXXXXX").string()) {
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

// Runs a command; its output goes to the file `said`.
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

std::string name_of(size_t k) { return "facula_kernel_" + std::to_string(k); }

std::string c99_source(std::span<const loop::Nest* const> nests) {
  std::string code;
  for (size_t k = 0; k < nests.size(); ++k) code += c99_function(*nests[k], name_of(k)) + "\n";
  return c99_prelude(code) + code;
}
std::string cuda_source(std::span<const loop::Nest* const> nests) {
  auto& header = settings().cuda_emulation;
  runtime_check(!header.empty(), "codegen")
      << "FACULA_TARGET=cuda has no GPU to run kernels on"
      << hint("FACULA_CUDA_EMULATION names a header that plays one: tests/cuda/emulation.h of the sources");
  std::string code, entries;
  for (size_t k = 0; k < nests.size(); ++k) {
    loop::Nest n = schedule::on_grid(*nests[k], cuda_limits());
    code += cuda_function(n, "cuda_" + std::to_string(k)) + "\n";
    entries += "FACULA_EMULATED(" + name_of(k) + ", cuda_" + std::to_string(k) + ", " +
               std::to_string(n.threads) + ")\n";
  }
  return "#include \"" + header + "\"\n" + cuda_prelude(code) + code + entries;
}

}  // namespace

Printed printed_target() {
  static const Printed target = [] {
    auto& named = settings().target;
    runtime_check(named == "llvm" || named == "c99" || named == "cuda", "codegen")
        << "FACULA_TARGET is \"" << named << "\"" << hint("it may be llvm, c99 or cuda");
    return named == "c99" ? Printed::c99 : named == "cuda" ? Printed::cuda : Printed::none;
  }();
  return target;
}

std::string printed_kernel(Printed target, const loop::Nest& n) {
  return target == Printed::cuda ? cuda_function(schedule::on_grid(n, cuda_limits()), "kernel")
                                 : c99_function(n, "kernel");
}

std::vector<KernelFn> printed_kernels(Printed target, std::span<const loop::Nest* const> nests) {
  const bool c = target == Printed::c99;
  Folder folder;
  std::string source = folder.file(c ? "kernels.c" : "kernels.cpp"), library = folder.file("kernels.so"),
              said = folder.file("said");
  {
    std::ofstream out(source);
    out << (c ? c99_source(nests) : cuda_source(nests));
    out.flush();
    runtime_check(bool(out), "codegen") << "cannot write " << source;
  }
  std::vector<std::string> command{"cc", "-std=c99", "-pedantic-errors"};
  if (!c) command = {"c++", "-std=c++20", "-w"};
  // Buffers of one kernel may overlap, as tensors that share memory do.
  for (auto* option : {"-O0", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-shared", "-o"})
    command.push_back(option);
  command.insert(command.end(), {library, source, "-lm"});
  bool ok = run(command, said);
  runtime_check(ok, "codegen") << command[0] << " could not compile the " << (c ? "C" : "CUDA C") << " of "
                               << (nests.empty() ? "nothing" : nests[0]->name) << ": " << read(said)
                               << hint("FACULA_TARGET=" + settings().target + " needs a " +
                                       (c ? "C" : "C++") + " compiler named " + command[0]);
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // never unloaded, like all kernels
  runtime_check(loaded, "codegen") << dlerror();
  std::vector<KernelFn> all;
  for (size_t k = 0; k < nests.size(); ++k)
    all.push_back(reinterpret_cast<KernelFn>(dlsym(loaded, name_of(k).c_str())));
  return all;
}

}  // namespace facula::codegen
