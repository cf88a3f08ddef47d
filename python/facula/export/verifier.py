"""Checks of exported programs."""

from __future__ import annotations

from typing import Any

from .._ops import FunctionOperator, HigherOrderOperator, OpOverload
from .graph_signature import ConstantArgument, OutputKind

__all__ = ["SpecViolationError", "Verifier"]


class SpecViolationError(Exception):
    """A program that breaks a rule of exported programs."""


class Verifier:
    """Checks that a graph is well-formed, calls only operators, and has the inputs and outputs of its
    signature.
    """

    dialect = "ATEN"

    def check(self, program: Any) -> None:
        graph, signature = program.graph, program.graph_signature
        graph.lint()
        self._check_inputs(program)
        for node in graph.nodes:
            if node.op == "call_function":
                self._check_call(node)
            elif node.op in ("call_method", "call_module"):
                raise SpecViolationError(f"{node.op} {node.target}: an exported graph calls operators only")
        outputs = graph.output_node().args[0]
        if len(outputs) != len(signature.output_specs):
            raise SpecViolationError(
                f"the graph returns {len(outputs)} values, and its signature names "
                f"{len(signature.output_specs)}"
            )
        for value, spec in zip(outputs, signature.output_specs):
            named = isinstance(spec.arg, ConstantArgument) or getattr(value, "name", None) == spec.arg.name
            if not named:
                raise SpecViolationError(f"an output is {value}, and the signature names {spec.arg.name}")

    def _check_inputs(self, program: Any) -> None:
        names = [n.name for n in program.graph.nodes if n.op == "placeholder"]
        specs = program.graph_signature.input_specs
        if names != [s.arg.name for s in specs]:
            raise SpecViolationError(
                f"the graph has the inputs {names}, and its signature {[s.arg.name for s in specs]}"
            )
        for s in specs:
            if (
                s.target is not None
                and s.target not in program.state_dict
                and s.target not in program.constants
            ):
                raise SpecViolationError(
                    f"the input {s.arg.name} is {s.target}, which the program does not contain"
                )
        inputs = {s.target for s in specs} | set(names)
        for s in program.graph_signature.output_specs:
            if s.kind is not OutputKind.USER_OUTPUT and s.target not in inputs:
                raise SpecViolationError(
                    f"the output {s.arg.name} is written to {s.target}, which is no input"
                )

    def _check_call(self, node: Any) -> None:
        target = node.target
        module = getattr(target, "__module__", "")
        is_operator = isinstance(target, (OpOverload, FunctionOperator, HigherOrderOperator)) or module in (
            "_operator",
            "operator",
            "math",
        )
        if (
            not is_operator
            and not module.startswith(("facula.", "torch."))
            and getattr(target, "__self__", None) is None
        ):
            raise SpecViolationError(
                f"Operator '{target}' is not an allowed operator type: it is no operator of ops"
            )
