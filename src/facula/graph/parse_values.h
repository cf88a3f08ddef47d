// ValueReader: the parts of a printed graph that are not calls: declared symbols, sizes, types, values and attributes.
// Errors are ValueErrors that name the line and character.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "facula/graph/objects.h"
#include "facula/op/operator.h"
#include "facula/op/reader.h"
#include "facula/tensor/tensor.h"

namespace facula::graph {

struct TensorType {
  DType dtype = DType::Float32;
  Dims sizes, strides;
  bool number = false, held = false;
};

class ValueReader : protected op::Reader {
 protected:
  // `objects`: what the text calls object 0, object 1, ...
  ValueReader(std::string_view text, const Objects& objects)
      : Reader(text), shapes_(std::make_shared<sym::Shapes>()), objects_(objects) {}

  [[noreturn]] void fail(std::string_view what) const override;
  SymInt integer() override;
  Dims sizes();
  int64_t plain(int64_t low, int64_t high);
  template <class T, class F>
  std::vector<T> list(F&& item) {
    std::vector<T> all;
    expect('[');
    while (!accept(']')) {
      all.push_back(item());
      if (accept(',')) continue;
      expect(']');
      break;
    }
    return all;
  }
  // Declarations of symbols follow after the inputs, which use them already.
  void read_sizes();
  const SymInt* symbol(std::string_view name) const;
  static bool is_symbol(std::string_view name) {
    return name.size() > 1 && (name[0] == 's' || name[0] == 'u') &&
           name.find_first_not_of("0123456789", 1) == name.npos;
  }
  int id();
  void define(int id, const Tensor& t);
  const Tensor& value();
  TensorType type();
  static Tensor without_data(const TensorType& t) {
    Tensor tensor(make_ref<TensorImpl>(Storage(), t.sizes, t.strides, SymInt(), t.dtype, Device{}));
    tensor.impl()->wrapped_number = t.number;
    return tensor;
  }
  op::Args arguments(const op::Operator& o, const std::function<Tensor()>& tensor);
  // True if the next argument is a number computed from sizes, such as s0*2.
  bool is_expression(const op::Parameter& p);
  bool is_number();
  bool is_word(std::string_view w);
  op::Args of_size();
  op::Args scalar();
  op::Args object(const op::Parameter& p);

  std::shared_ptr<sym::Shapes> shapes_;
  std::unordered_map<std::string, SymInt> symbols_;
  std::unordered_map<int, Tensor> values_;
  const Objects& objects_;
};

}  // namespace facula::graph
