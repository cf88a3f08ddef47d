#include "facula/embed/c_program.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "facula/codegen/c99.h"
#include "facula/codegen/c_constant.h"
#include "facula/codegen/c_element.h"
#include "facula/embed/c_functions.h"
#include "facula/embed/lowered.h"
#include "facula/graph/trace.h"

namespace facula::embed {
namespace {

using Root = Place::Root;
using schedule::Step;

bool is_identifier(const std::string& s) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !s.empty() && letter(s[0]) &&
         std::ranges::all_of(s, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}
// `s` with every character replaced that an identifier cannot contain.
std::string identifier(const std::string& s) {
  std::string result;
  for (char c : s) result += is_identifier("_" + std::string(1, c)) ? c : '_';
  return result;
}
// Whether the text has the identifier.
bool mentions(const std::string& text, const std::string& name) {
  auto goes_on = [&](size_t at) { return at < text.size() && is_identifier("_" + text.substr(at, 1)); };
  for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1))
    if (!goes_on(at + name.size()) && (at == 0 || !goes_on(at - 1))) return true;
  return false;
}
std::string shape_of(SymSpan sizes, DType d) { return std::string(name(d)) + to_string(sizes); }
int64_t elements(SymSpan sizes) {
  int64_t n = 1;
  for (auto s : sizes) n *= s.concrete();
  return n;
}

CArray array_of(const Tensor& t, const std::string& name, bool written) {
  int64_t n = elements(t.sizes()) * (is_complex(t.dtype()) ? 2 : 1);
  return {name, codegen::c_memory_type(t.dtype()), shape_of(t.sizes(), t.dtype()), n, written};
}

// The captured tensors of all entries: each one is an array of the program.
class Weights {
 public:
  Weights(std::string model, std::span<const Named> names) : model_(std::move(model)), names_(names) {}

  void add(const Tensor& t, bool written) {
    for (auto& w : all_)
      if (w.tensor.is_same(t)) {
        w.written |= written;
        return;
      }
    all_.push_back({t, unique(name_of(t)), written});
  }
  void check() const {
    for (auto& a : all_)
      for (auto& b : all_)
        value_check(&a == &b || !a.written || a.tensor.impl()->storage != b.tensor.impl()->storage,
                    model_.c_str())
            << "writes " << a.name << ", whose memory is also that of " << b.name
            << hint("capture one of the two, and make the other one from it in the program");
  }
  const std::string& symbol(const Tensor& t) const {
    auto it = std::ranges::find_if(all_, [&](auto& w) { return w.tensor.is_same(t); });
    internal_check(it != all_.end()) << "a captured tensor is unknown";
    return it->name;
  }
  bool is_written(const Tensor& t) const {
    return std::ranges::any_of(all_, [&](auto& w) { return w.written && w.tensor.is_same(t); });
  }
  // The name of the module that has the tensor, and the line that calls it; null if there is none.
  const Named* named(const Tensor& t) const {
    auto it = std::ranges::find_if(names_, [&](auto& n) { return n.tensor.is_same(t); });
    return it == names_.end() || it->name.rfind('.') == std::string::npos ? nullptr : &*it;
  }
  int64_t bytes(bool written) const {
    int64_t n = 0;
    for (auto& w : all_)
      if (w.written == written) n += elements(w.tensor.sizes()) * itemsize(w.tensor.dtype());
    return n;
  }
  std::vector<CArray> arrays() const {
    std::vector<CArray> arrays;
    for (auto& w : all_) arrays.push_back(array_of(w.tensor, w.name, w.written));
    return arrays;
  }
  std::string declarations() const {
    std::string text;
    for (auto& w : all_) text += "extern " + declaration(w) + ";\n";
    return text;
  }
  std::string definitions() const {
    std::string text;
    for (auto& w : all_)
      text += declaration(w) + " = {" + codegen::c_elements(w.tensor.dtype(), graph::elements_of(w.tensor)) +
              "};\n";
    return text;
  }

 private:
  struct Weight {
    Tensor tensor;
    std::string name;
    bool written;
  };
  static std::string declaration(const Weight& w) {
    CArray a = array_of(w.tensor, w.name, w.written);
    return std::string(w.written ? "" : "const ") + a.type + " " + a.name + "[" +
           std::to_string(std::max<int64_t>(a.elements, 1)) + "] /* " + a.shape + " */";
  }
  std::string name_of(const Tensor& t) const {
    for (auto& n : names_)
      if (n.tensor.is_same(t)) return model_ + "_" + identifier(n.name);
    return model_ + "_constant" + std::to_string(all_.size());
  }
  std::string unique(const std::string& wanted) {
    std::string name = wanted;
    for (int k = 2; !used_.insert(name).second; ++k) name = wanted + "_" + std::to_string(k);
    return name;
  }

