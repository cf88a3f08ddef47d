// Modules, optimizers, schedules and loaders of C++: names and orders as in Python, behaviour, errors. That
// their numbers are Python's is shown by the twins of the example (tests/python/test_cpp_front_end.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "facula/facula.h"

namespace facula {
namespace {

struct Block : nn::Module {
  Block() : Module("Block") {}
  nn::Linear inner = register_module("inner", nn::Linear(4, 4));
  Tensor scale = register_parameter("scale", ones({4}));
  Tensor seen = register_buffer("seen", zeros({1}));
  Tensor operator()(const Tensor& x) const { return inner(x) * scale; }
};
struct Net : nn::Module {
  Net() : Module("Net") {}
  nn::ModuleList<Block> blocks = register_module("blocks", nn::ModuleList<Block>({Block(), Block()}));
  nn::Sequential tail =
      register_module("tail", nn::Sequential{nn::LayerNorm(4), nn::GELU(), nn::Linear(4, 2, false)});
  Tensor operator()(const Tensor& x) const {
    Tensor y = x;
    for (auto& b : blocks) y = b(y);
    return tail(y);
  }
};
template <class T>
std::vector<std::string> names(const nn::Named<T>& named) {
  std::vector<std::string> n;
  for (auto& [name, x] : named) n.push_back(name);
  return n;
}
template <class F>
std::string message(F f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}
bool same(const Tensor& a, const Tensor& b) { return io::Value(a) == io::Value(b); }

TEST(Module, NamesParametersBuffersAndModulesInPythonsOrder) {
  Net net;
  EXPECT_EQ(names(net.named_parameters()),
            (std::vector<std::string>{"blocks.0.scale", "blocks.0.inner.weight", "blocks.0.inner.bias",
                                      "blocks.1.scale", "blocks.1.inner.weight", "blocks.1.inner.bias",
                                      "tail.0.weight", "tail.0.bias", "tail.2.weight"}));
  EXPECT_EQ(names(net.named_buffers()), (std::vector<std::string>{"blocks.0.seen", "blocks.1.seen"}));
  EXPECT_EQ(names(net.named_modules()),
            (std::vector<std::string>{"", "blocks", "blocks.0", "blocks.0.inner", "blocks.1",
                                      "blocks.1.inner", "tail", "tail.0", "tail.1", "tail.2"}));
  EXPECT_EQ(net.state_dict().size(), 11u);
  EXPECT_TRUE(net.parameter("tail.2.weight").requires_grad());
}
TEST(Module, PrintsAsInPython) {
  EXPECT_EQ(
      (nn::Sequential{nn::Linear(2, 3), nn::Sequential{nn::ReLU(), nn::Dropout(0.5)}}).to_string(),
      "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): Sequential(\n    (0): ReLU()\n    (1): Dropout(p=0.5, inplace=False)\n  )\n)");
}
TEST(Module, CopiesShareParametersAndModes) {
  Net net, copy = net;
  copy.eval();
  EXPECT_FALSE(net.is_training());
  EXPECT_FALSE(net.blocks[0].inner.is_training());
  EXPECT_TRUE(net.parameters()[0].is_same(copy.parameters()[0]));
}
TEST(Module, EqualSeedsGiveEqualWeightsAndAStateMovesThem) {
  manual_seed(5);
  Net a;
  manual_seed(5);
  Net b;
  Tensor x = randn({3, 4});
  EXPECT_TRUE(same(a(x), b(x)));
  Net c;
  EXPECT_FALSE(same(a(x), c(x)));
  auto result = c.load_state_dict(a.state_dict());
  EXPECT_TRUE(result.missing_keys.empty() && result.unexpected_keys.empty());
  EXPECT_TRUE(same(a(x), c(x)));
}
TEST(Module, AStateThatDoesNotFitIsRefusedWholeAndNamed) {
  Net net;
  Tensor before = clone(net.parameter("blocks.0.scale").detached());
  io::Dict state = net.state_dict();
  state.set("blocks.0.scale", zeros({4}));
  state.set("tail.2.weight", zeros({3, 4}));
  state.set("other", 1);
  state.erase("blocks.1.seen");
  std::string m = message([&] { net.load_state_dict(state); });
  EXPECT_NE(m.find("Error(s) in loading state_dict for Net"), m.npos) << m;
  EXPECT_NE(m.find("Missing key(s) in state_dict: \"blocks.1.seen\""), m.npos) << m;
  EXPECT_NE(m.find("Unexpected key(s) in state_dict: \"other\""), m.npos) << m;
  EXPECT_NE(m.find("size mismatch for tail.2.weight: copying a param with shape [3, 4]"), m.npos) << m;
  EXPECT_TRUE(same(net.parameter("blocks.0.scale").detached(), before));
}
TEST(Module, ConvertsInPlaceSoThatOptimizersKeepTheirParameters) {
  Net net;
  auto p = net.parameters();
  net.to(DType::Float64);
  EXPECT_EQ(p[0].dtype(), DType::Float64);
  EXPECT_EQ(net(randn({2, 4}, nullptr, DType::Float64)).dtype(), DType::Float64);
}
TEST(Module, NamesAreChecked) {
  struct Wrong : nn::Module {
    Wrong(const char* a, const char* b) {
      register_parameter(a, zeros({1}));
      register_parameter(b, zeros({1}));
    }
  };
  EXPECT_THROW(Wrong("a", "a"), Error);
  EXPECT_THROW(Wrong("a.b", "c"), Error);
}
TEST(Layers, EmbeddingKeepsItsPaddingRowZero) {
  nn::Embedding e(5, 3, -1);
  EXPECT_EQ(sum(abs(select(e.weight.detached(), 0, 4))).item().to_double(), 0);
  backward(sum(e(to(arange(5), DType::Int64))));
  Tensor g = grad_of(e.weight);
  EXPECT_EQ(sum(g).item().to_double(), 12);
}
TEST(Layers, BatchNormUsesRunningStatisticsWhenEvaluating) {
  nn::BatchNorm1d n(3, {.momentum = std::nullopt});
  Tensor x = randn({10, 3});
  n(x);
  EXPECT_EQ(n.num_batches_tracked.item().to_int(), 1);
  EXPECT_LT(max(abs(n.running_mean - mean(x, {0}))).item().to_double(), 1e-6);
  n.eval();
  Tensor y = n(zeros({2, 3})), expected = (zeros({2, 3}) - n.running_mean) * rsqrt(n.running_var + 1e-5);
  EXPECT_LT(max(abs(y - expected)).item().to_double(), 1e-6);
  EXPECT_EQ(message([&] { n(zeros({3})); }), "expected 2D or 3D input (got 1D input)");
}
TEST(Layers, DropoutIsOffWhenEvaluating) {
  nn::Dropout d(0.5);
  Tensor x = ones({1000});
  double kept = sum(d(x)).item().to_double();
  EXPECT_GT(kept, 800);
  EXPECT_LT(kept, 1200);
  d.eval();
  EXPECT_TRUE(d(x).is_same(x));
}

// Steps computed by hand for one parameter of value 1 and gradient 0.5.
template <class O>
double after_steps(O make, int n) {
  Tensor p = requires_grad_(full({1}, 1.0, DType::Float64));
  auto optimizer = make(std::vector<Tensor>{p});
  for (int k = 0; k < n; ++k) {
    optimizer->zero_grad();
    backward(sum(p * 0.5));
    optimizer->step();
  }
  return p.detached().item().to_double();
}
TEST(Optimizers, StepAsTheirDefinitionsSay) {
  auto sgd = [](auto p) {
    return std::make_unique<optim::SGD>(p,
                                        optim::SGD::Options{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.2});
  };
  double b = 0, p = 1;
  for (int k = 0; k < 3; ++k) {
    double g = 0.5 + 0.2 * p;
    b = k ? 0.9 * b + g : g;
    p -= 0.1 * b;
  }
  EXPECT_NEAR(after_steps(sgd, 3), p, 1e-12);
  auto adamw = [](auto q) {
    return std::make_unique<optim::AdamW>(q, optim::AdamW::Options{.lr = 0.1, .weight_decay = 0.2});
  };
  double m = 0, v = 0;
  p = 1;
  for (int k = 1; k <= 3; ++k) {
    p *= 1 - 0.1 * 0.2;
    m = 0.9 * m + 0.1 * 0.5;
    v = 0.999 * v + 0.001 * 0.25;
    p -= 0.1 * (m / (1 - std::pow(0.9, k))) / (std::sqrt(v / (1 - std::pow(0.999, k))) + 1e-8);
  }
  EXPECT_NEAR(after_steps(adamw, 3), p, 1e-12);
}
TEST(Optimizers, AStateGoesOnWhereItWasSaved) {
  auto step = [](optim::Optimizer& o, const Tensor& p) {
    o.zero_grad();
    backward(sum(square(p - 3)));
    o.step();
  };
  Tensor a = requires_grad_(ones({2})), b = requires_grad_(ones({2}));
  optim::Adam first({a}, {.lr = 0.1, .amsgrad = true});
  step(first, a);
  {
    NoGrad off;
    copy_(b, a.detached());
  }
  optim::Adam second({b}, {});
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.param_groups()[0].lr(), 0.1);
  step(first, a);
  step(second, b);
  EXPECT_TRUE(same(a.detached(), b.detached()));
  optim::Adam other({requires_grad_(ones({2})), requires_grad_(ones({2}))}, {});
  EXPECT_NE(message([&] {
              other.load_state_dict(first.state_dict());
            }).find("group 0 has 1 parameters, the optimizer's has 2"),
            std::string::npos);
}
TEST(Optimizers, RefuseStatesOfOtherSizes) {
  auto refused = [](auto& o, std::function<Tensor()> loss, const char* kind, auto replace) {
    for (int k = 0; k < 3; ++k) {
      if constexpr (std::is_same_v<decltype(o), optim::LBFGS&>) {
        o.step([&] {
          o.zero_grad();
          Tensor l = loss();
          backward(l);
          return l;
        });
      } else {
        o.zero_grad();
        backward(loss());
        o.step();
      }
    }
    io::Value state = o.state_dict();
    o.load_state_dict(state);
    replace(state["state"].dict().find(io::Value(0))->dict());
    EXPECT_NE(message([&] { o.load_state_dict(state); }).find(std::string("state '") + kind + "'"),
              std::string::npos)
        << kind << ": " << message([&] { o.load_state_dict(state); });
  };
  auto other = [](const char* kind) { return [kind](io::Dict& state) { state.set(kind, ones({7})); }; };
  Tensor p = requires_grad_(ones({3, 2}));
  auto squares = [&] { return sum(square(square(p - 3))); };
  optim::Muon muon({p}, {});
  refused(muon, squares, "momentum_buffer", other("momentum_buffer"));
  optim::SGD sgd({p}, {.lr = 0.001, .momentum = 0.9});
  refused(sgd, squares, "momentum_buffer", other("momentum_buffer"));
  for (auto* kind : {"d", "prev_flat_grad", "H_diag"}) {
    optim::LBFGS lbfgs({p}, {.lr = 0.001, .max_iter = 2});
    refused(lbfgs, squares, kind, other(kind));
  }
  optim::LBFGS lbfgs({p}, {.lr = 0.001, .max_iter = 2});
  refused(lbfgs, squares, "old_dirs",
          [](io::Dict& state) { state.set("old_dirs", io::List{io::Value(ones({2}))}); });
  Tensor table = requires_grad_(ones({3, 2})), rows = arange(Scalar(int64_t(2)));
  optim::SparseAdam sparse({table}, {});
  refused(sparse, [&] { return sum(embedding(table, rows, -1, false, true)); }, "exp_avg", other("exp_avg"));
}
TEST(Optimizers, RefuseWrongOptionsAndParameters) {
  Tensor p = requires_grad_(ones({2}));
  EXPECT_EQ(message([&] { optim::SGD({p}, {.lr = -1}); }), "Invalid learning rate: -1");
  EXPECT_NE(message([&] { optim::SGD(std::vector<Tensor>{}); }).find("empty parameter list"),
            std::string::npos);
  EXPECT_NE(message([&] { optim::SGD({p * 2}, {}); }).find("can't optimize a non-leaf Tensor"),
            std::string::npos);
}
TEST(Schedules, FollowTheirFormulas) {
  optim::SGD o({requires_grad_(ones({1}))}, {.lr = 1.0});
  optim::StepLR step(o, 2, 0.5);
  std::vector<double> lrs;
  for (int k = 0; k < 5; ++k) {
    lrs.push_back(o.param_groups()[0].lr());
    step.step();
  }
  EXPECT_EQ(lrs, (std::vector<double>{1, 1, 0.5, 0.5, 0.25}));
  optim::SGD q({requires_grad_(ones({1}))}, {.lr = 1.0});
  optim::CosineAnnealingLR cosine(q, 4, 0.1);
  for (int k = 0; k <= 6; ++k) {
    EXPECT_NEAR(q.param_groups()[0].lr(), 0.1 + 0.9 * (1 + std::cos(M_PI * k / 4)) / 2, 1e-12) << k;
    cosine.step();
  }
}

TEST(Schedules, AreHandlesThatOthersHold) {
  optim::SGD o({requires_grad_(ones({1}))}, {.lr = 1.0});
  optim::ConstantLR first(o, 0.5, 10);
  optim::SequentialLR both(o,
                           {first, optim::LambdaLR(o, [](int64_t epoch) { return 1.0 / double(1 + epoch); })},
                           {2});
  std::vector<double> lrs;
  for (int k = 0; k < 5; ++k) {
    lrs.push_back(both.get_last_lr()[0]);
    o.step();
    both.step();
  }
  EXPECT_EQ(lrs, (std::vector<double>{0.5, 0.5, 1, 0.5, 1.0 / 3}));
  optim::ReduceLROnPlateau plateau(o, {.factor = 0.5, .patience = 0});
  for (double loss : {1.0, 2.0}) plateau.step(loss);
  plateau.step(full({}, 3.0));
  EXPECT_EQ(o.param_groups()[0].lr(), plateau.get_last_lr()[0]);
  EXPECT_EQ(plateau.state_dict().at("num_bad_epochs"), io::Value(0));
}
TEST(Schedules, SayThatTheirOptimizerIsGone) {
  auto o = std::make_unique<optim::SGD>(std::vector<Tensor>{requires_grad_(ones({1}))});
  optim::StepLR schedule(*o, 1);
  o.reset();
  EXPECT_NE(message([&] { schedule.step(); }).find("an optimizer must outlive its schedules"),
            std::string::npos);
}
TEST(Optimizers, LbfgsFindsTheMinimumOfAQuadratic) {
  Tensor p = requires_grad_(full({3}, 5.0, DType::Float64)), at = linspace(-1, 1, 3, DType::Float64);
  optim::LBFGS o({p}, {.line_search_fn = "strong_wolfe"});
  auto closure = [&] {
    o.zero_grad();
    Tensor loss = sum(square(p - at));
    backward(loss);
    return loss;
  };
  EXPECT_EQ(o.step(closure).item().to_double(), 36 + 25 + 16);
  o.step(closure);
  EXPECT_LT(sum(square(p - at)).item().to_double(), 1e-20);
  EXPECT_NE(message([&] { o.step(); }).find("missing the argument 'closure'"), std::string::npos);
}

struct Squares {
  int64_t size() const { return 10; }
  Tensor get(int64_t k) const {
    value_check(k != bad, "Squares") << "no sample " << k;
    return full({2}, k * k, DType::Int64);
  }
  int64_t bad = -1;
};
struct Normed : nn::Module {
  Normed() : Module("Normed") {}
  nn::Linear first = register_module("first", nn::Linear(3, 2));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(2));
  Tensor operator()(const Tensor& x) const { return norm(first(x)); }
};
void set_all(const nn::Module& m, double v) {
  autograd::GradMode off(false);
  for (auto& p : m.parameters()) fill_(p, v);
}

