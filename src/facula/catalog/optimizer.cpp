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
Tensor one_minus(const Tensor& number) { return sub(1, exact(number)); }
// The gradient of the minimised loss, with weight decay.
Tensor decayed(const Call& c, const Tensor& gradient, const Tensor& p, const Tensor& decay) {
  return add(c.flag("maximize") ? neg(gradient) : gradient, mul(p, decay));
}
// Weight decay that applies to parameters if it is `decoupled`, and else to gradients. Numbers that all parameters share, here
// and below, are computed before the loop over these: the graph of a step is then smaller by a third.
class Decay {
 public:
  Decay(const Call& c, const Tensor& lr, const Tensor& decay) : c_(c), decay_(decay) {
    if (c.flag("decoupled")) kept_ = sub(1, mul(exact(lr), exact(decay)));
  }
  // The parameter and the gradient of the minimised loss, after weight decay.
  std::pair<Tensor, Tensor> operator()(const Tensor& gradient, const Tensor& p) const {
    if (!kept_.defined()) return {p, decayed(c_, gradient, p, decay_)};
    return {mul(p, kept_), c_.flag("maximize") ? neg(gradient) : gradient};
  }

 private:
  const Call& c_;
  Tensor decay_, kept_;
};
// Running means: beta * mean + (1 - beta) * x, and the same as a step towards x.
class RunningMean {
 public:
  explicit RunningMean(const Tensor& beta) : beta_(beta), rest_(one_minus(beta)) {}
  Tensor operator()(const Tensor& mean, const Tensor& x) const {
    return add(mul(mean, beta_), mul(x, rest_));
  }
  Tensor toward(const Tensor& mean, const Tensor& x) const { return add(mean, mul(sub(x, mean), rest_)); }

