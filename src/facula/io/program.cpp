#include "facula/io/program.h"

#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/graph/objects.h"
#include "facula/io/checkpoint.h"
#include "facula/io/objects.h"
#include "facula/io/program_file.h"
#include "facula/io/region.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "facula/run/traced.h"

namespace facula::io {

namespace {

constexpr const char* kFormat = "facula program";
constexpr int64_t kVersion = 1, kWithObjects = 2,
                  kWithRounding = 3;  // each file has the lowest version that holds it

// The tensors of a program: the captured ones, then those that only occur in gradient slots.
class Tensors {
 public:
  explicit Tensors(const std::vector<Tensor>& captured) : all_(captured) {}
  int64_t number(const Tensor& t) {  // -1: none
    if (!t.defined()) return -1;
    auto it = std::find_if(all_.begin(), all_.end(), [&](auto& x) { return x.is_same(t); });
    if (it != all_.end()) return it - all_.begin();
    all_.push_back(t);
    return int64_t(all_.size()) - 1;
  }
  List values() const {
    List list;
    for (auto& t : all_) {
      supported_check(t.device().type == DeviceType::cpu, "save")
          << "the program captured a tensor on " << t.device();
      list.push_back(Tuple{{t.detached(), t.requires_grad() && autograd::is_leaf(t)}});
    }
    return list;
  }

 private:
  std::vector<Tensor> all_;
};

// Reads a program's fields, with errors that name the file.
class Reader {
 public:
  Reader(const std::string& path, const Value& v) : path_(path), v_(v) {}
  void check(bool good, const char* what) const {
    runtime_check(good, "load") << path_ << " is damaged: " << what;
  }
  std::unique_ptr<run::Traced> program() const {
    graph::Capture c;
    Value regions = v_.contains("regions") ? v_["regions"] : Value(List());
    Objects objects;
    if (v_.contains("objects"))
      for (auto& o : v_["objects"].list()) objects.push_back(o.custom_object());
    c.graph = graph::parse_graph(define_regions(regions, v_["graph"].string(), path_), objects);
    auto& g = c.graph;
    std::vector<Tensor> tensors;
    for (auto& item : v_["tensors"].list()) {
      Tensor t = item[0].tensor();
      check(t.defined() && !t.is_traced(), "a tensor is missing");
      if (item[1].boolean()) {
        check(is_differentiable(t.dtype()), "integers require gradients");
        autograd::set_requires_grad(t, true);
      }
      tensors.push_back(t);
    }
    size_t captured = checked_index(v_["captured"], std::min(tensors.size(), g.inputs.size()) + 1);
    c.captured.assign(tensors.begin(), tensors.begin() + std::ptrdiff_t(captured));
    size_t argument_count = g.inputs.size() - captured;
    for (size_t k = 0; k < captured; ++k) {
      auto& t = g.inputs[argument_count + k]->tensor;
      check(t.dtype() == tensors[k].dtype() && t.dim() == tensors[k].dim(),
            "a tensor does not fit the graph");
    }
    c.results = checked_index(v_["results"], g.outputs.size() + 1);
    c.differentiates = v_["differentiates"].boolean();
    for (auto& r : v_["required"].list()) c.required.push_back(r.boolean());
    check(c.required.size() == (c.differentiates ? argument_count : c.required.size()),
          "it requires other arguments");
    auto tensor = [&](const Value& v) {
      int64_t n = v.integer();
      return n < 0 ? Tensor() : tensors[checked_index(v, tensors.size())];
    };
    for (auto& s : v_["slots"].list()) {
      graph::Capture::Slot slot;
      slot.argument = s[0].integer() < 0 ? -1 : int(checked_index(s[0], argument_count));
      slot.leaf = tensor(s[1]);
      slot.before = tensor(s[2]);
      slot.relied = s[3].boolean();
      slot.output = s[4].integer() < 0 ? -1 : int(checked_index(s[4], g.outputs.size()));
      slot.after = tensor(s[5]);
      check((slot.argument < 0) == slot.leaf.defined(), "a gradient slot is of no tensor");
      check(slot.output < 0 || g.outputs[size_t(slot.output)], "a gradient slot gets no value");
      if (slot.leaf.defined()) {
        check(slot.leaf.requires_grad() || slot.output < 0, "a gradient slot is of no leaf");
        if (slot.before.defined()) autograd::set_grad(slot.leaf, slot.before);
      }
      c.slots.push_back(std::move(slot));
    }
    std::vector<run::Traced::Check> checks;
    for (auto& k : v_["checks"].list())
      checks.push_back({ErrorType(checked_index(k[0], size_t(ErrorType::KeyboardInterrupt))), k[1].string()});
    check(checks.size() <= c.results, "it checks more than it computes");
    auto program = std::make_unique<run::Traced>(std::move(c), v_["name"].string());
    program->require(std::move(checks));
    return program;
  }

