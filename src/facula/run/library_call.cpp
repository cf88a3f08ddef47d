#include "facula/run/library_call.h"

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>

#include "facula/autograd/autograd.h"
#include "facula/base/fork.h"
#include "facula/base/settings.h"
#include "facula/graph/trace.h"
#include "facula/profile/profile.h"
#include "facula/run/call_cache.h"
#include "facula/run/interpose.h"
#include "facula/run/layout.h"
#include "facula/run/operands.h"
#include "facula/run/program_call.h"
#include "facula/run/write.h"

namespace facula::run {

using op::Form;
using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

namespace {

Device device_of_operands(std::span<const Value> args) {
  for (auto& v : args)
    if (v.tag == Tag::tensor) return v.tensor->device;
  return {};
}

// Runs the reference of a library operator that is made of operators. The gradient is the operator's, not that of these calls.
Results run_composed_reference(const op::Call& c, Device device) {
  auto& reference = c.op().backed()->composed_reference;
  supported_check(reference, c.op().name()) << "is not implemented on device " << device;
  autograd::GradMode off(false);
  return reference(c);
}

// Raises the error of a library that says nothing of the operands.
[[gnu::cold]] [[noreturn]] void raise_refused(const op::Call& c, const char* why) {
  std::string operands;
  for (auto& v : c.args()) {
    if (v.tag != Tag::tensor || !v.tensor) continue;
    operands += std::string(operands.empty() ? "" : ", ") + name(v.tensor->dtype) +
                to_string(SymSpan(v.tensor->sizes)) + " with strides " +
                to_string(SymSpan(v.tensor->strides));
  }
  runtime_check(false, c.op().name())
      << "the library that computes it refuses these operands: " << operands << " (" << why << ")"
      << hint("contiguous() makes plain copies of them");
  __builtin_unreachable();
}

// Returns fn(), which computes the call by a library.
template <class F>
inline auto of_library(const op::Call& c, F&& fn) {
  try {
    if (profile::on()) [[unlikely]] {
      profile::Scope scope(profile::Category::library, c.op().backed()->name);
      return fn();
    }
    return fn();
  } catch (const Error&) { throw; } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) { raise_refused(c, e.what()); }
}
inline Results run_function(device::LibraryFn fn, const op::Call& c, std::span<const Tensor> out) {
  return of_library(c, [&] { return fn(c, out); });
}

// Decides the strides of the results in memory; users see those of `entry.metas`. `physical_metas`: the results as they follow
// from operands in physical layouts; empty if there are none.
void place_results(const Operator& o, CacheEntry& entry, const std::vector<op::Meta>& physical_metas) {
  bool chooses = o.as<op::Library>()->channels_last == op::ChannelsLast::chooses;
  for (size_t k = 0; k < entry.metas.size(); ++k) {
    auto& m = entry.metas[k];
    if (m.strides.size() != m.sizes.size()) m.strides = contiguous_strides(m.sizes);
    Dims physical = m.strides;
    if (chooses && m.sizes.size() == 4 && is_floating(m.dtype) && itemsize(m.dtype) <= 4) {
      physical = channels_last_strides(m.sizes);
    } else if (!physical_metas.empty()) {
      auto& p = physical_metas[k];
      physical = p.strides.size() == m.sizes.size() ? p.strides : contiguous_strides(m.sizes);
    }
    entry.logical_strides.push_back(m.strides);
    entry.physical_strides.push_back(physical);
    entry.bytes.push_back(storage_bytes(o.name(), m.sizes, m.strides, m.dtype));
  }
}

// Operands in physical layouts as they are in memory, if the library reads them so; else they restore the logical layout when
// their memory is asked for.
void replace_physical(const op::Library& library, std::span<const Value>& args,
                      std::optional<InMemory>& physical) {
  if (library.channels_last == op::ChannelsLast::no || !settings().libraries || !any_physical_layout(args))
    return;
  physical.emplace(args, std::span<const Tensor>(), Packed::kept);
  args = physical->args();
}

Results allocated(const CacheEntry& entry, bool physical) {
  Results results;
  for (size_t k = 0; k < entry.metas.size(); ++k) {
    auto& m = entry.metas[k];
    const Dims& strides = physical ? entry.physical_strides[k] : m.strides;
    results.push_back(Tensor(make_ref<TensorImpl>(make_ref<StorageImpl>(entry.bytes[k], m.device), m.sizes,
                                                  strides, SymInt(), m.dtype, m.device)));
  }
  return results;
}

Results run_data_dependent(const Operator& o, std::span<const Value> args) {
  Device device = device_of_operands(args);
  op::Call c(o, args);
  auto fn = device::backend_of(device.type).find(o.backed()->name);
  return fn && settings().libraries ? run_function(fn, c, {}) : run_composed_reference(c, device);
}

}  // namespace

