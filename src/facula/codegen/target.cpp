#include <algorithm>

#include "facula/base/matrix_unit.h"
#include "facula/base/processor.h"
#include "facula/codegen/kernel.h"
#include "facula/loop/tiles.h"

namespace facula::codegen {
namespace {
struct Target {
  loop::LaneLimits limits;
  std::string features;
  bool multiplies_bytes = false;  // by instructions for Fn::dot_bytes
};

Target detect() {
  std::string common = "x86-64+avx+avx2+fma+f16c+bmi+bmi2+lzcnt+popcnt";
  // On other processors gathers are split into loads, or slowed down against "Downfall" (CVE-2022-40982).
  bool gathers = __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512fp16");
  if (vector_bytes() == 64)
    return {{.lanes = 16, .gathers = gathers, .packed_bytes = 64},
            common + "+avx512f+avx512bw+avx512dq+avx512vl",
            bool(__builtin_cpu_supports("avx512vnni"))};
  return {{.lanes = 8}, common};
}
const Target& target() {
  static const Target& t = *new Target(detect());  // threads may ask while the process ends
  return t;
}
}  // namespace

int vector_lanes() { return lane_limits().lanes; }
const loop::LaneLimits& lane_limits() { return target().limits; }
std::string target_features() { return target().features; }

std::string target_features(const loop::Nest& n) {
  bool tiles = false, byte_tiles = false, bytes = false;
  // Words of four bytes are read from buffers of Int32.
  const bool words =
      std::ranges::any_of(n.buffers, [](const loop::Buffer& b) { return b.dtype == DType::Int32; });
  auto look = [&](loop::Expr x) { bytes |= x->kind == loop::Kind::call && x->fn == loop::Fn::dot_bytes; };
  loop::each_statement(n.body, [&](const loop::Statement& s) {
    if (s.product) (s.product->words == loop::TileWords::bytes ? byte_tiles : tiles) = true;
    if (words) loop::each_expression(s, [&](loop::Expr x) { loop::visit(x, look); });
  });
  std::string features = target_features();
  if (tiles && has_matrix_unit()) features += "+amx-tile+amx-bf16";
  if (byte_tiles && has_byte_matrix_unit()) features += "+amx-tile+amx-int8";
  if (bytes && target().multiplies_bytes) features += "+avx512vnni";
  return features;
}

}  // namespace facula::codegen