TEST(Averages, AreTheMeanOrAnExponentialOneAndAModelOfTheirOwn) {
  Normed model;
  optim::AveragedModel<Normed> mean(model, Normed());
  optim::AveragedModel<Normed> slow(model, Normed(), {.avg_fn = optim::get_ema_avg_fn(0.75)});
  optim::AveragedModel<Normed> largest(model, Normed(),
                                       {.avg_fn = [](const Tensor& a, const Tensor& v, const Tensor&) {
                                         return maximum(a, v);
                                       }});
  EXPECT_TRUE(same(mean.module.first.weight, model.first.weight));
  for (double v : {4.0, 2.0, 0.0}) {
    set_all(model, v);
    for (auto* a : {(optim::Averaging*)&mean, (optim::Averaging*)&slow, (optim::Averaging*)&largest})
      a->update_parameters(model);
  }
  auto value = [](auto& a) { return select(flatten(a.module.first.weight), 0, 0).item().to_double(); };
  EXPECT_EQ(value(mean), 2.0);
  EXPECT_EQ(value(slow), 0.75 * (0.75 * 4 + 0.25 * 2));
  EXPECT_EQ(value(largest), 4.0);
  EXPECT_EQ(select(flatten(model.first.weight), 0, 0).item().to_double(), 0.0);
  EXPECT_TRUE(mean.module.first.weight.requires_grad());
  Tensor x = randn({4, 3});
  mean.eval();
  EXPECT_TRUE(same(mean(x), mean.module(x)));
  io::Dict state = mean.state_dict();
  EXPECT_EQ(state.at("n_averaged").tensor().item().to_int(), 3);
  EXPECT_TRUE(state.contains("module.first.weight") && state.contains("module.norm.running_mean"));
  optim::AveragedModel<Normed> again(model, Normed());
  again.load_state_dict(state);
  set_all(model, 6.0);
  again.update_parameters(model);
  EXPECT_EQ(value(again), 3.0);
}

