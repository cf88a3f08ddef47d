// Blocks and classes of a library, registered in the program that they are linked with.
#include <gtest/gtest.h>

#include "facula/extend/method_operator.h"
#include "facula/extension.h"
#include "facula/io/program.h"

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
      .def("scale", [](const Ref<Counter>& self, const Tensor& x) { return x * self->next(1); })
      .def("names", [](const Ref<Counter>&) { return std::map<std::string, int64_t>(); })
      .def_readwrite("count", &Counter::count)
      .def_pickle([](const Ref<Counter>& self) { return std::pair(int64_t(1), self->count); },
                  [](std::pair<int64_t, int64_t> state) { return make_ref<Counter>(state.second); });
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

// x * (next count) + next count, by methods that a program calls.
Program counting(const Ref<Counter>& counter) {
  auto& c = *extend::find_class("probe", "Counter");
  std::string scale = extend::method_operator(c, c.methods[1]),
              next = extend::method_operator(c, c.methods[0]);
  Tensor x = ones({2});
  return trace(
      [&](std::span<const Tensor> in) {
        Dims sizes{SymInt(int64_t(2))};
        op::Value first[] = {counter.get(), in[0], SymSpan(sizes), "float32[1]"};
        Tensor scaled = op::call(op::get(scale), first)[0];
        op::Value second[] = {counter.get(), int64_t(10), SymSpan(), "int64[0]"};
        return std::vector<Tensor>{scaled + op::call(op::get(next), second)[0]};
      },
      std::span(&x, 1), "counting");
}

TEST(Class, MethodsAreCallsOfProgramsWhichHoldTheirObjects) {
  auto counter = make_ref<Counter>(3);
  Program p = counting(counter);
  EXPECT_EQ(counter->count, 3);
  Tensor x = full({2}, 2.0);
  auto value = [&](Program& program) {
    return select(program(std::span(&x, 1))[0], 0, 0).item().to_double();
  };
  EXPECT_EQ(value(p), 2 * 4 + 14);
  std::string path = testing::TempDir() + "counting.pt";
  p.save(path);
  Program again = Program::load(path);
  EXPECT_EQ(value(p), 2 * 15 + 25);  // each has an object of its own from here
  EXPECT_EQ(value(again), 2 * 15 + 25);
  ASSERT_EQ(again.objects().size(), 1u);
  auto* held = dynamic_cast<Counter*>(again.objects()[0].get());
  ASSERT_TRUE(held && held != counter.get());
  EXPECT_EQ(held->count, 25);
  EXPECT_EQ(again.text(), p.text());
  EXPECT_NE(p.text().find("probe::Counter.scale(self=object 0, "), std::string::npos) << p.text();
}

TEST(Class, MethodsThatAProgramCannotCallSaySo) {
  auto& c = *extend::find_class("probe", "Counter");
  auto error = error_of([&] { extend::method_operator(c, c.methods[2]); });
  EXPECT_NE(error.find("probe.Counter.names: a program cannot call this method"), std::string::npos) << error;
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
