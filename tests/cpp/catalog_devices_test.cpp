// Calls over memory that the CPU does not address: a device that keeps its bytes under addresses of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "facula/autograd/autograd.h"
#include "facula/device/device.h"
#include "facula/op/registry.h"
#include "facula/ops.h"

using namespace facula;

namespace {

struct Memory final : DeviceMemory {
  static constexpr uintptr_t kTag = uintptr_t(1) << 60;  // no address that the process could follow
  static char* at(const void* p) { return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(p) ^ kTag); }
  void* allocate(size_t bytes, int) const override {
    if (bytes > size_t(1) << 24) throw std::bad_alloc();
    ++blocks;
    return at(std::malloc(bytes));
  }
  void release(void* memory, size_t, int) const noexcept override {
    --blocks;
    std::free(at(memory));
  }
  void to_host(void* host, const void* memory, size_t bytes) const override {
    runtime_check(!broken, "test") << "the device does not answer";
    std::memcpy(host, at(memory), bytes);
  }
  void from_host(void* memory, const void* host, size_t bytes) const override {
    std::memcpy(at(memory), host, bytes);
  }
  mutable std::atomic<int> blocks{0};
  bool broken = false;
};
struct Plain final : device::Backend {
  device::LibraryFn find(std::string_view) const override { return nullptr; }
  std::string describe() const override { return "test"; }
};
// As long as the process: tensors may outlive what is static here.
Memory& memory() {
  static auto* m = new Memory;
  return *m;
}
Plain& plain() {
  static auto* p = new Plain;
  return *p;
}
Device tested_device() {
  static DeviceType type = device::add_device("tested", &plain(), &memory());
  return {type, 0};
}
Tensor there(const Tensor& t) { return _to_device(t, tested_device()); }
Tensor here(const Tensor& t) { return _to_device(t, Device{}); }
bool same(const Tensor& a, const Tensor& b) {
  return Dims(a.sizes()) == Dims(b.sizes()) && all(eq(a, b)).item().to_bool();
}
Tensor numbers() { return reshape(arange(12.0), Dims{3, 4}); }

}  // namespace

TEST(Devices, compute_what_the_cpu_computes_and_free_what_they_took) {
  int before = (tested_device(), memory().blocks.load());
  {
    Tensor x = numbers(), y = there(x);
    EXPECT_EQ(y.device(), tested_device());
    EXPECT_TRUE(same(here(add(y, y)), add(x, x)));
    EXPECT_TRUE(same(here(mm(y, transpose(y, 0, 1))), mm(x, transpose(x, 0, 1))));
    EXPECT_TRUE(same(here(std::get<0>(sort(neg(y), 0))), std::get<0>(sort(neg(x), 0))));
    EXPECT_TRUE(same(here(nonzero(y)), nonzero(x)));
    EXPECT_EQ(select(select(y, 0, 1), 0, 2).item().to_double(), 6.0);
  }
  EXPECT_EQ(memory().blocks, before);
}

TEST(Devices, writes_reach_the_memory_that_views_share) {
  Tensor x = numbers(), y = there(x);
  for (Tensor t : {x, y}) {
    Tensor column = select(transpose(t, 0, 1), 0, 1);
    op::Value scaled[] = {column, Scalar(10.0)};
    op::call(op::get("mul"), scaled, op::Form::in_place);
    Tensor from = slice(t, 1, 0, 3, 1), to = slice(t, 1, 1, 4, 1);  // overlap
    Tensor copy = clone(from);
    op::Value copied[] = {to, copy};
    op::call(op::get("copy"), copied, op::Form::in_place);
  }
  EXPECT_TRUE(same(here(y), x));
  Tensor out = Tensor::empty(IntSpan(Ints{0}), DType::Float32, tested_device());
  op::Value args[] = {y, y, Scalar(1.0)};
  op::call(op::get("add"), args, op::Form::out, {&out, 1});
  EXPECT_TRUE(same(here(out), add(x, x)));
}

TEST(Devices, gradients_flow_across_and_stay_where_their_leaves_are) {
  Tensor x = numbers(), w = there(numbers());
  autograd::set_requires_grad(x, true);
  autograd::set_requires_grad(w, true);
  Tensor y = sum(mul(there(x), sigmoid(w))), one = ones_like(y);
  autograd::backward({&y, 1}, {&one, 1}, false, false);
  EXPECT_EQ(autograd::grad_of(x).device(), Device{});
  EXPECT_EQ(autograd::grad_of(w).device(), tested_device());
  EXPECT_TRUE(same(autograd::grad_of(x), sigmoid(numbers())));
}

TEST(Devices, what_fails_leaves_operands_as_they_were) {
  Tensor y = there(numbers());
  memory().broken = true;
  EXPECT_THROW(add(y, y), Error);
  memory().broken = false;
  EXPECT_TRUE(same(here(y), numbers()));
  EXPECT_ANY_THROW(Tensor::empty(IntSpan(Ints{1 << 26}), DType::Float32, tested_device()));
  EXPECT_THROW(add(y, numbers()), Error);
  EXPECT_THROW(y.data_ptr(), Error);
  EXPECT_THROW(device::add_device("tested", &plain(), &memory()), Error);
  EXPECT_THROW(parse_device("Tested"), Error);
  EXPECT_THROW(here(full(Dims{2}, 1.0, {}, Device{DeviceType::meta})), Error);
}

TEST(Devices, threads_have_default_devices_of_their_own) {
  DefaultDevice outer(tested_device());
  EXPECT_EQ(zeros(Dims{2}).device(), tested_device());
  std::vector<std::thread> all;
  std::atomic<int> right{0};
  for (int k = 0; k < 4; ++k)
    all.emplace_back([&] {
      bool fresh = zeros(Dims{2}).device() == Device{};
      Tensor x = numbers();
      DefaultDevice inner(Device{DeviceType::meta});
      bool meta = ones(Dims{int64_t(1) << 40}).device() == Device{DeviceType::meta};
      Tensor y = there(x);
      for (int i = 0; i < 20; ++i) y = add(y, y);
      right += fresh && meta && same(here(y), mul(x, 1048576.0));
    });
  for (auto& t : all) t.join();
  EXPECT_EQ(right, 4);
  EXPECT_EQ(default_device(), tested_device());
}
