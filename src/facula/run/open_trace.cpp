#include "facula/run/open_trace.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "facula/autograd/autograd.h"
#include "facula/graph/passes.h"
#include "facula/op/call.h"
#include "facula/schedule/fuse.h"
#include "facula/sym/run_time.h"
#include "facula/sym/substitute.h"

namespace facula::run {

using graph::Break;

namespace {

thread_local OpenTrace* open_trace = nullptr;

// Raises the error of a call whose definition refuses its dtypes or attributes. A program raises such errors when its calls become
// kernels, and it does not contain a call whose results nobody reads.
void check_unread(const graph::Node& n) {
  if (n.op->is<op::Pointwise>() || n.op->is<op::Loop>()) schedule::lower(*n.op, n.args.values());
}

// The value that handles refer to when their segment has ended.
graph::Value* dead_value() {
  static auto& dead = *new graph::Value{-1};
  return &dead;
}

// Gives a handle the data, the history and the memory of `real`.
void give_data(const Tensor& handle, const Tensor& real) {
  auto &to = *handle.impl(), &from = *real.impl();
  to.storage = from.storage;
  to.sizes = from.sizes;
  to.strides = from.strides;
  to.offset = from.offset;
  to.conj = from.conj;
  to.neg = from.neg;
  to.inference = from.inference;
  to.requires_grad = from.requires_grad;
  to.wrapped_number = from.wrapped_number;
  to.version = real.version_counter();
  to.traced = nullptr;
  auto node = autograd::node_of(real);
  auto* meta = autograd::meta_of(real);
  if (!meta) return;
  auto& own = autograd::ensure_meta(handle);
  own.base = meta->base;
  own.origin = meta->origin;
  own.maker = meta->maker;
  own.number = meta->number;
  own.seen = meta->seen;
  if (node) autograd::set_history(handle, node, meta->result);
}

// The history of a result of a segment that called backward(): the gradients are spent, as behind any backward pass that
// retains no graph.
class EndedHistory final : public autograd::Node {
 public:
  explicit EndedHistory(const Tensor& t) : Node(1) {
    results.push_back({Dims(t.sizes()), t.dtype(), t.device()});
  }
  std::vector<Tensor> apply(std::vector<Tensor>, bool) override { raise_freed(); }
  std::string own_name() const override { return "CompiledBackward"; }
};

// The symbols of a graph for the sizes of these inputs.
std::vector<SymInt> symbols_of(const graph::Graph& g, std::span<const Tensor> inputs) {
  std::vector<SymInt> symbols;
  for (int k = 0; k < g.shapes->symbol_count(); ++k) symbols.push_back(g.shapes->symbol(k));
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto sizes = g.inputs[i]->tensor.sizes();
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d].is_symbol()) symbols[size_t(sizes[d].node()->value)] = inputs[i].sizes()[d];
  }
  return symbols;
}

}  // namespace

// A view whose place a run determines cannot be made again outside of the program.
static void check_place(const op::Operator& o, op::Args args) {
  args.each_size([&](SymInt& s) {
    trace_runtime_check(!sym::is_run_time(s), unknown_size, o.name())
        << "gives a result that is a view, at a place " << s << " that is known only when the program has run"
        << hint("clone() it");
  });
}

// ---- Segment

std::vector<bool> Segment::writes() const {
  std::vector<bool> written(sources_.size());
  for (auto& [i, v] : program_->graph().mutated)
    if (size_t(i) < written.size()) written[size_t(i)] = true;
  return written;
}