 private:
  Tensor beta_, rest_;
};
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
        bool first = c.flag("first");
        Tensor rest = buffers.empty() || first ? Tensor() : one_minus(dampening);
        for (size_t k = 0; k < params.size(); ++k) {
          const Tensor& p = params[k];
          Tensor g = decayed(c, gradients[k], p, decay);
          if (!buffers.empty()) {
            Tensor b = first ? g : add(mul(buffers[k], momentum), mul(g, rest));
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
        Decay decay_of(c, lr, decay);
        RunningMean mean(beta1), square(beta2);
        Tensor root = sqrt(exact(correction2)), rate = div(exact(lr), exact(correction1));
        for (size_t k = 0; k < params.size(); ++k) {
          auto [value, g] = decay_of(gradients[k], params[k]);
          Tensor m = mean.toward(means[k], g), v = square(squares[k], mul(g, g));
          copy_(means[k], m);
          copy_(squares[k], v);
          if (!maxima.empty()) {
            v = maximum(maxima[k], v);
            copy_(maxima[k], v);
          }
          Tensor denominator = add(div(sqrt(v), root), eps);
          copy_(params[k], sub(value, mul(div(m, denominator), rate)));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, exp_avgs{[3, 2], [4]}, exp_avg_sqs{[3, 2](0.1, 2), [4](0.1, 2)}, max_exp_avg_sqs{}, lr=0.1, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.01, bias_correction1=0.1, bias_correction2=0.01, decoupled=True, maximize=False"});
  define(
      "_rmsprop_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] square_avgs, Tensor(c!)[] momentum_buffers, Tensor(d!)[] grad_avgs, "
      "Scalar lr, Scalar alpha, Scalar eps, Scalar weight_decay, Scalar momentum, bool maximize) -> ()")
      .doc(
          "Steps by gradients over the root of their mean square (Hinton, 2012). momentum_buffers is empty without momentum; grad_avgs but "
          "where the variance is taken instead (Graves, 2013).")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& squares, const std::vector<Tensor>& buffers,
                    const std::vector<Tensor>& means, const Tensor& lr, const Tensor& alpha,
                    const Tensor& eps, const Tensor& decay, const Tensor& momentum) {
        check_lists("rmsprop", {&params, &gradients, &squares});
        RunningMean mean(alpha);
        for (size_t k = 0; k < params.size(); ++k) {
          Tensor p = params[k], g = decayed(c, gradients[k], p, decay);
          Tensor v = mean(squares[k], mul(g, g));
          copy_(squares[k], v);
          if (!means.empty()) {
            Tensor m = mean.toward(means[k], g);
            copy_(means[k], m);
            v = sub(v, mul(m, m));
          }
          Tensor update = div(g, add(sqrt(v), eps));
          if (!buffers.empty()) {
            update = add(mul(buffers[k], momentum), update);
            copy_(buffers[k], update);
          }
          sub_(p, mul(update, lr));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, square_avgs{[3, 2](2, 3), [4](2, 3)}, momentum_buffers{[3, 2], [4]}, grad_avgs{[3, 2](0, 1), [4](0, 1)}, lr=0.1, alpha=0.9, eps=1e-08, weight_decay=0.01, momentum=0.9, maximize=False"});
  define(
      "_adagrad_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] sums, Scalar lr, Scalar eps, Scalar weight_decay, bool maximize) -> ()")
      .doc("Steps by gradients over the root of the sum of their squares.  Duchi et al., 2011.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& sums, const Tensor& lr, const Tensor& eps,
                    const Tensor& decay) {
        check_lists("adagrad", {&params, &gradients, &sums});
        for (size_t k = 0; k < params.size(); ++k) {
          Tensor p = params[k], g = decayed(c, gradients[k], p, decay), v = add(sums[k], mul(g, g));
          copy_(sums[k], v);
          sub_(p, mul(div(g, add(sqrt(v), eps)), lr));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, sums{[3, 2](0, 2), [4](0, 2)}, lr=0.1, eps=1e-10, weight_decay=0.01, maximize=False"});
  define(
      "_adadelta_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] square_avgs, Tensor(c!)[] acc_deltas, Scalar lr, Scalar rho, Scalar eps, "
      "Scalar weight_decay, bool maximize) -> ()")
      .doc("Steps whose scale is that of the steps before.  Zeiler, 2012.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& squares, const std::vector<Tensor>& steps, const Tensor& lr,
                    const Tensor& rho, const Tensor& eps, const Tensor& decay) {
        check_lists("adadelta", {&params, &gradients, &squares, &steps});
        RunningMean mean(rho);
        for (size_t k = 0; k < params.size(); ++k) {
          Tensor p = params[k], g = decayed(c, gradients[k], p, decay);
          Tensor v = mean(squares[k], mul(g, g));
          Tensor delta = mul(div(sqrt(add(steps[k], eps)), sqrt(add(v, eps))), g);
          copy_(squares[k], v);
          copy_(steps[k], mean(steps[k], mul(delta, delta)));
          sub_(p, mul(delta, lr));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, square_avgs{[3, 2](0, 2), [4](0, 2)}, acc_deltas{[3, 2](0, 2), [4](0, 2)}, lr=1.0, rho=0.9, eps=1e-06, weight_decay=0.01, maximize=False"});
  define(
      "_adamax_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_infs, Scalar lr, Scalar beta1, Scalar beta2, "
      "Scalar eps, Scalar weight_decay, Scalar bias_correction, bool maximize) -> ()")
      .doc("Adam by the largest instead of the mean square gradient.  Kingma and Ba, 2014, section 7.1.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& means, const std::vector<Tensor>& largest, const Tensor& lr,
                    const Tensor& beta1, const Tensor& beta2, const Tensor& eps, const Tensor& decay,
                    const Tensor& correction) {
        check_lists("adamax", {&params, &gradients, &means, &largest});
        RunningMean mean(beta1);
        Tensor rate = div(exact(lr), exact(correction));
        for (size_t k = 0; k < params.size(); ++k) {
          Tensor p = params[k], g = decayed(c, gradients[k], p, decay), m = mean.toward(means[k], g);
          Tensor u = maximum(mul(largest[k], beta2), add(abs(g), eps));
          copy_(means[k], m);
          copy_(largest[k], u);
          sub_(p, mul(div(m, u), rate));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, exp_avgs{[3, 2], [4]}, exp_infs{[3, 2](0.1, 2), [4](0.1, 2)}, lr=0.1, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.01, bias_correction=0.1, maximize=False"});
  define(
      "_nadam_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Scalar lr, Scalar beta1, Scalar beta2, "
      "Scalar eps, Scalar weight_decay, Scalar bias_correction2, Scalar of_gradient, Scalar of_mean, bool decoupled, bool maximize) -> ()")
      .doc(
          "Adam with Nesterov's momentum: steps are of_gradient and of_mean times the gradient and its mean over the root of the mean "
          "square.  Dozat, 2016.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& means, const std::vector<Tensor>& squares, const Tensor& lr,
                    const Tensor& beta1, const Tensor& beta2, const Tensor& eps, const Tensor& decay,
                    const Tensor& correction2, const Tensor& of_gradient, const Tensor& of_mean) {
        check_lists("nadam", {&params, &gradients, &means, &squares});
        Decay decay_of(c, lr, decay);
        RunningMean mean(beta1), square(beta2);
        Tensor correction = exact(correction2);
        for (size_t k = 0; k < params.size(); ++k) {
          auto [value, g] = decay_of(gradients[k], params[k]);
          Tensor m = mean.toward(means[k], g), v = square(squares[k], mul(g, g));
          copy_(means[k], m);
          copy_(squares[k], v);
          Tensor root = add(sqrt(div(v, correction)), eps);
          value = sub(value, mul(div(g, root), of_gradient));
          copy_(params[k], sub(value, mul(div(m, root), of_mean)));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, exp_avgs{[3, 2], [4]}, exp_avg_sqs{[3, 2](0.1, 2), [4](0.1, 2)}, lr=0.1, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.01, bias_correction2=0.01, of_gradient=0.1, of_mean=0.2, decoupled=True, maximize=False"});
  define(
      "_radam_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Scalar lr, Scalar beta1, Scalar beta2, "
      "Scalar eps, Scalar weight_decay, Scalar bias_correction1, Scalar bias_correction2, Scalar rectification, bool decoupled, bool maximize) -> ()")
      .doc(
          "Adam with a rectified variance; a `rectification` of 0 means that there are too few steps for one, and steps are the mean "
          "gradient.  Liu et al., 2019.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& means, const std::vector<Tensor>& squares, const Tensor& lr,
                    const Tensor& beta1, const Tensor& beta2, const Tensor& eps, const Tensor& decay,
                    const Tensor& correction1, const Tensor& correction2, const Tensor& rectification) {
        check_lists("radam", {&params, &gradients, &means, &squares});
        Decay decay_of(c, lr, decay);
        RunningMean mean(beta1), square(beta2);
        Tensor correction = exact(correction1), root = sqrt(exact(correction2)),
               adapts = gt(rectification, 0);
        for (size_t k = 0; k < params.size(); ++k) {
          auto [value, g] = decay_of(gradients[k], params[k]);
          Tensor m = mean.toward(means[k], g), v = square(squares[k], mul(g, g));
          copy_(means[k], m);
          copy_(squares[k], v);
          Tensor update = mul(div(m, correction), lr);
          Tensor adapted = mul(update, mul(div(root, add(sqrt(v), eps)), rectification));
          update = where(adapts, adapted, update);
          copy_(params[k], sub(value, update));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, exp_avgs{[3, 2], [4]}, exp_avg_sqs{[3, 2](0.1, 2), [4](0.1, 2)}, lr=0.1, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.01, bias_correction1=0.1, bias_correction2=0.01, rectification=0.5, decoupled=True, maximize=False"});
  define(
      "_asgd_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] axs, Scalar eta, Scalar mu, Scalar lambd, Scalar weight_decay, bool maximize) -> ()")
      .doc("Stochastic gradient descent that averages its iterates in axs.  Polyak and Juditsky, 1992.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& averages, const Tensor& eta, const Tensor& mu,
                    const Tensor& lambd, const Tensor& decay) {
        check_lists("asgd", {&params, &gradients, &averages});
        Tensor kept = sub(1, mul(exact(lambd), exact(eta))), begins = eq(mu, 1);
        for (size_t k = 0; k < params.size(); ++k) {
          Tensor p = params[k], g = decayed(c, gradients[k], p, decay);
          Tensor value = sub(mul(p, kept), mul(g, eta));
          copy_(averages[k], where(begins, value, add(averages[k], mul(sub(value, averages[k]), mu))));
          copy_(p, value);
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, axs{[3, 2], [4]}, eta=0.1, mu=0.5, lambd=0.01, weight_decay=0.01, maximize=False"});
  define(
      "_rprop_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] prevs, Tensor(c!)[] step_sizes, Scalar etaminus, Scalar etaplus, "
      "Scalar step_size_min, Scalar step_size_max, bool maximize) -> ()")
      .doc(
          "Steps by signs of gradients, which grow as long as the sign stays and shrink where it changes.  Riedmiller and Braun, 1993.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& before, const std::vector<Tensor>& sizes, const Tensor& shrink,
                    const Tensor& grow, const Tensor& least, const Tensor& most) {
        check_lists("rprop", {&params, &gradients, &before, &sizes});
        Tensor growth = exact(grow), shrinkage = exact(shrink);
        for (size_t k = 0; k < params.size(); ++k) {
          Tensor g = c.flag("maximize") ? neg(gradients[k]) : gradients[k], same = mul(g, before[k]);
          Tensor turned = lt(same, 0), kept = gt(same, 0);
          Tensor factor = where(kept, growth, where(turned, shrinkage, 1));
          Tensor size = mul(sizes[k], to_dtype(factor, g.dtype()));
          size = minimum(maximum(size, least), most);
          g = where(turned, 0, g);
          copy_(sizes[k], size);
          copy_(before[k], g);
          sub_(params[k], mul(sign(g), size));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4]}, grads{[3, 2], [4]}, prevs{[3, 2], [4]}, step_sizes{[3, 2](0.1, 2), [4](0.1, 2)}, etaminus=0.5, etaplus=1.2, step_size_min=1e-06, step_size_max=50.0, maximize=False"});
  define(
      "_adafactor_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] row_vars, Tensor(c!)[] col_vars, Tensor(d!)[] variances, Scalar lr, "
      "Scalar rho, Scalar one_minus_beta2, Scalar eps1, Scalar eps2, Scalar d, Scalar weight_decay, bool maximize) -> ()")
      .doc(
          "Steps by gradients over the root of their mean square, which of matrices is the product of a column and a row; at most `d` "
          "times the rate, which is relative to the parameter.  Shazeer and Stern, 2018. Either row_vars and col_vars or variances are "
          "empty.")
      .bind(function)
      .composite([](const Call& c, const std::vector<Tensor>& params, const std::vector<Tensor>& gradients,
                    const std::vector<Tensor>& rows, const std::vector<Tensor>& columns,
                    const std::vector<Tensor>& variances, const Tensor& lr, const Tensor& rho,
                    const Tensor& weight, const Tensor& eps1, const Tensor& eps2, const Tensor& most,
                    const Tensor& decay) {
        check_lists("adafactor", {&params, &gradients});
        auto blend = [&](const Tensor& into, const Tensor& x) {
          Tensor y = add(into, mul(sub(x, into), weight));
          copy_(into, y);
          return y;
        };
        auto root_mean_square = [](const Tensor& x) { return sqrt(mean(mul(x, x))); };
        Tensor kept = sub(1, mul(exact(lr), exact(decay))), least = mul(eps1, eps1);
        for (size_t k = 0; k < params.size(); ++k) {
          const Tensor& p = params[k];
          Tensor g = c.flag("maximize") ? neg(gradients[k]) : gradients[k], squares = mul(g, g), v;
          Tensor rate = mul(maximum(root_mean_square(p), eps2), rho);
          if (variances.empty()) {
            Tensor row = blend(rows[k], mean(squares, Ints{-1}, true));
            Tensor column = blend(columns[k], mean(squares, Ints{-2}, true));
            v = div(mul(row, column), maximum(mean(row, Ints{-2}, true), eps1));
          } else {
            v = blend(variances[k], squares);
          }
          Tensor update = mul(rsqrt(maximum(v, least)), g);
          Tensor cut = maximum(div(root_mean_square(update), most), 1);
          Tensor value = mul(p, kept);
          copy_(p, sub(value, mul(update, div(rate, cut))));
        }
        return Results();
      })
      .samples(
          {"params{[3, 2], [4, 3]}, grads{[3, 2], [4, 3]}, row_vars{[3, 1](0.1, 2), [4, 1](0.1, 2)}, col_vars{[1, 2](0.1, 2), [1, 3](0.1, 2)}, variances{}, lr=0.1, rho=0.1, one_minus_beta2=0.3, eps1=1e-07, eps2=0.001, d=1.0, weight_decay=0.01, maximize=False",
           "params{[3], [4]}, grads{[3], [4]}, row_vars{}, col_vars{}, variances{[3](0.1, 2), [4](0.1, 2)}, lr=0.1, rho=0.1, one_minus_beta2=0.3, eps1=1e-07, eps2=0.001, d=1.0, weight_decay=0.01, maximize=False"});
}
