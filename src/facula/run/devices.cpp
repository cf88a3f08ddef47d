#include "facula/run/devices.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/device/device.h"
#include "facula/graph/trace.h"
#include "facula/op/factory.h"
#include "facula/op/operator.h"
#include "facula/run/write.h"
#include "facula/tensor/sparse.h"

namespace facula::run {

using op::Form;
using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

namespace {

bool is_elsewhere(const TensorImpl* t) { return t && t->device.type != DeviceType::cpu; }
bool is_cpu_number(const Tensor& t) { return t.dim() == 0 && t.device().type == DeviceType::cpu; }

// The device= argument of a factory function; null if absent.
const Device* chosen(const Operator& o, std::span<const Value> args) {
  int k = o.schema.index_of("device");
  bool factory = k >= 0 && o.schema.parameters[size_t(k)].keyword_only && args[size_t(k)].tag == Tag::device;
  return factory ? &args[size_t(k)].device : nullptr;
}

Tensor unset_like(const Tensor& t, Device device) {
  Tensor like = Tensor::empty_strided(t.sizes(), t.strides(), t.dtype(), device);
  like.impl()->wrapped_number = t.impl()->wrapped_number;
  return like;
}

const DeviceMemory& memory(Device d) { return *memory_of(d.type); }

// Copies of the tensors of one call in CPU memory. Tensors that share memory share its copy.
class OnHost {
 public:
  Tensor copy(const Tensor& t) {
    if (!is_elsewhere(t.impl())) return t;
    auto& of = t.impl()->storage;
    auto it = std::find_if(copies_.begin(), copies_.end(), [&](auto& c) { return c.first == of; });
    if (it == copies_.end()) {
      copies_.push_back({of, t.on_host().impl()->storage});
      it = copies_.end() - 1;
    }
    auto host = make_ref<TensorImpl>(it->second, t.sizes(), t.strides(), t.offset(), t.dtype(), Device{});
    host->wrapped_number = t.impl()->wrapped_number;
    return Tensor(std::move(host));
  }
  // Copies `host`, which the call wrote, back to its original; an out= tensor may have been resized.
  static void write_back(const Tensor& host, const Tensor& t) {
    auto &from = *host.impl(), &to = *t.impl();
    char* data = static_cast<char*>(from.data_ptr()) - from.offset.concrete() * itemsize(from.dtype);
    size_t bytes = from.storage->bytes();
    if (bytes > to.storage->bytes()) to.storage = make_ref<StorageImpl>(bytes, to.device);
    to.sizes = from.sizes;
    to.strides = from.strides;
    if (bytes) memory(to.device).from_host(to.storage->device_data(), data, bytes);
  }

