// Storage, geometry and the small promises of Tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <thread>

#include "facula/tensor/change_strides.h"
#include "facula/tensor/tensor.h"

namespace facula {
namespace {

Ints ints(std::initializer_list<int64_t> l) { return Ints(l); }
Tensor empty(std::initializer_list<int64_t> sizes, DType d = DType::Float32) {
  return Tensor::empty(IntSpan(ints(sizes)), d);
}
Tensor strided(std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides) {
  return Tensor::empty_strided(symbolic(ints(sizes)), symbolic(ints(strides)), DType::Float32);
}
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "no error";
}

TEST(Storage, IsAlignedAndRecycled) {
  for (int64_t n : {1, 63, 64, 65, 1000, 16384, 16385, 65536, 65537, 1 << 20}) {
    void* first;
    {
      auto t = empty({n}, DType::UInt8);
      first = t.data_ptr();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u) << n;
      std::memset(first, 1, size_t(n));
    }
    EXPECT_EQ(empty({n}, DType::UInt8).data_ptr(), first) << n;
  }
}

TEST(Storage, LargeBlocksServeRequestsOfAboutTheirSize) {
  void* block = empty({1 << 22}, DType::UInt8).data_ptr();
  EXPECT_NE(empty({1 << 21}, DType::UInt8).data_ptr(), block);
  EXPECT_EQ(empty({(1 << 22) - 5000}, DType::UInt8).data_ptr(), block);
}

TEST(Storage, IsCounted) {
  auto before = memory_stats();
  {
    auto a = empty({1000}), b = empty({1 << 20});
    auto now = memory_stats();
    EXPECT_EQ(now.current_bytes - before.current_bytes, 4000 + (4 << 20));
    EXPECT_EQ(now.allocations - before.allocations, 2);
  }
  EXPECT_EQ(memory_stats().current_bytes, before.current_bytes);
  EXPECT_GE(memory_stats().peak_bytes, before.current_bytes + 4000 + (4 << 20));
  reset_peak_memory();
  { auto a = empty({10}); }
  EXPECT_EQ(memory_stats().peak_bytes, before.current_bytes + 40);
}

TEST(Storage, MayBeDroppedByAnotherThread) {
  auto before = memory_stats().current_bytes;
  for (int round = 0; round < 20; ++round) {
    std::vector<Tensor> made;
    for (int k = 0; k < 2000; ++k) made.push_back(empty({k % 300 + 1}));
    std::thread([&] {
      made.clear();
      auto t = empty({5});
    }).join();
  }
  EXPECT_EQ(memory_stats().current_bytes, before);
}

TEST(Storage, ForeignMemoryIsReleasedOnce) {
  float data[6] = {0, 1, 2, 3, 4, 5};
  int released = 0;
  {
    auto t = Tensor::from_blob(data, ints({2, 3}), ints({3, 1}), DType::Float32, [&] { ++released; });
    auto row = t.alias(symbolic(ints({3})), symbolic(ints({1})), 3);
    t = Tensor();
    EXPECT_EQ(released, 0);
    EXPECT_EQ(row.data<float>(), data + 3);
  }
  EXPECT_EQ(released, 1);
}

// [n, c, h, w] as NHWC in memory, element k (in row-major order) made of bytes k.
Tensor images_in_physical_layout(int64_t n, int64_t c, int64_t h, int64_t w, DType d) {
  Tensor t = Tensor::empty_strided(symbolic(ints({n, c, h, w})),
                                   channels_last_strides(symbolic(ints({n, c, h, w}))), d);
  auto size = size_t(t.itemsize());
  auto* bytes = t.data<unsigned char>();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < c; ++j)
      for (int64_t y = 0; y < h; ++y)
        for (int64_t x = 0; x < w; ++x)
          std::memset(bytes + size_t(((i * h + y) * w + x) * c + j) * size,
                      int(((i * c + j) * h + y) * w + x), size);
  EXPECT_TRUE(change_strides(t, contiguous_strides(t.sizes())));
  return t;
}

TEST(Storage, RestoresThePlainOrder) {
  for (DType d : {DType::UInt8, DType::BFloat16, DType::Float32, DType::Int64, DType::Complex128}) {
    for (int64_t c : {3, 17}) {
      const int64_t n = 2, h = c == 3 ? 4 : 1, w = 5;
      Tensor t = images_in_physical_layout(n, c, h, w, d);
      auto size = size_t(t.itemsize());
      EXPECT_FALSE(t.impl()->storage->is_logical());
      EXPECT_TRUE(t.is_contiguous());
      auto* bytes = t.data<unsigned char>();
      EXPECT_TRUE(t.impl()->storage->is_logical());
      EXPECT_EQ(t.data<unsigned char>(), bytes);
      for (int64_t k = 0; k < n * c * h * w; ++k)
        for (size_t b = 0; b < size; ++b) ASSERT_EQ(bytes[size_t(k) * size + b], (unsigned char)k);
    }
  }
}

