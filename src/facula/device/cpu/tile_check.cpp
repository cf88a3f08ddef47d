#include "facula/device/cpu/tile_check.h"

#include <cstring>
#include <vector>

#include "facula/codegen/compiler.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/named.h"
#include "facula/loop/nest_builder.h"

namespace facula::device::cpu {

bool has_kernel(const loop::Nest& n) {
  return codegen::can_compile() || codegen::find_kernel(codegen::name_of(n), n.name);
}

bool is_reference_product(const loop::TileProduct& p, std::span<int32_t> left, std::span<int32_t> right,
                          int64_t steps) {
  using namespace loop;
  Statement s{Statement::Kind::tiles};
  s.buffer = 2, s.offset = number(0), s.product = std::make_shared<TileProduct>(p);
  s.values = {number(0), number(0), number(steps)};
  Nest n;
  n.name = "matrix_unit_check";
  n.buffers = {{DType::Int32}, {DType::Int32}, {p.dtype(), true}};
  n.task_var = 0, n.tasks = n.cost = number(1);
  n.body.push_back(std::move(s));
  if (!has_kernel(n)) return false;
  std::vector<int32_t> out(kTileBlock * kTileBlock), expected(out.size());  // 32 bits, whatever their type
  void* buffers[] = {left.data(), right.data(), out.data()};
  codegen::Status status;
  codegen::kernel(n)->fn(buffers, nullptr, 0, 1, &status);
  multiply_tiles(p, left.data(), right.data(), steps, expected.data());
  return std::memcmp(out.data(), expected.data(), out.size() * sizeof(int32_t)) == 0;
}

}  // namespace facula::device::cpu