TEST(Averages, TakeBuffersAsTheyAreOrTheirMean) {
  Normed model;
  optim::AveragedModel<Normed> last(model, Normed()), mean(model, Normed(), {.use_buffers = true});
  for (double v : {1.0, 4.0}) {
    fill_(model.norm.running_mean, v);
    last.update_parameters(model);
    mean.update_parameters(model);
  }
  EXPECT_EQ(select(last.module.norm.running_mean, 0, 0).item().to_double(), 4.0);
  EXPECT_EQ(select(mean.module.norm.running_mean, 0, 0).item().to_double(), 2.5);
}

TEST(Averages, RefuseWhatIsNoOtherModelOfTheSameStructure) {
  Normed model;
  EXPECT_NE(message([&] { optim::AveragedModel<Normed>(model, model); }).find("a model of its own"),
            std::string::npos);
  nn::Linear a(2, 2), b(2, 2, {.bias = false});
  EXPECT_NE(message([&] { optim::AveragedModel<nn::Linear>(a, b); }).find("2 parameters and buffers"),
            std::string::npos);
  EXPECT_NE(message([&] { optim::get_ema_avg_fn(1.5); }).find("Invalid decay value 1.5"), std::string::npos);
}

TEST(Averages, NormsBeginAnewAndCountEveryBatchAlike) {
  Normed model;
  fill_(model.norm.running_mean, 100.0);
  model.eval();
  std::vector<Tensor> batches{randn({5, 3}), randn({5, 3}) + 1, randn({5, 3}) * 2};
  optim::update_bn(batches, model);
  Tensor means = zeros({2});
  for (auto& x : batches) means = means + mean(model.first(x), {0}) / 3;
  EXPECT_LT(max(abs(model.norm.running_mean - means)).item().to_double(), 1e-6);
  EXPECT_FALSE(model.is_training());
  data::Loader loader(data::TensorDataset(cat(batches, 0), zeros({15})), {.batch_size = 5});
  fill_(model.norm.running_mean, 100.0);
  optim::update_bn(loader, model);
  EXPECT_LT(max(abs(model.norm.running_mean - means)).item().to_double(), 1e-6);
  model.train();
  model(batches[0]);  // with the momentum of before
  Tensor expected = means * 0.9 + mean(model.first(batches[0]), {0}) * 0.1;
  EXPECT_LT(max(abs(model.norm.running_mean - expected)).item().to_double(), 1e-6);
}

