// torch::save and torch::load of modules, tensors, lists of tensors and optimizers, to files and streams.
//
// Modules and tensors are TorchScript archives without functions, as PyTorch writes them: Python's torch.jit.load reads
// them. States of optimizers are checkpoints: Python's torch.load reads them, as it does what io::save writes. load also
// takes a state_dict that Python saved.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "facula/io/checkpoint.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace torch {
namespace serialize {

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
    auto* found = entries_.find(name);
    if (found) v = *found;
    return found;
  }
  bool try_read(const std::string& name, InputArchive& nested) {
    auto* found = entries_.find(name);
    if (!found || !found->is_dict()) return false;
    nested.entries_ = found->dict();
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
    facula::io::Value& below = tree[name.substr(0, dot)];
    if (!below.is_dict()) below = facula::io::Dict();
    put(below.dict(), name.substr(dot + 1), v);
  }
  facula::io::Dict entries_;
  friend class OutputArchive;
};

// A file of its own for a while, where streams are read and written.
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
  void copy_to(std::ostream& s) const { s << std::ifstream(path_, std::ios::binary).rdbuf(); }
  void copy_from(std::istream& s) const { std::ofstream(path_, std::ios::binary) << s.rdbuf(); }

 private:
  std::string path_;
};
inline void OutputArchive::save_to(std::ostream& stream) {
  TemporaryFile file;
  save_to(file.path());
  file.copy_to(stream);
}
inline void InputArchive::load_from(std::istream& stream, std::optional<Device> device) {
  TemporaryFile file;
  file.copy_from(stream);
  load_from(file.path(), device);
}

}  // namespace serialize

namespace nn {
// The modules of a module, by name; one with two names comes once.
inline facula::nn::Named<facula::nn::Module> modules_below(const facula::nn::Module& m) {
  facula::nn::Named<facula::nn::Module> below;
  for (auto& [name, child] : m.named_modules())
    if (!name.empty() && name.find('.') == name.npos) below.emplace_back(name, child);
  return below;
}
inline void Module::save(serialize::OutputArchive& archive) const {
  for (auto& item : named_parameters(false)) archive.write(item.key(), item.value());
  for (auto& item : named_buffers(false)) archive.write(item.key(), item.value(), true);
  for (auto& child : modules_below(handle_)) {
    serialize::OutputArchive nested;
    if (auto* own = children_.find(child.first)) {
      if (!(*own)->is_serializable()) continue;
      (*own)->save(nested);
    } else {
      Module inner;
      inner.adopt(child.second);
      inner.save(nested);
    }
    archive.write(child.first, nested);
  }
}
inline void Module::load(serialize::InputArchive& archive) {
  for (auto& item : named_parameters(false)) archive.read(item.key(), item.value(), false);
  for (auto& item : named_buffers(false)) archive.read(item.key(), item.value(), true);
  for (auto& child : modules_below(handle_)) {
    serialize::InputArchive nested;
    auto* own = children_.find(child.first);
    if (own && !(*own)->is_serializable()) continue;
    archive.read(child.first, nested);
    if (own) {
      (*own)->load(nested);
    } else {
      Module inner;
      inner.adopt(child.second);
      inner.load(nested);
    }
  }
}
template <class M>
serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const ModuleHolder<M>& m) {
  m->save(archive);
  return archive;
}
template <class M>
serialize::InputArchive& operator>>(serialize::InputArchive& archive, ModuleHolder<M>& m) {
  m->load(archive);
  return archive;
}
}  // namespace nn

namespace detail {
// Writes and reads each kind of value.
inline void store(serialize::OutputArchive& a, const Tensor& t) { a.write("0", t); }
inline void store(serialize::OutputArchive& a, const std::vector<Tensor>& l) {
  for (size_t k = 0; k < l.size(); ++k) a.write(std::to_string(k), l[k]);
}
inline void store(serialize::OutputArchive& a, const nn::Module& m) { m.save(a); }
template <class M>
void store(serialize::OutputArchive& a, const std::shared_ptr<M>& m) {
  m->save(a);
}
template <class M>
void store(serialize::OutputArchive& a, const nn::ModuleHolder<M>& m) {
  m->save(a);
}
inline void restore(serialize::InputArchive& a, Tensor& t) { a.read("0", t, false); }
inline void restore(serialize::InputArchive& a, std::vector<Tensor>& l) {
  l.clear();
  for (auto& name : a.keys()) a.read(name, l.emplace_back(), false);
}
inline void restore(serialize::InputArchive& a, nn::Module& m) { m.load(a); }
template <class M>
void restore(serialize::InputArchive& a, std::shared_ptr<M>& m) {
  m->load(a);
}
template <class M>
void restore(serialize::InputArchive& a, nn::ModuleHolder<M>& m) {
  m->load(a);
}
template <class T>
void restore_value(serialize::InputArchive& a, T& value) {
  NoGradGuard off;
  restore(a, value);
}
}  // namespace detail

// To a path or a stream.
template <class T, class To>
  requires requires(serialize::OutputArchive& a, const T& value) { detail::store(a, value); }
void save(const T& value, To&& to) {
  serialize::OutputArchive archive;
  detail::store(archive, value);
  archive.save_to(to);
}
template <class T, class From>
  requires requires(serialize::InputArchive& a, T& value) { detail::restore(a, value); }
void load(T& value, From&& from, std::optional<Device> device = std::nullopt) {
  serialize::InputArchive archive;
  archive.load_from(from, device);
  detail::restore_value(archive, value);
}
inline void save(const optim::Optimizer& optimizer, const std::string& path) {
  facula::io::save(path, optimizer.impl().state_dict());
}
inline void load(optim::Optimizer& optimizer, const std::string& path) {
  optimizer.impl().load_state_dict(facula::io::load(path));
}
inline void save(const optim::Optimizer& optimizer, std::ostream& stream) {
  serialize::TemporaryFile file;
  save(optimizer, file.path());
  file.copy_to(stream);
}
inline void load(optim::Optimizer& optimizer, std::istream& stream) {
  serialize::TemporaryFile file;
  file.copy_from(stream);
  load(optimizer, file.path());
}
// A value as a checkpoint in memory, which Python's torch.load reads.
inline std::vector<char> pickle_save(const IValue& v) {
  serialize::TemporaryFile file;
  facula::io::save(file.path(), v);
  std::ifstream s(file.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(s), {}};
}
inline IValue pickle_load(const std::vector<char>& data) {
  serialize::TemporaryFile file;
  std::ofstream(file.path(), std::ios::binary).write(data.data(), std::streamsize(data.size()));
  return facula::io::load(file.path());
}

}  // namespace torch
