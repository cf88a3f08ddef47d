// Tensors and gradients under PyTorch's names. tests/python/test_cpp_torch.py compares what this prints with what the same
// program printed when it was built with PyTorch 2.13.
#include <torch/torch.h>

#include <iostream>

using torch::indexing::Ellipsis;
using torch::indexing::None;
using torch::indexing::Slice;

// x^3 * scale, with a gradient of its own.
struct ScaledCube : torch::autograd::Function<ScaledCube> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, torch::Tensor x, double scale,
                               torch::Tensor shift = torch::Tensor()) {
    ctx->save_for_backward({x, shift});
    ctx->saved_data["scale"] = scale;
    auto y = x * x * x * scale;
    if (shift.defined()) y += shift;
    return y;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                               torch::autograd::tensor_list grads) {
    auto x = ctx->get_saved_variables()[0];
    return {grads[0] * 3 * x * x * ctx->saved_data["scale"].toDouble(), torch::Tensor(), torch::Tensor()};
  }
};

void print_all() {
  std::cout << torch::tensor({1, 2, 3}) << "\n"
            << torch::tensor({{1.5, -2.0}, {0.25, 4.0}}) << "\n"
            << torch::tensor(3.5) << "\n"
            << torch::tensor({0.001f, 1000.f, 123456.f}) << "\n"
            << torch::tensor({1e-5, 2e-5}) << "\n"
            << torch::tensor({12345678.5, 1.0}) << "\n"
            << torch::tensor({true, false}) << "\n"
            << torch::arange(8, torch::kFloat).view({2, 2, 2}) << "\n"
            << torch::arange(40, torch::kLong).view({2, 20}) * 1000 << "\n"
            << torch::empty({0, 3}) << "\n"
            << torch::Tensor() << "\n"
            << torch::tensor({0.1, 0.2, 0.7}, torch::kDouble) << "\n"
            << torch::ones({2}, torch::dtype(torch::kInt32)) << "\n";
  std::cout << torch::zeros({2, 3}).sizes() << " " << torch::zeros({2, 3}).sizes().slice(1) << " "
            << torch::zeros({2, 3}).numel() << "\n";
}

void index_all() {
  auto x = torch::arange(24, torch::kFloat).view({2, 3, 4});
  std::cout << x.index({0, 2}) << "\n"
            << x.index({Slice(), -1, Slice(1, None)}) << "\n"
            << x.index({Ellipsis, Slice(None, None, 2)}).sum() << "\n"
            << x.index({None, 1, "...", 0}) << "\n"
            << x.index({torch::tensor({1, 0}), 1}) << "\n"
            << x[1][2][3].item<float>() << " " << x[0].sizes() << "\n"
            << x.index({x > 20}) << "\n";
  x[0][1] = 7;
  x.index_put_({1, Slice(), 0}, -1);
  x.index_put_({1, 2, Slice(2)}, torch::tensor({0.5, 0.25}));
  x[1][1] = x[0][1] * 2;
  x[0] += 1;
  x[0][2] *= x[0][2];
  std::cout << x << "\n";
  auto rows = x.split(2, 1);
  std::cout << rows.size() << " " << rows[1].sizes() << " " << std::get<1>(torch::max(x, 2)) << "\n";
}

void differentiate_all() {
  auto x = torch::tensor({1.0, 2.0, 3.0}, torch::requires_grad());
  auto y = (2 * x * x + 1 - x / 4).pow(2);
  std::cout << y.grad_fn()->name() << " " << y.requires_grad() << " " << x.is_leaf() << "\n";
  y.sum().backward();
  std::cout << x.grad() << "\n";
  auto g =
      torch::autograd::grad({(x * x * x).sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  auto penalty = (g.norm(2, /*dim=*/0) - 1).pow(2);
  x.mutable_grad() = torch::Tensor();
  penalty.backward();
  std::cout << g << "\n" << x.grad() << "\n";
  auto z = torch::tensor({2.0, -1.0}).requires_grad_();
  ScaledCube::apply(z, 0.5).sum().backward();
  std::cout << z.grad() << "\n";
  {
    torch::NoGradGuard off;
    std::cout << (x * 2).requires_grad() << "\n";
    z -= 0.1 * z.grad();
  }
  std::cout << z << " " << z.detach().requires_grad() << "\n";
  z.data().fill_(4);
  std::cout << z.sum().item<double>() << "\n";
}

void convert_all() {
  float numbers[] = {1, 2, 3, 4, 5, 6};
  auto blob = torch::from_blob(numbers, {2, 3}, torch::TensorOptions().dtype(torch::kFloat32));
  blob[1][0] = 40;
  std::cout << numbers[3] << " " << (blob.data_ptr<float>() == numbers) << " "
            << blob.accessor<float, 2>()[1][2] << "\n";
  std::vector<int64_t> ids{3, 1, 2};
  auto t = torch::tensor(ids);
  std::cout << (t.dtype() == torch::kLong) << " " << t.to(torch::kFloat).mean().item<float>() << " "
            << t.device() << " " << torch::Device("cpu").is_cpu() << " "
            << (torch::Device(torch::kCPU) == t.device()) << "\n";
  torch::Scalar s = t.sum().item();
  std::cout << s.toLong() + 1 << " " << s.to<double>() / 4 << "\n";
  auto [values, order] = t.sort();
  std::cout << values << " " << order << "\n";
  try {
    torch::zeros({2, 3}).matmul(torch::zeros({2, 3}));
  } catch (const c10::Error& e) { std::cout << "refused\n"; }
  std::cout << torch::nll_loss(torch::log_softmax(blob, 1), torch::tensor({2, 0}), {}, torch::Reduction::Sum)
            << "\n"
            << torch::full({2, 2}, 1.5).eq(torch::full({2, 2}, 1.5)).all().item<bool>() << " "
            << torch::cuda::is_available() << " " << torch::str("a", 1, 'b') << "\n";
}

int main() {
  std::cout << std::boolalpha;
  print_all();
  index_all();
  differentiate_all();
  convert_all();
}