TEST(Storage, ViewsOfAPhysicalLayoutAreReadWhereTheyLie) {
  const int64_t n = 2, c = 3, h = 4, w = 5;
  struct View {
    std::vector<int64_t> sizes, strides;
    int64_t offset;
    bool possible;
  };
  for (auto& v : std::vector<View>{{{n, c, h, w}, {60, 20, 5, 1}, 0, true},  // itself
                                   {{c, n, w}, {20, 60, 1}, 10, true},       // a row of every plane, permuted
                                   {{n, c, h * w}, {60, 20, 1}, 0, true},    // planes flattened
                                   {{n, 2, 2, 3}, {60, 20, 10, 2}, 20, true},  // slices with steps
                                   {{n, 4, h, w}, {60, 0, 5, 1}, 20, true},    // expanded
                                   {{n, c * h * w}, {60, 1}, 0, false},  // channels and planes flattened
                                   {{4}, {1}, 18, false}}) {             // over the end of a plane
    Tensor t = images_in_physical_layout(n, c, h, w, DType::UInt8);
    Tensor view = t.alias(symbolic(v.sizes), symbolic(v.strides), SymInt(v.offset));
    Tensor there = in_memory(*view.impl());
    EXPECT_EQ(there.defined(), v.possible);
    EXPECT_EQ(t.impl()->storage->is_logical(), !v.possible);
    if (!there.defined()) continue;
    std::vector<int64_t> at(v.sizes.size());
    for (;;) {
      int64_t here = there.offset().concrete(), plain = v.offset;
      for (size_t d = 0; d < at.size(); ++d) {
        here += at[d] * there.int_strides()[d];
        plain += at[d] * v.strides[d];
      }
      ASSERT_EQ(static_cast<unsigned char*>(there.impl()->storage->data())[here], (unsigned char)plain);
      size_t d = at.size();
      while (d-- > 0) {
        if (++at[d] < v.sizes[d]) break;
        at[d] = 0;
      }
      if (d == size_t(-1)) break;
    }
  }
}

TEST(Tensor, RejectsSizesThatCannotBe) {
  EXPECT_EQ(error_of([] { empty({2, -1}); }),
            "empty: trying to create a tensor with negative dimension -1: [2, -1]");
  EXPECT_NE(error_of([] { empty({int64_t(1) << 31, int64_t(1) << 31}); }).find("overflows"),
            std::string::npos);
  EXPECT_NE(error_of([] { empty({int64_t(1) << 40, int64_t(1) << 40, 0}); }).find("overflows"),
            std::string::npos);
  EXPECT_NE(error_of([] { empty({int64_t(1) << 58}, DType::Float64); }).find("overflows"), std::string::npos);
  EXPECT_NE(error_of([] { empty({int64_t(1) << 50}, DType::UInt8); }).find("not enough memory"),
            std::string::npos);
  EXPECT_NE(error_of([] { strided({4, 4}, {int64_t(1) << 59, 1}); }).find("overflow"), std::string::npos);
  EXPECT_NE(error_of([] { strided({4}, {-1}); }).find("negative strides"), std::string::npos);
  EXPECT_EQ(empty({0, 5}).numel().concrete(), 0);
}

TEST(Tensor, MetaTensorsHaveNoMemory) {
  auto t = Tensor::empty(IntSpan(ints({int64_t(1) << 40})), DType::Float32, {DeviceType::meta});
  EXPECT_NE(error_of([&] { t.data_ptr(); }).find("no data"), std::string::npos);
  EXPECT_EQ(to_string(t), "tensor(..., device='meta', size=(1099511627776,))");
}

