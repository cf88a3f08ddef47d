// The engine: runs nodes in order of sequence, latest first, once all gradients that flow into them have arrived; gradients
// are put into the slots of leaves before other nodes run, as in PyTorch. Each backward has its own task on the calling
// thread, so several may run at once, and a node may start another (hooks, custom functions): that one runs to its end
// before the outer goes on.
#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <optional>
#include <queue>
#include <thread>
#include <unordered_map>

#include "facula/autograd/accumulate.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/function.h"
#include "facula/autograd/tracing.h"
#include "facula/base/interrupt.h"
#include "facula/op/describe.h"
#include "facula/profile/profile.h"
#include "facula/tensor/sparse.h"

namespace facula::autograd {
namespace {

struct State {
  Node* node;
  std::vector<Tensor> buffer;                    // gradients of the results so far
  int waiting = 0;                               // edges that still have to deliver
  bool wanted = true;                            // whether a requested gradient depends on it
  bool runs = true;                              // false: gradients only pass through
  std::vector<std::pair<int, size_t>> captures;  // result, number of the input asked for
};

struct Ready {
  uint64_t priority;
  size_t state;
  Ref<Node> node;  // nodes may lose their last edge before they run
  Ref<TensorImpl> leaf;
  bool operator<(const Ready& o) const { return priority < o.priority; }
};

// Gradients of a sparse layout as they are; other nodes run operators that need them dense.
bool takes_sparse(const Node& n) { return n.is_accumulator() || dynamic_cast<const FunctionNode*>(&n); }

constexpr int kDeepest = 64;   // nested backwards on one stack
constexpr size_t kUsual = 16;  // nodes that a small backward meets

class Task {
 public:
  Task(bool retain, bool create) : retain_(retain), create_(create) {}

  // Finds every node that the roots lead to, how many edges lead to each, and which of them matter for
  // `asked`.
  void plan(std::span<const Edge> roots, std::span<const Edge> asked, bool accumulate, bool restricted) {
    struct Frame {
      size_t state, edge;
    };
    std::vector<Frame> path;
    path.reserve(kUsual);
    states_.reserve(kUsual);
    auto visit = [&](const Edge& e) {
      auto [it, fresh] = index_.emplace(e.node.get(), states_.size());
      if (fresh) {
        states_.push_back({e.node.get(), {}, 0, true, true, {}});
        path.push_back({it->second, 0});
      }
      return it->second;
    };
    std::unordered_map<Node*, std::vector<std::pair<int, size_t>>> captures;
    for (size_t k = 0; k < asked.size(); ++k)
      if (asked[k]) captures[asked[k].node.get()].push_back({asked[k].input, k});
    for (auto& root : roots) {
      if (!root) continue;
      visit(root);
      while (!path.empty()) {
        auto& top = path.back();
        auto& edges = states_[top.state].node->edges();
        if (top.edge < edges.size()) {
          auto& e = edges[top.edge++];
          if (e) ++states_[visit(e)].waiting;
          continue;
        }
        if (restricted) {
          State& s = states_[top.state];
          s.runs = std::any_of(edges.begin(), edges.end(),
                               [&](const Edge& e) { return e && states_[index_.at(e.node.get())].wanted; });
          s.wanted = s.runs;
          if (auto it = captures.find(s.node); it != captures.end()) {
            s.wanted = true;
            if (!accumulate) s.captures = it->second;
            else if (s.node->is_accumulator()) s.runs = true;
          }
        }
        path.pop_back();
      }
    }
  }

  // Gradients captured for the inputs asked for.
  std::vector<Tensor> run(std::span<const Edge> roots, std::span<const Tensor> grads, size_t asked) {
    captured_.resize(asked);
    for (size_t k = 0; k < roots.size(); ++k) {
      if (!roots[k]) continue;
      deliver(roots[k], states_[state_of(roots[k])], grads[k]);
    }
    for (auto& root : roots) {
      if (!root) continue;
      size_t at = state_of(root);
      State& s = states_[at];
      if (s.waiting == 0) {
        push(root, at);
        s.waiting = -1;  // pushed
      }
    }
    GradMode mode(create_);
    while (!ready_.empty()) {
      Ready r = ready_.top();
      ready_.pop();
      check_interrupt();
      evaluate(r);
    }
    return std::move(captured_);
  }

  bool needs(const Node& n, size_t k) const {
    auto& e = n.edges()[k];
    if (!e) return false;
    auto it = index_.find(e.node.get());
    return it == index_.end() || states_[it->second].wanted;
  }