  std::string model_;
  std::span<const Named> names_;
  std::vector<Weight> all_;
  std::set<std::string> used_;
};

// The kernels of all entries: equal texts are one function.
class Kernels {
 public:
  explicit Kernels(std::string model) : model_(std::move(model)) {}

  struct Function {
    std::string name;
    bool checks;
  };
  // `module`: what the first caller belongs to.
  const Function& function(const loop::Nest& nest, std::span<const int64_t> params, const std::string& module,
                           codegen::InRange in_range) {
    auto f = codegen::constant_function(nest, params, std::move(in_range));
    std::string text = "(" + f.arguments + ") " + f.body;
    auto [it, is_new] = functions_.try_emplace(text);
    if (is_new) {
      it->second = {model_ + "_" +
                        identifier(module + (module.empty() ? "" : "_") + nest.name.substr(0, 40)) + "_" +
                        std::to_string(functions_.size()),
                    f.checks};
      code_ += "FACULA_KERNEL void " + it->second.name + text + "\n";
    }
    return it->second;
  }
  const std::string& code() const { return code_; }

 private:
  std::string model_, code_;
  std::map<std::string, Function> functions_;
};

// The function of one entry.
class EntryPrinter {
 public:
  EntryPrinter(const std::string& model, const Entry& entry, const Lowered& program, const Weights& weights,
               Kernels& kernels)
      : model_(model), entry_(entry), program_(program), weights_(weights), kernels_(kernels) {}

  std::string prototype() const {
    std::string text = "int " + model_ + "_" + entry_.name + "(", comma;
    for (auto& p : parameters()) {
      text += comma + p.type + " " + p.name;
      comma = ", ";
    }
    return text + (comma.empty() ? "void)" : ")");
  }
  CEntry interface() const {
    CEntry f{entry_.name, prototype() + ";", {}};
    for (auto& p : parameters()) f.arguments.push_back(array_of(p.tensor, p.name, p.written));
    return f;
  }
  // One line for each argument and result: its shape.
  std::string comment() const {
    std::string text;
    for (auto& p : parameters())
      text += "   " + p.name + ": " + shape_of(p.tensor.sizes(), p.tensor.dtype()) + p.remark + "\n";
    return text;
  }
  // Macros for the arguments that are a part of the arena.
  std::string places() const {
    std::string text;
    for (int i : entry_.options.in_arena) {
      auto& t = input(i);
      std::string macro = model_ + "_" + entry_.name + "_" + argument(i);
      text +=
          "/* " + argument(i) + " of " + model_ + "_" + entry_.name + ": " + shape_of(t.sizes(), t.dtype()) +
          ", which the caller writes before the call; the call overwrites it. */\n#define " + macro + " ((" +
          codegen::c_memory_type(t.dtype()) + "*)(void*)((unsigned char*)" + model_ + "_arena + " +
          std::to_string(program_.places[size_t(program_.graph.graph.inputs[size_t(i)]->id)].offset) +
          "))\n\n";
    }
    return text;
  }
  std::string function() {
    std::string body;
    std::string module;
    for (size_t k = 0; k < program_.plan->outline->execs.size(); ++k) {
      find_module(k);
      std::string text = step(k);
      if (text.empty()) continue;
      if (std::exchange(module, module_) != module_) body += "  /* " + module_ + line_ + " */\n";
      body += text;
    }
    for (auto& c : program_.copies) body += copy(c);
    std::string text = prototype() + " {\n";
    for (auto& p : parameters())
      if (!mentions(body, p.name)) text += "  (void)" + p.name + ";\n";
    if (!checks_) return text + body + "  return 0;\n}\n";
    return text + "  struct facula_status status = {0, 0, 0};\n" + body + "  return (int)status.failed;\n}\n";
  }

