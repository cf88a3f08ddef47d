// Blocks and classes of a library, registered in the program that they are linked with.
#include <gtest/gtest.h>

#include "facula/extension.h"

using namespace facula;
using loop::Expr;

namespace {

struct Counter : CustomClassHolder {
  explicit Counter(int64_t from) : count(from) {}
  int64_t next(int64_t by) { return count += by; }
  int64_t count;
};
struct Unknown : CustomClassHolder {};

FACULA_LIBRARY(probe, m) {
  m.define("cube(Tensor self) -> Tensor").pointwise([](Expr x) { return x * x * x; });
  m.class_<Counter>("Counter")
      .def(init<int64_t>(), "", {arg("from") = 0})
      .def("next", &Counter::next, "", {arg("by") = 1})
      .def_readwrite("count", &Counter::count);
  m.def("counted", [](const Tensor& x, const Ref<Counter>& c) { return x + c->count; });
  m.def("doubled(Tensor x) -> Tensor");
  m.register_fake("doubled", [](const Tensor& x) { return empty_like(x); });
  m.register_autograd("doubled", [](const op::Vjp& v) { return op::grads(v.grad() * 2); });
}
FACULA_LIBRARY_IMPL(probe, CPU, m) {
  m.impl("doubled", [](const Tensor& x) { return x * 2; });
}

Tensor call(const char* name, std::initializer_list<op::Value> args) {
  return op::call(op::get(name), std::span(args.begin(), args.size()))[0];
}
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "no error";
}
void faulty(extend::Library& m) {
  m.def("probe_good(Tensor x) -> Tensor", [](const Tensor& x) { return x; });
  m.def("probe_bad(Tensor x) -> Nothing");
}

TEST(Library, DefinitionsAndFunctionsAreDifferentiated) {
  Tensor x = requires_grad_(full({2}, 3.0));
  backward(sum(call("probe::cube", {x}) + call("probe::doubled", {x})));
  EXPECT_EQ(select(grad_of(x), 0, 1).item().to_double(), 29);
}

TEST(Library, AFaultyBlockLeavesNothing) {
  for (int k = 0; k < 2; ++k) {
    auto load = [] {
      extend::Registration({extend::BlockKind::whole, "faulty", "", faulty, extend::kBuild, "here"});
    };
    EXPECT_NE(error_of(load).find("unknown type Nothing"), std::string::npos) << error_of(load);
    EXPECT_EQ(op::find("faulty::probe_good"), nullptr);
  }
}

TEST(Class, ObjectsAreCalledByValues) {
  auto& counter = *extend::find_class("probe", "Counter");
  io::Value made = (*counter.make)({}, {{"from", 4}});
  auto& next = counter.methods[0];
  EXPECT_EQ(next(io::List{made}).integer(), 5);
  EXPECT_EQ(next(io::List{made, 10}).integer(), 15);
  EXPECT_EQ(next.schema(), "next(__torch__.torch.classes.probe.Counter _0, int by=1) -> int");
  EXPECT_EQ(select(call("probe::counted", {zeros({1}), made.custom_object().get()}), 0, 0).item().to_double(),
            15);
  EXPECT_NE(error_of([&] { next(io::List{made, "x"}); }).find("'int' for argument 'by'"), std::string::npos);
  EXPECT_NE(error_of([&] { next(io::List{3}); }).find("'__torch__.torch.classes.probe.Counter'"),
            std::string::npos);
}

TEST(Class, UnregisteredOnesAndSavingAreRefused) {
  EXPECT_EQ(extend::class_of(Unknown()), nullptr);
  io::Value object = Ref<CustomClassHolder>(make_ref<Unknown>());
  EXPECT_EQ(io::to_string(object), "<object>");
  EXPECT_TRUE(object == object);
  auto write = [&] { io::save(testing::TempDir() + "object.pt", object); };
  EXPECT_NE(error_of(write).find("<object> can't be written to a file"), std::string::npos)
      << error_of(write);
}

}  // namespace
