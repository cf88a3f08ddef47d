// Nests whose tasks work in memory of their own (device/cpu/nest_builder.h): as a CPU's threads run them.
#pragma once
#include <algorithm>
#include <deque>
#include <vector>

#include "facula/device/cpu/nest_builder.h"
#include "facula/loop/interpret.h"
#include "grid_runs.h"

namespace facula::test {

struct Data {
  std::vector<char> bytes;
  Data() = default;
  Data(DType d, int64_t n) : bytes(size_t(n * itemsize(d))) {}
};

inline std::vector<Memory> memory(std::vector<Data>& data) {
  std::vector<Memory> all;
  for (auto& d : data) all.emplace_back(d.bytes);
  return all;
}

// By the interpreter, task after task. `data`: of the other buffers.
inline void run_tasks(device::cpu::TaskNest t, std::vector<Data>& data, const std::vector<int64_t>& params) {
  expand(t.nest.body);
  std::deque<Data> work;
  std::vector<void*> buffers(t.nest.buffers.size(), nullptr);
  for (auto& w : t.work) {
    work.emplace_back(t.nest.buffers[size_t(w.buffer)].dtype, codegen::eval_params(w.extent, params.data()));
    buffers[size_t(w.buffer)] = work.back().bytes.data();
  }
  size_t next = 0;
  for (size_t k = 0; k < buffers.size(); ++k) {
    bool is_alias =
        std::any_of(t.aliases.begin(), t.aliases.end(), [&](auto& a) { return a.buffer == int(k); });
    if (!buffers[k] && !is_alias) buffers[k] = data[next++].bytes.data();
  }
  for (auto& a : t.aliases) buffers[size_t(a.buffer)] = buffers[size_t(a.of)];
  loop::interpret(t.nest, buffers, params);
}

}  // namespace facula::test