TEST(Loader, StacksSamplesOfADataSetOfOnesOwn) {
  data::Loader loader(Squares(), {.batch_size = 4});
  EXPECT_EQ(loader.size(), 3);
  std::vector<std::string> shapes;
  int64_t total = 0;
  for (auto& batch : loader) {
    shapes.push_back(to_string(batch.sizes()));
    total += sum(batch).item().to_int();
  }
  EXPECT_EQ(shapes, (std::vector<std::string>{"[4, 2]", "[4, 2]", "[2, 2]"}));
  EXPECT_EQ(total, 2 * 285);
  EXPECT_EQ(data::Loader(Squares(), {.batch_size = 4, .drop_last = true}).size(), 2);
}
TEST(Loader, ShufflesEverySampleOnceAndThePrefetchedOrderIsTheSame) {
  data::TensorDataset set(to(arange(100), DType::Int64));
  auto order = [&](int prefetch) {
    manual_seed(3);
    std::vector<int64_t> seen;
    for (auto [x] : data::Loader(set, {.batch_size = 7, .shuffle = true, .prefetch = prefetch}))
      for (int64_t k = 0; k < x.size(0).concrete(); ++k) seen.push_back(select(x, 0, k).item().to_int());
    return seen;
  };
  auto plain = order(0), ahead = order(3), sorted = plain;
  EXPECT_EQ(plain, ahead);
  std::sort(sorted.begin(), sorted.end());
  for (int64_t k = 0; k < 100; ++k) EXPECT_EQ(sorted[size_t(k)], k);
  EXPECT_NE(plain, sorted);
}
TEST(Loader, AnErrorOfTheDataSetArrivesAlsoFromTheThread) {
  for (int prefetch : {0, 2}) {
    data::Loader loader(Squares{.bad = 6}, {.batch_size = 2, .prefetch = prefetch});
    EXPECT_EQ(message([&] {
                for (auto& b : loader) (void)b;
              }),
              "Squares: no sample 6");
    for (auto& b : data::Loader(Squares(), {.prefetch = prefetch})) {
      (void)b;
      break;  // gives up early
    }
  }
  EXPECT_EQ(message([] { data::Loader(Squares(), {.batch_size = 0}); }),
            "Loader: batch_size should be a positive integer value, but got batch_size=0");
}

