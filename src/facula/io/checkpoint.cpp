#include "facula/io/checkpoint.h"

#include <unordered_map>

#include "facula/io/archive.h"
#include "facula/io/pickle.h"

namespace facula::io {

void save(const std::string& path, const Value& value) {
  std::vector<Tensor> storages;
  std::string pickle = write_pickle(value, storages);
  // The folder of all records: the file's name without its suffix.
  std::string folder = path.substr(path.rfind('/') + 1);
  if (size_t dot = folder.rfind('.'); dot != folder.npos && dot > 0) folder.resize(dot);
  folder = folder.empty() ? "archive/" : folder + "/";
  ArchiveWriter archive("save", path);
  archive.add(folder + "data.pkl", pickle.data(), pickle.size());
  archive.add(folder + "byteorder", "little", 6);
  for (size_t k = 0; k < storages.size(); ++k) {
    auto& storage = *storages[k].impl()->storage;
    archive.add(folder + "data/" + std::to_string(k), storage.data(),
                storage.bytes() - storage.bytes() % size_t(storages[k].itemsize()));
  }
  archive.add(folder + "version", "3\n", 2);
  archive.commit();
}

Value load(const std::string& path) {
  ArchiveReader archive("load", path);
  std::string folder;
  for (auto& [name, record] : archive.records())
    if (name.size() > 9 && name.ends_with("/data.pkl") && name.find('/') == name.size() - 9)
      folder = name.substr(0, name.size() - 8);
  user_check(!folder.empty(), "load") << path << " is a zip file, but not of save(): it has no data.pkl";
  user_check(!archive.has(folder + "constants.pkl"), "load")
      << path << " is a TorchScript program, not saved tensors";
  user_check(!archive.has(folder + "byteorder") || archive.read(folder + "byteorder") == "little", "load")
      << path << " was saved on a big-endian machine; its numbers can't be read";
  std::unordered_map<std::string, Tensor> storages;
  return read_pickle(archive.read(folder + "data.pkl"), path,
                     [&](const std::string& key, DType dtype, int64_t numel) {
                       auto [it, is_new] = storages.try_emplace(key);
                       Tensor& t = it->second;
                       if (is_new) {
                         std::string record = folder + "data/" + key;
                         uint64_t bytes = archive.size_of(record);
                         user_check(numel >= 0 && uint64_t(numel) <= bytes &&
                                        uint64_t(numel) * uint64_t(itemsize(dtype)) == bytes,
                                    "load")
                             << path << " is damaged: record data/" << key << " has " << bytes << " bytes, "
                             << numel << " elements of " << dtype << " are expected";
                         Ints sizes{numel};
                         t = Tensor::empty(IntSpan(sizes), dtype);
                         if (bytes) archive.read(record, t.data_ptr());
                       }
                       user_check(t.dtype() == dtype, "load")
                           << path << " views storage " << key << " as " << t.dtype() << " and as " << dtype;
                       return t;
                     });
}

}  // namespace facula::io
