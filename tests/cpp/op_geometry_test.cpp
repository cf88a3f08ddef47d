// Geometry: strides as PyTorch gives them, its errors, and index maps that agree with the strides element by
// element.
#include <gtest/gtest.h>

#include <random>

#include "facula/op/geometry.h"

namespace facula::op {
namespace {

Dims dims(std::initializer_list<int64_t> l) {
  Dims d;
  for (int64_t x : l) d.push_back(x);
  return d;
}

std::string strides_text(std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides,
                         std::initializer_list<int64_t> to) {
  auto s = view_strides(dims(sizes), dims(strides), dims(to));
  return s ? to_string(SymSpan(*s)) : "none";
}

// Each line was produced by torch 2.13: torch.empty(0).as_strided(sizes, strides).view(to).stride().
TEST(Geometry, ViewStridesAreThoseOfPyTorch) {
  EXPECT_EQ(strides_text({2, 3, 4}, {12, 4, 1}, {6, 4}), "[4, 1]");
  EXPECT_EQ(strides_text({2, 3, 4}, {12, 4, 1}, {2, 2, 6}), "[12, 6, 1]");
  EXPECT_EQ(strides_text({2, 3, 4}, {24, 4, 1}, {2, 12}), "[24, 1]");
  EXPECT_EQ(strides_text({2, 3, 4}, {24, 4, 1}, {24}), "none");
  EXPECT_EQ(strides_text({2, 3}, {1, 2}, {3, 2}), "none");
  EXPECT_EQ(strides_text({2, 3}, {1, 2}, {2, 1, 3, 1}), "[1, 6, 2, 2]");
  EXPECT_EQ(strides_text({1, 2}, {7, 1}, {1, 2}), "[2, 1]");
  EXPECT_EQ(strides_text({2, 1}, {1, 5}, {2, 1}), "[1, 5]");
  EXPECT_EQ(strides_text({4}, {0}, {2, 2}), "[0, 0]");
  EXPECT_EQ(strides_text({}, {}, {1, 1}), "[1, 1]");
  EXPECT_EQ(strides_text({1}, {3}, {}), "[]");
  EXPECT_EQ(strides_text({0, 3}, {3, 1}, {3, 0}), "[1, 1]");
  EXPECT_EQ(strides_text({0, 3}, {5, 7}, {0, 3}), "[5, 7]");
  EXPECT_EQ(strides_text({2, 3}, {3, 1}, {4}), "none");
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) { return e.message(); }
  return "";
}

TEST(Geometry, ErrorsAreThoseOfPyTorch) {
  Geometry g("view", dims({2, 3}), dims({1, 2}), 0);
  EXPECT_EQ(
      error_of([&] {
        Geometry h(g);
        h.reshape(dims({6}));
      }),
      "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
      "subspaces). Use .reshape(...) instead.");
  EXPECT_EQ(error_of([&] {
              Geometry h(g);
              h.reshape(dims({7}));
            }),
            "shape '[7]' is invalid for input of size 6");
  EXPECT_EQ(
      error_of([&] {
        Geometry h(g);
        h.expand(dims({4, 3}));
      }),
      "The expanded size of the tensor (4) must match the existing size (2) at non-singleton dimension 0.  Target sizes: "
      "[4, 3].  Tensor sizes: [2, 3]");
  EXPECT_EQ(error_of([&] {
              Geometry h(g);
              h.expand(dims({-1, 2, 3}));
            }),
            "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension 0");
  EXPECT_EQ(error_of([&] {
              Geometry h(g);
              h.select(0, 2);
            }),
            "index 2 out of range for tensor of size [2, 3] at dimension 0");
  int64_t twice[] = {0, 0};
  EXPECT_EQ(error_of([&] {
              Geometry h(g);
              h.permute(twice);
            }),
            "duplicate dims are not allowed.");
  EXPECT_EQ(error_of([&] {
              Geometry h(g);
              h.diagonal(1, 1, 0);
            }),
            "diagonal dimensions cannot be identical 1, 1");
}

TEST(InferShape, FillsTheMissingSize) {
  EXPECT_EQ(infer_shape("view", dims({2, -1}), 6), dims({2, 3}));
  EXPECT_EQ(infer_shape("view", dims({-1}), 0), dims({0}));
  EXPECT_EQ(infer_shape("view", dims({}), 1), dims({}));
  EXPECT_EQ(error_of([] { infer_shape("view", dims({-1, -1}), 6); }), "only one dimension can be inferred");
  EXPECT_EQ(error_of([] { infer_shape("view", dims({4, -1}), 6); }),
            "shape '[4, -1]' is invalid for input of size 6");
  EXPECT_EQ(error_of([] { infer_shape("view", dims({-2}), 6); }), "invalid shape dimension -2");
  EXPECT_EQ(
      error_of([] { infer_shape("view", dims({0, -1}), 0); }),
      "cannot reshape tensor of 0 elements into shape [0, -1] because the unspecified dimension size -1 can be any value and is "
      "ambiguous");
}

TEST(InferShape, KeepsSymbols) {
  sym::Shapes shapes;
  sym::Shapes::With with(shapes);
  SymInt n = shapes.fresh("n", 8);
  Dims to = infer_shape("view", Dims{SymInt(-1), SymInt(3)}, n * 3);
  EXPECT_TRUE(SymInt::surely_equal(to[0], n));
  auto strides = view_strides(Dims{n, SymInt(3)}, Dims{SymInt(3), SymInt(1)}, Dims{n * 3});
  ASSERT_TRUE(strides);
  EXPECT_EQ(to_string(SymSpan(*strides)), "[1]");
}

// The value of an index expression whose variables were replaced by numbers.
int64_t number(loop::Expr x) {
  EXPECT_EQ(x->kind, loop::Kind::constant) << loop::print(x);
  return x->value.to_int();
}

// Every element of the view lies where the index map says, counted in the strides of the base.
void check_map(const Geometry& g, SymSpan base_sizes, SymSpan base_strides) {
  int rank = g.dim();
  std::vector<loop::Expr> at;
  for (int d = 0; d < rank; ++d) at.push_back(loop::index(d));
  auto map = g.base_index(at);
  ASSERT_EQ(map.size(), base_sizes.size());
  int64_t count = product(g.sizes()).concrete();
  for (int64_t e = 0; e < count; ++e) {
    std::vector<std::pair<int, loop::Expr>> values;
    int64_t rest = e, place = g.offset().concrete(), expected = 0;
    for (int d = rank; d-- > 0;) {
      int64_t i = rest % g.size(d).concrete();
      rest /= g.size(d).concrete();
      place += i * g.strides()[size_t(d)].concrete();
      values.push_back({d, loop::constant(Scalar(i), DType::Int64)});
    }
    for (size_t d = 0; d < map.size(); ++d) {
      int64_t i = number(loop::substitute(map[d], values));
      ASSERT_TRUE(i >= 0 && i < base_sizes[d].concrete());
      expected += i * base_strides[d].concrete();
    }
    ASSERT_EQ(place, expected);
  }
}

TEST(Geometry, IndexMapsAgreeWithStridesForRandomChains) {
  std::mt19937 random(7);
  auto pick = [&](int n) { return int(random() % unsigned(n)); };
  int reshapes = 0;
  for (int round = 0; round < 400; ++round) {
    Dims sizes;
    for (int d = pick(4) + 1; d-- > 0;)
      sizes.push_back(int64_t(std::vector<int>{1, 2, 3, 4, 6}[size_t(pick(5))]));
    Dims strides = contiguous_strides(sizes);
    Geometry g("probe", sizes, strides, 0);
    for (int step = 0; step < 4; ++step) {
      int rank = g.dim();
      int d = rank ? pick(rank) : 0;
      switch (pick(8)) {
        case 0:
          if (rank > 1) g.swap(d, pick(rank));
          break;
        case 1: {
          if (!rank || g.size(d) == 0) break;
          int n = int(g.size(d).concrete()), start = pick(n), by = 1 + pick(2);
          g.slice(d, start, (n - start + by - 1) / by, by);
          break;
        }
        case 2:
          if (rank) g.select(d, pick(int(g.size(d).concrete())));
          break;
        case 3: g.insert(pick(rank + 1)); break;
        case 4:
          if (rank && g.size(d) == 1) g.erase(d);
          break;
        case 5: {
          Dims to(g.sizes());
          for (auto& n : to)
            if (n == 1) n = 2;
          to.insert(0, 2);
          if (to.size() < 6) g.expand(to);
          break;
        }
        case 6: {
          int64_t numel = product(g.sizes()).concrete();
          for (Dims to : {dims({numel}), dims({numel, 1}), dims({2, numel / 2}), dims({numel / 3, 3}),
                          dims({2, numel / 4, 2})})
            if (product(to) == numel && g.can_view(to)) {
              g.reshape(to);
              ++reshapes;
              break;
            }
          break;
        }
        case 7:
          if (rank > 1) {
            int b = pick(rank);
            if (b != d) g.diagonal(d, b, pick(3) - 1);
          }
      }
      if (product(g.sizes()) == 0) break;
    }
    check_map(g, sizes, strides);
  }
  EXPECT_GT(reshapes, 50);
}

TEST(Geometry, TrivialReshapesKeepSimpleIndices) {
  Geometry g("view", dims({2, 3, 4}), dims({12, 4, 1}), 0);
  g.reshape(dims({2, 1, 3, 4, 1}));
  std::vector<loop::Expr> at;
  for (int d = 0; d < 5; ++d) at.push_back(loop::index(d));
  auto map = g.base_index(at);
  EXPECT_TRUE(same(map[0], at[0]) && same(map[1], at[2]) && same(map[2], at[3]));
}

TEST(Geometry, SymbolicGroupsStaySymbolic) {
  sym::Shapes shapes;
  sym::Shapes::With with(shapes);
  SymInt n = shapes.fresh("n", 8);
  Geometry g("view", Dims{n, SymInt(6)}, Dims{SymInt(6), SymInt(1)}, 0);
  g.reshape(Dims{n, SymInt(2), SymInt(3)});
  auto map = g.base_index({loop::index(0), loop::index(1), loop::index(2)});
  EXPECT_TRUE(same(map[0], loop::index(0)));
  EXPECT_TRUE(shapes.guards().empty());
}

}  // namespace
}  // namespace facula::op
