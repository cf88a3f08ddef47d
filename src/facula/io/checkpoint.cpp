#include "facula/io/checkpoint.h"

#include <unordered_map>
#include <unordered_set>

#include "facula/io/archive.h"
#include "facula/io/pickle.h"

namespace facula::io {

namespace {
// The folder of all records: the file's name without its suffix.
std::string folder_for(const std::string& path) {
  std::string folder = path.substr(path.rfind('/') + 1);
  if (size_t dot = folder.rfind('.'); dot != folder.npos && dot > 0) folder.resize(dot);
  return folder.empty() ? "archive/" : folder + "/";
}
void add(ArchiveWriter& archive, const std::string& name, std::string_view text) {
  archive.add(name, text.data(), text.size());
}
// Writes the records that every archive has: the pickle, the elements by storage, and the version of the format.
void write(ArchiveWriter& archive, const std::string& folder, const Value& value, const Classes& classes) {
  std::vector<Tensor> storages;
  add(archive, folder + "data.pkl", write_pickle(value, storages, classes));
  add(archive, folder + "byteorder", "little");
  for (size_t k = 0; k < storages.size(); ++k) {
    auto& storage = *storages[k].impl()->storage;
    archive.add(folder + "data/" + std::to_string(k), storage.data(),
                storage.bytes() - storage.bytes() % size_t(storages[k].itemsize()));
  }
  add(archive, folder + "version", "3\n");
}

std::string folder_of(const ArchiveReader& archive) {
  for (auto& [name, record] : archive.records())
    if (name.size() > 9 && name.ends_with("/data.pkl") && name.find('/') == name.size() - 9)
      return name.substr(0, name.size() - 8);
  return "";
}

Value read(ArchiveReader& archive, const std::string& folder, const std::string& path, bool objects) {
  user_check(!archive.has(folder + "byteorder") || archive.read(folder + "byteorder") == "little", "load")
      << path << " was saved on a big-endian machine; its numbers can't be read";
  std::unordered_map<std::string, Tensor> storages;
  return read_pickle(
      archive.read(folder + "data.pkl"), path,
      [&](const std::string& key, DType dtype, int64_t numel) {
        auto [it, is_new] = storages.try_emplace(key);
        Tensor& t = it->second;
        if (is_new) {
          std::string record = folder + "data/" + key;
          uint64_t bytes = archive.size_of(record);
          user_check(numel >= 0 && uint64_t(numel) <= bytes &&
                         uint64_t(numel) * uint64_t(itemsize(dtype)) == bytes,
                     "load")
              << path << " is damaged: record data/" << key << " has " << bytes << " bytes, " << numel
              << " elements of " << dtype << " are expected";
          Ints sizes{numel};
          t = Tensor::empty(IntSpan(sizes), dtype);
          if (bytes) archive.read(record, t.impl()->data_ptr());
        }
        user_check(t.dtype() == dtype, "load")
            << path << " views storage " << key << " as " << t.dtype() << " and as " << dtype;
        return t;
      },
      objects);
}
}  // namespace

void save(const std::string& path, const Value& value) {
  ArchiveWriter archive("save", path);
  write(archive, folder_for(path), value, {});
  archive.commit();
}

Value load(const std::string& path) {
  ArchiveReader archive("load", path);
  std::string folder = folder_of(archive);
  user_check(!folder.empty(), "load") << path << " is a zip file, but not of save(): it has no data.pkl";
  user_check(!archive.has(folder + "constants.pkl"), "load")
      << path << " is a TorchScript program, not saved tensors";
  return read(archive, folder, path, false);
}

namespace {
// The types of attributes, and the sources of the classes that declare them, one for each module.
class ScriptClasses {
 public:
  explicit ScriptClasses(const std::vector<std::string>& buffers)
      : buffers_(buffers.begin(), buffers.end()) {}
  // Gives the name of the class of a module.
  std::string declare(const Value& module, const std::string& prefix) {
    std::string mangled = sources.empty() ? "" : ".___torch_mangle_" + std::to_string(sources.size() - 1);
    std::string name = "__torch__" + mangled + ".Module";
    size_t k = sources.size();
    sources.emplace_back("code/__torch__" + std::string(k ? "/" + mangled.substr(1) : "") + ".py", "");
    names[module.identity()] = name;
    std::string parameters, buffers, annotations;
    for (auto& [key, v] : module.dict()) {
      std::string quoted = '"' + key.string() + '"', type;
      if (v.is_dict()) type = declare(v, prefix + key.string() + ".");
      else type = type_of(key.string(), v);
      if (v.is_tensor()) (buffers_.contains(prefix + key.string()) ? buffers : parameters) += quoted + ", ";
      annotations += "  __annotations__[" + quoted + "] = " + type + "\n";
    }
    sources[k].second = "class Module(Module):\n  __parameters__ = [" + parameters + "]\n  __buffers__ = [" +
                        buffers + "]\n  __annotations__ = []\n" + annotations;
    return name;
  }
  std::vector<std::pair<std::string, std::string>> sources;  // by record
  Classes names;

 private:
  static const char* type_of(const std::string& name, const Value& v) {
    switch (v.kind()) {
      case Value::Kind::tensor: return "Tensor";
      case Value::Kind::boolean: return "bool";
      case Value::Kind::integer: return "int";
      case Value::Kind::real: return "float";
      case Value::Kind::string: return "str";
      case Value::Kind::none: return "NoneType";
      default: break;
    }
    supported_check(false, "save") << "an archive has tensors, numbers, texts and modules; '" << name
                                   << "' is a " << io::name(v.kind());
    return "";
  }
  std::unordered_set<std::string> buffers_;
};
}  // namespace

void save_script(const std::string& path, const Dict& attributes, const std::vector<std::string>& buffers) {
  Value root = attributes;
  ScriptClasses classes(buffers);
  classes.declare(root, "");
  std::string folder = folder_for(path);
  ArchiveWriter archive("save", path);
  write(archive, folder, root, classes.names);
  for (auto& [name, text] : classes.sources) add(archive, folder + name, text);
  add(archive, folder + "constants.pkl", "\x80\x02).");
  archive.commit();
}

bool is_script(const std::string& path) {
  ArchiveReader archive("load", path);
  return archive.has(folder_of(archive) + "constants.pkl");
}
Dict load_script(const std::string& path) {
  ArchiveReader archive("load", path);
  std::string folder = folder_of(archive);
  user_check(!folder.empty() && archive.has(folder + "constants.pkl"), "load")
      << path << " is no TorchScript archive";
  Value root = read(archive, folder, path, true);
  user_check(root.is_dict(), "load") << path << " is damaged: it holds no module";
  return root.dict();
}

}  // namespace facula::io