 private:
  const Tensor& input(int i) const { return program_.graph.graph.inputs[size_t(i)]->tensor; }
  const Tensor& result(int k) const { return program_.graph.graph.outputs[size_t(k)]->tensor; }
  bool is_written(int i) const {
    return std::ranges::any_of(program_.graph.graph.mutated, [&](auto& m) { return m.first == i; });
  }
  std::string argument(int i) const {
    bool named = size_t(i) < entry_.arguments.size();
    return named ? entry_.arguments[size_t(i)] : "input" + std::to_string(i);
  }

  // The arguments and the results of the C function.
  struct Parameter {
    std::string type, name, remark;
    const Tensor& tensor;
    bool written;
  };
  std::vector<Parameter> parameters() const {
    std::vector<Parameter> all;
    auto add = [&](const Tensor& t, bool written, std::string name, const char* remark) {
      std::string type = (written ? "" : "const ") + std::string(codegen::c_memory_type(t.dtype())) + "*";
      all.push_back({std::move(type), std::move(name), remark, t, written});
    };
    for (int i = 0; i < int(program_.arguments); ++i)
      if (!entry_.options.in_arena.count(i))
        add(input(i), is_written(i), argument(i), is_written(i) ? ", which the function writes" : "");
    for (int k = 0; k < int(program_.graph.outputs.size()); ++k)
      if (program_.graph.outputs[size_t(k)] >= 0) add(result(k), true, "result" + std::to_string(k), "");
    return all;
  }

  // Sets the module that step k belongs to: that of a captured tensor that it reads, or else of an operand.
  void find_module(size_t k) {
    auto& exec = program_.plan->outline->execs[k];
    auto label = [&](int v) -> const Named* {
      Place p = v < 0 ? Place{} : program_.places[size_t(v)];
      if (p.root == Root::input && size_t(p.number) >= program_.arguments)
        return weights_.named(captured(p.number));
      if (p.root == Root::constant)
        return weights_.named(program_.graph.graph.values()[size_t(p.number)]->constant);
      return nullptr;
    };
    const Named* module = nullptr;
    for (int v : exec.inputs)
      if (!module) module = label(v);
    for (int v : exec.inputs)
      if (auto it = modules_.find(v); !module && it != modules_.end()) module = it->second;
    for (int v : exec.outputs)
      if (module) modules_[v] = module;
    module_ = module ? module->name.substr(0, module->name.rfind('.')) : "";
    line_ = module && !module->line.empty() ? ", " + module->line : "";
  }

  std::string step(size_t k) {
    auto& exec = program_.plan->outline->execs[k];
    if (program_.functions[k]) return call(exec, k);
    if (exec.kind != Step::Kind::kernel) return "";
    auto& kernels = program_.plan->kernels_of(exec);
    std::string text;
    for (auto& l : kernels.launches) {
      loop::Nest nest = l.nest->nest();
      nest.index_bits = 32;  // check_size
      auto in_range = [&](int b, int64_t n) { return has_indices(exec, l.buffers[size_t(b)], n); };
      auto& f = kernels_.function(nest, l.params, module_, in_range);
      checks_ |= f.checks;
      std::string arguments;
      for (size_t b = 0; b < l.buffers.size(); ++b) {
        auto& buffer = nest.buffers[b];
        std::string type =
            (buffer.written ? "" : "const ") + std::string(codegen::c_memory_type(buffer.dtype)) + "*";
        arguments += (b ? ", " : "") + pointer(place_of(exec, k, l.buffers[b]), type);
      }
      if (f.checks) arguments += std::string(arguments.empty() ? "" : ", ") + "&status";
      text += "  " + f.name + "(" + arguments + ");\n";
    }
    return text;
  }
  // Whether an operand is a constant whose elements are at least 0 and less than `size`.
  bool has_indices(const run::Outline::Exec& exec, int buffer, int64_t size) const {
    if (size_t(buffer) >= exec.inputs.size()) return false;
    auto& p = program_.places[size_t(exec.inputs[size_t(buffer)])];
    Tensor constant;
    if (p.root == Root::constant) constant = program_.graph.graph.values()[size_t(p.number)]->constant;
    if (p.root == Root::input && size_t(p.number) >= program_.arguments) constant = captured(p.number);
    if (!constant.defined() || constant.dtype() != DType::Int64 || weights_.is_written(constant))
      return false;
    std::string bytes = graph::elements_of(constant);
    for (size_t at = 0; at < bytes.size(); at += sizeof(int64_t)) {
      int64_t index;
      std::memcpy(&index, bytes.data() + at, sizeof index);
      if (index < 0 || index >= size) return false;
    }
    return true;
  }
  // A call of one of the backend's functions.
  std::string call(const run::Outline::Exec& exec, size_t k) const {
    std::vector<std::string> pointers;
    for (size_t b = 0; b < exec.inputs.size() + exec.outputs.size(); ++b) {
      int v = exec.operand(b);
      DType d = v < 0 ? DType::UInt8 : program_.graph.graph.values()[size_t(v)]->tensor.dtype();
      std::string type =
          (b < exec.inputs.size() ? "const " : "") + std::string(codegen::c_memory_type(d)) + "*";
      pointers.push_back(v < 0 ? "0" : pointer(program_.places[size_t(v)], type));
    }
    auto& scratch = program_.temporaries[k][0];
    return program_.functions[k]->statements(*exec.node, pointers, pointer(scratch, "void*"));
  }
  Place place_of(const run::Outline::Exec& exec, size_t k, int buffer) const {
    size_t operands = exec.inputs.size() + exec.outputs.size(), b = size_t(buffer);
    if (std::ranges::count(exec.empty, buffer)) return {};
    return b < operands ? program_.places[size_t(exec.operand(b))] : program_.temporaries[k][b - operands];
  }

