// Program: a function that was traced once, and runs as one (docs/programs.md). Other processes can load it from a file,
// with Python or without.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "facula/tensor/tensor.h"

namespace facula {

namespace run {
class Traced;
}
namespace io {
class Value;
}

class Program {
 public:
  explicit Program(std::shared_ptr<run::Traced> traced) : traced_(std::move(traced)) {}
  // Runs the program. Results are undefined tensors where the function returned none; inputs and captured tensors that it
  // writes are written, and gradient slots are filled. A ValueError names an input that does not match the trace
  // (run/traced.h).
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) const;
  // The tensors that the function read besides its inputs: parameters, buffers, states of optimizers.
  const std::vector<Tensor>& captured() const;
  // The objects of users' classes that the program calls, in the order of their first use (extend/class.h). A call changes
  // their state.
  std::vector<Ref<CustomClassHolder>> objects() const;
  std::string text() const;                // the graph, one line per call
  std::vector<std::string> steps() const;  // kernels with their operators, library calls, views

  // Writes a file like save() (io/checkpoint.h): the graph as text, the captured tensors with their aliasing, and
  // gradient slots. `extra` is a text that is stored with them. Raises NotImplementedError for tensors on other devices.
  void save(const std::string& path, const std::string& extra = "") const;
  // Loads a program. Captured tensors that required gradients are leaves that require them. Operators of the graph are
  // called on tensors without data, which checks the graph; nothing else is executed. Raises RuntimeError if the file is
  // damaged, of a later version, or not a program.
  static Program load(const std::string& path, std::string* extra = nullptr);
  // The same from the contents of such a file; `path` is for error messages.
  static Program from(const io::Value& saved, const std::string& path, std::string* extra = nullptr);

  run::Traced& traced() const { return *traced_; }

 private:
  std::shared_ptr<run::Traced> traced_;
};

// Runs f once on tensors without data like `inputs`. Sizes are fixed, or, if `dynamic`, any that satisfy the assumptions
// of f. Raises the errors of f, and NotImplementedError or RuntimeError for operations that a program cannot represent.
Program trace(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
              std::span<const Tensor> inputs, std::string name = "program", bool dynamic = false);

// Returns the integer in a tensor of one element, as a size. In a traced function it is known only when the program runs,
// which raises if it is negative.
SymInt item_as_size(const Tensor& t);

}  // namespace facula