 private:
  std::vector<std::pair<Storage, Storage>> copies_;
};

// Runs the shape rule alone: results have sizes, dtypes and strides but no elements.
Results infer_only(Device device, const Operator& o, std::span<const Value> args, Form form,
                   std::span<const Tensor> out) {
  supported_check(!o.is<op::DataDependent>(), o.name())
      << "the size of its result depends on the elements, and tensors on meta have none"
      << hint("run it on another device");
  auto metas = graph::infer(o, args);
  Results results;
  for (size_t k = 0; k < metas.size(); ++k) {
    auto& m = metas[k];
    if (form != Form::functional) {
      check_destination(o, k, m, out[k], args, form);
      results.push_back(out[k]);
      continue;
    }
    if (m.strides.size() != m.sizes.size()) m.strides = contiguous_strides(m.sizes);
    results.push_back(Tensor::empty_strided(m.sizes, m.strides, m.dtype, device));
  }
  return results;
}

// Runs the device's function, with results in its memory.
Results run_own(device::LibraryFn fn, Device device, const Operator& o, std::span<const Value> args) {
  if (o.is<op::DataDependent>()) return fn(op::Call(o, args), {});
  Results results = infer_only(device, o, args, Form::functional, {});
  fn(op::Call(o, args), results.all());
  return results;
}

Results run_on_copies(Device device, const Operator& o, std::span<const Value> args, Form form,
                      std::span<const Tensor> out, Compute on_cpu) {
  OnHost host;
  op::Args copies(args);
  copies.each_tensor([&](size_t, Tensor& t) {
    if (t.defined()) t = host.copy(t);
  });
  std::vector<Tensor> host_out;
  for (auto& t : out) host_out.push_back(host.copy(t));
  Results host_results;
  {
    DefaultDevice inside(Device{});
    autograd::GradMode off(false);
    host_results = on_cpu(o, copies.values(), form, host_out);
  }
  if (form != Form::functional) {
    Results results;
    for (size_t k = 0; k < out.size(); ++k) {
      OnHost::write_back(host_out[k], out[k]);
      results.push_back(out[k]);
    }
    return results;
  }
  auto write_back = [](TensorImpl* from, TensorImpl* to) {
    if (to) OnHost::write_back(Tensor(Ref<TensorImpl>::share(from)), Tensor(Ref<TensorImpl>::share(to)));
  };
  for (size_t k = 0; k < args.size(); ++k) {
    if (!o.schema.parameters[k].written) continue;
    auto &to = args[k], &from = copies.values()[k];
    if (to.tag == Tag::tensor) write_back(from.tensor, to.tensor);
    for (size_t j = 0; to.tag == Tag::tensors && j < to.list.count; ++j)
      write_back(from.tensors()[j], to.tensors()[j]);
  }
  Results results;
  for (auto& t : host_results.all()) results.push_back(t.defined() ? moved(t, device) : t);
  return results;
}

}  // namespace

Device device_of(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out) {
  Device device = default_device();
  if (auto* device_argument = chosen(o, args)) {
    device = *device_argument;
  } else if (form == Form::out && !out.empty()) {
    device = out[0].device();
  } else if (form == Form::in_place) {
    device = args[0].tensor->device;
  } else {
    bool first = true;
    op::any_tensor(args, [&](const TensorImpl* t) {
      if (!t) return false;
      if (first || is_elsewhere(t)) device = t->device;
      first = false;
      return is_elsewhere(t);
    });
  }
  op::check_can_hold(o.name(), device);
  return numbered(device);
}

Gathered::Gathered(Device device, const Operator& o, std::span<const Value> args, std::span<const Tensor> out)
    : args_(args) {
  bool moves = o.effects.moves, lends_shape = chosen(o, args);
  auto different =
      [&](const Tensor& t) {
        runtime_check(false, o.name())
            << "Expected all tensors to be on the same device, but found at least two devices, " << device
            << " and " << t.device() << "!"
            << hint("to(device) moves a tensor; it has the shape ", to_string(t.sizes()));
      };
  args_.each_tensor([&](size_t, Tensor& t) {
    if (!t.defined() || t.device() == device || is_cpu_number(t) || o.is<op::Foreign>()) return;
    if (lends_shape) t = unset_like(t, device);
    else if (!moves) different(t);
    else if (t.device().type != device.type) t = autograd::invoke("_to_device", {t, device});
  });
  for (auto& t : out)
    if (t.device() != device) different(t);
}

Results run_elsewhere(Device device, const Operator& o, std::span<const Value> args, Form form,
                      std::span<const Tensor> out, Compute on_cpu) {
  if (device.type == DeviceType::meta) return infer_only(device, o, args, form, out);
  if (auto* backed = o.backed(); backed && form == Form::functional) {
    auto& b = device::backend_of(device.type);
    auto fn = b.find(backed->name);
    if (fn && b.takes(op::Call(o, args))) return run_own(fn, device, o, args);
  }
  return run_on_copies(device, o, args, form, out, on_cpu);
}

Tensor moved(const Tensor& t, Device to) {
  Device from = t.device();
  op::check_can_hold("to", to);
  to = numbered(to);
  supported_check(!is_sparse(t), "to") << "sparse tensors stay on the CPU" << hint("to_dense() first");
  supported_check(from.type != DeviceType::meta || to.type == DeviceType::meta, "to")
      << "Cannot copy out of meta tensor; no data!"
      << hint(
             "Module.to_empty(device=...) gives a module on meta memory, whose values then are yours to set");
  Dims strides = dense_strides_like(t.sizes(), std::span(&t, 1));
  Tensor copy = Tensor::empty_strided(t.sizes(), strides, t.dtype(), to);
  copy.impl()->wrapped_number = t.impl()->wrapped_number;
  if (to.type == DeviceType::meta || t.numel() == SymInt(int64_t(0))) return copy;
  // Copies by way of the CPU, which makes the copy dense.
  autograd::GradMode off(false);
  DefaultDevice inside(Device{});
  Tensor host = OnHost().copy(t);
  if (Dims(host.strides()) != strides || host.offset() != SymInt(int64_t(0))) {
    Tensor dense = Tensor::empty_strided(t.sizes(), strides, t.dtype());
    autograd::invoke("copy", {dense, host}, Form::in_place);
    host = dense;
  }
  if (to.type == DeviceType::cpu) return host;
  memory(to).from_host(copy.impl()->storage->device_data(), host.data_ptr(), copy.impl()->storage->bytes());
  return copy;
}

}  // namespace facula::run