  std::string pointer(const Place& p, const std::string& type) const {
    std::string base;
    switch (p.root) {
      case Root::none: return "(" + type + ")(void*)" + model_ + "_nothing";
      case Root::arena: base = "(unsigned char*)" + model_ + "_arena"; break;
      case Root::result: base = "result" + std::to_string(p.number); break;
      case Root::input:
        base =
            size_t(p.number) < program_.arguments ? argument(p.number) : weights_.symbol(captured(p.number));
        break;
      case Root::constant:
        base = weights_.symbol(program_.graph.graph.values()[size_t(p.number)]->constant);
        break;
    }
    if (p.offset == 0 && p.root != Root::arena) return base;
    std::string bytes = type.starts_with("const") ? "(const unsigned char*)" : "(unsigned char*)";
    std::string any = type.starts_with("const") ? "(const void*)" : "(void*)";
    if (p.root != Root::arena) base = bytes + base;
    return "(" + type + ")" + any + "(" + base + " + " + std::to_string(p.offset) + ")";
  }
  const Tensor& captured(int input) const {
    return entry_.program->captured()[size_t(input) - program_.arguments];
  }

  std::string copy(const Copy& c) const {
    std::string type = codegen::c_memory_type(c.dtype),
                text = "  {\n    const " + type + "* from = " + pointer(c.from, "const " + type + "*") +
                       ";\n    " + type + "* to = " + pointer(c.to, type + "*") + ";\n";
    std::string from, to, indent = "    ";
    for (size_t d = 0; d < c.sizes.size(); ++d) {
      std::string i = "i" + std::to_string(d);
      text += indent + "for (int32_t " + i + " = 0; " + i + " < " + std::to_string(c.sizes[d]) + "; ++" + i +
              ")\n";
      from += (d ? " + " : "") + i + " * " + std::to_string(c.from_strides[d]);
      to += (d ? " + " : "") + i + " * " + std::to_string(c.to_strides[d]);
      indent += "  ";
    }
    if (c.sizes.empty()) from = to = "0";
    if (!is_complex(c.dtype)) return text + indent + "to[" + to + "] = from[" + from + "];\n  }\n";
    for (const char* part : {"", " + 1"})
      text += indent + (*part ? "" : "{ ") + "to[2 * (" + to + ")" + part + "] = from[2 * (" + from + ")" +
              part + "];" + (*part ? " }\n" : "\n");
    return text + "  }\n";
  }

  const std::string& model_;
  const Entry& entry_;
  const Lowered& program_;
  const Weights& weights_;
  Kernels& kernels_;
  bool checks_ = false;
  std::map<int, const Named*> modules_;  // by value: a tensor of the module that computed it
  std::string module_, line_;            // of the step that is printed
};

// Indices of 32 bits serve up to 2^29 elements, so that no expression over them overflows.
void check_size(const Lowered& program, const char* name) {
  for (auto& v : program.graph.graph.values())
    supported_check(elements(v->tensor.sizes()) < int64_t(1) << 29, name)
        << "has a tensor of shape " << to_string(v->tensor.sizes()) << ", and the C code has 32-bit indices";
}

