// Program: a function that was traced once, and runs as a whole (docs/programs.md). In a file it is for other
// processes, with Python or without.
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
  // As the function: results, undefined where it gave none; inputs and captured tensors that it writes are written, and
  // gradient slots filled. ValueError names an input that is not as it was traced (run/traced.h).
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) const;
  // What the function read besides its inputs: parameters, buffers, states of optimizers.
  const std::vector<Tensor>& captured() const;
  std::string text() const;  // the graph, a line a call
  std::vector<std::string> steps()
      const;  // what runs: kernels with the operators in them, calls of libraries, views

  // A file of save() (io/checkpoint.h): the graph as text, the captured tensors with who shares memory with whom, and
  // gradient slots. `extra`: text that is kept beside it. NotImplementedError for tensors on other devices.
  void save(const std::string& path, const std::string& extra = "") const;
  // Captured tensors that required gradients require them, and are leaves. Operators of the graph are called on tensors
  // without data, so that their rules hold for it; nothing else is executed. RuntimeError if the file is damaged, of
  // a later version, or no program.
  static Program load(const std::string& path, std::string* extra = nullptr);
  // The same of what such a file holds; `path` is for errors.
  static Program from(const io::Value& saved, const std::string& path, std::string* extra = nullptr);

  run::Traced& traced() const { return *traced_; }

 private:
  std::shared_ptr<run::Traced> traced_;
};

// Runs f once on tensors without data like `inputs`. Sizes are those of `inputs`, or, `dynamic`, any that agree in what
// f relied on. Raises what f raises, and NotImplementedError or RuntimeError for what a program cannot hold.
Program trace(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
              std::span<const Tensor> inputs, std::string name = "program", bool dynamic = false);

// The integer of a tensor of one element, for where a size is asked for. In a traced function it is known only when the
// program runs, which raises if it is negative.
SymInt item_as_size(const Tensor& t);

}  // namespace facula
