"""Modules, functions and optimizers under the names of PyTorch's C++ front end, from the same Python sources.

    OUT/torch/nn/layers.h       for each module NAME: NAMEOptions, NAMEImpl and its holder NAME
    OUT/torch/nn/functional.h   for each function of nn.functional: itself, and its FuncOptions
    OUT/torch/nn/init.h         the functions of nn.init on torch::Tensor
    OUT/torch/optim/optimizers.h  for each optimizer NAME: NAMEOptions and NAME; the schedules

They hold names and types alone: what is called is found by its name (facula/nn/by_name.h).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

# Results that Python's annotations leave open, because they depend on the class.
RESULTS = {
    "RNN": "std::tuple<Tensor, Tensor>",
    "GRU": "std::tuple<Tensor, Tensor>",
    "LSTM": "std::tuple<Tensor, std::tuple<Tensor, Tensor>>",
    "LSTMCell": "std::tuple<Tensor, Tensor>",
    "AdaptiveLogSoftmaxWithLoss": "std::tuple<Tensor, Tensor>",
}
# Settings of Python that C++ does without: former forms of `reduction`, and what to() does.
OWN_SCHEDULES = {"StepLR"}  # their rules differ between PyTorch's languages: src/torch/optim/schedulers.h
NOT_OPTIONS = {"size_average", "reduce", "_stacklevel", "return_indices", "device", "dtype"}
# C++ type of a setting -> what a setter takes, and what a getter gives.
TYPES = {
    "std::string": ("torch::detail::Text", "std::string"),
    "std::optional<Tensor>": ("const Tensor&", "Tensor"),
    "Tensor": ("const Tensor&", "Tensor"),
    "Argument": ("torch::detail::Given", "IValue"),
    "std::pair<double, double>": ("torch::detail::TwoNumbers", "torch::detail::TwoNumbers"),
    "std::array<double, 3>": ("torch::detail::ThreeNumbers", "torch::detail::ThreeNumbers"),
}


@dataclass
class Option:
    """A setting with the name and type that users see; `symbol` is the name that the callee has for it."""

    name: str
    type: str
    default: str | None
    symbol: str = ""

    @property
    def is_number(self) -> bool:
        """A number that Python takes as a tensor too, such as a learning rate."""
        return self.type == "Argument" and bool(re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", self.default or ""))

    @property
    def taken(self) -> str:
        if self.is_number:
            return "double"
        return TYPES.get(self.type, (self.type, ""))[0]

    @property
    def given(self) -> str:
        if self.is_number:
            return "double"
        return TYPES.get(self.type, ("", self.type))[1]

    @property
    def otherwise(self) -> str:
        """The value of a setting that was not set."""
        if self.default in (None, "{}", "std::nullopt") and not self.given.startswith("std::optional"):
            return f"{self.given}()"
        if self.default and self.default.startswith("{"):
            return f"{self.given}({self.default[1:-1]})"
        return f"{self.given}({self.default})" if self.default else f"{self.given}()"

    def parameter(self, defaults: bool = True) -> str:
        if not defaults or self.default is None:
            return f"{self.taken} {self.name}"
        value = self.default
        if self.type in ("Argument", "std::optional<Tensor>") and not self.is_number:
            value = "{}"
        elif value.startswith("{"):
            value = self.otherwise
        return f"{self.taken} {self.name} = {value}"

    def passed(self) -> str:
        return f'.with("{self.symbol or self.name}", {self.name})'


def options_of(settings: list) -> list[Option]:
    return [Option(s.name, s.type, s.default) for s in settings]


def first_of(options: list[Option]) -> list[Option]:
    """The settings that are arguments of a constructor: those that are required, and after numbers or at the
    front the others up to the first that may be a list.
    """
    required = [o for o in options if o.default is None]
    if [o.type for o in required] == ["Argument"]:
        return required
    rest = [o for o in options if o.default is not None]
    count = next((k for k, o in enumerate(rest) if o.type == "Argument"), len(rest))
    return required + rest[:count]


def options_class(name: str, base: str, options: list[Option], first: list[Option], about: str) -> list[str]:
    """Returns a class of settings; its constructor takes the options `first`."""
    lines = [f"// Settings of {about}.", f"struct {name} : {base} {{"]
    assigned = " ".join(f'set("{o.name}", {o.name});' for o in first)
    if first and all(o.default is not None for o in first):
        lines.append(f"  {name}() = default;")
        head, *rest = first
        required = ", ".join([head.parameter(False), *(o.parameter() for o in rest)])
        lines.append(f"  {name}({required}) {{ {assigned} }}")
    elif first:
        lines.append(f"  {name}({', '.join(o.parameter() for o in first)}) {{ {assigned} }}")
    lines += [
        f"  FACULA_TORCH_OPTION({name}, {comma_free(o.taken)}, {comma_free(o.given)}, {o.name}, "
        f"{o.otherwise})"
        for o in options
    ]
    return [*lines, "};"]


def comma_free(text: str) -> str:
    if "," in text:
        raise ValueError(f"a type with a comma in an argument of a macro: {text}")
    return text


def result_of(node: ast.FunctionDef, name: str, settings: list[str]) -> str:
    text = ast.unparse(node.returns) if node.returns else "Any"
    if name in RESULTS:
        return RESULTS[name]
    if text == "Tensor" or "return_indices" in settings:
        return "Tensor"
    return "std::tuple<Tensor, Tensor>" if text.startswith("tuple[Tensor, Tensor") else "IValue"


def layer(name: str, settings: list, inputs: list, forward: ast.FunctionDef, tensors: list[str]) -> str:
    all_options, given = options_of(settings), options_of(inputs)
    options = [o for o in all_options if o.name not in NOT_OPTIONS]
    first = first_of(options)
    if given and given[0].name == "input":
        given[0].type = "Tensor"
    with_indices = "return_indices" in [o.name for o in all_options]
    if with_indices:
        options = [o for o in all_options if o.name not in NOT_OPTIONS or o.name == "return_indices"]
    lines = options_class(f"{name}Options", "torch::detail::Options", options, first, f"a {name}")
    lines += [f"class {name}Impl : public Layer<{name}Impl, {name}Options> {{", " public:"]
    values = ", ".join(o.name for o in first)
    needs = [o for o in first if o.default is None]
    if first and not needs:
        head, *rest = first
        lines.append(f"  {name}Impl() : {name}Impl({name}Options()) {{}}")
        parameters = ", ".join([head.parameter(False), *(o.parameter() for o in rest)])
    else:
        parameters = ", ".join(o.parameter() for o in first)
    lines.append(f"  explicit {name}Impl({parameters}) : {name}Impl({name}Options({values})) {{}}")
    if first:
        lines.append(
            f'  explicit {name}Impl(const {name}Options& o) : Layer("{name}", o) {{ {name}Impl::reset(); }}'
        )
    else:
        lines[-1] = (
            f'  explicit {name}Impl(const {name}Options& o = {{}}) : Layer("{name}", o) '
            f"{{ {name}Impl::reset(); }}"
        )
    bound = "".join(f' {t} = tensor("{t}");' for t in tensors)
    lines.append(f"  void reset() override {{ Layer::reset();{bound} }}")
    passed = "".join(o.passed() for o in given)
    signature = ", ".join(o.parameter() for o in given)
    result = result_of(forward, name, [o.name for o in options])
    call = f"call<{result}>(torch::detail::Arguments(){passed})"
    if with_indices:
        pair = "std::tuple<Tensor, Tensor>"
        lines.append(
            f"  Tensor forward({signature}) {{\n    return torch::detail::first_of("
            f"call<IValue>(torch::detail::Arguments(){passed}));\n  }}"
        )
        lines.append(
            f"  {pair} forward_with_indices({signature}) {{\n"
            f"    return {name}Impl({name}Options(options).return_indices(true)).call<{pair}>"
            f"(torch::detail::Arguments(){passed});\n  }}"
        )
    else:
        lines.append(f"  {result} forward({signature}) {{ return {call}; }}")
    if tensors:
        lines.append(f"  Tensor {', '.join(tensors)};")
    return "\n".join([*lines, "};", f"TORCH_MODULE({name});"]) + "\n"


def camel(function: str, modules: list[str]) -> str:
    """MSELoss of mse_loss, in the spelling of the module of this name if there is one."""
    plain = function.replace("_", "")
    for known in modules:
        if known.lower() in (plain, plain + "loss"):
            return known[: len(plain)]
    return "".join(part[:1].upper() + part[1:] for part in function.split("_"))


def functional(name: str, settings: list[Option], result: str, modules: list[str], call: str) -> str:
    """A function with its tensors first, and settings by options."""
    tensors = {"Tensor", "std::optional<Tensor>"}
    count = 0
    while count < len(settings) and settings[count].type in tensors and settings[count].default is None:
        count += 1
    inputs = settings[:count]
    options = [s for s in settings[count:] if s.name not in NOT_OPTIONS or s.name == "dtype"]
    signature = [o.parameter(False) for o in inputs]
    passed = "".join(o.passed() for o in inputs)

    def body(arguments: str) -> str:
        called = call.format(f"torch::detail::Arguments(){arguments}.dict()")
        if result == "Tensor" and "return_indices" in [s.name for s in settings]:
            return f"torch::detail::first_of({called})"
        return f"torch::detail::from_value<{result}>({called})"

    lines = []
    if options:
        kind = camel(name, modules) + "FuncOptions"
        first = [o for o in options if o.default is None] or options[:1]
        lines += options_class(kind, "torch::detail::Options", options, first, name)
        default = "" if any(o.default is None for o in options) else " = {}"
        parameters = ", ".join([*signature, f"const {kind}& options{default}"])
        renamed = "".join(
            f'.renamed("{o.name}", "{o.symbol}")' for o in options if o.symbol not in ("", o.name)
        )
        given = f"{passed}.with(options.settings()){renamed}"
        lines.append(f"inline {result} {name}({parameters}) {{ return {body(given)}; }}")
    if not options or all(o.type in tensors for o in options):
        # The first of the options has no default here, or a call without any would be ambiguous.
        rest = [o.parameter(k > 0) for k, o in enumerate(options)]
        given = passed + "".join(o.passed() for o in options)
        lines.append(f"inline {result} {name}({', '.join([*signature, *rest])}) {{ return {body(given)}; }}")
    return "\n".join(lines) + "\n"


def initial(name: str, settings: list, result: str) -> str:
    options = options_of(settings)
    parameters = ", ".join(
        f"{s.type} {s.name}" + (f" = {s.default}" if s.default else "")
        if s.type.endswith("*")
        else o.parameter()
        for s, o in zip(settings, options, strict=True)
    )
    values = ", ".join(o.name for o in options)
    kind = {"double": "double", "std::pair<int64_t, int64_t>": "auto"}.get(result, "Tensor")
    return f"inline {kind} {name}({parameters}) {{ return facula::nn::init::{name}({values}); }}"


def optimizer(name: str, settings: list) -> str:
    options = options_of(settings)
    first = [o for o in options if o.name == "lr"]
    lines = options_class(f"{name}Options", "OptimizerOptions", options, first, name)
    lines[-1:] = [
        "  std::unique_ptr<OptimizerOptions> clone() const override {",
        f"    return std::make_unique<{name}Options>(*this);",
        "  }",
        "};",
    ]
    lines += [
        f"class {name} : public Optimizer {{",
        " public:",
        f"  explicit {name}(const std::vector<OptimizerParamGroup>& groups,"
        f" const {name}Options& defaults = {{}})",
        f'      : Optimizer("{name}", groups, std::make_unique<{name}Options>(defaults)) {{}}',
        f"  explicit {name}(std::vector<Tensor> params, const {name}Options& defaults = {{}})",
        f"      : {name}(std::vector<OptimizerParamGroup>{{OptimizerParamGroup(std::move(params))}}, "
        "defaults) {}",
        "};",
    ]
    return "\n".join(lines) + "\n"


def header(about: str, includes: list[str], namespace: str, body: list[str], banner: str) -> str:
    lines = [f"// {about} {banner}", "#pragma once", *(f'#include "{i}"' for i in includes), ""]
    return "\n".join(
        [*lines, f"namespace {namespace} {{", "", *body, "", f"}}  // namespace {namespace}", ""]
    )
