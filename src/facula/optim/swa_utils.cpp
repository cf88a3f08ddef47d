#include "facula/optim/swa_utils.h"

#include "facula/nn/translated.h"
#include "facula/ops.h"

namespace facula::optim {

using io::Value;

namespace {
Value object_of(const nn::Module& m) { return std::make_shared<nn::ModuleObject>(m); }
}  // namespace

Value Average::function_of(Function f) {
  return nn::function("<average of C++>", [f = std::move(f)](nn::Arguments& a) -> Value {
    return f(a.items.at(0).tensor(), a.items.at(1).tensor(), a.items.at(2).tensor());
  });
}
Average get_swa_avg_fn() { return Average(nn::invoke(nn::f_swa_utils_get_swa_avg_fn, {})); }
Average get_ema_avg_fn(double decay) { return Average(nn::invoke(nn::f_swa_utils_get_ema_avg_fn, {decay})); }

// Python copies the model; here an empty module stands for the copy and is replaced.
Averaging::Averaging(const nn::Module& model, const nn::Module& average, const AverageOptions& options)
    : Module(nn::construct(nn::k_swa_utils_AveragedModel, nn::Given()
                                                              .with("model", nn::Argument(nn::Module()))
                                                              .with("avg_fn", options.avg_fn)
                                                              .with("use_buffers", options.use_buffers))) {
  auto theirs = model.parameters(), ours = average.parameters();
  auto their_buffers = model.buffers(), our_buffers = average.buffers();
  theirs.insert(theirs.end(), their_buffers.begin(), their_buffers.end());
  ours.insert(ours.end(), our_buffers.begin(), our_buffers.end());
  value_check(theirs.size() == ours.size(), "AveragedModel")
      << "the model has " << theirs.size() << " parameters and buffers, the one for the average "
      << ours.size();
  value_check(!average.is_same(model), "AveragedModel")
      << "the average needs a model of its own" << hint("AveragedModel<Net> average(net, Net())");
  autograd::GradMode off(false);
  for (size_t k = 0; k < ours.size(); ++k) copy_(ours[k], theirs[k]);
  put("module", average);
}
void Averaging::update_parameters(const nn::Module& model) const {
  nn::method(object_of(*this), "update_parameters", {object_of(model)});
}

FreshNorms::FreshNorms(const nn::Module& model)
    : model_(model),
      training_(model.is_training()),
      norms_(nn::invoke(nn::f_swa_utils_own_start_norms, {object_of(model)})) {
  if (!empty()) model_.train();
}
FreshNorms::~FreshNorms() {
  if (empty()) return;
  nn::invoke(nn::f_swa_utils_own_end_norms, {norms_});
  model_.train(training_);
}
bool FreshNorms::empty() const { return norms_.list().empty(); }

}  // namespace facula::optim