std::string header_text(const std::string& model, int64_t arena, const std::string& entries,
                        const std::string& weights) {
  std::string guard = model + "_h";
  std::ranges::transform(guard, guard.begin(), [](char c) { return char(std::toupper(c)); });
  return "/* Generated from traced programs. Tensors are contiguous, in row-major order. Results must not share memory\n"
         "   with arguments. Functions return 0, 1 if an index was out of range, or 2 for an integer division by zero;\n"
         "   in these two cases results are unspecified. They share memory, so that one call has to end before\n"
         "   another one begins. */\n#ifndef " +
         guard + "\n#define " + guard + "\n\n#include <stdint.h>\n\n/* The bytes of intermediates, which " +
         model + ".c allocates statically. */\n#define " + guard.substr(0, guard.size() - 2) +
         "_ARENA_BYTES " + std::to_string(arena) + "\n\n" + entries +
         "/* The tensors that the programs captured. */\n" + weights + "\n#endif\n";
}

// Analyses across functions are off: GCC 12 removes stores to the arena that later functions read.
constexpr char kKernel[] = R"c(
#if defined(__GNUC__) && !defined(__clang__)
#define FACULA_KERNEL static __attribute__((noipa))
#else
#define FACULA_KERNEL static
#endif
)c";

// The arrays that `functions` use besides the weights.
std::string memory_of(const std::string& model, int64_t arena, const std::string& functions, bool shared) {
  std::string text;
  if (arena)
    text += std::string(shared ? "" : "static ") + "uint64_t " + model + "_arena[" +
            std::to_string((arena + 7) / 8) + "];\n";
  if (functions.find(model + "_nothing") != std::string::npos)
    text += "static uint64_t " + model + "_nothing[2]; /* stands for tensors without elements */\n";
  return text.empty() ? text : text + "\n";
}

}  // namespace

CProgram c_program(const std::string& name, std::span<const Entry> entries, std::span<const Named> names) {
  CProgram out;
  Weights weights(name, names);
  Kernels kernels(name);
  std::vector<Lowered> programs;
  value_check(is_identifier(name), "c.compile") << "the name '" << name << "' is no identifier of C";
  for (auto& e : entries) {
    value_check(is_identifier(e.name), "c.compile") << "the name '" << e.name << "' is no identifier of C";
    auto& p = programs.emplace_back(lowered(*e.program, e.options));
    for (auto& block : p.blocks) out.blocks.push_back({e.name, block});
    check_size(p, e.name.c_str());
    out.arena = std::max(out.arena, p.arena);
    for (size_t i = p.arguments; i < p.graph.graph.inputs.size(); ++i) {
      bool written =
          std::ranges::any_of(p.graph.graph.mutated, [&](auto& m) { return size_t(m.first) == i; });
      weights.add(e.program->captured()[i - p.arguments], written);
    }
    for (auto* v : p.graph.constants) weights.add(v->constant, false);
  }
  weights.check();
  std::string functions, prototypes;
  bool shares_arena = false;
  for (size_t k = 0; k < entries.size(); ++k) {
    EntryPrinter printer(name, entries[k], programs[k], weights, kernels);
    functions += "\n" + printer.function();
    out.functions.push_back(printer.interface());
    prototypes += "/* " + name + "_" + entries[k].name + "\n" + printer.comment() + " */\n" +
                  out.functions.back().prototype + "\n\n" + printer.places();
    shares_arena |= !entries[k].options.in_arena.empty();
  }
  std::string arena = std::to_string((out.arena + 7) / 8);
  if (shares_arena) prototypes = "extern uint64_t " + name + "_arena[" + arena + "];\n\n" + prototypes;
  out.files.push_back({name + ".h", header_text(name, out.arena, prototypes, weights.declarations())});
  out.files.push_back({name + "_functions.h", "/* Functions that the kernels and the programs call. */\n" +
                                                  codegen::c99_prelude(kernels.code()) + kKernel +
                                                  c_function_texts(functions)});
  out.files.push_back({name + ".c", "#include \"" + name + ".h\"\n#include \"" + name + "_functions.h\"\n\n" +
                                        memory_of(name, out.arena, functions, shares_arena) + kernels.code() +
                                        functions});
  out.files.push_back(
      {name + "_weights.c", "#include \"" + name + ".h\"\n\n#include <math.h>\n\n" + weights.definitions()});
  out.weights = weights.arrays();
  out.constant = weights.bytes(false);
  out.writable = weights.bytes(true);
  return out;
}

}  // namespace facula::embed
