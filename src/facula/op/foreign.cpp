#include "facula/op/foreign.h"

#include "facula/op/origin.h"
#include "facula/op/registry.h"

namespace facula::op {
namespace {

// Runs `of` on copies of the arguments that it writes.
class Functional final : public ForeignFunctions {
 public:
  explicit Functional(const Operator& of) : of_(of), functions_(of.as<Foreign>()->functions) {}
  Results run(const Call& c) override {
    Args args(c.args(), of_.schema);
    std::vector<bool> writes = written_slots(c);
    std::vector<Tensor> copies;
    args.each_tensor([&](size_t slot, Tensor& t) {
      if (!writes[slot] || !t.defined()) return;
      Value original[] = {t, Value()};
      t = call(get("clone"), original)[0];
      copies.push_back(t);
    });
    Results results = functions_->run(Call(of_, args.values()));
    for (auto& t : copies) results.push_back(std::move(t));
    return results;
  }
  std::vector<Meta> infer(const Call& c) override {
    auto metas = functions_->infer(Call(of_, c.args()));
    for (auto& t : written_tensors(Call(of_, c.args())))
      metas.push_back({Dims(t.sizes()), t.dtype(), t.device(), Dims(t.strides())});
    return metas;
  }
  Results record(const Call& c) override { return run(c); }
  Grads gradient(const Vjp&) override { return {}; }
  bool is_composite() const override { return false; }

 private:
  std::vector<bool> written_slots(const Call& c) const {
    std::vector<bool> writes;
    auto& parameters = of_.schema.parameters;
    for (size_t k = 0; k < parameters.size(); ++k) {
      if (parameters[k].type != Type::Tensor) continue;
      auto& v = c.args()[k];
      size_t slots = !parameters[k].list ? 1 : v.tag == Tag::tensors ? v.list.count : v.tag == Tag::tensor;
      writes.insert(writes.end(), slots, parameters[k].written);
    }
    return writes;
  }
  const Operator& of_;
  std::shared_ptr<ForeignFunctions> functions_;
};

}  // namespace

std::vector<Tensor> written_tensors(const Call& c) {
  std::vector<Tensor> written;
  for (auto& p : c.op().schema.parameters) {
    if (!p.written) continue;
    for (auto& t : p.list ? c.tensors(p.name) : std::vector<Tensor>{c.tensor(p.name)})
      if (t.defined()) written.push_back(t);
  }
  return written;
}

void check_gradients_pass(const Operator& o) {
  auto* foreign = o.as<Foreign>();
  bool keeps = foreign && dynamic_cast<KeepsOperands*>(foreign->functions.get());
  supported_check(!keeps, o.schema.full_name())
      << "is a method of a C++ class, through which a program has no gradients"
      << hint(
             "detach() the tensors that it is given, or compute without "
             "gradients (no_grad)");
}

const Operator& functional_form(const Operator& o) {
  auto& overload = o.schema.overload;
  std::string named = overload + (overload.empty() ? "" : "_") + "functional";
  auto functional = std::make_unique<Operator>();
  functional->schema = parse_schema(o.schema.text);
  functional->schema.overload = named;
  std::string key = functional->schema.full_name();
  if (auto* registered = find(key)) return *registered;
  for (auto& p : functional->schema.parameters) {
    if (p.written) functional->schema.returns.push_back({p.name, Type::Tensor, p.list});
    p.alias = 0;
    p.written = false;
  }
  functional->doc = "What " + o.schema.full_name() + " computes, without writing.";
  functional->namespaces = hidden;
  functional->promote = Promote::none;
  functional->differentiable = false;
  functional->effects.ordered = true;
  functional->parent = &o;
  functional->definition = Foreign{std::make_shared<Functional>(o)};
  return register_derived(std::move(functional));
}

}  // namespace facula::op