  bool runs(const Node& n) const {
    auto it = index_.find(&n);
    return it != index_.end() && states_[it->second].wanted;
  }
  const uint64_t number = ++numbers;
  bool restricted = false;  // to the inputs asked for

 private:
  static inline std::atomic<uint64_t> numbers{0};
  size_t state_of(const Edge& e) const { return index_.at(e.node.get()); }
  void push(const Edge& e, size_t state) {
    uint64_t priority = e.node->is_accumulator() ? std::numeric_limits<uint64_t>::max() : e.node->sequence();
    ready_.push({priority, state, e.node, e.leaf});
  }

  void deliver(const Edge& e, State& s, Tensor g) {
    if (!g.defined() || !s.wanted) return;
    if (s.buffer.size() <= size_t(e.input))
      s.buffer.resize(std::max(size_t(e.input) + 1, s.node->results.size()));
    Tensor& slot = s.buffer[size_t(e.input)];
    if (!slot.defined()) slot = std::move(g);
    else if (!grad_enabled() && !slot.is_traced() && !g.is_traced() && slot.impl()->use_count() == 1 &&
             slot.impl()->storage->use_count() == 1 && slot.dtype() == g.dtype() && !is_sparse(slot) &&
             slot.is_non_overlapping_and_dense())
      add_(slot, g);
    else slot = is_sparse(slot) && !is_sparse(g) ? add(g, slot) : add(slot, g);
  }

  void evaluate(const Ready& r) {
    Node& node = *r.node;
    std::vector<Tensor> grads = std::move(states_[r.state].buffer);
    grads.resize(std::max(grads.size(), node.results.size()));
    std::vector<Tensor> outputs;
    if (states_[r.state].wanted) {
      try {
        for (size_t k = 0; k < node.pre_hooks.size(); ++k) {
          auto hook = node.pre_hooks[k];  // a hook may remove itself
          hook.run(grads);
        }
        for (auto& [result, kept] : node.retained) {
          auto& g = grads[size_t(result)];
          // The copy is for users to write to; the gradient itself goes on, and other tensors may retain it too.
          if (g.defined()) kept->grad = kept->grad.defined() ? add(kept->grad, g) : invoke("clone", {g});
        }
        for (auto& [result, k] : states_[r.state].captures) captured_[k] = grads[size_t(result)];
        // Nodes run programs, which take neither lazy nor sparse tensors.
        if (is_in_use(Interceptor::lazy) || is_in_use(Interceptor::sparse)) [[unlikely]]
          for (auto& g : grads) {
            if (!g.defined()) continue;
            if (g.impl()->is_lazy()) g = invoke(g.impl()->conj ? "resolve_conj" : "resolve_neg", {g});
            if (is_sparse(g) && !takes_sparse(node)) g = invoke("to_dense", {g});
          }
        bool any = std::any_of(grads.begin(), grads.end(), [](auto& g) { return g.defined(); });
        if (states_[r.state].runs && any) {
          bool keep_inputs = !node.post_hooks.empty();
          auto inputs = keep_inputs ? grads : std::vector<Tensor>();
          std::optional<DefaultDevice> inside;  // what the rule makes is where the gradient is
          if (is_in_use(Interceptor::device)) [[unlikely]]
            inside.emplace(
                std::find_if(grads.begin(), grads.end(), [](auto& g) { return g.defined(); })->device());
          outputs =
              profile::on() ? apply_profiled(node, std::move(grads)) : node.apply(std::move(grads), create_);
          validate(node, outputs);
          for (size_t k = 0; k < node.post_hooks.size(); ++k) {
            auto hook = node.post_hooks[k];
            hook.run(outputs, inputs);
          }
          if (!retain_) node.release_saved();
          if (anomaly_enabled() && anomaly_checks_nan()) check_nan(node, outputs);
        }
      } catch (const Error& e) {
        if (node.created_at.empty()) throw;
        throw Error(e.kind(), e.type(), e.op(),
                    e.message() + "\nTraceback of forward call that caused the error:\n" + node.created_at);
      }
    }
    grads.clear();
    outputs.resize(node.edges().size());
    for (size_t k = 0; k < outputs.size(); ++k) {
      auto& e = node.edges()[k];
      if (!e) continue;
      size_t at = state_of(e);
      deliver(e, states_[at], std::move(outputs[k]));
      if (--states_[at].waiting == 0) push(e, at);
    }
  }