std::vector<Tensor> Segment::views_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                      std::span<const Tensor> inside) const {
  std::vector<SymInt> symbols;
  if (std::ranges::any_of(results_, [](auto& r) { return !r.views.empty(); }))
    symbols = symbols_of(program_->graph(), inputs);
  std::vector<Tensor> all(results_.size());
  for (size_t number : order_) {
    auto& r = results_[number];
    if (r.inside >= 0 && size_t(r.inside) < inside.size()) {
      all[number] = inside[size_t(r.inside)];
      continue;
    }
    using Kind = Result::Kind;
    size_t captured = r.kind == Kind::input && r.number >= inputs.size() ? r.number - inputs.size() : 0;
    Tensor t = r.kind == Kind::none       ? Tensor()
               : r.kind == Kind::constant ? r.constant
               : r.kind == Kind::output   ? outputs[r.number]
               : r.kind == Kind::result   ? all[r.number]
               : r.number < inputs.size() ? inputs[r.number]
                                          : program_->captured()[captured];
    for (size_t k = r.views.size(); k-- > 0;) {
      auto& view = r.views[k];
      op::Args args = view.args.clone();
      args.each_tensor([&](size_t slot, Tensor& x) {
        if (slot == 0) x = t;
      });
      args.each_size([&](SymInt& s) { s = sym::substitute(s, symbols); });
      t = op::call(*view.op, args.values())[size_t(view.result)];
    }
    all[number] = std::move(t);
  }
  return all;
}

std::vector<Tensor> Segment::operator()(std::span<const Tensor> inputs) const {
  autograd::GradMode history(has_history_);
  std::vector<Tensor> inside;
  auto outputs = runner_ ? runner_(inputs) : (*program_)(inputs, &inside);
  // The outputs have one node, so that each of them has a history if one has.
  for (size_t k = 0; k < required_.size(); ++k)
    if (!required_[k] && outputs[k].defined() && outputs[k].requires_grad())
      outputs[k] = outputs[k].detached();
  auto results = gives_outputs_ ? std::move(outputs) : views_of(inputs, outputs, inside);
  for (size_t k = 0; k < ended_.size(); ++k)
    if (ended_[k] && !results[k].requires_grad())
      autograd::set_history(results[k], make_ref<EndedHistory>(results[k]), 0);
  return results;
}

bool Segment::accepts(std::span<const Tensor> inputs, std::string* why) const {
  try {
    program_->check(inputs);
    return true;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    if (why) *why = e.message();
    return false;
  }
}

// ---- OpenTrace

OpenTrace::OpenTrace(std::string name) : name_(std::move(name)) { begin(); }

OpenTrace::~OpenTrace() { expire(); }

OpenTrace::Active::Active(OpenTrace& t)
    : trace_(&t), outer_(std::exchange(open_trace, &t)), outer_active_(std::exchange(t.active_, this)) {
  runtime_check(t.recording_ != nullptr, t.name_.c_str()) << "the trace was closed";
  clear_autocast_cache();  // of casts that are no calls of the trace
  AutocastOff changing;
  on_.emplace(*t.recording_);
  graph::Break::line = t.line_;
}

OpenTrace::Active::~Active() {
  AutocastOff changing;
  on_.reset();
  clear_autocast_cache();
  trace_->active_ = outer_active_;
  open_trace = outer_;
  graph::Break::line = outer_ ? outer_->line_ : graph::SourceLine();
}

OpenTrace::Inactive::Inactive()
    : no_mode_(nullptr),
      no_tape_(nullptr),
      no_host_(nullptr, nullptr),
      outer_(std::exchange(open_trace, nullptr)) {
  clear_autocast_cache();
}
OpenTrace::Inactive::~Inactive() {
  clear_autocast_cache();
  open_trace = outer_;
}

OpenTrace* OpenTrace::current() { return open_trace; }

void OpenTrace::begin() {
  capture_ = std::make_unique<graph::Capture>();
  recording_ = std::make_unique<graph::Recording>(std::make_shared<sym::Shapes>(),
                                                  std::span<const graph::InputSpec>(), capture_.get());
  recording_->tracer().keep_handles();
  recording_->on_unread(check_unread);
  if (fills_last_) fill_slots_last();
  sources_.clear();
  symbols_.clear();
}

void OpenTrace::expire() {
  if (!recording_) return;
  for (auto& t : recording_->tracer().handles())
    if (t.is_traced()) t.impl()->traced = dead_value();
}

SymInt OpenTrace::symbol_of(int64_t size, int64_t earlier) {
  for (auto& s : symbols_)
    if (s.size.hint() == size && s.earlier == earlier) return s.size;
  auto& shapes = *recording_->graph().shapes;
  symbols_.push_back({shapes.fresh("s" + std::to_string(shapes.symbol_count()), size), earlier});
  return symbols_.back().size;
}

