// Optimizer steps over all parameters: compositions that write, each one program. The numbers that change
// from step to step (rates, bias corrections) are operands, so a schedule never compiles anew.
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;

namespace {
void check_lists(const char* name, std::initializer_list<const std::vector<Tensor>*> lists) {
  size_t n = (*lists.begin())->size();
  for (auto* l : lists)
    runtime_check(l->size() == n, name)
        << "expects as many gradients and states as parameters: " << n << " and " << l->size();
}
// A run-time number in double: 1 - beta in float32 would lose most of its digits.
Tensor exact(const Tensor& number) { return to_dtype(number, DType::Float64); }
}  // namespace

FACULA_FAMILY(optimizer) {
  define(
      "_sgd_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, Scalar lr, Scalar weight_decay, Scalar momentum, "
      "Scalar dampening, bool nesterov, bool maximize, bool first) -> ()")
      .doc(
          "Stochastic gradient descent with momentum. momentum_buffers is empty without momentum; `first`: the buffers are new.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& buffers, const Tensor& lr, const Tensor& decay,
                    const Tensor& momentum, const Tensor& dampening) {
        check_lists("sgd", {&params, &gradients});
        for (size_t k = 0; k < params.size(); ++k) {
          const Tensor& p = params[k];
          Tensor g = c.flag("maximize") ? neg(gradients[k]) : gradients[k];
          g = add(g, mul(p, decay));
          if (!buffers.empty()) {
            Tensor b = c.flag("first") ? g : add(mul(buffers[k], momentum), mul(g, sub(1, exact(dampening))));
            copy_(buffers[k], b);
            g = c.flag("nesterov") ? add(g, mul(b, momentum)) : b;
          }
          sub_(p, mul(g, lr));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, momentum_buffers{[3, 2], [4]}, lr=0.1, weight_decay=0.01, momentum=0.9, dampening=0.0, nesterov=False, maximize=False, first=False"});
  define(
      "_adam_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Tensor(d!)[] max_exp_avg_sqs, Scalar lr, "
      "Scalar beta1, Scalar beta2, Scalar eps, Scalar weight_decay, Scalar bias_correction1, Scalar bias_correction2, bool decoupled, bool maximize) -> ()")
      .doc(
          "Adam (Kingma and Ba, 2014); `decoupled`: AdamW (Loshchilov and Hutter, 2017). max_exp_avg_sqs is empty without amsgrad. "
          "bias_correction k = 1 - beta_k^step.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& means, const std::vector<Tensor>& squares,
                    const std::vector<Tensor>& maxima, const Tensor& lr, const Tensor& beta1,
                    const Tensor& beta2, const Tensor& eps, const Tensor& decay, const Tensor& correction1,
                    const Tensor& correction2) {
        check_lists("adam", {&params, &gradients, &means, &squares});
        for (size_t k = 0; k < params.size(); ++k) {
          Tensor p = params[k], g = c.flag("maximize") ? neg(gradients[k]) : gradients[k];
          Tensor value = p;
          if (c.flag("decoupled")) value = mul(p, sub(1, mul(exact(lr), exact(decay))));
          else g = add(g, mul(p, decay));
          Tensor m = add(means[k], mul(sub(g, means[k]), sub(1, exact(beta1))));
          Tensor v = add(mul(squares[k], beta2), mul(mul(g, g), sub(1, exact(beta2))));
          copy_(means[k], m);
          copy_(squares[k], v);
          if (!maxima.empty()) {
            v = maximum(maxima[k], v);
            copy_(maxima[k], v);
          }
          Tensor denominator = add(div(sqrt(v), sqrt(exact(correction2))), eps);
          copy_(p, sub(value, mul(div(m, denominator), div(exact(lr), exact(correction1)))));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, exp_avgs{[3, 2], [4]}, exp_avg_sqs{[3, 2](0.1, 2), [4](0.1, 2)}, max_exp_avg_sqs{}, lr=0.1, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.01, bias_correction1=0.1, bias_correction2=0.01, decoupled=True, maximize=False"});
}
