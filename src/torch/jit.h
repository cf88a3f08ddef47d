// torch::jit::load: programs that Facula saved (facula.program.trace(f, x).save(path)) run; a TorchScript program cannot.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "facula/io/checkpoint.h"
#include "facula/io/program.h"
#include "torch/ivalue.h"

namespace torch::jit {
using IValue = c10::IValue;

class Module {
 public:
  Module() = default;
  explicit Module(facula::Program p) : program_(std::make_shared<facula::Program>(std::move(p))) {}
  // The function of the inputs; several results are a tuple.
  IValue forward(const std::vector<IValue>& inputs) const {
    user_check(program_, "jit::Module") << "an empty module was called";
    std::vector<facula::Tensor> tensors;
    for (auto& v : inputs) tensors.push_back(v.tensor());
    std::vector<facula::Tensor> results = (*program_)(tensors);
    if (results.size() == 1) return Tensor(results[0]);
    facula::io::Tuple all;
    for (auto& t : results) all.items.push_back(Tensor(t).defined() ? IValue(Tensor(t)) : IValue());
    return facula::io::Value(std::move(all));
  }
  IValue operator()(const std::vector<IValue>& inputs) const { return forward(inputs); }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (auto& t : program_->captured())
      if (t.requires_grad()) all.push_back(t);
    return all;
  }
  void eval() {}  // a program is what was traced: the mode of its modules is fixed
  void to(Device device) const {
    supported_check(device.is_cpu(), "jit::Module") << "a program stays on the device on which it was traced";
  }
  void save(const std::string& path) const { program_->save(path); }

 private:
  std::shared_ptr<facula::Program> program_;
};
inline Module load(const std::string& path, std::optional<Device> = std::nullopt) {
  supported_check(!facula::io::is_script(path), "jit::load")
      << path << " is a TorchScript program, which Facula does not run"
      << facula::hint(
             "trace the model with facula.program.trace(model, x) in Python, and save() that program;"
             " torch::load reads the tensors of a TorchScript archive into a module");
  return Module(facula::Program::load(path));
}
namespace script {
using jit::Module;
}
}  // namespace torch::jit