 private:
  size_t checked_index(const Value& v, size_t end) const {
    int64_t n = v.integer();
    check(n >= 0 && uint64_t(n) < end, "a number is out of range");
    return size_t(n);
  }
  const std::string& path_;
  const Value& v_;
};

void write(const std::string& path, const run::Traced& program, const std::string& extra) {
  auto& c = program.capture();
  Tensors tensors(c.captured);
  List slots, required, checks;
  for (auto& s : c.slots)
    slots.push_back(Tuple{{s.argument, tensors.number(s.leaf), tensors.number(s.before), s.relied, s.output,
                           tensors.number(s.after)}});
  for (bool r : c.required) required.push_back(r);
  for (auto& k : program.checks()) checks.push_back(Tuple{{int64_t(k.type), k.text}});
  for (auto& n : c.graph.nodes)
    for (auto& v : n->args.values()) {
      supported_check(v.tag != op::Tag::generator, "save")
          << "the program draws from a generator of its own, which a file cannot hold"
          << hint("let it draw from the default generator");
    }
  Dict file{{kFormat, kVersion},
            {"name", program.name()},
            {"graph", graph::print(c.graph)},
            {"tensors", tensors.values()},
            {"captured", c.captured.size()},
            {"results", c.results},
            {"differentiates", c.differentiates},
            {"required", std::move(required)},
            {"slots", std::move(slots)},
            {"checks", std::move(checks)},
            {"extra", extra}};
  // Earlier releases read files without regions.
  if (List regions = regions_of(c.graph); !regions.empty()) file.set("regions", std::move(regions));
  if (auto objects = graph::objects_of(c.graph); !objects.empty()) {
    std::vector<size_t> numbers;
    file.set("objects of classes", list_of_objects(objects, numbers));
    List of_graph;
    for (size_t n : numbers) of_graph.push_back(int64_t(n));
    file.set("objects", std::move(of_graph));
    file.set(kFormat, kWithObjects);
  }
  if (file["graph"].string().find(" held") != std::string::npos) file.set(kFormat, kWithRounding);
  save(path, std::move(file));
}

// The program in `file` with its objects in place of their numbers.
Value with_objects(const Value& file) {
  Dict fields = file.dict();
  fields.set("objects", objects_of_list(file["objects of classes"], file["objects"],
                                        [](const Value& t) { return t.tensor(); }));
  return fields;
}

}  // namespace
}  // namespace facula::io

namespace facula {

std::vector<Tensor> Program::operator()(std::span<const Tensor> inputs) const { return (*traced_)(inputs); }
const std::vector<Tensor>& Program::captured() const { return traced_->captured(); }
std::vector<Ref<CustomClassHolder>> Program::objects() const { return graph::objects_of(traced_->graph()); }
std::string Program::text() const { return graph::print(traced_->graph()); }
std::vector<std::string> Program::steps() const {
  std::vector<std::string> lines;
  for (auto& s : traced_->report().steps) lines.push_back(s.text());
  return lines;
}

void Program::save(const std::string& path, const std::string& extra) const {
  io::write(path, *traced_, extra);
}

Program Program::load(const std::string& path, std::string* extra) {
  return from(io::is_program_file(path) ? io::read_program_file(path) : io::load(path), path, extra);
}

Program Program::from(const io::Value& v, const std::string& path, std::string* extra) {
  runtime_check(v.is_dict() && v.contains(io::kFormat), "load") << path << " holds no program";
  try {
    int64_t version = v[io::kFormat].integer();
    runtime_check(version >= io::kVersion && version <= io::kWithRounding, "load")
        << path << " is of version " << version << ", and this library reads versions up to "
        << io::kWithRounding;
    if (extra) *extra = v["extra"].string();
    io::Value fields = v.contains("objects of classes") ? io::with_objects(v) : v;
    return Program(io::Reader(path, fields).program());
  } catch (const Error& e) {  // for a value of the wrong kind, or an error of the graph's operators
    if (e.kind() == ErrorKind::internal || e.op() == "load") throw;
    runtime_check(false, "load") << path << " is damaged: " << e.message();
    __builtin_unreachable();
  }
}

Program trace(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
              std::span<const Tensor> inputs, std::string name, bool dynamic) {
  return Program(run::trace(f, inputs, std::move(name), dynamic));
}

SymInt item_as_size(const Tensor& t) {
  if (!t.is_traced()) return t.item().to_int();
  op::Value args[] = {t};
  return op::call(op::get("_of_length"), args)[0].size(0);
}

}  // namespace facula