TEST(Tensor, KnowsItsLayout) {
  EXPECT_TRUE(empty({2, 3}).is_contiguous());
  EXPECT_FALSE(strided({2, 3}, {1, 2}).is_contiguous());
  EXPECT_TRUE(strided({2, 3}, {1, 2}).is_non_overlapping_and_dense());
  EXPECT_TRUE(strided({2, 1, 3}, {3, 77, 1}).is_contiguous());
  EXPECT_TRUE(strided({5, 1, 0}, {1, 20, 5}).is_contiguous());
  EXPECT_FALSE(strided({2, 3}, {6, 2}).is_non_overlapping_and_dense());
  EXPECT_FALSE(strided({2, 3}, {6, 2}).has_overlap());
  EXPECT_TRUE(strided({2, 3}, {0, 1}).has_overlap());
  EXPECT_TRUE(strided({4, 3}, {1, 1}).has_overlap());
  EXPECT_TRUE(strided({2, 3, 4, 5}, {60, 1, 15, 3}).is_contiguous(MemoryFormat::channels_last));
  EXPECT_FALSE(empty({2, 3, 4, 5}).is_contiguous(MemoryFormat::channels_last));
  EXPECT_TRUE(empty({2, 1, 3, 3}).is_contiguous(MemoryFormat::channels_last));
  EXPECT_FALSE(empty({2, 3}).is_contiguous(MemoryFormat::channels_last));
  Tensor volumes = strided({2, 3, 4, 5, 6}, {360, 1, 90, 18, 3});
  EXPECT_TRUE(volumes.is_contiguous(MemoryFormat::channels_last_3d) && volumes.is_channels_last());
  EXPECT_FALSE(volumes.is_contiguous(MemoryFormat::channels_last));
  EXPECT_EQ(to_string(channels_last_strides(symbolic(ints({2, 3, 4, 5, 6})))), "[360, 1, 90, 18, 3]");
}

TEST(Tensor, DimensionsCountFromBothEnds) {
  auto t = empty({2, 3});
  EXPECT_EQ(t.size(-1).concrete(), 3);
  EXPECT_EQ(t.stride(0).concrete(), 3);
  EXPECT_EQ(error_of([&] { t.size(2); }),
            "size: Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  EXPECT_EQ(wrap_dim("sum", -1, 0), 0);
  EXPECT_THROW(wrap_dim("sum", 1, 0), Error);
}

TEST(Tensor, AliasesShareStorageAndVersion) {
  auto t = empty({4});
  auto row = t.alias(symbolic(ints({2})), symbolic(ints({2})), 1);
  EXPECT_EQ(row.data<float>(), t.data<float>() + 1);
  row.bump_version();
  EXPECT_EQ(t.version(), 1u);
  EXPECT_EQ(t.detached().version(), 1u);
  EXPECT_EQ(empty({1}).version(), 0u);
}

TEST(Tensor, ItemNeedsOneElement) {
  EXPECT_EQ(Tensor::scalar(2.5, DType::Float16).item(), Scalar(2.5));
  EXPECT_EQ(error_of([] { empty({2, 3}).item(); }),
            "item: a Tensor with 6 elements cannot be converted to Scalar (shape [2, 3])");
}

TEST(Tensor, BroadcastErrorsShowEveryShape) {
  auto a = ints({2, 3}), b = ints({4}), c = ints({5, 1, 3});
  SymSpan fits[] = {symbolic(a), symbolic(c)}, fails[] = {symbolic(a), symbolic(b)};
  EXPECT_EQ(to_string(broadcast_sizes("add", fits)), "[5, 2, 3]");
  EXPECT_EQ(error_of([&] {
              broadcast_sizes("add", fails);
            }).find("add: shapes [2, 3] and [4] do not broadcast: "),
            0u);
  EXPECT_TRUE(broadcasts_to(symbolic(ints({1, 3})), symbolic(a)));
  EXPECT_FALSE(broadcasts_to(symbolic(c), symbolic(a)));
}

TEST(Scalar, StoresAndLoadsEveryDType) {
  for (int k = 0; k < kDTypeCount; ++k) {
    DType d = DType(k);
    alignas(16) char bytes[16];
    Scalar(1).store(d, bytes);
    EXPECT_EQ(Scalar::load(d, bytes).to_double(), 1);
    EXPECT_EQ(Scalar::load(d, bytes).category(), category(d));
  }
  float rounded_once;
  Scalar((int64_t(1) << 54) + (int64_t(1) << 30) + 1).store(DType::Float32, &rounded_once);
  EXPECT_EQ(rounded_once, std::ldexp(1.f + std::ldexp(1.f, -23), 54));
}

TEST(Scalar, IsWrittenAsInPython) {
  auto text = [](Scalar v) {
    std::ostringstream s;
    s << v;
    return s.str();
  };
  EXPECT_EQ(text(0.1), "0.1");
  EXPECT_EQ(text(2.0), "2.0");
  EXPECT_EQ(text(-1e-30), "-1e-30");
  EXPECT_EQ(text(INFINITY), "inf");
  EXPECT_EQ(text(true), "True");
  EXPECT_EQ(text(7), "7");
  EXPECT_EQ(text(std::complex<double>(1, -2.5)), "(1.0-2.5j)");
}

}  // namespace
}  // namespace facula
