#include "facula/io/program_file.h"

#include <algorithm>
#include <cstring>

#include "facula/base/error.h"
#include "facula/base/matrix_unit.h"
#include "facula/codegen/packaged.h"
#include "facula/io/archive.h"
#include "facula/io/json.h"
#include "facula/io/objects.h"

namespace facula::io {

namespace {

constexpr const char* kHead = "facula.json";
constexpr const char* kName = "facula program";
constexpr int64_t kNewest = 3;  // 2: programs with objects; 3: with rounded values
constexpr const char* kErrorTypes[] = {"RuntimeError", "IndexError",          "TypeError",
                                       "ValueError",   "NotImplementedError", "AssertionError",
                                       "LinAlgError",  "KeyboardInterrupt"};

class ProgramFile {
 public:
  explicit ProgramFile(const std::string& path) : path_(path), archive_("load", path) {}

  Value program() {
    check_version(json(kHead));
    runtime_check(archive_.has("program.json"), "load")
        << path_
        << " holds a program that only Python can run: the release that wrote it left out program.json"
        << hint("load it in Python and save it again");
    Value p = json("program.json"), t = json("tensors.json");
    List regions;
    if (p.contains("regions"))
      for (auto& r : p["regions"].list()) {
        List functions;
        for (auto& lines : r["functions"].list()) functions.push_back(text(lines));
        regions.push_back(Dict{{"name", r["name"]},
                               {"kind", r["kind"]},
                               {"split", r["split"]},
                               {"functions", std::move(functions)}});
      }
    read_tensors(t);
    auto captured = p["captured"].list();
    std::vector<Tensor> order;
    for (auto& k : captured) order.push_back(tensor_at(k));
    List slots;
    for (auto& s : p["slots"].list())
      slots.push_back(
          Tuple{{s[0], number(s[1], order), number(s[2], order), s[3], s[4], number(s[5], order)}});
    List checks, tensors;
    for (auto& c : p["checks"].list()) checks.push_back(Tuple{{error_type(c[0].string()), c[1]}});
    for (auto& x : order) tensors.push_back(Tuple{{x, bool(requires_grad_[size_t(index_of(x))])}});
    return Dict{{kName, 1},
                {"name", p["name"]},
                {"graph", text(p["graph"])},
                {"tensors", std::move(tensors)},
                {"captured", captured.size()},
                {"results", p["results"]},
                {"differentiates", p["differentiates"]},
                {"required", p["required"]},
                {"slots", std::move(slots)},
                {"checks", std::move(checks)},
                {"regions", std::move(regions)},
                {"objects", objects(p)},
                {"extra", p["extra"]}};
  }

 private:
  void check(bool good, const std::string& what) const {
    runtime_check(good, "load") << path_ << " is damaged: " << what;
  }
  Value json(const std::string& name) {
    check(archive_.has(name), "it has no " + name);
    return parse_json(archive_.read(name));
  }
  void check_version(const Value& head) const {
    runtime_check(head.is_dict() && head["format"] == Value(kName), "load") << path_ << " holds no program";
    int64_t version = head["version"].integer();
    runtime_check(version >= 1 && version <= kNewest, "load")
        << path_ << " has the version " << version << " of the format, and this library reads versions up to "
        << kNewest << hint("load it with the release that wrote it, or a later one");
  }
  static std::string text(const Value& lines) {
    std::string all;
    for (auto& line : lines.list()) all += (all.empty() ? "" : "\n") + line.string();
    return all;
  }
  // The objects of the graph by their numbers in its text.
  List objects(const Value& program) {
    if (!archive_.has("objects.json")) return {};
    return objects_of_list(json("objects.json"), program["objects"],
                           [&](const Value& k) { return tensor_at(k); });
  }
  static int64_t error_type(const std::string& name) {
    auto it = std::find(std::begin(kErrorTypes), std::end(kErrorTypes), name);
    return it == std::end(kErrorTypes) ? 0 : it - std::begin(kErrorTypes);
  }

