#include "facula/io/region.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "facula/autograd/autograd.h"
#include "facula/codegen/named.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"
#include "facula/run/traced.h"
#include "facula/sym/run_time.h"
#include "facula/sym/substitute.h"

namespace facula::io {
namespace {

using Tensors = std::vector<Tensor>;
constexpr std::string_view kNamespace = "facula_region::", kBackward = "_backward";

Tensors joined(std::span<const Tensor> a, std::span<const Tensor> b) {
  Tensors all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}
Tensors rows_at(std::span<const Tensor> tensors, int64_t row) {
  Tensors rows;
  for (auto& t : tensors) rows.push_back(select(t, int64_t(0), row));
  return rows;
}

// The functions of one region and how it calls them.
class Region {
 public:
  Region(std::string name, std::string kind, size_t split, std::vector<std::string> texts)
      : name_(std::move(name)), kind_(std::move(kind)), split_(split), texts_(std::move(texts)) {
    for (auto& text : texts_) {
      graph::Capture c;
      c.graph = graph::parse_graph(text);
      c.results = c.graph.outputs.size();
      for (auto& n : c.graph.nodes) draws_ |= n->op->effects.draws;
      functions_.push_back(std::make_shared<run::Traced>(std::move(c), kind_));
    }
  }
  const std::string& name() const { return name_; }
  bool draws() const { return draws_; }  // random numbers

  // The results for operands with data.
  Tensors compute(std::span<const Tensor> operands, std::span<const Tensor> extras) const {
    check_count(operands.size());
    if (kind_ == "cond") {
      size_t branch = operands[0].item().to_bool() ? 0 : 1;
      if (codegen::records_kernels()) record(1 - branch, operands.subspan(1), extras);
      return call(branch, operands.subspan(1), extras);
    }
    if (kind_ == "while_loop") return loop(operands, extras);
    return rows(operands, extras);
  }

  Dict description() const {
    List functions;
    for (auto& t : texts_) functions.push_back(t);
    return Dict{{"name", name_},
                {"kind", kind_},
                {"split", int64_t(split_)},
                {"functions", std::move(functions)}};
  }

  // The metadata of the results.
  std::vector<op::Meta> infer(std::span<const Tensor> operands, std::span<const Tensor> extras) const {
    check_count(operands.size());
    if (kind_ == "cond") return infer_function(0, sizes_of(operands.subspan(1)), sizes_of(extras));
    if (kind_ == "while_loop") return metas_of(operands);
    auto all = sizes_of(operands);
    size_t first = kind_ == "scan" ? split_ : 0, last = kind_ == "scan" ? all.size() : split_;
    runtime_check(first < last && last <= all.size(), kind_.c_str()) << "slices no tensor";
    runtime_check(!all[first].empty(), kind_.c_str()) << "slices a tensor without dimensions";
    SymInt length = all[first][0];
    for (size_t k = first; k < last; ++k) {
      runtime_check(!all[k].empty(), kind_.c_str()) << "slices a tensor without dimensions";
      all[k] = Dims(SymSpan(all[k]).subspan(1));
    }
    auto results = infer_function(0, std::move(all), sizes_of(extras));
    runtime_check(results.size() >= first, kind_.c_str())
        << "calls a function that does not return the states";
    auto metas = metas_of(operands.first(first));
    for (size_t k = first; k < results.size(); ++k) {
      results[k].sizes.insert(0, length);
      metas.push_back(std::move(results[k]));
    }
    return metas;
  }

