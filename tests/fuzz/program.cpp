// Saved programs: RuntimeError is the only error of loading; what is accepted holds together, can be printed and fused,
// and nothing of it is executed. An input is a file; or, since checksums keep mutations out of files, what a file
// holds: a line of JSON, tensors told by what they are, and the graph's text.
#include "facula/io/program.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "facula/facula.h"
#include "facula/graph/passes.h"
#include "facula/run/traced.h"
#include "facula/schedule/fuse.h"
#include "fuzz.h"

using namespace facula;
using nlohmann::json;

namespace {

constexpr int64_t kStorage = 64;  // elements

int64_t integer(const json& j) {
  user_check(j.is_number_integer(), "fuzz") << "no integer";
  return j.get<int64_t>();
}

Dims dims(const json& j) {
  Dims all;
  for (auto& n : j) all.push_back(integer(n));
  return all;
}

// ["float32", sizes, strides, offset, number of its storage]
Tensor tensor_of(const json& j, std::vector<Tensor>& storages) {
  DType dtype = dtype_from_name(j.at(0).get<std::string>());
  auto sizes = dims(j.at(1)), strides = dims(j.at(2));
  int64_t last = integer(j.at(3));
  auto k = size_t(integer(j.at(4)));
  user_check(sizes.size() == strides.size() && last >= 0 && last < kStorage && k < 16, "fuzz") << "no tensor";
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t n = sizes[d].concrete(), s = strides[d].concrete();
    user_check(n >= 0 && n <= kStorage && s >= 0 && s <= kStorage, "fuzz") << "no tensor";
    last += (n - 1) * s;
  }
  user_check(last < kStorage, "fuzz") << "no tensor";
  if (storages.size() <= k) storages.resize(k + 1);
  if (!storages[k].defined()) storages[k] = fuzz::zeros({kStorage}, dtype);
  user_check(storages[k].dtype() == dtype, "fuzz") << "no tensor";
  return storages[k].alias(sizes, strides, integer(j.at(3)));
}

io::Value value_of(const json& j, std::vector<Tensor>& storages) {
  switch (j.type()) {
    case json::value_t::boolean: return j.get<bool>();
    case json::value_t::number_integer:
    case json::value_t::number_unsigned: return j.get<int64_t>();
    case json::value_t::number_float: return j.get<double>();
    case json::value_t::string: return j.get<std::string>();
    case json::value_t::array: {
      io::List list;
      for (auto& item : j) list.push_back(value_of(item, storages));
      return list;
    }
    case json::value_t::object: {
      if (j.contains("tensor")) return tensor_of(j["tensor"], storages);
      io::Dict dict;
      for (auto& [key, item] : j.items()) dict.set(key, value_of(item, storages));
      return dict;
    }
    default: return {};
  }
}

json json_of(const io::Value& v, std::vector<const void*>& storages) {
  using Kind = io::Value::Kind;
  switch (v.kind()) {
    case Kind::boolean: return v.boolean();
    case Kind::integer: return v.integer();
    case Kind::string: return v.string();
    case Kind::list:
    case Kind::tuple: {
      json all = json::array();
      for (auto& item : v.list()) all.push_back(json_of(item, storages));
      return all;
    }
    case Kind::tensor: {
      auto& t = v.tensor();
      const void* memory = t.impl()->storage.get();
      auto k = size_t(std::find(storages.begin(), storages.end(), memory) - storages.begin());
      if (k == storages.size()) storages.push_back(memory);
      auto ints = [](SymSpan s) { return std::vector<int64_t>(concrete(s).begin(), concrete(s).end()); };
      return {{"tensor", {name(t.dtype()), ints(t.sizes()), ints(t.strides()), t.offset().concrete(), k}}};
    }
    default: return nullptr;
  }
}

void check(const Program& p) {
  auto& g = p.traced().graph();
  graph::verify(g);
  p.text();
  try {
    graph::Graph calls = graph::expanded(g, std::make_shared<sym::Shapes>(*g.shapes));
    graph::merge_equal(calls);
    graph::rematerialize(calls);
    graph::verify(calls);
    schedule::fuse(calls, schedule::Between::exact);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) fuzz::broken("a program that is loaded can be fused", e.what());
  }
}

void load(std::string_view data) {
  if (data.starts_with("PK")) {
    const std::string& path = fuzz::file_of(data);
    return fuzz::raises_only(ErrorType::RuntimeError, [&] { check(Program::load(path)); });
  }
  io::Value saved;
  size_t line = std::min(data.find('\n'), data.size());
  try {
    std::vector<Tensor> storages;
    saved = value_of(json::parse(data.substr(0, line)), storages);
    if (!saved.is_dict() || line == data.size()) return;
  } catch (const std::exception&) {
    return;  // not in form
  }
  saved.dict().set("graph", std::string(data.substr(line + 1)));
  fuzz::raises_only(ErrorType::RuntimeError, [&] { check(Program::from(saved, "fuzz.pt")); });
}

// ---- programs to start from

struct Cube {
  static std::vector<Tensor> forward(autograd::Context& c, const Tensor& x) {
    c.save_for_backward({x});
    return {mul(mul(x, x), x)};
  }
  static std::vector<Tensor> backward(autograd::Context& c, std::vector<Tensor> grads) {
    Tensor x = c.saved()[0];
    return {mul(mul(grads[0], 3), mul(x, x))};
  }
};

std::vector<Program> programs() {
  Tensor w = requires_grad_(ones(Dims{2, 3}), true), state = ones(Dims{3}), x = ones(Dims{4, 2});
  using Tensors = std::vector<Tensor>;
  using Given = std::span<const Tensor>;
  std::vector<Program> made;
  auto add = [&](auto f, bool dynamic = false) { made.push_back(trace(f, Given(&x, 1), "seed", dynamic)); };
  add([&](Given in) { return Tensors{softmax(tanh(mm(in[0], w)), 1)}; }, true);
  add([&](Given in) {
    add_(narrow(state, 0, 1, 2), sum(in[0], Ints{0}));
    mul_(in[0], 2);
    return Tensors{mul(state, 2), in[0]};
  });
  add([&](Given in) {
    backward(sum(relu(mm(in[0], w))));
    return Tensors{};
  });
  add([&](Given in) { return autograd::run<Cube>(mm(in[0], w)); });
  add([&](Given in) { return Tensors{dropout(in[0], 0.5, true), all(isfinite(in[0]))}; });
  made.back().traced().require({{ErrorType::ValueError, "not finite"}});
  requires_grad_(x, true);
  add([&](Given in) {
    backward(sum(exp(in[0])));
    return Tensors{neg(in[0])};
  });
  return made;
}

std::vector<std::string> seeds() {
  auto folder = std::filesystem::temp_directory_path() / ("facula_fuzz_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::vector<std::string> all;
  for (auto& p : programs()) {
    std::string path = folder / "seed.pt";
    p.save(path);
    io::Value saved = io::load(path);
    json fields = json::object();
    std::vector<const void*> storages;
    for (auto& [key, value] : saved.dict())
      if (key.string() != "graph") fields[key.string()] = json_of(value, storages);
    all.push_back(fields.dump() + "\n" + saved["graph"].string());
    all.push_back(fuzz::bytes_of(path));
  }
  std::filesystem::remove_all(folder);
  return all;
}

}  // namespace

FACULA_FUZZ_FORMED("program", load, seeds, fuzz::mutated_text)