size_t OpenTrace::input(const Tensor& t, SourceId source, std::span<const SizeKind> kinds, IntSpan earlier) {
  internal_check(!t.is_traced()) << "a handle is no tensor from outside";
  Dims sizes(t.sizes());
  for (size_t d = 0; d < sizes.size() && d < kinds.size(); ++d)
    if (int64_t n = sizes[d].hint(); kinds[d] == SizeKind::symbolic && n > 1)
      sizes[d] = symbol_of(n, d < earlier.size() ? earlier[d] : n);
  auto spec = graph::spec_with(t, std::move(sizes));
  size_t before = recording_->outside().size();
  size_t number = recording_->outside(t, spec);
  if (recording_->outside().size() > before) sources_.push_back(source);
  return number;
}

Tensor OpenTrace::handle_of(const Tensor& t) {
  auto& tracer = recording_->tracer();
  Tensor h = graph::handle(tracer.current_value(t));
  h.impl()->requires_grad = t.requires_grad();
  tracer.stands_for_outside(h);
  return h;
}

Tensor OpenTrace::number(const Scalar& value, SourceId source) {
  sources_.push_back(source);
  return recording_->number(number_input(value));
}

SymInt OpenTrace::size(int64_t value, SourceId source) {
  value_check(value >= 2, name_.c_str()) << "a symbolic size is at least 2, and this is " << value;
  Tensor t = size_input(value);
  SizeKind kinds[] = {SizeKind::symbolic};
  size_t k = input(t, source, kinds);
  return recording_->outside_value(k)->tensor.sizes()[0];
}

bool OpenTrace::is_handle(const Tensor& t) const {
  return recording_ && t.defined() && t.is_traced() && recording_->tracer().knows(graph::value_of(t));
}

std::vector<Tensor> OpenTrace::outside() const {
  std::vector<Tensor> all;
  std::unordered_set<const TensorImpl*> seen;
  for (auto& t : recording_->outside()) seen.insert(t.impl());
  auto add = [&](const Tensor& t) {
    if (seen.insert(t.impl()).second) all.push_back(t);
  };
  for (auto& v : recording_->graph().values())
    if (v->constant.defined() && !v->constant.impl()->wrapped_number) add(v->constant);
  for (auto& s : slots()) {
    add(s.leaf);
    if (s.relied && s.before.defined()) add(s.before);
  }
  return all;
}

std::unordered_map<const TensorImpl*, size_t> OpenTrace::own_references() const {
  std::unordered_map<const TensorImpl*, size_t> counts;
  for (auto& t : recording_->tracer().handles()) ++counts[t.impl()];
  return counts;
}

bool OpenTrace::may_refuse_since(size_t first) const {
  auto& nodes = recording_->graph().nodes;
  return std::any_of(nodes.begin() + std::ptrdiff_t(std::min(first, nodes.size())), nodes.end(),
                     [](auto& n) { return graph::may_refuse(*n); });
}

void OpenTrace::take_back_draws(size_t first) {
  if (first < calls()) recording_->take_back_draws(first);
}

std::vector<Tensor> OpenTrace::living() const {
  std::vector<Tensor> alive;
  auto counts = own_references();
  for (auto& t : recording_->tracer().handles()) {
    auto it = counts.find(t.impl());
    if (it == counts.end()) continue;
    if (t.impl()->use_count() > it->second && t.is_traced()) alive.push_back(t);
    counts.erase(it);
  }
  return alive;
}

void OpenTrace::at_line(const char* file, int line, const char* module_path) {
  line_ = {file, line, module_path};
  if (open_trace == this) graph::Break::line = line_;
}

// The results of a segment while it is made.
class OpenTrace::ResultList {
 public:
  ResultList(OpenTrace& trace, Segment& segment, std::span<const Tensor> results)
      : recording_(*trace.recording_),
        tracer_(recording_.tracer()),
        segment_(segment),
        results_(results),
        values(results.size()) {
    segment.results_.resize(results.size());
    order();
    for (size_t k = 0; k < results.size(); ++k)
      if (results[k].defined()) find(k);
  }

