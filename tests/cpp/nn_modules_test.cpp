// The typed classes of modules, a test or more for each family. That they compute what Python's do, bit for bit, is
// tests/python/test_cpp_modules.py.
#include <gtest/gtest.h>

#include <cmath>

#include "facula/autograd/autograd.h"
#include "facula/base/random.h"
#include "facula/nn/init.h"
#include "facula/nn/layers.h"
#include "facula/ops.h"

namespace facula {
namespace {

bool same(const Tensor& a, const Tensor& b) { return io::Value(a) == io::Value(b); }
std::string shape(const Tensor& t) { return to_string(t.sizes()); }
double number(const Tensor& t) { return t.item().to_double(); }
template <class F>
std::string message(F f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}

TEST(Init, DrawsFromTheGeneratorThatIsGiven) {
  Generator a(3), b(3);
  Tensor x = zeros({4, 5}), y = zeros({4, 5});
  EXPECT_TRUE(nn::init::kaiming_normal_(x, 0, "fan_out", "relu", &a).is_same(x));
  normal_(y, 0, std::sqrt(2.0) / std::sqrt(4.0), &b);
  EXPECT_TRUE(same(x, y));
  EXPECT_EQ(nn::init::_calculate_fan_in_and_fan_out(zeros({2, 3, 5})), std::pair(int64_t(15), int64_t(10)));
  EXPECT_EQ(nn::init::calculate_gain("leaky_relu", 1), 1.0);
  EXPECT_EQ(message([] { nn::init::eye_(zeros({2})); }), "Only tensors with 2 dimensions are supported");
}
TEST(Containers, OfNamesRefuseWhatIsNotThere) {
  nn::ParameterDict d({{"a", ones({2})}});
  EXPECT_EQ(message([&] { d["b"]; }), "ParameterDict: there is no key 'b'");
  EXPECT_EQ(message([&] { d.pop("b"); }), "ParameterDict: there is no key 'b'");
  EXPECT_NE(message([&] { d.insert("a.b", ones({1})); }).find("can't name a member"), std::string::npos);
  EXPECT_EQ(d.size(), 1u);
  EXPECT_EQ(d.parameters().size(), 1u);
  d.clear();
  EXPECT_TRUE(d.parameters().empty());
  nn::ParameterList l({ones({2})});
  EXPECT_EQ(message([&] { l[1]; }), "ParameterList: index 1 is out of range");
  nn::ModuleDict<nn::Linear> m({{"a", nn::Linear(2, 1)}});
  nn::ModuleDict<nn::Linear> same_one = m;
  same_one.insert("b", nn::Linear(1, 1));
  EXPECT_EQ(m.keys(), (std::vector<std::string>{"a", "b"}));
}
TEST(Activations, ReadOptionsByPlaceAndByName) {
  Tensor x = linspace(-3, 3, 7);
  EXPECT_TRUE(same(nn::LeakyReLU(0.1)(x), leaky_relu(x, 0.1)));
  EXPECT_TRUE(same(nn::LeakyReLU({.negative_slope = 0.1})(x), leaky_relu(x, 0.1)));
  EXPECT_TRUE(same(nn::GELU("tanh")(x), gelu(x, "tanh")));
  EXPECT_TRUE(same(nn::Softmax(0)(x), softmax(x, 0)));
  EXPECT_TRUE(same(nn::PReLU()(x), where(x >= 0, x, x * 0.25)));
  nn::ReLU(true)(x);
  EXPECT_EQ(number(min(x)), 0);
}
TEST(Losses, TakeReductionsAndWeights) {
  Tensor x = randn({4, 3}), classes = to(arange(4) % 3, DType::Int64);
  EXPECT_TRUE(same(nn::CrossEntropyLoss()(x, classes), cross_entropy(x, classes)));
  EXPECT_EQ(shape(nn::CrossEntropyLoss({.reduction = "none"})(x, classes)), "[4]");
  EXPECT_TRUE(same(nn::MSELoss({.reduction = "sum"})(x, x + 1), mse_loss(x, x + 1, "sum")));
  nn::TripletMarginWithDistanceLoss loss(
      {.distance_function = [](const Tensor& a, const Tensor& b) { return sum(abs(a - b), {-1}); }});
  EXPECT_NEAR(number(loss(x, x, x + 1)), 0, 1e-6);
  Tensor weight = ones({3}, DType::Float32);
  nn::CrossEntropyLoss weighted(weight);
  weighted.to(DType::Float64);
  EXPECT_EQ(weight.dtype(), DType::Float32) << "a given tensor stays as it is";
}
TEST(Padding, TakesOneNumberOrOneForEachSide) {
  Tensor x = reshape(arange(4.0), {1, 2, 2});
  EXPECT_EQ(shape(nn::ZeroPad2d(1)(x)), "[1, 4, 4]");
  EXPECT_EQ(shape(nn::ConstantPad2d({1, 0, 0, 0}, 2.5)(x)), "[1, 2, 3]");
  EXPECT_EQ(number(max(narrow(nn::ReflectionPad2d(1)(x), 1, 0, 1))), 3);
}
TEST(Pooling, GivesIndicesIfAsked) {
  Tensor x = randn({1, 2, 6, 6});
  nn::Output both = nn::MaxPool2d(2, {.return_indices = true})(x);
  EXPECT_EQ(shape(nn::MaxUnpool2d(2)(both[0], both[1])), shape(x));
  EXPECT_TRUE(same(nn::MaxPool2d(2)(x), both[0]));
  EXPECT_EQ(shape(nn::AdaptiveAvgPool2d({3, 2})(x)), "[1, 2, 3, 2]");
  EXPECT_EQ(shape(nn::FractionalMaxPool2d(2, {.output_size = 3})(x)), "[1, 2, 3, 3]");
  EXPECT_EQ(message([&] { Tensor y = nn::MaxPool2d(2, {.return_indices = true})(x); }),
            "expected a Tensor, but the value is a tuple");
}
TEST(Dropouts, AreOffWhenEvaluating) {
  nn::AlphaDropout d(0.5);
  Tensor x = randn({100});
  EXPECT_FALSE(same(d(x), x));
  d.eval();
  EXPECT_TRUE(same(d(x), x));
  EXPECT_EQ(message([] { nn::Dropout(2); }), "dropout probability has to be between 0 and 1, but got 2.0");
}
TEST(Normalisations, RegisterWhatPythonsDo) {
  nn::BatchNorm2d b(3, {.affine = false});
  EXPECT_FALSE(b.weight.defined());
  EXPECT_EQ(b.state_dict().size(), 3u);
  EXPECT_EQ(shape(nn::LayerNorm({2, 3})(randn({4, 2, 3}))), "[4, 2, 3]");
  EXPECT_EQ(nn::GroupNorm(2, 4).to_string(), "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)");
  EXPECT_EQ(shape(nn::InstanceNorm1d(3)(randn({3, 5}))), "[3, 5]");
}
TEST(LinearMaps, HaveWeightsAndShapes) {
  nn::Bilinear m(2, 3, 4);
  EXPECT_EQ(shape(m.weight), "[4, 2, 3]");
  EXPECT_EQ(shape(m(randn({5, 2}), randn({5, 3}))), "[5, 4]");
  EXPECT_EQ(nn::Linear(2, 3, {.dtype = DType::Float64}).weight.dtype(), DType::Float64);
  EXPECT_EQ(shape(nn::Unflatten(1, {2, 5})(randn({3, 10}))), "[3, 2, 5]");
}
TEST(Embeddings, GradientsReachTheirRows) {
  nn::EmbeddingBag bag(5, 3, {.mode = "sum"});
  Tensor y = bag(to(arange(4), DType::Int64), to(arange(2) * 2, DType::Int64));
  EXPECT_EQ(shape(y), "[2, 3]");
}
TEST(Convolutions, TakeNumbersListsAndWords) {
  Tensor x = randn({1, 2, 8, 8});
  EXPECT_EQ(shape(nn::Conv2d(2, 4, {3, 5}, {.padding = "same"})(x)), "[1, 4, 8, 8]");
  EXPECT_EQ(shape(nn::Conv2d(2, 4, 3, {.stride = {1, 2}, .padding_mode = "reflect"})(x)), "[1, 4, 6, 3]");
  nn::ConvTranspose2d up(2, 3, 2, {.stride = 2});
  EXPECT_EQ(shape(up(x)), "[1, 3, 16, 16]");
  EXPECT_EQ(shape(up(x, {17, 17})), "[1, 3, 17, 17]");
}
TEST(Sizes, ChangeByScale) {
  Tensor x = randn({1, 4, 3, 3});
  EXPECT_EQ(shape(nn::Upsample({.scale_factor = 2, .mode = "bilinear"})(x)), "[1, 4, 6, 6]");
  EXPECT_EQ(shape(nn::PixelShuffle(2)(x)), "[1, 1, 6, 6]");
  EXPECT_EQ(shape(nn::Fold({3, 3}, 2)(nn::Unfold(2)(x))), "[1, 4, 3, 3]");
  EXPECT_EQ(shape(nn::CosineSimilarity()(x, x)), "[1, 3, 3]");
}
TEST(Recurrent, GivesOutputsAndStates) {
  nn::LSTM m(3, 5, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  nn::Output r = m(randn({4, 7, 3}));
  EXPECT_EQ(shape(r[0]), "[4, 7, 10]");
  EXPECT_EQ(shape(r[1][1]), "[4, 4, 5]");
  EXPECT_EQ(shape(m(randn({4, 7, 3}), r[1])[0]), "[4, 7, 10]") << "a state goes in again";
  EXPECT_EQ(shape(m.parameter("weight_ih_l1_reverse")), "[20, 10]");
  EXPECT_EQ(shape(nn::GRU(3, 5)(randn({7, 3}))[0]), "[7, 5]");
  EXPECT_EQ(shape(nn::RNNCell(3, 5, {.nonlinearity = "relu"})(randn({2, 3}))), "[2, 5]");
  EXPECT_EQ(message([] { nn::RNN(3, 5, {.nonlinearity = "sin"}); }),
            "Unknown nonlinearity 'sin'. Select from 'tanh' or 'relu'.");
}
TEST(Attention, TransformersHoldPythonsParameters) {
  Tensor x = randn({2, 5, 8});
  auto [y, weights] = nn::MultiheadAttention(8, 2, {.batch_first = true})(x, x, x);
  EXPECT_EQ(shape(y) + shape(weights), "[2, 5, 8][2, 5, 5]");
  nn::Transformer t({.d_model = 8,
                     .nhead = 2,
                     .num_encoder_layers = 1,
                     .num_decoder_layers = 1,
                     .dim_feedforward = 16,
                     .activation = "gelu",
                     .batch_first = true});
  EXPECT_EQ(shape(t(x, randn({2, 3, 8}))), "[2, 3, 8]");
  EXPECT_TRUE(t.state_dict().contains("decoder.layers.0.multihead_attn.out_proj.bias"));
  // A layer and a norm that are given; the layer is copied, the norm is called.
  nn::TransformerEncoderLayer layer(8, 2, 16, 0.0);
  nn::TransformerEncoder encoder(layer, 2, {.norm = nn::Sequential{nn::LayerNorm(8), nn::Linear(8, 4)}});
  EXPECT_EQ(shape(encoder(x)), "[2, 5, 4]");
  EXPECT_FALSE(encoder.parameters()[0].is_same(layer.parameters()[0]));
}
TEST(Modules, DrawAndComputeTheSameFromTheSameSeed) {
  auto make = [] {
    default_generator().manual_seed(4);
    return nn::TransformerEncoderLayer(8, 2, 16, 0.1);
  };
  nn::TransformerEncoderLayer a = make(), b = make();
  EXPECT_TRUE(io::Value(a.state_dict()) == io::Value(b.state_dict()));
  a.eval();
  b.eval();
  Tensor x = randn({3, 2, 8});
  EXPECT_TRUE(same(a(x), b(x)));
}
TEST(Modules, GradientsReachParametersThroughAModule) {
  nn::Conv2d c(1, 2, 3);
  Tensor total = sum(c(ones({1, 1, 3, 3})));
  autograd::backward({&total, 1}, {}, false, false);
  EXPECT_TRUE(same(autograd::grad_of(c.weight), ones({2, 1, 3, 3})));
}

}  // namespace
}  // namespace facula
