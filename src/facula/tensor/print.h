// Prints tensors. The process has one set of options, which set_printoptions changes.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace facula {

struct PrintOptions {
  int precision = 4;               // digits after the point
  int64_t threshold = 1000;        // only the edges of larger tensors are printed
  int64_t edge_items = 3;          // per dimension and end
  int64_t line_width = 80;         // columns
  std::optional<bool> scientific;  // unset: used if the magnitudes of the numbers differ much
  std::string package = "facula";  // the package in names of dtypes and layouts
};

PrintOptions& print_options();

class Tensor;
// The text of a tensor in PyTorch's form, "tensor([1., 2.])", for a class of this name; `further` is appended to its
// attributes: "requires_grad=True".
std::string to_text(const Tensor& t, std::string_view type, std::span<const std::string> further);

}  // namespace facula
