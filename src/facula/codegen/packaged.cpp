#include "facula/codegen/packaged.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "facula/base/fork.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/object.h"

namespace facula::codegen {

namespace {
struct Objects {
  TableMutex mutex;
  std::unordered_map<std::string, std::string> files;  // by the name of the kernel
};
Objects& objects() {
  static auto* o = new Objects;
  return *o;
}
std::atomic<bool> any{false};
}  // namespace

void add_packaged_object(const std::string& name, std::string file) {
  if (object_in(file, name).empty()) return;
  auto& o = objects();
  std::lock_guard lock(o.mutex);
  o.files.try_emplace(name, std::move(file));
  any = true;
}

std::string packaged_object(const std::string& name) {
  if (!any) return "";
  auto& o = objects();
  std::lock_guard lock(o.mutex);
  auto it = o.files.find(name);
  return it == o.files.end() ? "" : std::string(object_in(it->second, name));
}

const char* instruction_set() { return vector_lanes() == 16 ? "avx512" : "avx2"; }

}  // namespace facula::codegen
