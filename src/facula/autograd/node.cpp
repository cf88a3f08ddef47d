#include "facula/autograd/node.h"

#include <atomic>
#include <cctype>
#include <mutex>
#include <unordered_set>

#include "facula/autograd/accumulate.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/forward.h"
#include "facula/base/fork.h"
#include "facula/profile/profile.h"

namespace facula::autograd {

namespace {
std::atomic<uint64_t> next_sequence{0};

std::string described(const Tensor& t) {
  std::ostringstream s;
  s << t.dtype() << " " << to_string(t.sizes());
  return s.str();
}
}  // namespace

// ---- Node

Node::Node(int count) : sequence_(next_sequence.fetch_add(1, std::memory_order_relaxed)) {
  results.reserve(size_t(count));
  if (anomaly_enabled()) [[unlikely]]
    created_at = captured_stack();
  if (profile::on()) [[unlikely]]
    profile::made_node(sequence_);
}

void Node::add_edge(const Tensor& input) { edges_.push_back(edge_of(input)); }

void Node::destroy() {
  static thread_local std::vector<Node*>* dying = nullptr;
  if (dying) {
    dying->push_back(this);
    return;
  }
  std::vector<Node*> list{this};
  dying = &list;
  while (!list.empty()) {
    Node* n = list.back();
    list.pop_back();
    delete n;
  }
  dying = nullptr;
}

void Node::set_name(const std::string& name) {
  static TableMutex lock;
  static auto& names = *new std::unordered_set<std::string>;
  std::lock_guard guard(lock);
  called_ = &*names.insert(name).first;
}

std::string node_name(std::string_view op) {
  std::string out;
  bool upper = true;
  for (char c : op) {
    if (c == '_' || c == '.') {
      upper = true;
      continue;
    }
    out += upper ? char(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return op::grad_name(std::move(out));
}
std::string node_name(const op::Operator& o, std::span<const op::Value> args) {
  std::string name = o.grad_name ? o.grad_name(op::Call(o, args)) : "";
  return name.empty() ? node_name(o.name()) : name;
}

Tensor zeros_of(const ResultMeta& m) { return filled(0, m.sizes, m.dtype, m.device); }

// ---- Saved

Saved::Saved(const Tensor& t, bool is_output_of_node, int result)
    : output_(is_output_of_node), result_(result) {
  if (!t.defined()) return;
  runtime_check(!t.impl()->inference, "autograd")
      << "Inference tensors cannot be saved for backward. To work around you can make a clone to get a normal tensor and use it in autograd.";
  tensor_ = is_output_of_node ? t.detached() : t;
  version_ = t.version();
  if (!is_output_of_node) {
    // Threads may record what reads one leaf.
    t.impl()->saved.store(true, std::memory_order_relaxed);
    if (Meta* m = meta_of(t); m && m->base.defined())
      m->base.impl()->saved.store(true, std::memory_order_relaxed);
  }
  if (auto* hook = saved_hook()) [[unlikely]]
    pack(*hook);
}

Tensor Saved::drop_history_if_overwritten() {
  if (!tensor_.defined() || tensor_.version() == version_) return {};
  return std::exchange(tensor_, tensor_.detached());
}

void Saved::pack(const PackHook& hook) {
  runtime_check(!packed_, "register_hooks")
      << "Calling register_hooks on a saved tensor whose hooks have already been set.";
  runtime_check(bool(tensor_), "register_hooks")
      << "Calling register_hooks on a saved tensor with value None is forbidden";
  GradMode off(false);
  uint32_t before = tensor_.version();
  auto packed =
      hook(tensor_);  // of an input itself, which hooks tell from others: parameters are not put away
  runtime_check(tensor_.version() == before, "saved_tensors_hooks")
      << "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be modified by "
         "in-place operations as this can lead to unexpected side-effects.";
  packed->sizes_ = Dims(tensor_.sizes());
  packed->dtype_ = tensor_.dtype();
  if (!output_) packed->edge_ = edge_of(tensor_);
  packed_ = std::move(packed);
  tensor_ = {};
}

Tensor Saved::shape_alone() const {
  return packed_ ? Tensor::empty(packed_->sizes_, packed_->dtype_, Device{DeviceType::meta})
                 : tensor_.detached();
}

Tensor Saved::unpack(const Ref<Node>& owner, const char* name) const {
  auto saved_by = [&] { return owner ? owner->name() : std::string(name); };
  if (packed_) [[unlikely]] {
    Tensor t = packed_->get();
    SymSpan sizes = packed_->sizes_;
    runtime_check(t.dtype() == packed_->dtype_ && t.dim() == int(sizes.size()) &&
                      std::equal(sizes.begin(), sizes.end(), t.sizes().begin()),
                  "saved_tensors_hooks")
        << "the unpack hook must give a tensor like the one that was packed for " << saved_by() << ", "
        << packed_->dtype_ << " " << to_string(sizes) << ", not " << described(t);
    if (output_ || packed_->edge_) {
      t = t.detached();
      if (output_) set_history(t, owner, result_);
      else set_history(t, packed_->edge_.node, packed_->edge_.input);
    }
    return t;
  }
  if (!tensor_.defined()) return {};
  if (tensor_.version() != version_) {
    const char* writer = tensor_.impl()->version->writer.load();
    std::string by = saved_by();
    runtime_check(false, by.c_str())
        << "one of the variables needed for gradient computation has been modified by an inplace operation: "
        << described(tensor_) << (output_ ? ", the output of " : ", saved by ") << by << ", was written by "
        << (writer ? std::string(writer) + "_" : std::string("an in-place operation"))
        << " and is at version " << tensor_.version() << "; expected version " << version_ << " instead"
        << hint("write out of place, or on a clone(); set_detect_anomaly(True) shows where ", by, " ran");
  }
  if (!output_) return tensor_;
  Tensor t = tensor_.detached();
  set_history(t, owner, result_);
  if (forward_level()) [[unlikely]]
    restore_tangent(t, *owner, result_);
  return t;
}

// ---- Meta

Meta::~Meta() {
  if (accumulator) static_cast<Accumulator&>(*accumulator).forget();
}

Meta* meta_of(const Tensor& t) { return t.defined() ? t.impl()->grad_slot.get() : nullptr; }

void Node::raise_freed(const char* maker) const {
  std::string by = name() + (maker ? " (" + std::string(maker) + ")" : "");
  runtime_check(false, "backward")
      << "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
         "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if "
         "you need to backward through the graph a second time or if you need to access saved tensors after calling backward."
      << hint("the values were saved by ", by);
  __builtin_unreachable();
}

Meta& ensure_meta(const Tensor& t) {
  auto& slot = t.impl()->grad_slot;
  if (!slot) slot = {new Meta, [](Meta* m) { delete m; }};
  return *slot;
}

void set_history(const Tensor& t, const Ref<Node>& node, int k) {
  Meta& m = ensure_meta(t);
  if (m.retained && m.node != node) {  // an in-place write: the gradient kept is that of the new value
    if (m.node) std::erase_if(m.node->retained, [&](auto& r) { return r.second == m.retained; });
    node->retained.push_back({k, m.retained});
  }
  m.node = node;
  m.result = k;
  if (m.base.defined()) m.seen = t.version();
  t.impl()->has_node = true;
  while (node->results.size() <= size_t(k)) node->results.push_back({Dims(t.sizes()), t.dtype(), t.device()});
}

Edge edge_of(const Tensor& t) {
  if (!t.defined() || !t.requires_grad()) return {};
  if (auto node = node_of(t)) return {node, meta_of(t)->result, {}};
  return {accumulator_of(t), 0, t.ref()};
}

}  // namespace facula::autograd
