#include "facula/codegen/c_constant.h"

#include "facula/codegen/c_printer.h"
#include "facula/codegen/kernel.h"

namespace facula::codegen {
namespace {

class ConstantPrinter : public CPrinter {
 public:
  ConstantPrinter(const loop::Nest& n, std::span<const int64_t> params, InRange in_range)
      : CPrinter(n), params_(params), in_range_(std::move(in_range)) {}

  std::string arguments() const {
    std::string all;
    for (size_t k = 0; k < n_.buffers.size(); ++k) {
      auto& b = n_.buffers[k];
      all += (k ? ", " : "") + std::string(b.written ? "" : "const ") + memory_type(b.dtype) + "* b" +
             std::to_string(k);
    }
    return all;
  }

 private:
  void open_function(const std::string&) override {
    open("{");
    std::string task = index(n_.task_var), tasks = std::to_string(eval_params(n_.tasks, params_.data()));
    if (n_.end_var < 0)
      return open("for (" + std::string(index_type()) + " " + task + " = 0; " + task + " < " + tasks +
                  "; ++" + task + ") {");
    open("{");
    line("const " + std::string(index_type()) + " " + task + " = 0, " + index(n_.end_var) + " = " + tasks +
         ";");
  }
  std::string param(int k) const override { return std::to_string(params_[size_t(k)]); }
  std::string reports_to() const override { return "status"; }
  bool is_in_range(Expr e) override {
    Expr index = e->args[0], size = e->args[1];
    if (index->kind == loop::Kind::cast) index = index->args[0];
    if (!in_range_ || index->kind != loop::Kind::load || index->slot < 0) return false;
    if (size->kind == loop::Kind::param) return in_range_(index->slot, params_[size_t(size->slot)]);
    return size->kind == loop::Kind::constant && in_range_(index->slot, size->value.to_int());
  }
  void array(const Statement& s) override {
    line(memory_type(s.dtype) + std::string(" a") + std::to_string(s.var) + "[facula_at_least_1(" +
         values_of({s.extent})[0] + (is_complex(s.dtype) ? " * 2" : "") + ")];");
  }

  std::span<const int64_t> params_;
  InRange in_range_;
};

}  // namespace

ConstantFunction constant_function(const loop::Nest& n, std::span<const int64_t> params, InRange in_range) {
  ConstantPrinter printer(n, params, std::move(in_range));
  ConstantFunction f;
  f.arguments = printer.arguments();
  f.body = printer.function("");
  f.body = f.body.substr(f.body.find('\n') + 1);  // the comment with the nest's name
  std::string unused;
  for (size_t k = 0; k < n.buffers.size(); ++k)
    if (std::string b = "b" + std::to_string(k); f.body.find(b + "[") == std::string::npos)
      unused += "  (void)" + b + ";\n";
  f.body.insert(2, unused);
  f.checks = f.body.find(", status)") != std::string::npos;
  if (f.checks) f.arguments += std::string(f.arguments.empty() ? "" : ", ") + "struct facula_status* status";
  return f;
}

}  // namespace facula::codegen
