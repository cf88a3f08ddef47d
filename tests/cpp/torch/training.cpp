// Modules, data sets, optimizers and archives under PyTorch's names. tests/python/test_cpp_torch.py compares what this prints
// with what the same program printed when it was built with PyTorch 2.13. Parameters are set to the numbers that fill()
// gives, so that nothing depends on random numbers.
#include <torch/torch.h>

#include <iostream>

namespace nn = torch::nn;
namespace F = torch::nn::functional;

torch::Tensor numbers(torch::IntArrayRef sizes, double scale = 1) {
  int64_t count = 1;
  for (auto n : sizes) count *= n;
  return torch::sin(torch::arange(count, torch::kDouble)).mul(scale).to(torch::kFloat).view(sizes);
}
void fill(nn::Module& m) {
  torch::NoGradGuard off;
  for (auto& p : m.named_parameters()) p.value().copy_(numbers(p.value().sizes(), 0.3));
}

struct BlockImpl : nn::Module {
  BlockImpl(int64_t channels, nn::Sequential shortcut = nullptr)
      : conv(nn::Conv2dOptions(2, channels, {3, 3}).stride(2).padding(1).bias(false)),
        norm(channels),
        shortcut(shortcut) {
    register_module("conv", conv);
    register_module("norm", norm);
    if (shortcut) register_module("shortcut", shortcut);
    scale = register_parameter("scale", torch::ones({1}));
    register_buffer("count", torch::zeros({1}));
  }
  torch::Tensor forward(torch::Tensor x) {
    auto y = torch::relu(norm(conv(x)));
    return (shortcut ? y + shortcut->forward(x) : y) * scale;
  }
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
  nn::Sequential shortcut;
  torch::Tensor scale;
};
TORCH_MODULE(Block);

struct Net : nn::Module {
  Net() {
    block =
        register_module("block", Block(4, nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 4, 1).stride(2)))));
    body = register_module("body",
                           nn::Sequential(nn::Flatten(), nn::Linear(4 * 16, 8), nn::Functional(torch::tanh)));
    head = register_module("head", nn::Linear(nn::LinearOptions(8, 3)));
    register_module("drop", drop);
  }
  torch::Tensor forward(torch::Tensor x) { return head(drop(body->forward(block(x)))); }
  Block block{nullptr};
  nn::Sequential body{nullptr};
  nn::Linear head{nullptr};
  nn::Dropout drop{0.5};
};

class Rows : public torch::data::datasets::Dataset<Rows> {
 public:
  explicit Rows(int64_t count) : images_(numbers({count, 2, 8, 8})), count_(count) {}
  torch::data::Example<> get(size_t k) override {
    return {images_[k], torch::tensor(int64_t(k) % 3, torch::kLong)};
  }
  torch::optional<size_t> size() const override { return count_; }

 private:
  torch::Tensor images_;
  size_t count_;
};

void show_modules() {
  Net net;
  std::cout << net << "\n"
            << net.parameters().size() << " " << net.named_parameters()["block.conv.weight"].sizes() << "\n";
  for (auto& item : net.named_parameters()) std::cout << item.key() << " ";
  for (auto& item : net.named_buffers()) std::cout << item.key() << " ";
  std::cout << net.children().size() << " " << net.is_training() << "\n";
  int64_t linear = 0;
  net.apply([&](nn::Module& m) { linear += m.as<nn::Linear>() != nullptr; });
  std::cout << linear << " " << net.block->conv->options.out_channels() << " " << net.drop->options.p()
            << "\n";
  nn::LSTM lstm(nn::LSTMOptions(3, 4).num_layers(2).batch_first(true));
  fill(*lstm);
  auto [out, state] = lstm->forward(numbers({2, 5, 3}));
  std::cout << out.sizes() << " " << std::get<0>(state).sizes() << " " << out.sum().item<double>() << "\n";
  auto x = numbers({2, 3, 4, 4});
  std::cout << nn::MaxPool2d(nn::MaxPool2dOptions({2, 2}).stride(1))(x).sum().item<float>() << " "
            << nn::AvgPool2d(2)->forward(x).sum().item<float>() << " "
            << nn::Upsample(
                   nn::UpsampleOptions().scale_factor(std::vector<double>({2, 2})).mode(torch::kNearest))(x)
                   .sizes()
            << " " << nn::MSELoss(nn::MSELossOptions(torch::kSum))(x, x * 2).item<float>() << " "
            << nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2))(x).sum().item<float>() << "\n"
            << F::cross_entropy(x.view({24, 4}), torch::zeros({24}, torch::kLong),
                                F::CrossEntropyFuncOptions().reduction(torch::kSum))
                   .item<float>()
            << " " << F::softmax(x, F::SoftmaxFuncOptions(1)).sum().item<float>() << " "
            << F::pad(x, F::PadFuncOptions({1, 1, 1, 1}).mode(torch::kReflect)).sizes() << " "
            << F::interpolate(x, F::InterpolateFuncOptions()
                                     .size(std::vector<int64_t>({2, 2}))
                                     .mode(torch::kBilinear)
                                     .align_corners(false))
                   .sum()
                   .item<float>()
            << " " << F::linear(x, numbers({5, 4})).sum().item<float>() << "\n";
}