 private:
  using AllSizes = std::vector<Dims>;
  static AllSizes sizes_of(std::span<const Tensor> tensors) {
    AllSizes all;
    for (auto& t : tensors) all.emplace_back(t.sizes());
    return all;
  }
  static std::vector<op::Meta> metas_of(std::span<const Tensor> tensors) {
    std::vector<op::Meta> metas;
    for (auto& t : tensors) metas.push_back({Dims(t.sizes()), t.dtype(), t.device(), {}});
    return metas;
  }
  void check_count(size_t operands) const {
    size_t least = kind_ == "cond" || kind_ == "while_loop" ? 1 : std::max<size_t>(split_, 1);
    runtime_check(operands >= least, kind_.c_str())
        << "takes at least " << least << " tensors, and is called with " << operands;
  }
  // The metadata of a function's results for operands of these sizes.
  std::vector<op::Meta> infer_function(size_t k, AllSizes operands, const AllSizes& extras) const {
    operands.insert(operands.end(), extras.begin(), extras.end());
    auto& g = functions_[k]->graph();
    runtime_check(operands.size() == g.inputs.size(), kind_.c_str())
        << "calls a function of " << g.inputs.size() << " tensors with " << operands.size();
    std::vector<SymInt> values;
    for (int s = 0; s < g.shapes->symbol_count(); ++s) values.push_back(g.shapes->symbol(s));
    for (size_t i = 0; i < operands.size(); ++i) {
      auto sizes = g.inputs[i]->tensor.sizes();
      runtime_check(sizes.size() == operands[i].size(), kind_.c_str())
          << "calls a function with a tensor of shape " << to_string(SymSpan(operands[i]))
          << ", which was traced with " << to_string(sizes);
      for (size_t d = 0; d < sizes.size(); ++d)
        if (sizes[d].is_symbol()) values[size_t(sizes[d].node()->value)] = operands[i][d];
    }
    std::vector<op::Meta> metas;
    for (auto* v : g.outputs) {
      runtime_check(v, kind_.c_str()) << "calls a function without a result";
      Dims sizes(v->tensor.sizes());
      for (auto& s : sizes) {
        supported_check(!sym::is_run_time(s), kind_.c_str())
            << "calls a function with a result whose size depends on elements";
        s = sym::substitute(s, values);
      }
      metas.push_back({std::move(sizes), v->tensor.dtype(), v->tensor.device(), {}});
    }
    return metas;
  }

  Tensors call(size_t k, std::span<const Tensor> operands, std::span<const Tensor> extras) const {
    auto results = (*functions_[k])(joined(operands, extras));
    for (auto& t : results) runtime_check(t.defined(), kind_.c_str()) << "calls a function without a result";
    return results;
  }
  // Runs a function that these operands may not reach, so that its kernels are recorded for a package too.
  void record(size_t k, std::span<const Tensor> operands, std::span<const Tensor> extras) const {
    try {
      call(k, operands, extras);
    } catch (const Error& e) {  // it refuses these elements; a call that reaches it has others
      if (e.kind() == ErrorKind::internal || e.type() == ErrorType::KeyboardInterrupt) throw;
    }
  }
  Tensors loop(std::span<const Tensor> operands, std::span<const Tensor> extras) const {
    Tensors carried(operands.begin(), operands.end());
    if (codegen::records_kernels()) record(1, carried, extras);
    for (;;) {
      auto condition = call(0, carried, extras);
      runtime_check(condition.size() == 1, kind_.c_str())
          << "has a condition of " << condition.size() << " results";
      if (!condition[0].item().to_bool()) return carried;
      carried = call(1, carried, extras);
    }
  }
  // A scan carries its first `split_` operands and slices the others; a map slices the first ones and passes the others.
  Tensors rows(std::span<const Tensor> operands, std::span<const Tensor> extras) const {
    bool scans = kind_ == "scan";
    Tensors first(operands.begin(), operands.begin() + std::ptrdiff_t(split_));
    auto rest = operands.subspan(split_);
    auto sliced = scans ? rest : operands.first(split_);
    size_t carries = scans ? split_ : 0;
    auto step = [&](int64_t row) {
      Tensors slices = rows_at(sliced, row);
      return call(0, scans ? joined(first, slices) : joined(slices, rest), extras);
    };
    runtime_check(!sliced.empty(), kind_.c_str()) << "slices no tensor";
    int64_t length = sliced[0].size(0).concrete();
    runtime_check(length > 0, kind_.c_str()) << "runs over a dimension of size 0";
    std::vector<Tensors> columns;
    for (int64_t row = 0; row < length; ++row) {
      Tensors results = step(row);
      runtime_check(results.size() >= carries, kind_.c_str())
          << "calls a function that does not return the states";
      first.assign(results.begin(), results.begin() + std::ptrdiff_t(carries));
      columns.resize(results.size() - carries);
      for (size_t k = 0; k < columns.size(); ++k) columns[k].push_back(results[carries + k]);
    }
    Tensors all = scans ? first : Tensors();
    for (auto& column : columns) all.push_back(stack(column));
    return all;
  }

  std::string name_, kind_;
  size_t split_;
  bool draws_ = false;
  std::vector<std::string> texts_;
  std::vector<std::shared_ptr<run::Traced>> functions_;
};

// Copies results that share memory with an operand or another result.
op::Results separated(Tensors results, std::span<const Tensor> operands) {
  std::set<const StorageImpl*> seen;
  for (auto& t : operands) seen.insert(t.impl()->storage.get());
  op::Results separate;
  for (auto& t : results) {
    bool shares = t.impl()->storage && seen.count(t.impl()->storage.get());
    separate.push_back(shares ? clone(t) : t);
    seen.insert(separate[separate.size() - 1].impl()->storage.get());
  }
  return separate;
}

class RegionFunctions : public op::ForeignFunctions {
 public:
  explicit RegionFunctions(std::shared_ptr<const Region> region) : region_(std::move(region)) {}
  bool is_composite() const override { return false; }

