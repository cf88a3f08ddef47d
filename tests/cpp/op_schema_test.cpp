// Schemas: what is read, how defaults become values, and where mistakes are reported.
#include <gtest/gtest.h>

#include "facula/op/schema.h"

namespace facula::op {
namespace {

std::string mistake(std::string_view text) {
  try {
    parse_schema(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.type(), ErrorType::ValueError);
    return e.message();
  }
  return "";
}

TEST(Schema, ReadsNamesTypesAndMarks) {
  Schema s = parse_schema(
      "max_pool2d.grad(Tensor(a!) self, Tensor? weight=None, *, int[2] stride=1, SymInt[] size, Tensor?[] indices, "
      "float[]? scale=None) -> (Tensor values, Tensor[] rest)");
  EXPECT_EQ(s.name, "max_pool2d");
  EXPECT_EQ(s.overload, "grad");
  EXPECT_EQ(s.full_name(), "max_pool2d.grad");
  EXPECT_TRUE(s.mutates());
  ASSERT_EQ(s.parameters.size(), 6u);
  auto& p = s.parameters;
  EXPECT_TRUE(p[0].written && p[0].alias == 'a' && !p[0].has_default && !p[0].keyword_only);
  EXPECT_TRUE(p[1].optional && p[1].has_default && p[1].fallback[0].is_none());
  EXPECT_TRUE(p[2].keyword_only && p[2].list && p[2].list_size == 2 && !p[2].symbolic);
  EXPECT_TRUE(p[3].symbolic && p[3].list && p[3].list_size == 0 && p[3].keyword_only);
  EXPECT_TRUE(p[4].list && p[4].optional_items && !p[4].optional);
  EXPECT_TRUE(p[5].list && p[5].optional && !p[5].optional_items && p[5].type == Type::Float);
  ASSERT_EQ(s.returns.size(), 2u);
  EXPECT_EQ(s.returns[0].name, "values");
  EXPECT_TRUE(s.returns[1].list);
  EXPECT_EQ(s.index_of("size"), 3);
  EXPECT_EQ(s.index_of("none"), -1);
}

TEST(Schema, ReadsResults) {
  EXPECT_TRUE(parse_schema("f() -> ()").returns.empty());
  EXPECT_EQ(parse_schema("f(Tensor(a) x) -> Tensor(a)").returns[0].alias, 'a');
  EXPECT_TRUE(parse_schema("f(Tensor(a) x) -> Tensor(a)[]").returns[0].list);
  EXPECT_EQ(parse_schema("f(Tensor x) -> bool").returns[0].type, Type::Bool);
}

TEST(Schema, DefaultsHaveTheTypeOfTheirParameter) {
  Schema s = parse_schema(
      "f(*, float a=1, Scalar b=1, Scalar c=-2.5, int d=-3, bool e=True, str f='tanh', int[2] g=4, int[] h=(), int[1] i=[0, -1], "
      "dtype j=float32, MemoryFormat k=preserve_format, float[] l=(0.9, 0.999), float m=-inf, Scalar n=1e-05) -> Tensor");
  auto value = [&](const char* name) -> const Value& {
    return s.parameters[size_t(s.index_of(name))].fallback[0];
  };
  EXPECT_EQ(value("a").number().category(), Category::floating);
  EXPECT_EQ(value("b").number().category(), Category::integral);
  EXPECT_EQ(value("c").number().to_double(), -2.5);
  EXPECT_EQ(value("d").integer().concrete(), -3);
  EXPECT_TRUE(value("e").number().to_bool());
  EXPECT_EQ(value("f").string(), "tanh");
  EXPECT_EQ(to_string(value("g").ints()), "[4, 4]");
  EXPECT_EQ(to_string(value("h").ints()), "[]");
  EXPECT_EQ(to_string(value("i").ints()), "[0, -1]");
  EXPECT_EQ(value("j").dtype, DType::Float32);
  EXPECT_EQ(value("k").format, MemoryFormat::preserve);
  ASSERT_EQ(value("l").scalars().size(), 2u);
  EXPECT_EQ(value("l").scalars()[1].to_double(), 0.999);
  EXPECT_EQ(value("m").number().to_double(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(value("n").number().to_double(), 1e-5);
  EXPECT_EQ(s.parameters[0].default_text, "1");
}

TEST(Schema, MistakesAreReportedWithTheirPlace) {
  EXPECT_NE(mistake("f(Tensr x) -> Tensor").find("at character 2, unknown type Tensr"), std::string::npos);
  EXPECT_NE(mistake("f(Tensor x)").find("expected ->"), std::string::npos);
  EXPECT_NE(mistake("f(Tensor x, Tensor x) -> Tensor").find("second parameter"), std::string::npos);
  EXPECT_NE(mistake("f(int x=1.5) -> Tensor").find("not an integer"), std::string::npos);
  EXPECT_NE(mistake("f(int x=None) -> Tensor").find("not optional"), std::string::npos);
  EXPECT_NE(mistake("f(str x='a) -> Tensor").find("does not end"), std::string::npos);
  EXPECT_NE(mistake("f(bool x=1) -> Tensor").find("True or False"), std::string::npos);
  EXPECT_NE(mistake("f(Tensor x) -> Tensor y z").find("unexpected text"), std::string::npos);
  EXPECT_NE(mistake("f(*, *, int x) -> Tensor").find("second *"), std::string::npos);
  EXPECT_NE(mistake("f(int x=99999999999999999999) -> Tensor").find("64 bits"), std::string::npos);
  EXPECT_NE(mistake("").find("expected the operator's name"), std::string::npos);
}

}  // namespace
}  // namespace facula::op
