#include "facula/op/key.h"

#include <bit>

namespace facula::op {
namespace {
void append(Words& key, const Scalar& s) {
  auto c = s.to_complex();
  key.push_back(uint64_t(s.category()) | uint64_t(s.is_beyond_int64()) << 8);
  key.push_back(s.category() <= Category::integral ? uint64_t(s.to_int())
                                                   : std::bit_cast<uint64_t>(c.real()));
  key.push_back(std::bit_cast<uint64_t>(c.imag()));
}
}  // namespace

void append_attributes(Words& key, std::span<const Value> args) {
  for (auto& v : args) {
    key.push_back(uint64_t(v.tag));
    switch (v.tag) {
      case Tag::none:
      case Tag::tensor: break;
      case Tag::scalar: append(key, v.scalar); break;
      case Tag::integer: key.push_back(uint64_t(v.word)); break;
      case Tag::ints:
        key.push_back(v.list.count);
        for (auto i : v.ints()) key.push_back(i.identity());
        break;
      case Tag::tensors: key.push_back(v.list.count); break;
      case Tag::scalars:
        key.push_back(v.list.count);
        for (size_t i = 0; i < v.list.count; ++i) append(key, static_cast<const Scalar*>(v.list.data)[i]);
        break;
      case Tag::string: {
        auto s = v.string();
        key.push_back(s.size());
        for (size_t i = 0; i < s.size(); i += 8) {
          uint64_t w = 0;
          std::memcpy(&w, s.data() + i, std::min<size_t>(8, s.size() - i));
          key.push_back(w);
        }
        break;
      }
      case Tag::dtype: key.push_back(uint64_t(v.dtype)); break;
      case Tag::device: key.push_back(uint64_t(v.device.type) << 8 | uint8_t(v.device.index)); break;
      case Tag::format: key.push_back(uint64_t(v.format)); break;
      case Tag::object: key.push_back(reinterpret_cast<uint64_t>(v.object)); break;
      case Tag::generator: key.push_back(reinterpret_cast<uint64_t>(v.generator)); break;
    }
  }
}

}  // namespace facula::op