 private:
  graph::Recording& recording_;
  graph::Tracer& tracer_;
  Segment& segment_;
  std::span<const Tensor> results_;
  std::unordered_map<const graph::Value*, size_t> by_value_, output_numbers_;

 public:
  std::vector<graph::Value*> values;  // by result with a history: its value
  std::vector<Tensor> outputs;        // of the program
  std::vector<std::pair<size_t, const graph::Value*>>
      from_inputs;  // results that are inputs or views of them

 private:
  static bool is_outside(const graph::Location& at) { return at.cell && !at.cell->first->producer; }

  void order() {
    std::vector<size_t> views(results_.size());
    for (size_t k = 0; k < results_.size(); ++k) {
      auto& t = results_[k];
      segment_.order_.push_back(k);
      if (!t.defined()) continue;
      auto at = tracer_.locate(t);
      views[k] = at.views.size();
      if (!t.is_traced() || !t.impl()->requires_grad || is_outside(at)) continue;
      values[k] = tracer_.current_value(t);
      by_value_.try_emplace(values[k], k);
    }
    std::ranges::stable_sort(segment_.order_, {}, [&](size_t k) { return views[k]; });
  }

  void find(size_t k) {
    auto& t = results_[k];
    auto at = tracer_.locate(t);
    if (t.is_traced() && find_views(k, at)) return;  // else it stays what it is
    using Kind = Segment::Result::Kind;
    auto& r = segment_.results_[k];
    auto* v = is_outside(at) ? at.cell->first : at.version;
    if (v->producer) {
      tracer_.check_separate(at);
      auto [it, fresh] = output_numbers_.try_emplace(v, outputs.size());
      if (fresh) outputs.push_back(graph::handle(v));
      r.kind = Kind::output;
      r.number = it->second;
      segment_.required_.resize(outputs.size());
      if (t.impl()->requires_grad || (at.cell && at.cell->has_history)) segment_.required_[r.number] = true;
    } else if (v->constant.defined() && v->constant.impl()->wrapped_number && !recording_.is_outside(v)) {
      r.kind = Kind::constant;
      r.constant = v->constant;
    } else {
      r.kind = Kind::input;
      from_inputs.emplace_back(k, v);
    }
  }

  // Adds the views that lead to the result. True: the first one is a view of another result with a history, which goes on through it.
  bool find_views(size_t k, const graph::Location& at) {
    auto& r = segment_.results_[k];
    for (auto& view : at.views) {
      check_place(*view.call->op, view.call->args.clone());
      r.views.push_back({view.call->op, view.call->args.clone(), view.result});
      auto of = values[k] ? by_value_.find(graph::operands(*view.call)[0]) : by_value_.end();
      if (of == by_value_.end()) continue;
      r.kind = Segment::Result::Kind::result;
      r.number = of->second;
      return true;
    }
    return false;
  }
};

// Ends the recording: gives the program, the inputs of its first run, and the gradient slots that it fills.
std::shared_ptr<Segment> OpenTrace::segment_of(std::span<const Tensor> results, std::vector<Tensor>& inputs,
                                               std::vector<graph::Gradients::Filled>& slots) {
  auto segment = std::make_shared<Segment>();
  auto& tracer = recording_->tracer();
  std::optional<ResultList> list;
  {
    Active on(*this);
    list.emplace(*this, *segment, results);
    segment->has_history_ = tracer.has_history();
    recording_->gradients().check_results(results);
    recording_->gradients().check_histories_spent(results);
    capture_->graph = recording_->finish(list->outputs);
    for (auto& t : results)
      segment->ended_.push_back(capture_->differentiates && t.defined() && t.is_traced() &&
                                t.impl()->requires_grad);
  }
  for (size_t k = 0; k < segment->results_.size(); ++k) {
    auto& r = segment->results_[k];
    segment->gives_outputs_ &= r.kind == Segment::Result::Kind::output && r.number == k && r.views.empty();
  }
  slots = recording_->gradients().filled();
  inputs = recording_->outside();
  auto& g = capture_->graph;
  for (auto& [k, v] : list->from_inputs)
    segment->results_[k].number = size_t(std::find(g.inputs.begin(), g.inputs.end(), v) - g.inputs.begin());
  graph::complete(*capture_, inputs.size(), name_.c_str());
  segment->sources_ = std::move(sources_);
  segment->program_ = std::make_unique<Traced>(std::move(*capture_), name_);
  divide_history(*segment, list->values);
  return segment;
}