void train() {
  torch::manual_seed(0);
  Net net;
  fill(net);
  net.drop->eval();
  auto dataset =
      Rows(22)
          .map(torch::data::transforms::Normalize<>({0.1, -0.1}, {0.5, 0.4}))
          .map(torch::data::transforms::Lambda<torch::data::Example<>>(
              [](torch::data::Example<> e) { return torch::data::Example<>(e.data * 2, e.target); }))
          .map(torch::data::transforms::Stack<>());
  std::cout << dataset.size().value() << " " << dataset.get_batch(5).data.sizes() << "\n";
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      std::move(dataset), torch::data::DataLoaderOptions().batch_size(8).workers(1));
  std::vector<torch::optim::OptimizerParamGroup> groups{net.block->parameters(), net.body->parameters()};
  groups[1].set_options(
      std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.02).momentum(0.9)));
  torch::optim::SGD sgd(groups, torch::optim::SGDOptions(0.05).momentum(0.5).weight_decay(0.01));
  torch::optim::Adam adam(net.head->parameters(),
                          torch::optim::AdamOptions(1e-2).betas(std::make_tuple(0.5, 0.9)));
  torch::optim::StepLR schedule(sgd, 2, 0.5);
  for (int epoch = 0; epoch < 4; ++epoch) {
    double total = 0;
    size_t batches = 0;
    for (auto& batch : *loader) {
      sgd.zero_grad();
      adam.zero_grad();
      auto loss = F::cross_entropy(net.forward(batch.data), batch.target);
      loss.backward();
      sgd.step();
      adam.step();
      total += loss.item<double>();
      ++batches;
    }
    schedule.step();
    std::cout << batches << " " << total / double(batches) << " "
              << static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[1].options()).lr() << "\n";
  }
  static_cast<torch::optim::AdamOptions&>(adam.param_groups()[0].options()).lr(0.5);
  torch::optim::LBFGS lbfgs(net.head->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(5));
  auto x = numbers({6, 2, 8, 8});
  auto target = torch::tensor({0, 1, 2, 0, 1, 2});
  auto last = lbfgs.step([&] {
    lbfgs.zero_grad();
    auto loss = F::cross_entropy(net.forward(x), target);
    loss.backward();
    return loss;
  });
  std::cout << last.item<float>() << " " << F::cross_entropy(net.forward(x), target).item<float>() << "\n";

  std::stringstream stream;
  auto net_ptr = std::make_shared<Net>(net);
  torch::save(net_ptr, stream);
  auto other = std::make_shared<Net>();
  torch::load(other, stream);
  net.eval();
  other->eval();
  std::cout << torch::equal(net.forward(x), other->forward(x)) << "\n";
}

int main(int argc, char** argv) {
  std::cout << std::boolalpha;
  show_modules();
  train();
  if (argc > 1) {
    Block block(3);
    fill(*block);
    torch::save(block, std::string(argv[1]) + "/block.pt");
    torch::save(torch::arange(6, torch::kFloat).view({2, 3}), std::string(argv[1]) + "/tensor.pt");
    torch::optim::Adam adam(block->parameters(), torch::optim::AdamOptions(1e-2));
    block(numbers({2, 2, 4, 4})).sum().backward();
    adam.step();
    torch::save(adam, std::string(argv[1]) + "/adam.pt");
  }
}
