#include "facula/io/region.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "facula/autograd/autograd.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"
#include "facula/run/traced.h"

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
bool has_data(std::span<const Tensor> tensors) {
  return std::ranges::none_of(tensors,
                              [](auto& t) { return t.is_traced() || t.device().type == DeviceType::meta; });
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
      functions_.push_back(std::make_shared<run::Traced>(std::move(c), kind_));
    }
  }
  const std::string& name() const { return name_; }

  // The results for operands with data; for others, tensors like them.
  Tensors compute(std::span<const Tensor> operands, std::span<const Tensor> extras) const {
    bool runs = has_data(operands);
    size_t least = kind_ == "cond" || kind_ == "while_loop" ? 1 : std::max<size_t>(split_, 1);
    runtime_check(operands.size() >= least, kind_.c_str())
        << "takes at least " << least << " tensors, and is called with " << operands.size();
    if (kind_ == "cond") {
      size_t branch = !runs || operands[0].item().to_bool() ? 0 : 1;
      return call(branch, operands.subspan(1), extras);
    }
    if (kind_ == "while_loop") return loop(operands, extras, runs);
    return rows(operands, extras, runs);
  }

  Dict description() const {
    List functions;
    for (auto& t : texts_) functions.push_back(t);
    return Dict{{"name", name_},
                {"kind", kind_},
                {"split", int64_t(split_)},
                {"functions", std::move(functions)}};
  }

 private:
  Tensors call(size_t k, std::span<const Tensor> operands, std::span<const Tensor> extras) const {
    auto results = (*functions_[k])(joined(operands, extras));
    for (auto& t : results) runtime_check(t.defined(), kind_.c_str()) << "calls a function without a result";
    return results;
  }
  Tensors loop(std::span<const Tensor> operands, std::span<const Tensor> extras, bool runs) const {
    Tensors carried(operands.begin(), operands.end());
    if (!runs) {
      for (auto& t : carried) t = empty_like(t);
      return carried;
    }
    for (;;) {
      auto condition = call(0, carried, extras);
      runtime_check(condition.size() == 1, kind_.c_str())
          << "has a condition of " << condition.size() << " results";
      if (!condition[0].item().to_bool()) return carried;
      carried = call(1, carried, extras);
    }
  }
  // A scan carries its first `split_` operands and slices the others; a map slices the first ones and passes the others.
  Tensors rows(std::span<const Tensor> operands, std::span<const Tensor> extras, bool runs) const {
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
    SymInt length = sliced[0].size(0);
    std::vector<Tensors> columns;
    for (int64_t row = 0; row < (runs ? length.concrete() : 1); ++row) {
      Tensors results = step(row);
      runtime_check(results.size() >= carries, kind_.c_str())
          << "calls a function that does not return the states";
      first.assign(results.begin(), results.begin() + std::ptrdiff_t(carries));
      columns.resize(results.size() - carries);
      for (size_t k = 0; k < columns.size(); ++k) columns[k].push_back(results[carries + k]);
    }
    runtime_check(!runs || length > SymInt(0), kind_.c_str()) << "runs over a dimension of size 0";
    Tensors all = scans ? first : Tensors();
    for (auto& column : columns) all.push_back(runs ? stack(column) : stacked_like(column[0], length));
    return all;
  }
  static Tensor stacked_like(const Tensor& row, SymInt length) {
    Dims sizes(row.sizes());
    sizes.insert(0, length);
    return Tensor(empty(sizes, row.dtype(), row.device()));
  }

  std::string name_, kind_;
  size_t split_;
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
    return separated(region_->compute(operands, extras), joined(operands, extras));
  }
  std::vector<op::Meta> infer(const op::Call& c) override {
    return graph::infer_by_calls(c, [&](const op::Call& traced) {
      auto operands = traced.tensors("operands"), extras = traced.tensors("extras");
      op::Results results;
      for (auto& t : region_->compute(operands, extras)) results.push_back(t);
      return results;
    });
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

const std::string& define_region(const std::string& kind, size_t split,
                                 const std::vector<std::string>& texts) {
  auto& d = defined();
  std::string contents = kind + ' ' + std::to_string(split);
  for (auto& t : texts) contents += '\n' + t;
  std::lock_guard lock(d.mutex);
  auto& region = d.by_contents[contents];
  if (region) return region->name();
  std::string name = std::string(kNamespace) + "loaded_" + kind + "_" + std::to_string(d.by_name.size());
  try {
    region = std::make_shared<Region>(name, kind, split, texts);
  } catch (...) {
    d.by_contents.erase(contents);
    throw;
  }
  op::define_late([&] {
    op::define(name + "(Tensor[] operands, Tensor[] extras) -> Tensor[]")
        .bind(op::hidden)
        .foreign(std::make_shared<Forward>(region));
    op::define(name + std::string(kBackward) +
               "(Tensor[] operands, Tensor[] extras, Tensor[] grads, bool[] wanted) -> Tensor[]")
        .bind(op::hidden)
        .foreign(std::make_shared<Backward>(region));
  });
  d.by_name[name] = region;
  return region->name();
}

}  // namespace

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
        auto it = defined().by_name.find(name);
        if (it != defined().by_name.end()) region = it->second;
      }
      supported_check(region, "save")
          << "the program contains control flow (" << name << ") that Python defined"
          << hint("export it: facula.export.save writes its functions too");
      Dict description = region->description();
      for (auto& text : description["functions"].list()) add(graph::parse_graph(text.string()));
      regions.push_back(std::move(description));
    }
  };
  add(g);
  return regions;
}

}  // namespace facula::io