  [[gnu::noinline, gnu::cold]] std::vector<Tensor> apply_profiled(Node& node, std::vector<Tensor> grads) {
    profile::Scope scope(node.name(), node.sequence());
    if (profile::wants_shapes()) {
      std::vector<op::Value> given(grads.begin(), grads.end());
      scope.describe(op::shapes_text(given), op::dtypes_text(given));
    }
    return node.apply(std::move(grads), create_);
  }

  static bool takes_any_dtype(Node& node) {
    if (!node.is_accumulator()) return false;
    auto& own = static_cast<Accumulator&>(node).own_dtype;
    return own && !own->dtype;
  }

  // Gradients have the sizes and dtype of what they belong to.
  void validate(Node& node, std::vector<Tensor>& outputs) {
    auto& edges = node.edges();
    for (size_t k = edges.size(); k < outputs.size(); ++k)
      runtime_check(!outputs[k].defined(), node.name().c_str())
          << "returned an incorrect number of gradients (expected " << edges.size() << ", got "
          << outputs.size() << ")";
    runtime_check(edges.empty() || outputs.size() >= edges.size() || outputs.empty(), node.name().c_str())
        << "returned an incorrect number of gradients (expected " << edges.size() << ", got "
        << outputs.size() << ")";
    for (size_t k = 0; k < outputs.size() && k < edges.size(); ++k) {
      Tensor& g = outputs[k];
      auto& e = edges[k];
      if (!g.defined() || !e || size_t(e.input) >= e.node->results.size()) continue;
      auto& m = e.node->results[size_t(e.input)];
      SymSpan sizes = m.sizes;
      bool same = g.dim() == int(sizes.size()) && std::equal(sizes.begin(), sizes.end(), g.sizes().begin());
      if (!same) {
        runtime_check(broadcasts_to(sizes, g.sizes()), node.name().c_str())
            << "Function " << node.name() << " returned an invalid gradient at index " << k << " - got "
            << to_string(g.sizes()) << " but expected shape compatible with " << to_string(sizes);
        g = invoke("sum_to_size", {g, sizes});
      }
      if (g.dtype() != m.dtype && !takes_any_dtype(*e.node)) {
        if (is_complex(g.dtype()) && !is_complex(m.dtype)) g = invoke("real", {g});
        g = invoke("to_dtype", {g, m.dtype});
      }
      if (g.device() != m.device && g.dim() == 0) g = invoke("_to_device", {g, m.device});  // of a number
      runtime_check(g.device() == m.device, node.name().c_str())
          << "Function " << node.name() << " returned an invalid gradient at index " << k
          << " - expected device " << m.device << " but got " << g.device();
    }
  }

  void check_nan(Node& node, const std::vector<Tensor>& outputs) {
    GradMode off(false);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!outputs[k].defined()) continue;
      bool nan = invoke("any", {invoke("isnan", {outputs[k]})}).item().to_bool();
      runtime_check(!nan, "backward")
          << "Function '" << node.name() << "' returned nan values in its " << k << "th output.";
    }
  }

  bool retain_, create_;
  std::vector<State> states_;
  std::unordered_map<const Node*, size_t> index_;
  std::priority_queue<Ready> ready_;
  std::vector<Tensor> captured_;
};

__attribute__((tls_model("initial-exec"))) thread_local Task* running = nullptr;
__attribute__((tls_model("initial-exec"))) thread_local int depth = 0;

class Running {
 public:
  explicit Running(Task* t) : outer_(running) {
    running = t;
    ++depth;
  }
  ~Running() {
    running = outer_;
    --depth;
  }

 private:
  Task* outer_;
};

std::vector<Tensor> execute(std::span<const Edge> roots, std::span<const Tensor> grads,
                            std::span<const Edge> asked, bool accumulate, bool restricted, bool retain,
                            bool create) {
  auto go = [&] {
    Task task(retain, create);
    Running now(&task);
    task.restricted = restricted;
    task.plan(roots, asked, accumulate, restricted);
    return task.run(roots, grads, accumulate ? 0 : asked.size());
  };
  if (depth < kDeepest) return go();
  // Deeply nested: on a fresh stack.
  std::vector<Tensor> out;
  std::exception_ptr failed;
  std::thread([&] {
    try {
      out = go();
    } catch (...) { failed = std::current_exception(); }
  }).join();
  if (failed) std::rethrow_exception(failed);
  return out;
}

struct Roots {
  std::vector<Edge> edges;
  std::vector<Tensor> grads;
};

