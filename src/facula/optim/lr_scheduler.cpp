#include "facula/optim/lr_scheduler.h"

#include <cmath>
#include <numbers>

namespace facula::optim {

namespace {
io::List list_of(const std::vector<double>& v) { return io::List(v.begin(), v.end()); }
std::vector<double> numbers_of(const io::Value& v) {
  std::vector<double> numbers;
  for (auto& x : v.list()) numbers.push_back(x.number());
  return numbers;
}
}  // namespace

void LRScheduler::start() {
  for (auto& g : optimizer_.param_groups()) {
    if (!g.options.contains("initial_lr")) g.options.set("initial_lr", g.options.at("lr"));
    base_lrs_.push_back(g.options.at("initial_lr").number());
  }
  step();
}
std::vector<double> LRScheduler::current() const {
  std::vector<double> lrs;
  for (auto& g : optimizer_.param_groups()) lrs.push_back(g.lr());
  return lrs;
}
void LRScheduler::step() {
  ++step_count_;
  ++last_epoch_;
  auto lrs = rates();
  for (size_t k = 0; k < lrs.size(); ++k) optimizer_.param_groups()[k].options.set("lr", lrs[k]);
  last_lr_ = current();
}
io::Dict LRScheduler::state_dict() const {
  io::Dict state = settings();
  state.set("base_lrs", list_of(base_lrs_));
  state.set("last_epoch", last_epoch_);
  state.set("_step_count", step_count_);
  state.set("_get_lr_called_within_step", false);  // what Python's schedules keep beside
  state.set("_is_initial", false);
  state.set("_last_lr", list_of(last_lr_));
  return state;
}
void LRScheduler::load_state_dict(const io::Value& state) {
  restore(state.dict());
  base_lrs_ = numbers_of(state["base_lrs"]);
  last_epoch_ = state["last_epoch"].integer();
  step_count_ = state["_step_count"].integer();
  last_lr_ = numbers_of(state["_last_lr"]);
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  value_check(step_size > 0, "StepLR") << "Expected positive integer step_size, but got " << step_size;
  start();
}
std::vector<double> StepLR::rates() {
  auto lrs = current();
  if (last_epoch_ != 0 && last_epoch_ % step_size_ == 0)
    for (double& lr : lrs) lr *= gamma_;
  return lrs;
}
io::Dict StepLR::settings() const { return {{"step_size", step_size_}, {"gamma", gamma_}}; }
void StepLR::restore(const io::Dict& state) {
  step_size_ = std::max<int64_t>(1, state.at("step_size").integer());
  gamma_ = state.at("gamma").number();
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min)
    : LRScheduler(optimizer), T_max_(T_max), eta_min_(eta_min) {
  value_check(T_max > 0, "CosineAnnealingLR") << "Expected positive integer T_max, but got " << T_max;
  start();
}
std::vector<double> CosineAnnealingLR::rates() {
  using std::numbers::pi;
  auto lrs = current();
  if (last_epoch_ == 0) return lrs;
  double T = double(T_max_);
  for (size_t k = 0; k < lrs.size(); ++k) {
    double base = base_lrs_[k];
    if ((last_epoch_ - 1 - T_max_) % (2 * T_max_) == 0) {  // the previous rate was eta_min: no ratio to it
      lrs[k] = lrs[k] + (base - eta_min_) * ((1 - std::cos(pi / T)) / 2);
      continue;
    }
    double ratio =
        (1 + std::cos(pi * double(last_epoch_) / T)) / (1 + std::cos(pi * double(last_epoch_ - 1) / T));
    lrs[k] = ratio * (lrs[k] - eta_min_) + eta_min_;
  }
  return lrs;
}
io::Dict CosineAnnealingLR::settings() const { return {{"T_max", T_max_}, {"eta_min", eta_min_}}; }
void CosineAnnealingLR::restore(const io::Dict& state) {
  T_max_ = std::max<int64_t>(1, state.at("T_max").integer());
  eta_min_ = state.at("eta_min").number();
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, Options o) : LRScheduler(optimizer), options_(std::move(o)) {
  if (!options_.total_steps) {
    value_check(options_.epochs > 0 && options_.steps_per_epoch > 0, "OneCycleLR")
        << "You must define either total_steps OR (epochs AND steps_per_epoch)";
    options_.total_steps = options_.epochs * options_.steps_per_epoch;
  }
  value_check(options_.total_steps > 0, "OneCycleLR")
      << "Expected positive integer total_steps, but got " << options_.total_steps;
  value_check(options_.pct_start >= 0 && options_.pct_start <= 1, "OneCycleLR")
      << "Expected float between 0 and 1 pct_start, but got " << options_.pct_start;
  value_check(options_.anneal_strategy == "cos" || options_.anneal_strategy == "linear", "OneCycleLR")
      << "anneal_strategy must be one of 'cos' or 'linear', instead got " << options_.anneal_strategy;
  double total = double(options_.total_steps), start_share = options_.pct_start * total;
  phases_.push_back({start_share - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"});
  if (options_.three_phase) {
    phases_.push_back(
        {2 * options_.pct_start * total - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"});
    phases_.push_back({total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"});
  } else {
    phases_.push_back({total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"});
  }
  use_beta1_ = optimizer.defaults().contains("betas");
  value_check(!options_.cycle_momentum || use_beta1_ || optimizer.defaults().contains("momentum"),
              "OneCycleLR")
      << "optimizer must support momentum or beta1 with `cycle_momentum` option enabled";
  for (auto& g : optimizer.param_groups()) {
    double first = options_.max_lr / options_.div_factor;
    g.options.set("initial_lr", first);
    g.options.set("max_lr", options_.max_lr);
    g.options.set("min_lr", first / options_.final_div_factor);
    if (!options_.cycle_momentum) continue;
    set_momentum(g, options_.max_momentum);
    g.options.set("max_momentum", options_.max_momentum);
    g.options.set("base_momentum", options_.base_momentum);
  }
  start();
}
void OneCycleLR::set_momentum(ParamGroup& group, double momentum) const {
  if (use_beta1_) group.options.set("betas", io::Tuple{{momentum, group.options.at("betas")[1]}});
  else group.options.set("momentum", momentum);
}
double OneCycleLR::anneal(double start, double end, double part) const {
  if (options_.anneal_strategy == "cos")
    return end + (start - end) / 2.0 * (std::cos(std::numbers::pi * part) + 1);
  return (end - start) * part + start;
}
std::vector<double> OneCycleLR::rates() {
  value_check(last_epoch_ <= options_.total_steps, "OneCycleLR")
      << "Tried to step " << last_epoch_ << " times. The specified number of total steps is "
      << options_.total_steps;
  double begin = 0, at = double(last_epoch_);
  const Phase* phase = &phases_.front();
  for (auto& p : phases_) {
    phase = &p;
    if (at <= p.end_step || &p == &phases_.back()) break;
    begin = p.end_step;
  }
  double part = phase->end_step != begin ? (at - begin) / (phase->end_step - begin) : 1.0;
  std::vector<double> lrs;
  for (auto& g : optimizer_.param_groups()) {
    auto value = [&](const char* name) { return g.options.at(name).number(); };
    lrs.push_back(anneal(value(phase->start_lr), value(phase->end_lr), part));
    if (options_.cycle_momentum)
      set_momentum(g, anneal(value(phase->start_momentum), value(phase->end_momentum), part));
  }
  return lrs;
}
io::Dict OneCycleLR::settings() const {
  io::List phases;
  for (auto& p : phases_)
    phases.push_back(
        io::Dict{{"end_step", &p == &phases_.back() ? io::Value(int64_t(p.end_step)) : io::Value(p.end_step)},
                 {"start_lr", p.start_lr},
                 {"end_lr", p.end_lr},
                 {"start_momentum", p.start_momentum},
                 {"end_momentum", p.end_momentum}});
  return {{"total_steps", options_.total_steps},
          {"_anneal_func_type", options_.anneal_strategy},
          {"_schedule_phases", std::move(phases)},
          {"cycle_momentum", options_.cycle_momentum},
          {"use_beta1", use_beta1_}};
}
void OneCycleLR::restore(const io::Dict& state) {
  options_.total_steps = state.at("total_steps").integer();
  options_.anneal_strategy = state.at("_anneal_func_type").string();
  options_.cycle_momentum = state.at("cycle_momentum").boolean();
  const io::List& saved = state.at("_schedule_phases").list();
  value_check(saved.size() == 2 || saved.size() == 3, "OneCycleLR")
      << "a schedule has 2 or 3 phases, the loaded state has " << saved.size();
  std::vector<Phase> phases;
  static constexpr const char* const known[] = {"initial_lr", "max_lr", "min_lr", "max_momentum",
                                                "base_momentum"};
  auto name_of = [&](const io::Value& v) {
    for (const char* n : known)
      if (v.string() == n) return n;
    value_check(false, "OneCycleLR") << "the loaded state has an unknown rate '" << v.string() << "'";
    return "";
  };
  for (auto& p : saved)
    phases.push_back({p["end_step"].number(), name_of(p["start_lr"]), name_of(p["end_lr"]),
                      name_of(p["start_momentum"]), name_of(p["end_momentum"])});
  phases_ = std::move(phases);
}

}  // namespace facula::optim
