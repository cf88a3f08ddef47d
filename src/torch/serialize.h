// torch::save and torch::load of modules, tensors, lists of tensors and optimizers, to files and streams.
//
// Modules and tensors are TorchScript archives without functions, as PyTorch writes them: Python's torch.jit.load reads
// them. States of optimizers are checkpoints: Python's torch.load reads them, as it does what io::save writes. load also
// takes a state_dict that Python saved.
#pragma once
#include <istream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "facula/io/checkpoint.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"
#include "torch/serialize/archive.h"

namespace torch {
namespace nn {
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
  serialize::save_through_file(stream, [&](const std::string& path) { save(optimizer, path); });
}
inline void load(optim::Optimizer& optimizer, std::istream& stream) {
  serialize::load_through_file(stream, [&](const std::string& path) { load(optimizer, path); });
}
// A value as a checkpoint in memory, which Python's torch.load reads.
inline std::vector<char> pickle_save(const IValue& v) {
  std::ostringstream s;
  serialize::save_through_file(s, [&](const std::string& path) { facula::io::save(path, v); });
  std::string data = std::move(s).str();
  return {data.begin(), data.end()};
}
inline IValue pickle_load(const std::vector<char>& data) {
  std::istringstream s(std::string(data.begin(), data.end()));
  return serialize::load_through_file(s, [](const std::string& path) { return facula::io::load(path); });
}

}  // namespace torch