Roots roots_of(const char* op, std::span<const Tensor> outputs, std::span<const Tensor> grads,
               bool create_graph) {
  runtime_check(grads.empty() || grads.size() == outputs.size(), op)
      << "got " << outputs.size() << " tensors and " << grads.size() << " gradients";
  Roots r;
  for (size_t k = 0; k < outputs.size(); ++k) {
    auto& out = outputs[k];
    Tensor g = grads.empty() ? Tensor() : grads[k];
    if (g.defined()) {
      bool same = g.dim() == out.dim() && std::equal(g.sizes().begin(), g.sizes().end(), out.sizes().begin());
      runtime_check(same, op) << "Mismatch in shape: grad_output[" << k << "] has a shape of "
                              << to_string(g.sizes()) << " and output[" << k << "] has a shape of "
                              << to_string(out.sizes()) << ".";
      runtime_check(is_complex(g.dtype()) == is_complex(out.dtype()), op)
          << "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: grad_output["
          << k << "] has a dtype of " << g.dtype() << " and output[" << k << "] has a dtype of "
          << out.dtype() << ".";
      if (g.dtype() != out.dtype()) {
        GradMode mode(create_graph);
        g = invoke("to_dtype", {g, out.dtype()});
      }
    }
    runtime_check(out.defined() && out.requires_grad(), op)
        << "element " << k << " of tensors does not require grad and does not have a grad_fn";
    if (!g.defined()) {
      runtime_check(out.numel() == 1, op) << "grad can be implicitly created only for scalar outputs"
                                          << hint("output ", k, " has shape ", to_string(out.sizes()),
                                                  "; pass its gradient, or reduce it with sum()");
      runtime_check(!is_complex(out.dtype()), op)
          << "grad can be implicitly created only for real scalar outputs but got " << out.dtype();
      GradMode off(false);
      g = filled(1, out.sizes(), out.dtype(), out.device());
    }
    r.edges.push_back(out.is_traced() ? Edge() : edge_of(out));
    r.grads.push_back(std::move(g));
  }
  return r;
}

// The trace that computes the gradients of these outputs; null: the tape does.
Tracing* trace_of(const char* op, std::span<const Tensor> outputs) {
  bool traced = std::any_of(outputs.begin(), outputs.end(), [](auto& t) { return t.is_traced(); });
  supported_check(traced == bool(Tracing::current()), op)
      << (traced ? "is called on a tensor of a function that was traced before"
                 : "is called while a function is traced, on a tensor from outside of it");
  return Tracing::current();
}

}  // namespace

bool Node::needs(size_t k) const {
  if (k >= edges_.size() || !edges_[k]) return false;
  return !running || running->needs(*this, k);
}

uint64_t backward_number() { return running ? running->number : 0; }
bool backward_restricted() { return running && running->restricted; }
bool backward_runs(const Node& n) { return running && running->runs(n); }

void backward(std::span<const Tensor> outputs, std::span<const Tensor> grads, bool retain_graph,
              bool create_graph, std::span<const Tensor> inputs) {
  runtime_check(!any_batched(outputs), "backward")
      << "backward() called inside a functorch transform. This is not supported, please use functorch.grad or functorch.vjp instead or call "
         "backward() outside of functorch transforms."
      << hint("facula.func.grad inside of vmap gives each call of the batch a gradient of its own");
  auto roots = roots_of("backward", outputs, grads, create_graph);
  if (auto* trace = trace_of("backward", outputs))
    return trace->backward(outputs, roots.grads, inputs, retain_graph, create_graph);
  std::vector<Edge> asked;
  for (auto& t : inputs) {
    runtime_check(t.requires_grad(), "backward") << "One of the differentiated Tensors does not require grad";
    retain_grad(t);
    asked.push_back(edge_of(t));
  }
  execute(roots.edges, roots.grads, asked, true, !inputs.empty(), retain_graph, create_graph);
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grads, bool retain_graph, bool create_graph,
                         bool allow_unused) {
  if (any_batched(outputs))
    return batched_grad(outputs, inputs, grads, retain_graph, create_graph, allow_unused);
  for (auto& t : inputs)
    runtime_check(t.requires_grad() || allow_unused, "grad")
        << "One of the differentiated Tensors does not require grad";
  auto roots = roots_of("grad", outputs, grads, create_graph);
  std::vector<Tensor> found;
  if (auto* trace = trace_of("grad", outputs)) {
    found = trace->gradients("grad", outputs, roots.grads, inputs, create_graph);
  } else {
    std::vector<Edge> asked;
    for (auto& t : inputs) asked.push_back(edge_of(t));
    found = execute(roots.edges, roots.grads, asked, false, true, retain_graph, create_graph);
  }
  for (auto& g : found)
    runtime_check(g.defined() || allow_unused, "grad")
        << "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.";
  return found;
}

}  // namespace facula::autograd