 protected:
  std::shared_ptr<const Region> region_;
};

class Forward final : public RegionFunctions {
 public:
  using RegionFunctions::RegionFunctions;
  op::Results run(const op::Call& c) override {
    auto operands = c.tensors("operands"), extras = c.tensors("extras");
    if (std::ranges::any_of(operands, [](auto& t) { return t.device().type == DeviceType::meta; })) {
      op::Results results;
      for (auto& m : infer(c)) results.push_back(empty(m.sizes, m.dtype, Device{DeviceType::meta}));
      return results;
    }
    return separated(region_->compute(operands, extras), joined(operands, extras));
  }
  std::vector<op::Meta> infer(const op::Call& c) override {
    auto operands = c.tensors("operands"), extras = c.tensors("extras");
    return region_->infer(operands, extras);
  }
  op::Results record(const op::Call& c) override {
    op::Results results;
    {
      autograd::GradMode off(false);
      results = run(c);
    }
    autograd::record(c.op(), c.args(), op::Form::functional, results);
    return results;
  }
  op::Grads gradient(const op::Vjp& v) override {
    auto& c = v.call();
    supported_check(!region_->draws(), c.name())
        << "draws random numbers, and its gradient, which runs it again, would draw others"
        << hint("draw them outside and pass them among the operands");
    std::map<std::string, Tensors> tensors;
    std::vector<Scalar> wanted;
    size_t slots = 0;
    for (const char* name : {"operands", "extras"})
      for (size_t k = 0; k < c.tensors(name).size(); ++k, ++slots) {
        tensors[name].push_back(v.item(name, int(k)));
        wanted.push_back(Scalar(is_differentiable(tensors[name].back().dtype())));
      }
    Tensors grads;
    auto metas = infer(c);
    for (size_t k = 0; k < metas.size(); ++k) {
      Tensor g = v.grad(int(k));
      grads.push_back(g.defined() ? g : zeros(metas[k].sizes, metas[k].dtype));
    }
    op::Value args[] = {std::span<const Tensor>(tensors["operands"]),
                        std::span<const Tensor>(tensors["extras"]), std::span<const Tensor>(grads),
                        std::span<const Scalar>(wanted)};
    auto gradients = op::call(op::get(region_->name() + std::string(kBackward)), args);
    op::Grads all(slots);
    for (size_t k = 0, next = 0; k < slots; ++k)
      if (wanted[k].to_bool()) all[k] = gradients[next++];
    return all;
  }
};

class Backward final : public RegionFunctions {
 public:
  using RegionFunctions::RegionFunctions;
  op::Results run(const op::Call& c) override {
    auto operands = c.tensors("operands"), extras = c.tensors("extras");
    auto wanted = c["wanted"].scalars();
    Tensors leaves = joined(operands, extras), inputs, results, grads;
    value_check(wanted.size() == leaves.size(), c.name())
        << "wants gradients of " << wanted.size() << " tensors";
    autograd::GradMode on(true);
    for (size_t k = 0; k < leaves.size(); ++k) {
      leaves[k] = leaves[k].detached();
      if (!wanted[k].to_bool()) continue;
      autograd::set_requires_grad(leaves[k], true);
      inputs.push_back(leaves[k]);
    }
    std::span<const Tensor> all = leaves;
    auto computed = region_->compute(all.first(operands.size()), all.subspan(operands.size()));
    auto seeds = c.tensors("grads");
    value_check(seeds.size() == computed.size(), c.name())
        << "is given gradients of " << seeds.size() << " results";
    for (size_t k = 0; k < computed.size(); ++k)
      if (computed[k].requires_grad()) {
        results.push_back(computed[k]);
        grads.push_back(seeds[k]);
      }
    Tensors gradients(inputs.size());
    if (!results.empty()) gradients = autograd::grad(results, inputs, grads, false, false, true);
    for (size_t k = 0; k < gradients.size(); ++k)
      gradients[k] = gradients[k].defined() ? contiguous(gradients[k]) : zeros_like(inputs[k]);
    return separated(std::move(gradients), joined(joined(operands, extras), seeds));
  }
  std::vector<op::Meta> infer(const op::Call& c) override {
    std::vector<op::Meta> metas;
    auto leaves = joined(c.tensors("operands"), c.tensors("extras"));
    auto wanted = c["wanted"].scalars();
    for (size_t k = 0; k < leaves.size() && k < wanted.size(); ++k)
      if (wanted[k].to_bool())
        metas.push_back({Dims(leaves[k].sizes()), leaves[k].dtype(), leaves[k].device(), {}});
    return metas;
  }
  op::Results record(const op::Call& c) override { return run(c); }
  op::Grads gradient(const op::Vjp& v) override {
    supported_check(false, v.call().name()) << "has no gradient: it is the gradient of control flow";
    __builtin_unreachable();
  }
};

// The regions of this process that files defined, by contents and by name. Regions live as long as the process.
struct Defined {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Region>> by_contents, by_name;
};
Defined& defined() {
  static auto& d = *new Defined;
  return d;
}

bool is_name_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// `text` with the names of regions replaced.
std::string renamed(const std::string& text, const std::map<std::string, std::string>& names) {
  std::string out;
  size_t at = 0;
  for (size_t begin; (begin = text.find(kNamespace, at)) != text.npos;) {
    size_t end = begin + kNamespace.size();
    while (end < text.size() && is_name_part(text[end])) ++end;
    std::string name = text.substr(begin, end - begin);
    bool backward = name.ends_with(kBackward);
    if (backward) name.resize(name.size() - kBackward.size());
    auto it = names.find(name);
    runtime_check(it != names.end(), "load") << "the program calls the unknown region " << name;
    out += text.substr(at, begin - at) + it->second + (backward ? std::string(kBackward) : "");
    at = end;
  }
  return out + text.substr(at);
}

}  // namespace

std::string define_region(const std::string& kind, size_t split, const std::vector<std::string>& texts) {
  auto& d = defined();
  std::string contents = kind + ' ' + std::to_string(split);
  for (auto& t : texts) contents += '\n' + t;
  std::lock_guard lock(d.mutex);
  auto& region = d.by_contents[contents];
  if (region) return region->name();
  std::string name = std::string(kNamespace) + kind + "_" + std::to_string(d.by_name.size());
  try {
    region = std::make_shared<Region>(name, kind, split, texts);
  } catch (...) {
    d.by_contents.erase(contents);
    throw;
  }
  op::define_late([&] {
    auto forward = op::define(name + "(Tensor[] operands, Tensor[] extras) -> Tensor[]");
    forward.bind(op::hidden).foreign(std::make_shared<Forward>(region));
    if (region->draws()) forward.draws();
    op::define(name + std::string(kBackward) +
               "(Tensor[] operands, Tensor[] extras, Tensor[] grads, bool[] wanted) -> Tensor[]")
        .bind(op::hidden)
        .foreign(std::make_shared<Backward>(region));
  });
  d.by_name[name] = region;
  return region->name();
}

std::string define_regions(const Value& regions, const std::string& graph, const std::string& path) {
  std::map<std::string, std::string> names;
  for (auto& r : regions.list()) {
    std::string kind = r["kind"].string();
    bool is_kind = kind == "cond" || kind == "while_loop" || kind == "scan" || kind == "map_impl";
    int64_t split = r["split"].integer();
    size_t functions = kind == "cond" || kind == "while_loop" ? 2 : 1;
    runtime_check(is_kind && split >= 0 && split < 4096 && r["functions"].size() == functions, "load")
        << path << " is damaged: a region of the kind " << kind;
    std::vector<std::string> texts;
    for (auto& t : r["functions"].list()) texts.push_back(renamed(t.string(), names));
    names[r["name"].string()] = define_region(kind, size_t(split), texts);
  }
  return renamed(graph, names);
}

List regions_of(const graph::Graph& g) {
  List regions;
  std::set<std::string> seen;
  std::function<void(const graph::Graph&)> add = [&](const graph::Graph& of) {
    for (auto& n : of.nodes) {
      std::string name = n->op->schema.full_name();
      if (!name.starts_with(kNamespace)) continue;
      if (name.ends_with(kBackward)) name.resize(name.size() - kBackward.size());
      if (!seen.insert(name).second) continue;
      std::shared_ptr<const Region> region;
      {
        std::lock_guard lock(defined().mutex);
        region = defined().by_name.at(name);
      }
      Dict description = region->description();
      for (auto& text : description["functions"].list()) add(graph::parse_graph(text.string()));
      regions.push_back(std::move(description));
    }
  };
  add(g);
  return regions;
}

}  // namespace facula::io
