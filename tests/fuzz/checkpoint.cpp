// Whole checkpoint files (zip archives): RuntimeError is the only error. The pickle within has a target of
// its own, since checksums keep mutations out of it.
#include <unistd.h>

#include <filesystem>

#include "facula/io/checkpoint.h"
#include "fuzz.h"

using namespace facula;

static void run(std::string_view data) {
  const std::string& path = fuzz::file_of(data);
  fuzz::raises_only(ErrorType::RuntimeError, [&] { io::to_string(io::load(path)); });
}

static std::vector<std::string> seeds() {
  auto folder = std::filesystem::temp_directory_path() / ("facula_fuzz_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  Tensor w = fuzz::zeros({3, 2}, DType::Float32);
  std::vector<std::string> all;
  for (const io::Value& v :
       {io::Value(io::Dict{{"w", w}, {"shared", w}, {"step", 3}}), io::Value(io::List{}), io::Value(w)}) {
    std::string path = folder / "seed.pt";
    io::save(path, v);
    all.push_back(fuzz::bytes_of(path));
  }
  std::filesystem::remove_all(folder);
  return all;
}

FACULA_FUZZ("checkpoint", run, seeds)