const Operator& reference_loop(const Operator& o) {
  auto& library = *o.as<op::Library>();
  static TableMutex mutex;
  static std::unordered_map<const Operator*, std::unique_ptr<Operator>> derived;
  std::lock_guard lock(mutex);
  auto& d = derived[&o];
  if (!d) {
    d = std::make_unique<Operator>();
    d->schema = op::parse_schema(o.schema.text);
    d->definition = op::Loop{library, library.reference};
    d->dtypes = o.dtypes;
    d->promote = o.promote;
    d->result_type = o.result_type;
    d->dtype_rule = o.dtype_rule;
    d->parent = &o;
  }
  return *d;
}

Results run_library(const Operator& o, std::span<const Value> args, std::span<const Tensor> out) {
  if (o.is<op::Foreign>()) return run_foreign({o, args, Form::functional, {}});
  if (o.is<op::DataDependent>()) return run_data_dependent(o, args);
  auto& library = *o.as<op::Library>();
  Device device = device_of_operands(args);
  op::Call logical(o, args);
  std::optional<InMemory> physical;
  replace_physical(library, args, physical);
  Key key;
  Operands operands;
  key_of(o, args, Purpose::functional, key, operands);
  if (physical) physical->append(key);
  CachedCall entry(o, key, [&](CacheEntry& filled) {
    profile::Scope scope(profile::Category::compile, "plan ", o.name());
    filled.library = device::backend_of(device.type).find(library.name);
    filled.metas = graph::infer(o, logical.args());
    place_results(o, filled, physical ? graph::infer(o, args) : std::vector<op::Meta>());
    return true;
  });
  bool by_library = entry->library && settings().libraries;
  Results results;
  if (out.empty()) results = allocated(*entry, by_library);
  else
    for (auto& t : out) results.push_back(t);
  if (!by_library) {
    if (library.reference) return run_program({reference_loop(o), args, results.all(), Form::out});
    return deliver({o, args, Form::out, results.all()}, run_composed_reference(logical, device));
  }
  run_function(entry->library, op::Call(o, args), results.all());
  if (out.empty() && library.channels_last != op::ChannelsLast::no)
    for (size_t k = 0; k < results.size(); ++k)
      results[k] = with_logical_strides(std::move(results[k]), entry->logical_strides[k]);
  return results;
}

Results run_library(device::LibraryFn fn, const Operator& o, std::span<const Value> args, Results out) {
  if (!fn || !settings().libraries) return run_library(o, args, out.all());
  std::optional<InMemory> physical;
  replace_physical(*o.as<op::Library>(), args, physical);
  run_function(fn, op::Call(o, args), out.all());
  return out;
}

bool run_with_epilogue(device::EpilogueFn fn, const Operator& o, std::span<const Value> args,
                       std::span<const Tensor> out, const device::EpilogueCall& epilogue) {
  if (!settings().libraries) return false;
  op::Call c(o, args);
  return of_library(c, [&] { return fn(c, out, epilogue); });
}

Results run_foreign(const Invocation& call) {
  auto& f = *call.op.as<op::Foreign>()->functions;
  op::Call c = call.call();
  profile::Scope scope(profile::Category::user, call.name());
  if (f.is_composite()) return f.run(c);
  if (call.recording && !call.op.effects.writes) return f.record(c);
  autograd::GradMode off(false);
  Results results = call.interposer ? interposed_results(call) : f.run(c);
  if (call.op.effects.writes) bump_written(call);
  return results;
}

}  // namespace facula::run
