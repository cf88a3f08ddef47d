// Runs modules of C++ for tests/python/test_cpp_modules.py: run_modules CASES ANSWERS. A case is a dict of a class, its
// arguments and inputs, and a seed; an answer what Python computes of it: states, outputs, gradients, or an error.
#include <cmath>
#include <iostream>

#include "facula/facula.h"
#include "facula/nn/dynamic.h"
#include "facula/optim/objects.h"

namespace facula {
namespace {

using io::Dict;
using io::List;
using io::Value;

const nn::Class& class_named(const std::string& name) {
  for (auto& c : nn::classes())
    if (c.name == name) return *c.type;
  type_check(false, "run_modules") << "there is no class " << name;
  __builtin_unreachable();
}

// Arguments as they are, and modules for the dicts that describe them.
Value made(const Value& v);
nn::Arguments arguments_of(const Value& items, const Value& named) {
  nn::Arguments a;
  for (auto& x : items.list()) a.items.push_back(made(x));
  for (auto& [k, x] : named.dict()) a.named.emplace_back(k.string(), made(x));
  return a;
}
Value made(const Value& v) {
  if (!v.is_dict() || !v.contains("class")) return v;
  return nn::instance(class_named(v["class"].string()), arguments_of(v["args"], v["kwargs"]));
}

// Tensors of floats as leaves of a dtype; they are added to `leaves` if they want gradients.
Value prepared(const Value& v, DType dtype, std::vector<Tensor>& leaves) {
  if (v.is_tensor()) {
    Tensor t = clone(v.tensor().detached());
    if (!is_floating(t.dtype())) return t;
    t = clone(to(t, dtype).detached());
    if (v.tensor().requires_grad()) leaves.push_back(requires_grad_(t));
    return t;
  }
  if (v.kind() != Value::Kind::list && v.kind() != Value::Kind::tuple) return v;
  List all;
  for (auto& x : v.list()) all.push_back(prepared(x, dtype, leaves));
  return v.kind() == Value::Kind::list ? Value(std::move(all)) : Value(io::Tuple{std::move(all)});
}
void collect(const Value& v, std::vector<Tensor>& tensors) {
  if (v.is_tensor()) tensors.push_back(v.tensor());
  else if (v.kind() == Value::Kind::list || v.kind() == Value::Kind::tuple)
    for (auto& x : v.list()) collect(x, tensors);
}
Dict copied(const Dict& state) {
  Dict copy;
  for (auto& [k, v] : state) copy.set(k, clone(v.tensor()));
  return copy;
}
Value grad_value(const Tensor& t) {
  Tensor g = grad_of(t);
  return g.defined() ? Value(g.detached()) : Value();
}

// A loss that weighs every element of every output, with its gradients.
void differentiate(const std::vector<Tensor>& outputs, DType dtype) {
  Tensor loss;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Tensor& y = outputs[k];
    if (!y.requires_grad()) continue;
    int64_t n = y.numel().concrete();
    Tensor weights = reshape(cos(arange(1.0, double(n + 1), 1, dtype) + int64_t(k)), Sizes(y.sizes()));
    Tensor part = sum(y * weights);
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined()) backward(loss);
}

Dict answer_to(const Value& c) {
  manual_seed(uint64_t(c["seed"].integer()));
  nn::Module m = nn::construct(class_named(c["class"].string()), arguments_of(c["args"], c["kwargs"]));
  Dict answer{{"text", m.to_string()}, {"made", copied(m.state_dict())}};
  DType dtype = c["dtype"].dtype();
  m.train(c["training"].boolean());
  m.to(dtype);
  if (c.contains("state")) m.load_state_dict(c["state"]);
  std::vector<Tensor> leaves, outputs;
  nn::Arguments inputs;
  for (auto& x : c["inputs"].list()) inputs.items.push_back(prepared(x, dtype, leaves));
  for (auto& [k, x] : c["named_inputs"].dict())
    inputs.named.emplace_back(k.string(), prepared(x, dtype, leaves));
  manual_seed(uint64_t(c["seed"].integer()));
  collect(nn::forward(m, std::move(inputs)), outputs);
  differentiate(outputs, dtype);
  List values, of_inputs;
  for (auto& y : outputs) values.push_back(y.detached());
  for (auto& x : leaves) of_inputs.push_back(grad_value(x));
  Dict gradients;
  for (auto& [name, p] : m.named_parameters()) gradients.set(name, grad_value(p));
  answer.set("outputs", values);
  answer.set("input gradients", of_inputs);
  answer.set("gradients", gradients);
  answer.set("after", copied(m.state_dict()));
  return answer;
}

// Some steps of an optimizer: the parameters after them and its state, which it may begin with.
Dict steps_of(const Value& c) {
  std::vector<Tensor> params;
  for (auto& p : c["params"].list()) params.push_back(requires_grad_(clone(p.tensor().detached())));
  std::unique_ptr<optim::Optimizer> optimizer;
  for (auto& [name, make] : optim::optimizers())
    if (name == c["optimizer"].string()) optimizer = make({{params}}, {});
  for (auto& [name, v] : c["options"].dict()) optimizer->param_groups()[0].options.set(name, v);
  if (c.contains("state")) optimizer->load_state_dict(c["state"]);
  Tensor rows = to(arange(3), DType::Int64);
  auto closure = [&] {
    optimizer->zero_grad();
    Tensor loss;
    for (auto& p : params) {
      Tensor x = c["sparse"].boolean() ? embedding(p, rows, -1, false, true) : p;
      loss = loss.defined() ? loss + sum(sin(x) * x) : sum(sin(x) * x);
    }
    backward(loss);
    return loss;
  };
  List losses;
  for (int64_t k = 0; k < c["steps"].integer(); ++k) losses.push_back(optimizer->step(closure).detached());
  List values;
  for (auto& p : params) values.push_back(p.detached());
  return {{"params", values},
          {"losses", losses},
          {"state", c.contains("stateless") ? Dict() : optimizer->state_dict()}};
}

// A function of nn.init: what it made of a tensor and gave back. The numbers are those of a generator with this seed.
Dict initialized(const Value& c) {
  Generator generator(uint64_t(c["seed"].integer()));
  Value t = c["tensor"].is_tensor() ? Value(clone(c["tensor"].tensor())) : c["tensor"];
  nn::Arguments a = arguments_of(c["args"], c["kwargs"]);
  a.items.insert(a.items.begin(), t);
  if (c["draws"].boolean())
    a.named.emplace_back("generator", std::make_shared<nn::GeneratorObject>(&generator));
  for (auto& f : nn::init_functions())
    if (f.name == c["init"].string()) {
      Value result = f.body(a);
      return {{"tensor", t}, {"result", result}};
    }
  type_check(false, "run_modules") << "there is no function " << c["init"].string();
  __builtin_unreachable();
}

// A schedule, its optimizer and functions in place of what describes them.
Value scheduled(const Value& v, const Value& optimizer) {
  auto all = [&](const List& items) {
    List made;
    for (auto& x : items) made.push_back(scheduled(x, optimizer));
    return made;
  };
  if (v.kind() == Value::Kind::list) return all(v.list());
  if (v.kind() == Value::Kind::tuple) return io::Tuple{all(v.list())};
  if (v.kind() == Value::Kind::string && v.string() == "<optimizer>") return optimizer;
  if (!v.is_dict()) return v;
  if (v.contains("decay"))
    return optim::Factor(
        [by = v["decay"].number()](int64_t e) { return std::pow(by, double(e)) / double(1 + e); });
  nn::Arguments a;
  a.items = all(v["args"].list());
  for (auto& [k, x] : v["kwargs"].dict()) a.named.emplace_back(k.string(), scheduled(x, optimizer));
  for (auto& s : optim::schedules())
    if (s.name == v["class"].string()) return nn::instance(*s.type, std::move(a));
  type_check(false, "run_modules") << "there is no schedule " << v["class"].string();
  __builtin_unreachable();
}

// Rates and options of the groups after each step of a schedule, and its state, which it may begin with.
Dict rates_of(const Value& c) {
  std::vector<optim::ParamGroup> groups{{{requires_grad_(ones({2}))}},
                                        {{requires_grad_(ones({2}))}, {{"lr", 0.01}}}};
  std::unique_ptr<optim::Optimizer> o;
  if (c["of"].string() == "SGD")
    o = std::make_unique<optim::SGD>(groups, optim::SGD::Options{.lr = 0.1, .momentum = 0.9});
  else o = std::make_unique<optim::AdamW>(groups, optim::AdamW::Options{.lr = 0.1});
  auto options = [&] {
    List all;
    for (auto& g : o->param_groups()) all.push_back(Dict(g.options));
    return all;
  };
  Value s = scheduled(c["schedule"], optim::OptimizerObject::of(*o));
  if (c.contains("state")) {
    nn::method(s, "load_state_dict", {c["state"]});
    o->load_state_dict(c["optimizer state"]);
  }
  List rows{options()};
  for (auto& given : c["steps"].list()) {
    o->step();
    nn::Arguments a;
    a.items = given.list();
    nn::method(s, "step", std::move(a));
    rows.push_back(options());
    rows.push_back(nn::method(s, "get_last_lr", {}));
  }
  return {{"rows", rows}, {"state", nn::method(s, "state_dict", {})}, {"optimizer state", o->state_dict()}};
}

// Lists and dicts of parameters and of modules, after some changes.
Dict contained(const Value& c) {
  auto t = [&](size_t k) { return clone(c["held"][k].tensor()); };
  manual_seed(uint64_t(c["seed"].integer()));
  struct Net : nn::Module {
    nn::ParameterList list;
    nn::ParameterDict dict;
    nn::ModuleDict<nn::Linear> modules{{{"right", nn::Linear(2, 3)}, {"left", nn::Linear(3, 1)}}};
  } net;
  net.list.extend({t(0), t(1)});
  net.list.append(t(2));
  net.list.set(1, t(3));
  net.dict.update({{"first", t(0)}, {"second", t(1)}, {"last", t(2)}});
  net.dict.insert("second", t(3));
  net.dict.pop("first");
  net.modules.insert("right", nn::Linear(2, 2));
  net.modules.insert("more", nn::Linear(1, 1));
  net.modules.pop("left");
  net.register_module("list", net.list);
  net.register_module("dict", net.dict);
  net.register_module("modules", net.modules);
  List keys, grads;
  for (auto& [key, value] : net.dict) keys.push_back(key);
  for (auto& [key, value] : net.modules) keys.push_back(key);
  for (auto& p : net.parameters()) grads.push_back(p.requires_grad());
  return {{"state", net.state_dict()},
          {"keys", keys},
          {"grads", grads},
          {"texts", List{net.list.to_string(), net.modules.to_string(), nn::ParameterList({t(0)}).to_string(),
                         nn::ParameterList().to_string(), nn::ModuleDict<nn::Linear>().to_string()}}};
}

void print_names(auto all) {
  for (auto& x : all) std::cout << x.name << '\n';
}

Dict answer(const Value& c) {
  if (c.contains("optimizer")) return steps_of(c);
  if (c.contains("schedule")) return rates_of(c);
  if (c.contains("held")) return contained(c);
  return c.contains("init") ? initialized(c) : answer_to(c);
}

}  // namespace
}  // namespace facula

int main(int count, char** words) {
  using namespace facula;
  if (count == 2) {
    std::string what = words[1];
    if (what == "--classes") print_names(nn::classes());
    if (what == "--optimizers") print_names(optim::optimizers());
    if (what == "--schedules") print_names(optim::schedules());
    if (what == "--init") print_names(nn::init_functions());
    return 0;
  }
  io::List answers;
  io::Value cases = io::load(words[1]);
  for (auto& c : cases.list()) {
    try {
      answers.push_back(answer(c));
    } catch (const Error& e) {
      answers.push_back(io::Dict{{"error", int64_t(e.type())}, {"message", e.what()}});
    } catch (const std::exception& e) { answers.push_back(io::Dict{{"error", -1}, {"message", e.what()}}); }
  }
  io::save(words[2], answers);
  return 0;
}
