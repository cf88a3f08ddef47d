// Checkpoints: what is written is read again, and damaged or hostile files give one error.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "facula/autograd/autograd.h"
#include "facula/io/archive.h"
#include "facula/io/checkpoint.h"
#include "facula/io/idx.h"
#include "facula/ops.h"

namespace facula::io {
namespace {

struct Files : testing::Test {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("facula_io_test_" + std::to_string(getpid()));
  Files() { std::filesystem::create_directories(folder); }
  ~Files() override { std::filesystem::remove_all(folder); }
  std::string path(const char* name = "file.pt") const { return folder / name; }
  std::string bytes(const std::string& path) const {
    std::ifstream f(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(f), {}};
  }
  void write(const std::string& path, const std::string& data) const {
    std::ofstream(path, std::ios::binary) << data;
  }
  // An archive around a pickle, with one storage of 16 bytes.
  std::string pickled(const std::string& pickle) const {
    ArchiveWriter a("save", path());
    a.add("x/data.pkl", pickle.data(), pickle.size());
    a.add("x/data/0", "0123456789abcdef", 16);
    a.commit();
    return path();
  }
  std::string error_of(const std::string& path) const {
    try {
      load(path);
    } catch (const Error& e) {
      EXPECT_EQ(e.type(), ErrorType::RuntimeError) << e.what();
      return e.what();
    }
    return "";
  }
};
using Checkpoint = Files;

std::vector<int64_t> ints(IntSpan s) { return {s.begin(), s.end()}; }

TEST_F(Checkpoint, KeepsNestedContainersNumbersAndStrings) {
  Value v = Dict{{"none", nullopt},
                 {"yes", true},
                 {"no", false},
                 {"small", 3},
                 {"negative", -70000},
                 {"large", int64_t(1) << 62},
                 {"smallest", std::numeric_limits<int64_t>::min()},
                 {"real", 0.1},
                 {"complex", std::complex<double>(1, -2)},
                 {"text",
                  "Gr\xc3\xbc\xc3\x9f"
                  "e"},
                 {"dtype", DType::BFloat16},
                 {"list", List{1, List{}, Dict{}, "x"}},
                 {"tuple", Tuple{{1, 2.5}}},
                 {7, "int key"},
                 {2.5, "float key"}};
  save(path(), v);
  Value r = load(path());
  EXPECT_EQ(r, v) << to_string(r);
  EXPECT_EQ(to_string(r), to_string(v));
  EXPECT_EQ(r["large"].integer(), int64_t(1) << 62);
  EXPECT_EQ(r["list"].kind(), Value::Kind::list);
  EXPECT_EQ(r["tuple"].kind(), Value::Kind::tuple);
}

TEST_F(Checkpoint, KeepsTensorsOfEveryDtypeStridesAndRequiresGrad) {
  Dict d;
  for (int k = 0; k < kDTypeCount; ++k) d.set(name(DType(k)), to(arange(6), DType(k)));
  d.set("empty", zeros({0, 3}));
  d.set("number", Tensor::scalar(2.5, DType::Float64));
  d.set("transposed", transpose(to(reshape(arange(6), {2, 3}), DType::Float32), 0, 1));
  Tensor p = ones({2});
  autograd::set_requires_grad(p, true);
  d.set("parameter", p);
  Value v = d;
  save(path(), v);
  Value r = load(path());
  EXPECT_EQ(r, v);
  EXPECT_EQ(ints(r["transposed"].tensor().int_strides()), (std::vector<int64_t>{1, 3}));
  EXPECT_TRUE(r["parameter"].tensor().requires_grad());
  EXPECT_FALSE(r["number"].tensor().requires_grad());
}

TEST_F(Checkpoint, KeepsSharedStoragesAndContainersShared) {
  Tensor a = to(arange(12), DType::Float32);
  Value list = List{1};
  save(path(),
       Dict{{"whole", a}, {"part", slice(a, 0, 4, 12, 2)}, {"same", a}, {"one", list}, {"other", list}});
  Value r = load(path());
  const Tensor &whole = r["whole"].tensor(), &part = r["part"].tensor();
  EXPECT_EQ(whole.impl()->storage.get(), part.impl()->storage.get());
  EXPECT_TRUE(whole.is_same(r["same"].tensor()));
  fill_(whole, 7);
  EXPECT_EQ(sum(part).item().to_double(), 28);
  EXPECT_EQ(r["one"].identity(), r["other"].identity());
}

TEST_F(Checkpoint, DataLieAtMultiplesOf64Bytes) {
  save(path(), List{to(arange(3), DType::UInt8), full({5}, 1.5, DType::Float64)});
  std::string file = bytes(path()), first("\0\1\2", 3);
  size_t at = file.find(first + "PK");
  ASSERT_NE(at, file.npos);
  EXPECT_EQ(at % 64, 0u);
  EXPECT_EQ(file.find(std::string("\0\0\0\0\0\0\xf8\x3f", 8)) % 64, 0u);
}

TEST_F(Checkpoint, EveryTruncationAndEveryFlippedByteIsAnErrorOrReadsTheSame) {
  Value v = Dict{{"w", to(arange(6), DType::Float32)}, {"lr", 0.5}, {"names", List{"a", "b"}}};
  save(path(), v);
  std::string good = bytes(path());
  for (size_t n = 0; n < good.size(); n += 7) {
    write(path("bad"), good.substr(0, n));
    EXPECT_NE(error_of(path("bad")), "") << n;
  }
  std::mt19937 random(0);
  for (int k = 0; k < 1500; ++k) {
    std::string bad = good;
    for (int j = 0; j <= k % 3; ++j) bad[random() % bad.size()] = char(random());
    write(path("bad"), bad);
    std::string error = error_of(path("bad"));
    if (error.empty()) EXPECT_NO_THROW(load(path("bad")));
    else EXPECT_EQ(error.find("load: "), 0u) << error;
  }
}

// Pickles that a hostile file may hold; every instruction may be cut, repeated or exchanged.
TEST_F(Checkpoint, RandomPicklesGiveAnErrorOrAValue) {
  std::mt19937 random(1);
  const std::string codes =
      "\x80.(NJKMGX})]te"
      "asuqrhjcQRb0\x85\x86\x87\x88\x89\x8a\x8c\x94\x93";
  for (int k = 0; k < 1000; ++k) {
    std::string p = "\x80\x02";
    for (int n = int(random() % 60); n--;)
      p += random() % 4 ? codes[random() % codes.size()] : char(random() % 4);
    error_of(pickled(p + "."));
  }
}

TEST_F(Checkpoint, RefusesWhatIsNoTensorContainerOrNumberByItsName) {
  std::string error =
      error_of(pickled("\x80\x02"
                       "cos\nsystem\nX\x04\0\0\0true\x85R."));
  EXPECT_NE(error.find("os.system"), error.npos) << error;
  EXPECT_NE(error_of(pickled(std::string("\x80\x02"
                                         "cbuiltins\neval\n.")))
                .find("builtins.eval"),
            error.npos);
}

TEST_F(Checkpoint, RefusesCyclesDepthAndTensorsOutsideOfTheirStorage) {
  EXPECT_NE(error_of(pickled("\x80\x02]q\x01h\x01"
                             "a."))
                .find("holds itself"),
            std::string::npos);
  std::string deep = "\x80\x02";
  for (int k = 0; k < 1000000; ++k) deep += ']';
  for (int k = 1; k < 1000000; ++k) deep += 'a';
  EXPECT_NE(error_of(pickled(deep + ".")).find("nested deeper"), std::string::npos);
  auto text = [](const std::string& t) {
    return "X" + std::string(1, char(t.size())) + std::string(3, '\0') + t;
  };
  auto tensor = [&](const std::string& numel, const std::string& offset, const std::string& size) {
    return pickled(
        "\x80\x02"
        "ctorch._utils\n_rebuild_tensor_v2\n((" +
        text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + numel + "tQ" + offset + "(" +
        size +
        "t(K\1t\x89"
        "}tR.");
  };
  EXPECT_EQ(error_of(tensor("K\x04", std::string("K\0", 2), "K\4")), "");
  EXPECT_NE(error_of(tensor("K\x04", "K\1", "K\4")).find("lies outside of its storage"), std::string::npos);
  EXPECT_NE(error_of(tensor("K\x04", std::string("K\0", 2), "J\xff\xff\xff\x7f")).find("lies outside"),
            std::string::npos);
  EXPECT_NE(
      error_of(tensor("K\x05", std::string("K\0", 2), "K\4")).find("has 16 bytes, 5 elements of float32"),
      std::string::npos);
  EXPECT_NE(error_of(tensor("J\xff\xff\xff\xff", std::string("K\0", 2), "K\4")).find("elements"),
            std::string::npos);
}

// What a pickle makes and drops again: a list in a list in ..., innermost first, and one that holds itself
// and a tensor.
TEST_F(Checkpoint, WhatAPickleDropsIsFreedHoweverItHangsTogether) {
  using namespace std::string_literals;
  std::string deep = "\x80\x02]q\0000"s;
  for (int k = 0; k < 300000; ++k) deep += "]h\0aq\0000"s;
  EXPECT_EQ(error_of(pickled(deep + "h\0000N."s)), "");
  std::string cycle =
      "\x80\x02]q\1h\1ah\1ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
      "0X\3\0\0\0cpuK\4tQK\0(K\4t(K\1t\x89}tRa0N."s;
  load(pickled(cycle));
  auto before = memory_stats();
  for (int k = 0; k < 10; ++k) load(path());
  EXPECT_EQ(memory_stats().current_bytes, before.current_bytes);
  EXPECT_GT(memory_stats().allocations, before.allocations);
}

TEST_F(Checkpoint, MissingAndForeignFilesAreNamed) {
  EXPECT_NE(error_of(path("none")).find("cannot open " + path("none")), std::string::npos);
  write(path("text"), "no archive");
  EXPECT_NE(error_of(path("text")).find("is no zip archive"), std::string::npos);
  EXPECT_NE(error_of(folder).find("is no plain file"), std::string::npos);
}

TEST_F(Checkpoint, AFullDiskLeavesTheOldFileAndNothingElse) {
  save(path(), Dict{{"epoch", 1}});
  std::string before = bytes(path());
  auto old_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit old;
  getrlimit(RLIMIT_FSIZE, &old);
  rlimit small{4096, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    save(path(), Dict{{"w", zeros({10000})}});
  } catch (const Error& e) { message = e.what(); }
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, old_handler);
  EXPECT_NE(message.find("save: cannot write " + path()), message.npos) << message;
  EXPECT_NE(message.find("stays as it was"), message.npos) << message;
  EXPECT_EQ(bytes(path()), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(Checkpoint, SavingAContainerThatHoldsItselfIsRefused) {
  Value list = List{};
  list.list().push_back(list);
  EXPECT_THROW(save(path(), list), Error);
  list.list().clear();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST(Value, WrongUsesNameWhatIsThere) {
  Value v = Dict{{"a", 1}};
  auto message = [](auto f) {
    try {
      f();
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  EXPECT_EQ(message([&] { v["b"]; }), "there is no key 'b' in this dict of 1 items");
  EXPECT_EQ(message([&] { v["a"].string(); }), "expected a str, but the value is a int: 1");
  EXPECT_EQ(message([&] { Value(List{1})[4]; }), "index 4 is out of range for a list of 1 items");
}

TEST(Dict, KeepsOrderAndFindsMany) {
  Dict d;
  for (int k = 0; k < 10000; ++k) d.set(k % 2 ? Value(k) : Value(std::to_string(k)), k);
  ASSERT_EQ(d.size(), 10000u);
  int k = 0;
  for (auto& [key, value] : d) EXPECT_EQ(value.integer(), k++);
  for (k = 0; k < 10000; ++k) EXPECT_EQ(d.at(k % 2 ? Value(k) : Value(std::to_string(k))).integer(), k);
  d.erase(1);
  EXPECT_FALSE(d.contains(1));
  EXPECT_EQ(d.at("9998").integer(), 9998);
  EXPECT_TRUE(d.contains(3.0));  // equal numbers are one key, as in Python
}

TEST_F(Files, IdxReadsSizesAndBigEndianElements) {
  write(path("a"), std::string("\0\0\x0C\x02\0\0\0\x02\0\0\0\x01\0\0\1\2\xff\xff\xff\xff", 20));
  Tensor t = read_idx(path("a"));
  EXPECT_EQ(ints(t.int_sizes()), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(t.data<int32_t>()[0], 258);
  EXPECT_EQ(t.data<int32_t>()[1], -1);
}
TEST_F(Files, IdxRefusesDamage) {
  std::string good(
      "\0\0\x08\x01\0\0\0\x03"
      "abc",
      11);
  write(path("a"), good);
  EXPECT_NO_THROW(read_idx(path("a")));
  for (std::string bad :
       {good.substr(0, 10), good + "x", std::string("PK"), std::string(),
        std::string("\0\0\x08\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20)}) {
    write(path("a"), bad);
    EXPECT_THROW(read_idx(path("a")), Error);
  }
}

}  // namespace
}  // namespace facula::io
