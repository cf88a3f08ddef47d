// Attention's nests as ones of a grid: what blocks compute at once is what a CPU's threads compute task by task.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>

#include "facula/device/cpu/attention_nest.h"
#include "facula/loop/interpret.h"
#include "facula/schedule/grid.h"
#include "task_runs.h"

using namespace facula;
using namespace facula::device::cpu;
using P = AttentionParam;
using test::Data;

namespace {

struct Case {
  const char* name;
  AttentionVariant variant;
  bool causal;
  int64_t heads, key_heads, rows, keys, width, value_width;
};
const Case kCases[] = {
    {"plain", {.queries = 16}, false, 1, 1, 18, 130, 3, 2},
    {"causal", {.queries = 16}, true, 2, 1, 20, 20, 4, 4},
    {"boolean mask", {.mask = AttentionVariant::boolean, .queries = 16}, false, 1, 1, 5, 129, 3, 2},
    {"added mask",
     {.dtype = DType::Float64, .mask = AttentionVariant::added, .queries = 16},
     false,
     2,
     2,
     17,
     9,
     4,
     16},
    {"dropout", {.dropout = true, .queries = 16}, true, 4, 2, 17, 17, 4, 4},
};
constexpr int64_t kBatch = 2, kChunks = 2;

class Attention {
 public:
  explicit Attention(const Case& c) : c_(c), d_(c.variant.dtype) {
    const int64_t lanes = c.variant.queries, padded = (c.width + lanes - 1) / lanes * lanes,
                  padded_value = (c.value_width + lanes - 1) / lanes * lanes;
    auto set = [&](int at, int64_t v) { params_[size_t(at)] = v; };
    set(P::heads, c.heads), set(P::group, c.heads / c.key_heads), set(P::rows, c.rows), set(P::keys, c.keys);
    set(P::width, c.width), set(P::value_width, c.value_width), set(P::causal, c.causal);
    set(P::blocks, (c.rows + c.variant.queries - 1) / c.variant.queries), set(P::chunks, kChunks);
    set(P::padded_width, padded), set(P::padded_value_width, padded_value);
    strides(P::q, c.heads, c.rows, c.width), strides(P::k, c.key_heads, c.keys, c.width);
    strides(P::v, c.key_heads, c.keys, c.value_width), strides(P::mask, c.heads, c.rows, c.keys);
    strides(P::out, c.heads, c.rows, c.value_width), strides(P::grad, c.heads, c.rows, c.value_width);
    strides(P::dq, c.heads, c.rows, c.width);
    sums(P::dk, padded), sums(P::dv, padded_value);
    q_ = noise(c.heads * c.rows * c.width), k_ = noise(c.key_heads * c.keys * c.width);
    v_ = noise(c.key_heads * c.keys * c.value_width), grad_ = noise(c.heads * c.rows * c.value_width);
    mask_ = noise(c.heads * c.rows * c.keys);
    if (c.variant.mask == AttentionVariant::boolean)
      for (auto& b : mask_.bytes) b = random_() % 3 != 0;
    state_ = Data(DType::Int64, 2);
    state_.bytes[0] = 7, state_.bytes[8] = 3;
    numbers_ = numbers({0.3, 1 / 0.75, 0.25});
    gradient_of_keys_ = kChunks * kBatch * c.key_heads * c.keys * padded;
    gradient_of_values_ = kChunks * kBatch * c.key_heads * c.keys * padded_value;
  }

  // Buffers in the order of AttentionForward without those that are work; results are the last two.
  std::vector<Data> forward() {
    return {q_,
            k_,
            v_,
            mask_,
            state_,
            numbers_,
            Data(d_, kBatch * c_.heads * c_.rows * c_.value_width),
            Data(d_, kBatch * c_.heads * c_.rows)};
  }
  int64_t forward_tasks() const { return kBatch * c_.heads * params_[P::blocks]; }
  // As AttentionBackward; results are the last three.
  std::vector<Data> backward(const Data& out, const Data& lse) {
    std::vector<double> delta;
    int64_t n = c_.value_width;
    for (int64_t row = 0; row < kBatch * c_.heads * c_.rows; ++row) {
      delta.push_back(0);
      for (int64_t k = row * n; k < (row + 1) * n; ++k) delta.back() += at(out, k) * at(grad_, k);
    }
    return {q_,
            k_,
            v_,
            mask_,
            state_,
            numbers_,
            grad_,
            lse,
            numbers(delta),
            Data(d_, kBatch * c_.heads * c_.rows * c_.width),
            Data(d_, gradient_of_keys_),
            Data(d_, gradient_of_values_)};
  }
  int64_t backward_tasks() const { return kBatch * c_.key_heads * kChunks; }
  std::vector<int64_t> params(int64_t tasks) {
    params_[P::tasks] = tasks;
    return params_;
  }

