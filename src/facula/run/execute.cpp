#include "facula/run/execute.h"

#include <memory>
#include <optional>
#include <vector>

#include "facula/codegen/kernel.h"
#include "facula/op/registry.h"
#include "facula/run/layout.h"
#include "facula/run/plan.h"
#include "facula/run/program.h"

namespace facula::run {

using op::Results;
using op::Tag;
using schedule::Step;

namespace {

alignas(64) thread_local char nothing[64];  // what stands for a tensor without elements

// Tensors by value number, on the stack where they are few.
class TensorTable {
 public:
  explicit TensorTable(size_t n)
      : many_(n > kFew ? new Tensor[n] : nullptr), all_(many_ ? many_.get() : few_) {}
  Tensor& operator[](int v) { return all_[v]; }

 private:
  static constexpr size_t kFew = 12;
  Tensor few_[kFew];
  std::unique_ptr<Tensor[]> many_;
  Tensor* all_;
};

struct Number {
  alignas(16) std::byte bytes[16];
};

Tensor fresh(const Plan::Result& r) {
  auto& m = r.meta;
  return Tensor(make_ref<TensorImpl>(make_ref<StorageImpl>(r.bytes, m.device), m.sizes, m.strides, SymInt(),
                                     m.dtype, m.device));
}

void copy(const Tensor& from, const Tensor& to) {
  op::Value args[] = {to, from};
  op::call(op::get("copy"), args, op::Form::in_place);
}

// The results of a user's function must be what it was said that they would be; in memory they come to lie so.
void conform(const op::Operator& o, Results& results, const Plan& plan, std::span<const int> values) {
  runtime_check(results.size() == values.size(), o.name())
      << "gave " << results.size() << " tensors, but its fake implementation " << values.size();
  for (size_t k = 0; k < values.size(); ++k) {
    auto& expected = plan.results[size_t(values[k])].meta;
    auto& t = results[k];
    bool same = t.dtype() == expected.dtype && Dims(t.sizes()) == expected.sizes;
    runtime_check(same, o.name()) << "gave " << t.dtype() << to_string(t.sizes()) << " as result " << k
                                  << ", but its fake implementation " << expected.dtype
                                  << to_string(SymSpan(expected.sizes));
    if (Dims(t.strides()) == expected.strides) continue;
    Tensor lying = Tensor::empty_strided(expected.sizes, expected.strides, expected.dtype, expected.device);
    copy(t, lying);
    t = lying;
  }
}

// One kernel between the inputs and the results.
Results execute_directly(const Plan& plan, const NumberedGraph& g, std::span<const op::Value> inputs,
                         std::span<const Tensor> out) {
  auto& d = *plan.direct;
  void* buffers[Plan::kDirect];
  Number numbers[Plan::kDirect];
  Results results;
  for (size_t k = 0; k < d.inputs.size(); ++k) {
    auto& v = inputs[size_t(d.inputs[k])];
    if (v.tag == Tag::tensor) {
      buffers[k] = v.tensor->data_ptr();
    } else {
      v.number().store(op::operand_dtype(v), numbers[k].bytes);
      buffers[k] = numbers[k].bytes;
    }
  }
  for (size_t k = 0; k < d.outputs.size(); ++k) {
    auto b = size_t(d.outputs[k]);
    if (b >= Plan::kDirect) {
      auto& given = inputs[b - Plan::kDirect];
      results.push_back(given.tag == Tag::tensor ? Tensor(Ref<TensorImpl>::share(given.tensor)) : Tensor());
      continue;
    }
    Tensor t = k < out.size() && out[k].defined() ? out[k] : fresh(plan.results[size_t(g.outputs[k])]);
    buffers[b] = t.impl()->data_ptr();
    results.push_back(std::move(t));
  }
  for (auto& l : plan.execs[0].launches)
    codegen::launch(*l.kernel, l.work, buffers, l.params.data(), g.name.c_str());
  return results;
}

class Run {
 public:
  Run(const Plan& plan, const NumberedGraph& g, std::span<const op::Value> inputs,
      std::span<const Tensor> out)
      : plan_(plan),
        g_(g),
        inputs_(inputs),
        out_(out),
        at_(g.graph.values().size()),
        made_(g.graph.values().size()),
        numbers_(inputs.size()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto& to = at_[size_t(g.inputs[i])];
      if (inputs[i].tag == Tag::tensor) {
        to.tensor = inputs[i].tensor;
      } else {
        inputs[i].number().store(op::operand_dtype(inputs[i]), numbers_[i].bytes);
        to.number = numbers_[i].bytes;
      }
    }
    for (auto* v : g.constants) at_[size_t(v->id)].tensor = v->constant.impl();
    for (size_t k = 0; k < out.size() && k < g.outputs.size(); ++k)
      if (out[k].defined() && g.outputs[k] >= 0) at_[size_t(g.outputs[k])].tensor = out[k].impl();
  }

