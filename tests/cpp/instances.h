// Calls made of the samples that operators declare, with random numbers for their tensors. Include in one file of
// a test program.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "facula/op/operator.h"
#include "literals.h"

namespace facula::test {

constexpr int64_t kLargest = 40;  // elements of one tensor

// The random numbers of the running test: they follow from its name, whatever ran before it, and but for the number
// of its parameter, which another operator changes.
inline std::mt19937& engine() {
  static std::mt19937 generator;
  static const ::testing::TestInfo* seeded = nullptr;
  auto* running = ::testing::UnitTest::GetInstance()->current_test_info();
  if (!seeded || running != seeded) {
    std::string name = running ? std::string(running->test_suite_name()) + "." + running->name() : "";
    if (running && running->value_param()) name.resize(name.find_last_not_of("0123456789"));
    std::seed_seq seed(name.begin(), name.end());
    generator.seed(seed);
    seeded = running;
  }
  return generator;
}

inline Tensor filled(const op::SampleArg& a, const std::vector<int64_t>& sizes) {
  DType d = a.index ? DType::Int64 : a.boolean ? DType::Bool : DType::Float64;
  Tensor t = Tensor::empty(IntSpan(sizes), d);
  int64_t n = t.numel().concrete();
  std::vector<double> values;
  std::uniform_real_distribution<double> uniform(a.low, a.high);
  for (int64_t i = 0; i < n; ++i) {
    double x = a.distinct ? a.low + (a.high - a.low) * (double(i) + 0.5) / double(n) : uniform(engine());
    values.push_back(a.index ? std::floor(x) : a.boolean ? double(engine()() & 1) : x);
  }
  if (a.distinct) std::shuffle(values.begin(), values.end(), engine());
  for (int64_t i = 0; i < n; ++i)
    Scalar(values[size_t(i)]).store(d, static_cast<char*>(t.data_ptr()) + i * itemsize(d));
  if (a.positive_definite && sizes.size() >= 2) {
    int64_t k = sizes.back();
    for (int64_t i = 0; i < n; ++i)
      if (i / k % k == i % k) t.data<double>()[i] += 4 * double(k);
  }
  return t;
}

// One call made of a sample: arguments by parameter, and the tensors to differentiate.
struct Instance {
  std::vector<std::vector<Tensor>> tensors;
  std::vector<op::Schema> literals;
  std::vector<op::Value> args;
  std::vector<Tensor> inputs;
};

// False if a tensor would be too large.
inline bool instantiate(const op::Operator& o, const op::Sample& sample, Instance& x) {
  auto& parameters = o.schema.parameters;
  x.tensors.resize(parameters.size());
  x.literals.reserve(parameters.size());
  x.args.resize(parameters.size());
  for (auto& [name, a] : sample.args) {
    auto k = size_t(o.schema.index_of(name));
    if (a.kind == op::SampleArg::Kind::literal) {
      x.literals.push_back(literal(parameters[k], a.literal));
      x.args[k] = x.literals.back().parameters[0].fallback[0];
      continue;
    }
    for (auto& sizes : a.sizes) {
      Tensor t = filled(a, sizes);
      if (t.numel().concrete() > kLargest) return false;
      if (t.dtype() == DType::Float64) x.inputs.push_back(t);
      x.tensors[k].push_back(t);
    }
    if (a.kind == op::SampleArg::Kind::tensor) x.args[k] = op::Value(x.tensors[k][0]);
    else x.args[k] = op::Value(std::span<const Tensor>(x.tensors[k]));
  }
  return true;
}

}  // namespace facula::test
