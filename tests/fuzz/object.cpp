// Files of the kernel cache: one that is damaged, or of another kernel, is no object; and no object, whatever
// is in it, leads the loader outside of its bytes or of the memory that it takes. Nothing that is loaded here
// is run.
#include <stdlib.h>

#include <filesystem>

#include "facula/base/settings.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/object.h"
#include "fuzz.h"

using namespace facula;
using namespace facula::loop;

static constexpr size_t kDigestAt = 8, kDigest = 64, kHeader = codegen::kObjectHeader;

static void run(std::string_view file) {
  std::string_view digest = file.size() < kHeader ? "" : file.substr(kDigestAt, kDigest);
  std::string_view object = codegen::object_in(file, digest);
  if (!object.empty()) {
    if (object != file.substr(kHeader)) fuzz::broken("an object is all that follows the header", "");
    std::string damaged(file), other(digest);
    damaged.back() = char(damaged.back() ^ 1);
    other[0] = other[0] == '0' ? '1' : '0';
    if (!codegen::object_in(damaged, digest).empty() ||
        !codegen::object_in(file.substr(0, file.size() - 1), digest).empty() ||
        !codegen::object_in(file, other).empty())
      fuzz::broken("what is damaged or of another kernel is no object", "");
  }
  if (file.size() >= kHeader) codegen::load_object(file.substr(kHeader));  // the checksum keeps mutations out
}

// Kernels with constants, calls of mathematical functions and checks: every kind of relocation that ours
// have.
static std::vector<std::string> seeds() {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "facula-fuzz-XXXXXX").string();
  if (!mkdtemp(folder.data())) fuzz::broken("a folder for seeds", folder);
  mutable_settings().cache_dir = folder;
  mutable_settings().shipped_cache = folder + "/none";
  const Expr x = load(0, DType::Float32, {index(1)}), wide = cast(x, DType::Float64);
  for (Expr value : {x + constant(2, DType::Float32), call(Fn::exp, {x}), call(Fn::erfc, {wide}),
                     call(Fn::sin, {wide}), cast(check(cast(x, DType::Int64), param(0)), DType::Float32)}) {
    Nest n;
    n.name = "seed";
    n.buffers = {{DType::Float32, false, "x"}, {value.dtype(), true, "y"}};
    n.params = 1;
    n.tasks = constant(int64_t(1), DType::Int64);
    n.cost = param(0);
    Statement store{Statement::Kind::store};
    store.buffer = 1;
    store.values = {value};
    store.offset = index(1);
    Statement loop{Statement::Kind::loop};
    loop.var = 1;
    loop.loop = LoopKind::vector;
    loop.extent = param(0);
    loop.body = {store};
    n.body = {loop};
    codegen::kernel(n);
  }
  std::vector<std::string> all;
  for (auto& entry : fs::directory_iterator(folder)) {
    all.push_back(fuzz::bytes_of(entry.path()));
    if (codegen::object_in(all.back(), std::string_view(all.back()).substr(kDigestAt, kDigest)).empty())
      fuzz::broken("a file of the cache holds an object", entry.path().string());
  }
  fs::remove_all(folder);
  mutable_settings().cache_dir = mutable_settings().shipped_cache = "";
  return all;
}

FACULA_FUZZ("object", run, seeds)