  Results run() {
    for (auto& exec : plan_.execs) {
      switch (exec.kind) {
        case Step::Kind::kernel: kernel(exec); break;
        case Step::Kind::view: view(exec); break;
        case Step::Kind::library: library(exec); break;
      }
      for (int v : exec.dead) {
        at_[size_t(v)].tensor = nullptr;
        made_[v] = {};
      }
    }
    for (auto& [i, v] : g_.graph.mutated)
      if (plan_.written_to[size_t(v->id)] < 0)
        copy(tensor_at(v->id), Tensor(Ref<TensorImpl>::share(inputs_[size_t(i)].tensor)));
    return outputs();
  }

 private:
  // By value number: a tensor, or the memory of a number. Inputs are borrowed; `made_` owns what is made here.
  struct Operand {
    TensorImpl* tensor = nullptr;
    void* number = nullptr;
  };

  Tensor tensor_at(int v) { return Tensor(Ref<TensorImpl>::share(at_[size_t(v)].tensor)); }
  void set(int v, Tensor t) {
    at_[size_t(v)].tensor = t.impl();
    made_[v] = std::move(t);
  }
  TensorImpl* allocate(int v) {
    if (int input = plan_.written_to[size_t(v)]; input >= 0)
      at_[size_t(v)].tensor = inputs_[size_t(input)].tensor;
    else if (!at_[size_t(v)].tensor) set(v, fresh(plan_.results[size_t(v)]));
    return at_[size_t(v)].tensor;
  }

  void kernel(const Plan::Exec& exec) {
    for (int v : exec.outputs) allocate(v);
    SmallVector<void*, 12> pointers(exec.inputs.size() + exec.outputs.size());
    std::optional<Packed> packed = in_order(exec);
    if (packed)
      for (size_t j = 0; j < packed->operands.size(); ++j)
        pointers[size_t(exec.alike[j])] = packed->operands[j].impl()->data_ptr();
    for (size_t k = 0; k < pointers.size(); ++k) {
      auto& operand = at_[size_t(exec.operand(k))];
      if (!pointers[k]) pointers[k] = operand.number ? operand.number : operand.tensor->data_ptr();
    }
    for (int b : exec.empty) pointers[size_t(b)] = nothing;
    std::vector<Storage> scratch;
    for (auto& t : exec.temporaries) {
      scratch.push_back(make_ref<StorageImpl>(size_t(t.numel) * size_t(itemsize(t.dtype)), Device{}));
      pointers.push_back(scratch.back()->data());
    }
    for (auto& l : exec.launches) {
      SmallVector<void*, 12> buffers;
      if (!l.all_in_order)
        for (int b : l.buffers) buffers.push_back(pointers[size_t(b)]);
      codegen::launch(*l.kernel, l.work, l.all_in_order ? pointers.data() : buffers.data(), l.params.data(),
                      g_.name.c_str());
    }
    if (packed) hide_fresh(exec, *packed);
  }
  // Is operand k of the kernel one that it makes?
  bool is_fresh(const Plan::Exec& exec, int k) {
    return size_t(k) >= exec.inputs.size() && made_[exec.operand(size_t(k))].defined();
  }
  // Operands that lie alike, of which some are packed: as they lie in the order of those.
  struct Packed {
    std::vector<Tensor> operands;  // as exec.alike
    PhysicalOrder order;
  };
  std::optional<Packed> in_order(const Plan::Exec& exec) {
    bool any = false;
    for (int k : exec.alike)
      any |= is_hidden(at_[size_t(exec.operand(size_t(k)))].tensor) && !is_fresh(exec, k);
    if (!any) [[likely]]
      return {};
    std::vector<TensorImpl*> operands;
    std::vector<bool> fresh;
    for (int k : exec.alike) {
      operands.push_back(at_[size_t(exec.operand(size_t(k)))].tensor);
      fresh.push_back(is_fresh(exec, k));
    }
    Packed found;
    found.operands = in_one_order(operands, fresh, found.order);
    return found;
  }
  // What the kernel made lies in that order too.
  void hide_fresh(const Plan::Exec& exec, Packed& packed) {
    for (size_t j = 0; j < packed.operands.size(); ++j)
      if (is_fresh(exec, exec.alike[j])) {
        packed.order.itemsize = uint8_t(itemsize(packed.operands[j].dtype()));
        hide_in_order(packed.operands[j], packed.order);
      }
  }

