// How tensors are shown as text. One set of options for the process, changed by set_printoptions.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace facula {

struct PrintOptions {
  int precision = 4;               // digits after the point
  int64_t threshold = 1000;        // tensors of more elements show their edges only
  int64_t edge_items = 3;          // of each dimension, at each end
  int64_t line_width = 80;         // columns
  std::optional<bool> scientific;  // unset: where the numbers differ much in size
  std::string package = "facula";  // whose names dtypes and layouts have
};

PrintOptions& print_options();

class Tensor;
// As PyTorch prints a tensor, "tensor([1., 2.])", of a class of this name; `further` is noted behind its numbers: "requires_grad=True".
std::string to_text(const Tensor& t, std::string_view type, std::span<const std::string> further);

}  // namespace facula