  void read_tensors(const Value& t) {
    std::vector<Ref<StorageImpl>> storages;
    for (auto& size : t["storages"].list()) {
      std::string name = "storages/" + std::to_string(storages.size());
      check(archive_.has(name) && archive_.size_of(name) == uint64_t(size.integer()), "the record " + name);
      Tensor bytes = Tensor::empty(Dims{SymInt(size.integer())}, DType::UInt8);
      if (size.integer()) archive_.read(name, bytes.impl()->storage->data());
      storages.push_back(bytes.impl()->storage);
    }
    for (auto& e : t["tensors"].list()) {
      tensors_.push_back(tensor(e, storages));
      requires_grad_.push_back(e["requires_grad"].boolean());
    }
  }
  DType dtype(const std::string& name) const {
    for (int k = 0; k < kDTypeCount; ++k)
      if (name == facula::name(DType(k))) return DType(k);
    check(false, "no dtype is " + name);
    __builtin_unreachable();
  }
  Tensor tensor(const Value& e, std::span<const Ref<StorageImpl>> storages) const {
    Dims sizes, strides;
    DType d = dtype(e["dtype"].string());
    int64_t at = e["storage"].integer(), offset = e["offset"].integer();
    check(at >= 0 && uint64_t(at) < storages.size() && offset >= 0, "a tensor of no storage");
    check(e["sizes"].size() == e["strides"].size(), "a tensor has other sizes than strides");
    unsigned __int128 last = (unsigned __int128)(offset);
    bool is_empty = false;
    for (size_t k = 0; k < e["sizes"].size(); ++k) {
      int64_t n = e["sizes"][int64_t(k)].integer(), s = e["strides"][int64_t(k)].integer();
      check(n >= 0 && s >= 0 && n < int64_t(1) << 48 && s < int64_t(1) << 48, "a size of a tensor");
      is_empty |= n == 0;
      last += (unsigned __int128)(n > 0 ? n - 1 : 0) * (unsigned __int128)(s);
      sizes.push_back(n);
      strides.push_back(s);
    }
    size_t bytes = storages[size_t(at)]->bytes();
    check(is_empty || (last + 1) * (unsigned __int128)(itemsize(d)) <= bytes,
          "a tensor is larger than its storage");
    return Tensor(make_ref<TensorImpl>(storages[size_t(at)], sizes, strides, SymInt(offset), d, Device()));
  }
  const Tensor& tensor_at(const Value& k) const {
    check(k.integer() >= 0 && uint64_t(k.integer()) < tensors_.size(),
          "a number of a tensor is out of range");
    return tensors_[size_t(k.integer())];
  }
  int64_t index_of(const Tensor& t) const {
    auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](auto& x) { return x.is_same(t); });
    return it - tensors_.begin();
  }
  // The number of a tensor among those of the program, which it joins; -1 for none.
  int64_t number(const Value& k, std::vector<Tensor>& order) const {
    if (k.integer() < 0) return -1;
    auto& t = tensor_at(k);
    auto it = std::find_if(order.begin(), order.end(), [&](auto& x) { return x.is_same(t); });
    if (it == order.end()) {
      order.push_back(t);
      return int64_t(order.size()) - 1;
    }
    return it - order.begin();
  }

  std::string path_;
  ArchiveReader archive_;
  std::vector<Tensor> tensors_;
  std::vector<bool> requires_grad_;
};

}  // namespace

size_t add_kernels_of(const std::string& path) {
  ArchiveReader archive("load", path);
  std::vector<std::string> folders{std::string("kernels/") + codegen::instruction_set() + "/"};
  if (has_matrix_unit()) folders.push_back("kernels/amx/");
  size_t count = 0;
  for (auto& [name, record] : archive.records())
    for (auto& folder : folders)
      if (name.starts_with(folder)) {
        codegen::add_packaged_object(name.substr(folder.size()), archive.read(name));
        ++count;
      }
  return count;
}

bool is_program_file(const std::string& path) {
  OldFile file("load", path);
  // The first record of such a file is its head.
  std::string start(30 + std::strlen(kHead), '\0');
  if (file.size() < start.size()) return false;
  file.read(start.data(), start.size());
  return start.compare(0, 4, "PK\3\4") == 0 && start.compare(30, std::strlen(kHead), kHead) == 0;
}

Value read_program_file(const std::string& path) {
  try {
    return ProgramFile(path).program();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal || e.op() == "load") throw;
    runtime_check(false, "load") << path << " is damaged: " << e.message();
    __builtin_unreachable();
  }
}

}  // namespace facula::io