struct Images : nn::Module {
  nn::Sequential layers = nn::Sequential{nn::Conv2d(1, 8, 3, {.padding = 1}),
                                         nn::BatchNorm2d(8),
                                         nn::ReLU(),
                                         nn::MaxPool2d(2),
                                         nn::Flatten(),
                                         nn::Linear(8 * 16, 4)};
  Images() : Module("Images") { register_module("layers", layers); }
};

// Everything that threads share is behind it: kernels that are made, plans, tables of expressions, the pool
// of memory.
TEST(Training, ThreadsTrainEachAModelOfTheirOwnAsOneAlone) {
  manual_seed(1);
  data::TensorDataset set(randn({24, 1, 8, 8}), randint(0, 4, {24}));
  auto train = [&](const Images& model) {
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    for (auto& [x, y] : data::Loader(set, {.batch_size = 8, .prefetch = 2})) {
      optimizer.zero_grad();
      backward(cross_entropy(model.layers(x), y));
      optimizer.step();
    }
  };
  std::vector<Images> models;
  for (int k = 0; k < 4; ++k) {
    manual_seed(2);
    models.emplace_back();
  }
  std::vector<std::thread> threads;
  for (int k = 1; k < 4; ++k) threads.emplace_back([&, k] { train(models[size_t(k)]); });
  for (auto& t : threads) t.join();
  train(models[0]);
  auto alone = models[0].state_dict();
  for (int k = 1; k < 4; ++k)
    for (auto& [name, value] : models[size_t(k)].state_dict())
      EXPECT_TRUE(value == alone.at(name)) << io::to_string(name);
}

}  // namespace
}  // namespace facula
