// The archives that torch::save writes and torch::load reads: tensors, values and further archives by name.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "facula/io/checkpoint.h"
#include "torch/ivalue.h"
#include "torch/types.h"

namespace torch::serialize {

// Tensors, values and further archives by name.
class OutputArchive {
 public:
  void write(const std::string& name, const Tensor& t, bool is_buffer = false) {
    entries_.set(name, t.defined() ? Value(facula::Tensor(t)) : Value());
    if (is_buffer) buffers_.push_back(name);
  }
  void write(const std::string& name, const IValue& v) { entries_.set(name, v); }
  void write(const std::string& name, OutputArchive& nested) {
    entries_.set(name, nested.entries_);
    for (auto& b : nested.buffers_) buffers_.push_back(name + "." + b);
  }
  void save_to(const std::string& path) { facula::io::save_script(path, entries_, buffers_); }
  void save_to(std::ostream& stream);
  const facula::io::Dict& entries() const { return entries_; }
  const std::vector<std::string>& buffers() const { return buffers_; }

 private:
  using Value = facula::io::Value;
  facula::io::Dict entries_;
  std::vector<std::string> buffers_;
};

class InputArchive {
 public:
  InputArchive() = default;
  explicit InputArchive(facula::io::Dict entries) : entries_(std::move(entries)) {}
  void load_from(const std::string& path, std::optional<Device> = std::nullopt) {
    entries_ =
        facula::io::is_script(path) ? facula::io::load_script(path) : nested(facula::io::load(path), path);
  }
  void load_from(std::istream& stream, std::optional<Device> device = std::nullopt);
  bool try_read(const std::string& name, Tensor& t, bool = false) {
    auto* v = entries_.find(name);
    if (!v || !v->is_tensor()) return false;
    facula::Tensor from = v->tensor();
    if (!t.defined()) t = from;
    else t.set_data(from);
    return true;
  }
  bool try_read(const std::string& name, IValue& v) {
    auto* entry = entries_.find(name);
    if (entry) v = *entry;
    return entry;
  }
  bool try_read(const std::string& name, InputArchive& nested) {
    auto* entry = entries_.find(name);
    if (!entry || !entry->is_dict()) return false;
    nested.entries_ = entry->dict();
    return true;
  }
  template <class T>
  void read(const std::string& name, T&& into, bool = false) {
    user_check(try_read(name, into), "load") << "there is no '" << name << "' in the archive";
  }
  void read(const std::string& name, Tensor& t, bool is_buffer) {
    user_check(try_read(name, t, is_buffer), "load") << "No such serialized tensor '" << name << "'";
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (auto& [name, v] : entries_) all.push_back(name.string());
    return all;
  }
  const facula::io::Dict& entries() const { return entries_; }

 private:
  // A state_dict by dotted names, or one tensor, as an archive.
  static facula::io::Dict nested(const facula::io::Value& saved, const std::string& path) {
    facula::io::Dict tree;
    if (saved.is_tensor()) {
      tree.set("0", saved);
      return tree;
    }
    user_check(saved.is_dict(), "load") << path << " holds no state_dict";
    for (auto& [key, v] : saved.dict()) put(tree, key.string(), v);
    return tree;
  }
  static void put(facula::io::Dict& tree, const std::string& name, const facula::io::Value& v) {
    size_t dot = name.find('.');
    if (dot == name.npos) return tree.set(name, v);
    facula::io::Value& subtree = tree[name.substr(0, dot)];
    if (!subtree.is_dict()) subtree = facula::io::Dict();
    put(subtree.dict(), name.substr(dot + 1), v);
  }
  facula::io::Dict entries_;
  friend class OutputArchive;
};

// A temporary file. Streams and memory are read and written through it, because checkpoints are files.
class TemporaryFile {
 public:
  TemporaryFile() : path_(std::filesystem::temp_directory_path() / ("facula-XXXXXX")) {
    int file = mkstemp(path_.data());
    user_check(file >= 0, "save") << "no temporary file can be made in "
                                  << std::filesystem::temp_directory_path();
    close(file);
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
// Writes to the stream what `save` writes to the path that it is called with.
template <class Save>
void save_through_file(std::ostream& stream, Save save) {
  TemporaryFile file;
  save(file.path());
  stream << std::ifstream(file.path(), std::ios::binary).rdbuf();
}
// Returns the result of `load` for the path of a file with the contents of the stream.
template <class Load>
auto load_through_file(std::istream& stream, Load load) {
  TemporaryFile file;
  std::ofstream(file.path(), std::ios::binary) << stream.rdbuf();
  return load(file.path());
}
inline void OutputArchive::save_to(std::ostream& stream) {
  save_through_file(stream, [this](const std::string& path) { save_to(path); });
}
inline void InputArchive::load_from(std::istream& stream, std::optional<Device> device) {
  load_through_file(stream, [&](const std::string& path) { load_from(path, device); });
}

}  // namespace torch::serialize