// Divides the program behind results in the history of other results.
void OpenTrace::divide_history(Segment& s, std::span<graph::Value* const> values) {
  auto& g = s.program_->graph();
  std::unordered_set<const graph::Value*> computed;
  for (auto& n : g.nodes) computed.insert(n->results.begin(), n->results.end());
  std::vector<graph::Value*> candidates, ends;
  for (auto* v : values)
    if (computed.count(v)) candidates.push_back(v);
  for (size_t k = 0; k < g.outputs.size(); ++k)
    if (k < s.required_.size() && s.required_[k]) ends.push_back(g.outputs[k]);
  for (auto& [i, v] : g.mutated) {
    candidates.push_back(v);
    ends.push_back(v);
  }
  auto inside = graph::inside_histories(g, candidates, ends);
  if (inside.empty() || s.program_->capture().differentiates) return;
  for (size_t k = 0; k < values.size(); ++k) {
    auto it = std::ranges::find(inside, values[k]);
    if (it != inside.end()) s.results_[k].inside = int(it - inside.begin());
  }
  s.gives_outputs_ = false;
  s.program_->divide_history(std::move(inside));
}

std::shared_ptr<Segment> OpenTrace::end_segment(std::span<const Tensor> results) {
  std::vector<Tensor> inputs;
  std::vector<graph::Gradients::Filled> slots;
  auto segment = segment_of(results, inputs, slots);
  auto former = std::move(recording_);  // sets gradient slots back
  auto handles = former->tracer().handles();
  former.reset();
  capture_.reset();
  std::vector<Tensor> real;
  {
    Inactive outside;
    if (backend_) segment->runner_ = backend_(segment, inputs);
    try {
      real = (*segment)(inputs);
    } catch (const Error&) {
      has_failed_ = segment->accepts(inputs);
      throw;
    }
  }
  std::unordered_map<const TensorImpl*, Tensor> handle_of;
  for (size_t k = 0; k < results.size(); ++k)
    if (results[k].defined() && results[k].is_traced()) {
      give_data(results[k], real[k]);
      handle_of.emplace(real[k].impl(), results[k]);
    }
  // A write through a view changes the history of its base: the handle, which the user has, and not the tensor that it stands for.
  for (auto& t : results) {
    auto* meta = t.defined() ? autograd::meta_of(t) : nullptr;
    auto base = meta && meta->base.defined() ? handle_of.find(meta->base.impl()) : handle_of.end();
    if (base != handle_of.end() && !base->second.is_same(t)) meta->base = base->second;
  }
  for (auto& s : slots) {
    Tensor grad = autograd::ensure_meta(s.leaf).grad;
    if (s.grad.is_traced()) give_data(s.grad, grad);
    autograd::ensure_meta(s.leaf).grad = s.grad;
  }
  for (auto& t : handles)
    if (t.is_traced()) t.impl()->traced = dead_value();
  return segment;
}

std::shared_ptr<Segment> OpenTrace::cut(std::span<const Tensor> results) {
  runtime_check(recording_ != nullptr, name_.c_str()) << "the trace was closed";
  AutocastOff changing;
  if (active_) active_->on_.reset();
  auto segment = end_segment(results);
  begin();
  if (active_) active_->on_.emplace(*recording_);
  return segment;
}

std::shared_ptr<Segment> OpenTrace::close(std::span<const Tensor> results) {
  runtime_check(recording_ != nullptr, name_.c_str()) << "the trace was closed";
  AutocastOff changing;
  if (active_) active_->on_.reset();
  return end_segment(results);
}

Tensor number_input(const Scalar& value) { return op::wrapped_number(value); }

Tensor size_input(int64_t n) {
  int64_t one = 1;
  Tensor t = Tensor::empty(IntSpan(&one, 1), DType::Bool);
  SymInt sizes[] = {n}, strides[] = {int64_t(0)};
  return t.alias(SymSpan(sizes, 1), SymSpan(strides, 1), int64_t(0));
}

}  // namespace facula::run