 private:
  double at(const Data& d, int64_t k) const {
    return Scalar::load(d_, d.bytes.data() + k * itemsize(d_)).to_double();
  }
  Data numbers(const std::vector<double>& values) const {
    Data r(d_, int64_t(values.size()));
    for (size_t k = 0; k < values.size(); ++k)
      Scalar(values[k]).store(d_, r.bytes.data() + int64_t(k) * itemsize(d_));
    return r;
  }
  Data noise(int64_t n) {
    std::vector<double> values;
    for (int64_t k = 0; k < kBatch * n; ++k)
      values.push_back(std::uniform_real_distribution<double>(-2, 2)(random_));
    return numbers(values);
  }
  void strides(int base, int64_t heads, int64_t rows, int64_t columns) {
    int64_t all[] = {heads * rows * columns, rows * columns, columns, 1};
    std::copy(all, all + 4, params_.begin() + base);
  }
  void sums(int base, int64_t columns) {
    int64_t head = c_.keys * columns,
            all[] = {kBatch * c_.key_heads * head, c_.key_heads * head, head, columns};
    std::copy(all, all + 4, params_.begin() + base);
  }

  const Case& c_;
  DType d_;
  std::mt19937 random_{5};
  std::vector<int64_t> params_ = std::vector<int64_t>(P::count);
  Data q_, k_, v_, mask_, state_, numbers_, grad_;
  int64_t gradient_of_keys_ = 0, gradient_of_values_ = 0;
};

}  // namespace

TEST(AttentionNests, AreTheSameToTheBitOnAGrid) {
  std::deque<loop::Nest> grids;
  std::vector<const loop::Nest*> nests;
  for (auto& c : kCases) {
    AttentionVariant v = c.variant;
    v.lanes = v.queries;
    for (auto& t : {attention_forward_nest(v), attention_backward_nest(v)})
      grids.push_back(schedule::on_grid(with_arrays(t), {.threads = 32}));
  }
  for (auto& g : grids) nests.push_back(&g);
  auto runners = test::grid_runners(nests);
  ASSERT_EQ(runners[0]->error(), "");
  size_t number = 0;
  for (auto& c : kCases) {
    Attention a(c);
    AttentionVariant v = c.variant;
    v.lanes = v.queries;
    auto forward = a.forward(), oracle = forward;
    auto params = a.params(a.forward_tasks());
    test::run_tasks(attention_forward_nest(v), oracle, params);
    auto check = [&](const std::vector<Data>& before, const std::vector<Data>& wanted, size_t nest,
                     const char* what) {
      auto compare = [&](const std::vector<Data>& got, const char* by) {
        for (size_t k = 0; k < got.size(); ++k)
          EXPECT_TRUE(got[k].bytes == wanted[k].bytes)
              << c.name << " " << what << " by " << by << ", buffer " << k;
      };
      for (auto& runner : runners) {
        auto got = before;
        EXPECT_EQ(runner->run(nest, test::memory(got), params).failed, 0);
        compare(got, runner->name());
      }
      auto got = before;
      loop::interpret(test::expanded(*nests[nest]), test::pointers(test::memory(got)), params);
      compare(got, "the interpreter on a grid");
    };
    check(forward, oracle, number++, "forward");
    auto backward = a.backward(oracle[6], oracle[7]), gradients = backward;
    params = a.params(a.backward_tasks());
    test::run_tasks(attention_backward_nest(v), gradients, params);
    check(backward, gradients, number++, "backward");
  }
}
