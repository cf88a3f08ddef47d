// Saved programs that are damaged, cut, of another version or hostile, and calls that a program was not traced for:
// each is refused with what is wrong.
#include "facula/io/program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "again.h"
#include "facula/facula.h"
#include "facula/run/traced.h"

namespace facula {
namespace {

using Given = std::span<const Tensor>;
using Tensors = std::vector<Tensor>;

template <class F>
std::string error_of(F&& f, ErrorType type) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.type(), type) << e.what();
    EXPECT_NE(e.kind(), ErrorKind::internal) << e.what();
    return e.what();
  }
  return "nothing is raised";
}

struct ProgramFile : testing::Test {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("facula_program_test_" + std::to_string(getpid()));
  std::string path = folder / "p.pt";
  Tensor weight = ones(Dims{2, 3}), state = zeros(Dims{3}), x = ones(Dims{4, 2});
  ProgramFile() { std::filesystem::create_directories(folder); }
  ~ProgramFile() override { std::filesystem::remove_all(folder); }

  Program traced(bool dynamic = false) {
    return trace(
        [&](Given in) {
          Tensor y = mm(in[0], weight);
          add_(state, sum(y, Ints{0}));
          return Tensors{softmax(y, 1)};
        },
        Given(&x, 1), "f", dynamic);
  }
  std::string bytes() const {
    std::ifstream f(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(f), {}};
  }
  void write(std::string_view data) const { std::ofstream(path, std::ios::binary) << data; }
  std::string refusal() const {
    std::string text = error_of([&] { Program::load(path); }, ErrorType::RuntimeError);
    for (size_t at; (at = text.find(path)) != text.npos;) text.replace(at, path.size(), "FILE");
    return text;
  }
  // The file with other contents, and right checksums.
  std::string refusal_of(const std::function<void(io::Value&)>& change) {
    traced().save(path);
    io::Value saved = io::load(path);
    change(saved);
    io::save(path, saved);
    return refusal();
  }
};

TEST_F(ProgramFile, IsRefusedWhereverItIsCut) {
  traced().save(path);
  const std::string whole = bytes();
  for (size_t n = 0; n < whole.size(); n += 64) {
    write(whole.substr(0, n));
    ASSERT_TRUE(refusal().starts_with("load: FILE ")) << n << ": " << refusal();
  }
}