  op::Args arguments(const Plan::Exec& exec) {
    op::Args args = exec.args.clone();
    args.each_tensor([&](size_t slot, Tensor& t) {
      int v = exec.inputs[slot];
      if (v < 0) return;
      void* number = at_[size_t(v)].number;
      t = number ? op::wrapped_number(Scalar::load(g_.graph.values()[size_t(v)]->tensor.dtype(), number))
                 : tensor_at(v);
    });
    return args;
  }
  void view(const Plan::Exec& exec) {
    op::Args args = arguments(exec);
    auto& o = *exec.node->op;
    Tensor base = args.tensors()[0];
    auto views = o.as<op::View>()->rule(op::Call(o, args.values()), op::Geometry(o.name(), base, false));
    for (size_t k = 0; k < views.size(); ++k) set(exec.outputs[k], views[k].apply(base));
  }
  void library(const Plan::Exec& exec) {
    op::Args args = arguments(exec);
    auto& o = *exec.node->op;
    Results destinations;  // alone in holding what is new
    if (o.is<op::Library>())
      for (int v : exec.outputs) {
        destinations.push_back(Tensor(Ref<TensorImpl>::share(allocate(v))));
        made_[v] = {};
      }
    auto results = run_library(exec.library, o, args.values(), std::move(destinations));
    if (o.is<op::Foreign>()) conform(o, results, plan_, exec.outputs);
    for (size_t k = 0; k < exec.outputs.size(); ++k) set(exec.outputs[k], std::move(results[k]));
  }

  Results outputs() {
    Results results;
    for (size_t k = 0; k < g_.outputs.size(); ++k) {
      int v = g_.outputs[k];
      Tensor t = v < 0                                      ? Tensor()
                 : made_[v].defined() && !g_.output_repeats ? std::move(made_[v])
                                                            : tensor_at(v);
      if (k < out_.size() && out_[k].defined() && !t.is_same(out_[k])) {
        copy(t, out_[k]);
        t = out_[k];
      }
      results.push_back(std::move(t));
    }
    return results;
  }

  const Plan& plan_;
  const NumberedGraph& g_;
  std::span<const op::Value> inputs_;
  std::span<const Tensor> out_;
  SmallVector<Operand, 16> at_;
  TensorTable made_;
  SmallVector<Number, 4> numbers_;
};

}  // namespace

Results execute(const Plan& plan, const NumberedGraph& g, std::span<const op::Value> inputs,
                std::span<const Tensor> out) {
  if (plan.direct && !any_hidden(inputs) && !any_hidden(out)) return execute_directly(plan, g, inputs, out);
  return Run(plan, g, inputs, out).run();
}

}  // namespace facula::run
