// A device whose memory the CPU cannot address, like that of an accelerator: an anonymous file that is never mapped.
// Operators without a function here run on the CPU over copies; its matrix unit multiplies matrices in place.
#include <facula/device/device.h>
#include <facula/facula.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

using namespace facula;

namespace {

// First fit over a sorted list of gaps. Addresses begin beyond those that a process can map, so that dereferencing one
// faults.
class Memory final : public DeviceMemory {
 public:
  void* allocate(size_t bytes, int) const override {
    std::lock_guard lock(mutex_);
    bytes = rounded(bytes);
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->second < bytes) continue;
      auto [at, size] = *gap;
      gaps_.erase(gap);
      if (size > bytes) gaps_[at + bytes] = size - bytes;
      return address(at);
    }
    throw std::bad_alloc();
  }
  void release(void* memory, size_t bytes, int) const noexcept override {
    std::lock_guard lock(mutex_);
    auto gap = gaps_.emplace(offset(memory), rounded(bytes)).first;
    if (auto next = std::next(gap); next != gaps_.end() && gap->first + gap->second == next->first) {
      gap->second += next->second;
      gaps_.erase(next);
    }
    if (gap == gaps_.begin()) return;
    if (auto before = std::prev(gap); before->first + before->second == gap->first) {
      before->second += gap->second;
      gaps_.erase(gap);
    }
  }
  void to_host(void* host, const void* memory, size_t bytes) const override {
    move(bytes, [&](size_t done) {
      return pread(file_, static_cast<char*>(host) + done, bytes - done, off_t(offset(memory) + done));
    });
  }
  void from_host(void* memory, const void* host, size_t bytes) const override {
    move(bytes, [&](size_t done) {
      return pwrite(file_, static_cast<const char*>(host) + done, bytes - done, off_t(offset(memory) + done));
    });
  }

 private:
  static constexpr size_t kBytes = size_t(1) << 32, kFirst = size_t(1) << 60;
  static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }
  static void* address(size_t offset) { return reinterpret_cast<void*>(kFirst + offset); }
  static size_t offset(const void* memory) { return reinterpret_cast<size_t>(memory) - kFirst; }
  template <class F>
  static void move(size_t bytes, F&& some) {
    for (size_t done = 0; done < bytes;) {
      ssize_t n = some(done);
      runtime_check(n > 0, "toy") << "moving " << bytes << " bytes: " << std::strerror(errno);
      done += size_t(n);
    }
  }
  static int make() {
    int file = memfd_create("toy", MFD_CLOEXEC);
    runtime_check(file >= 0 && ftruncate(file, off_t(kBytes)) == 0, "toy")
        << "no memory: " << std::strerror(errno);
    return file;
  }
  int file_ = make();
  mutable std::mutex mutex_;
  mutable std::map<size_t, size_t> gaps_{{0, kBytes}};  // offset: bytes
};
const Memory& memory() {
  static auto* m = new Memory;
  return *m;
}

// Reads the elements of a float32 matrix on the device, in row-major order.
std::vector<float> elements(const Tensor& t) {
  auto& storage = *t.impl()->storage;
  std::vector<float> all(storage.bytes() / sizeof(float)), rows;
  memory().to_host(all.data(), storage.device_data(), all.size() * sizeof(float));
  auto sizes = t.int_sizes(), strides = t.int_strides();
  for (int64_t i = 0; i < sizes[0]; ++i)
    for (int64_t j = 0; j < sizes[1]; ++j)
      rows.push_back(all[size_t(t.offset().concrete() + i * strides[0] + j * strides[1])]);
  return rows;
}

// out[i, j] = sum over l of a[i, l] * b[l, j]; other dtypes run on the CPU over copies.
op::Results mm(const op::Call& c, std::span<const Tensor> out) {
  Tensor x = c.tensor("self"), y = c.tensor("mat2");
  auto a = elements(x), b = elements(y);
  int64_t n = x.size(0).concrete(), k = x.size(1).concrete(), m = y.size(1).concrete();
  std::vector<float> sums(size_t(n * m));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < m; ++j) sums[size_t(i * m + j)] += a[size_t(i * k + l)] * b[size_t(l * m + j)];
  memory().from_host(out[0].impl()->storage->device_data(), sums.data(), sums.size() * sizeof(float));
  return {};
}

class Toy final : public device::Backend {
 public:
  device::LibraryFn find(std::string_view library) const override { return library == "mm" ? mm : nullptr; }
  bool takes(const op::Call& c) const override { return c.tensor("self").dtype() == DType::Float32; }
  std::string describe() const override { return "toy: a file as memory, a loop as matrix unit"; }
};

[[maybe_unused]] const DeviceType added = device::add_device("privateuseone", new Toy, &memory());

}  // namespace