TEST_F(ProgramFile, WithAFlippedBitIsRefusedOrTheSame) {
  Program p = traced();
  p.save(path);
  const std::string whole = bytes();
  int refused = 0;
  for (size_t k = 0; k < 4000; ++k) {
    std::string flipped = whole;
    size_t bit = (k * 2654435761u) % (whole.size() * 8);
    flipped[bit / 8] = char(flipped[bit / 8] ^ (1 << bit % 8));
    write(flipped);
    try {
      Program again = Program::load(path);
      ASSERT_EQ(again.text(), p.text()) << bit;
      for (size_t c = 0; c < p.captured().size(); ++c)
        ASSERT_TRUE(all(eq(again.captured()[c], p.captured()[c])).item().to_bool()) << bit;
    } catch (const Error& e) {
      ASSERT_EQ(e.type(), ErrorType::RuntimeError) << e.what();
      ASSERT_NE(e.kind(), ErrorKind::internal) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST_F(ProgramFile, OfAnotherKindOrVersionSaysSo) {
  write("no archive");
  EXPECT_EQ(refusal(), "load: FILE is damaged, or no file of save(): it is no zip archive");
  io::save(path, io::Dict{{"w", weight}});
  EXPECT_EQ(refusal(), "load: FILE holds no program");
  io::save(path, io::List{1});
  EXPECT_EQ(refusal(), "load: FILE holds no program");
  EXPECT_EQ(refusal_of([](auto& v) { v["facula program"] = 4; }),
            "load: FILE is of version 4, and this library reads versions up to 3");
}

TEST_F(ProgramFile, SaysWhichFieldIsWrong) {
  struct Case {
    std::function<void(io::Value&)> change;
    const char* text;
  };
  const Case cases[] = {
      {[](auto& v) { v.dict().erase("graph"); }, "there is no key 'graph' in this dict of 10 items"},
      {[](auto& v) { v["graph"] = "graph()"; }, "line 1, character 7, expected return: graph()"},
      {[](auto& v) { v["graph"] = 3; }, "expected a str, but the value is a int: 3"},
      {[](auto& v) { v["name"] = "no name("; },
       "in the schema at character 3, expected (: no  <here> name((Tensor[] inputs) -> Tensor[]"},
      {[](auto& v) { v["captured"] = 9; }, "a number is out of range"},
      {[](auto& v) { v["results"] = -1; }, "a number is out of range"},
      {[](auto& v) { v["tensors"][0][0] = ones(Dims{2, 3, 1}); }, "a tensor does not fit the graph"},
      {[](auto& v) { v["tensors"][0][0] = to_dtype(ones(Dims{2, 3}), DType::Int64); },
       "a tensor does not fit the graph"},
      {[](auto& v) { v["tensors"] = io::List{}; }, "a number is out of range"},
      {[](auto& v) { v["checks"] = io::List{io::Tuple{{3, "a"}}, io::Tuple{{3, "b"}}}; },
       "it checks more than it computes"},
      {[](auto& v) { v["slots"] = io::List{io::Tuple{{0, 0, -1, false, -1, -1}}}; },
       "a gradient slot is of no tensor"},
      {[](auto& v) { v["slots"] = io::List{io::Tuple{{0, -1, -1, false, 7, -1}}}; },
       "a number is out of range"},
      {[](auto& v) {
         v["differentiates"] = true;
         v["required"] = io::List{};
       },
       "it requires other arguments"},
  };
  for (auto& c : cases) EXPECT_EQ(refusal_of(c.change), std::string("load: FILE is damaged: ") + c.text);
}

// What a graph's text may ask for is bounded by rules, before anything is made of it.
TEST_F(ProgramFile, WithAHostileGraphIsRefusedAtOnce) {
  struct Case {
    const char *graph, *text;
  };
  const Case cases[] = {
      {"graph(%0: float32[1152921504606846976, 8])\n  return %0\n",
       "line 1, character 41, a tensor of too many elements: graph(%0: float32[1152921504606846976, 8])"},
      {"graph(%0: float32[144115188075855872])\n  %1: float32[1] = unbind(%0, dim=0)\n  return %1\n",
       "line 2, character 25, cannot make 144115188075855872 tensors:   %1: float32[1] = unbind(%0, dim=0)"},
      {"graph(%0: float32[2])\n  %1: float32[2] = _standard_gamma(%0, generator=None)\n  return %1\n",
       "line 2, character 19, no graph has calls of this operator:   %1: float32[2] = _standard_gamma(%0, generator=None)"},
      {"graph(%0: float32[2])\n  %1: float32[3] = select_backward(%0, input_sizes=[], dim=5, index=0)\n",
       "line 2, character 34, dim 5 is not among the dimensions of []:   %1: float32[3] = select_backward(%0, input_sizes=[], dim=5, index=0)"},
      {"graph(%0: float32[2])\n  %1: int64[3, 1] = nonzero(%0)\n  return %1\n",
       "line 2, character 27, %1 is int64[u0, 1] strides [1, 1] by its operator:   %1: int64[3, 1] = nonzero(%0)"},
      {"graph(%0: float32[s0*s0*s0*s0])\n  size s0 = 2147483648\n  return %0\n",
       "line 1, character 30, a tensor of too many elements: graph(%0: float32[s0*s0*s0*s0])"},
      {"graph(%0: float32[-1])\n  return %0\n",
       "line 1, character 21, a negative size: graph(%0: float32[-1])"},
  };
  for (auto& c : cases)
    EXPECT_EQ(refusal_of([&](auto& v) { v["graph"] = c.graph; }),
              std::string("load: FILE is damaged: ") + c.text);
  std::string sum = "graph(%0: float32[";
  for (int k = 0; k < 5000; ++k) sum += "s" + std::to_string(k) + " + ";
  sum += "1])\n";
  for (int k = 0; k < 5000; ++k) sum += "  size s" + std::to_string(k) + " = 3\n";
  std::string begin =
      "load: FILE is damaged: line 1, character 7105, a size follows from others by more than 2048 operations, "
      "sizes and numbers";
  EXPECT_EQ(refusal_of([&](auto& v) { v["graph"] = sum + "  return %0\n"; }).substr(0, begin.size()), begin);
}

TEST_F(ProgramFile, CalledAsItWasNotTracedSaysWhatItAssumed) {
  traced(true).save(path);
  Program p = Program::load(path);
  auto refused = [&](Tensors in) { return error_of([&] { p(in); }, ErrorType::ValueError); };
  EXPECT_EQ(refused({}), "f: was traced with 1 tensors, and is called with 0");
  EXPECT_EQ(refused({x, x}), "f: was traced with 1 tensors, and is called with 2");
  EXPECT_EQ(
      refused({to_dtype(x, DType::Float64)}),
      "f: was traced with float32[s0, s1] as tensor 0, and is called with float64[4, 2]\n  hint: trace it for these inputs, or with dynamic=True");
  EXPECT_EQ(
      refused({ones(Dims{4})}),
      "f: was traced with float32[s0, s1] as tensor 0, and is called with float32[4]\n  hint: trace it for these inputs, or with dynamic=True");
  EXPECT_EQ(
      refused({ones(Dims{4, 3})}),
      "f: relied on sizes that the tensors it is called with do not have: s1 == 2, and these are 3 and 2\n  hint: it was traced where Python looked at a size, or compared one: trace it for these sizes");
  EXPECT_EQ(
      refused({ones(Dims{1, 2})}),
      "f: was traced for a size s0 of at least 2 (it was 4), and is called with 1\n  hint: trace it for this size; 0 and 1 are sizes of their own");
  EXPECT_EQ(refused({Tensor()}), "f: tensor 0 is undefined");
  Tensor elsewhere = empty(Dims{4, 2}, DType::Float32, Device{DeviceType::meta});
  EXPECT_EQ(
      error_of([&] { p(Given(&elsewhere, 1)); }, ErrorType::RuntimeError),
      "f: Expected all tensors to be on the same device, but found at least two devices, meta and cpu!\n"
      "  hint: to(device) moves a tensor; it has the shape [2, 3]");
  Tensor base = ones(Dims{12});
  Program writes = trace(
      [](Given in) {
        add_(in[0], in[1]);
        return Tensors{};
      },
      Tensors{ones(Dims{3}), ones(Dims{3})}, "g");
  EXPECT_EQ(
      error_of([&] { writes(Tensors{narrow(base, 0, 0, 3), narrow(base, 0, 2, 3)}); }, ErrorType::ValueError),
      "g: writes to tensor 0 of [3], which shares its memory with tensor 1 of [3]\n  hint: clone() one of them");
  EXPECT_EQ(p(Tensors{ones(Dims{7, 2})}).size(), 1u);
}

TEST_F(ProgramFile, ThatFillsGradientsSaysWhichSlotItAssumed) {
  requires_grad_(weight, true);
  auto step = [&](Given in) {
    backward(sum(mm(in[0], weight)));
    return Tensors{};
  };
  trace(step, Given(&x, 1), "step").save(path);
  Program p = Program::load(path);
  p(Given(&x, 1));
  EXPECT_EQ(
      error_of([&] { p(Given(&x, 1)); }, ErrorType::ValueError),
      "step: was traced when .grad of a tensor of shape [2, 3] was None, and is now a tensor\n  hint: zero_grad() before each call, or let the traced function begin with it");
  Tensor needs = requires_grad_(ones(Dims{4, 2}), true);
  Program again = Program::load(path);
  EXPECT_EQ(
      error_of([&] { again(Given(&needs, 1)); }, ErrorType::ValueError),
      "step: calls backward(), and was traced when tensor 0 did not require gradients\n  hint: detach() it, or trace with one that requires them");
}

TEST_F(ProgramFile, TakesSizesAndIndicesThatElementsSay) {
  auto f = [](std::span<const Tensor> x) {
    SymInt n = item_as_size(select(x[1], 0, 0)), m = item_as_size(select(x[1], 0, 1));
    Tensor y = mul(x[0], 1);
    fill_(select(y, 0, m - SymInt(1)), n);
    Tensor grid = view(y, {n, SymInt(-1)});
    return std::vector<Tensor>{exp(grid), repeat(grid, {SymInt(1), n}), pad(reshape(t(y), {-1, n}), {m, 0}),
                               masked_fill(y, gt(y, 0), m), full({n, m}, 2)};
  };
  x = randn(Dims{6, 4});
  auto lengths = [](int64_t n, int64_t m) { return stack(std::vector<Tensor>{full({}, n), full({}, m)}); };
  for (bool dynamic : {false, true}) {
    Tensor example[] = {x, lengths(6, 4)};
    trace(f, example, "said", dynamic).save(path);
    Program p = Program::load(path);
    for (auto [n, m] : {std::pair{6, 4}, {3, 2}, {1, 0}, {24, 1}, {12, 6}}) {
      Tensor given[] = {x, lengths(n, m)};
      auto ours = p(given), theirs = f(given);
      for (size_t k = 0; k < theirs.size(); ++k) {
        ASSERT_EQ(Dims(ours[k].sizes()), Dims(theirs[k].sizes())) << n << ", " << m << ", " << k;
        if (theirs[k].numel().concrete()) {
          EXPECT_LT(max(abs(sub(ours[k], theirs[k]))).item().to_double(), 1e-6) << n << ", " << m;
        }
      }
    }
    for (auto [n, m] : {std::pair{5, 4}, {0, 1}, {6, 7}, {-6, 4}}) {
      Tensor given[] = {x, lengths(n, m)};
      EXPECT_THROW(p(given), Error) << n << ", " << m;
    }
  }
}

// In the process that FACULA_TARGET=c99 runs it in, which has no Python, every kernel is C's.
TEST_F(ProgramFile, OfSpecialFunctionsRunsFromC99) {
  auto f = [](Given x) {
    Tensor a = x[0], b = x[1];
    Tensor y = add(special_bessel_j1(a), mul(igamma(a, b), special_zeta(add(a, 1.5), b)));
    y = add(y, add(special_airy_ai(neg(a)), special_modified_bessel_k0(b)));
    y = add(y, add(special_legendre_polynomial_p(a, b), i0(a)));
    Tensor loss = sum(add(y, mul(igammac(b, a), polygamma(2, a))));
    return Tensors{y, loss};
  };
  Tensor given[] = {add(mul(arange(40), 0.31), 0.1), add(mul(arange(40), 0.17), 0.2)};
  auto kept = folder / "results.pt";
  const char* from = std::getenv("FACULA_TEST_PROGRAM");
  if (from) {
    auto found = Program::load(std::string(from) + "/p.pt")(given);
    auto wanted = io::load(std::string(from) + "/results.pt").list();
    EXPECT_TRUE(io::Value(found[0]) == wanted[0]);  // to the bit
    EXPECT_NEAR(div(found[1], wanted[1].tensor()).item().to_double(), 1, 1e-6);
    return;
  }
  trace(f, given, "special").save(path);
  io::List wanted;
  for (auto& t : Program::load(path)(given)) wanted.push_back(io::Value(t));
  io::save(kept.string(), io::Value(wanted));
  setenv("FACULA_TEST_PROGRAM", folder.c_str(), 1);
  setenv("FACULA_TARGET", "c99", 1);
  auto [status, text] = run_again("", "ProgramFile.OfSpecialFunctionsRunsFromC99");
  unsetenv("FACULA_TARGET");
  unsetenv("FACULA_TEST_PROGRAM");
  EXPECT_EQ(status, 0) << text;
}

}  // namespace
}  // namespace facula
