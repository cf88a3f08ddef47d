"""The kinds of inputs and outputs of an exported graph: parameters, buffers, arguments, results,
mutations.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ConstantArgument", "CustomObjArgument", "ExportBackwardSignature", "ExportGraphSignature",
    "InputKind", "InputSpec", "OutputKind", "OutputSpec", "SymIntArgument", "TensorArgument",
    "TokenArgument",
]  # fmt: skip


@dataclass
class TensorArgument:
    name: str


@dataclass
class TokenArgument:
    name: str


@dataclass
class SymIntArgument:
    name: str


@dataclass
class CustomObjArgument:
    """An object of a C++ class; ``class_fqn`` is ``__torch__.torch.classes.namespace.Class``."""

    name: str
    class_fqn: str
    fake_val: Any = None


@dataclass
class ConstantArgument:
    name: str
    value: Any


class InputKind(enum.Enum):
    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


class OutputKind(enum.Enum):
    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


def object_argument(name: str, x: Any) -> CustomObjArgument:
    """Returns the argument of a node that has an object of a C++ class."""
    return CustomObjArgument(name, f"__torch__.torch.classes.{x._namespace}.{x._class_name}")


@dataclass
class InputSpec:
    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None

    def __post_init__(self) -> None:
        if self.kind is InputKind.BUFFER and self.persistent is None:
            raise AssertionError("Failed to specify persistent flag on BUFFER.")

    def __str__(self) -> str:
        target = f" target={self.target!r}" if self.target is not None else ""
        persistent = f" persistent={self.persistent}" if self.persistent is not None else ""
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclass
class OutputSpec:
    kind: OutputKind
    arg: Any
    target: str | None

    def __str__(self) -> str:
        target = f" target={self.target!r}" if self.target is not None else ""
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclass
class ExportBackwardSignature:
    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


def _named(specs: list, kind: Any) -> dict[str, str]:
    return {s.arg.name: s.target for s in specs if s.kind is kind}


def _values(specs: list, kind: Any) -> tuple:
    return tuple(
        s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name for s in specs if s.kind is kind
    )


@dataclass
class ExportGraphSignature:
    """The inputs of a graph in order: parameters, buffers, constants, arguments; and its outputs: mutations,
    results.
    """

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.inputs_to_parameters.values())

    @property
    def buffers(self) -> tuple[str, ...]:
        return tuple(self.inputs_to_buffers.values())

    @property
    def non_persistent_buffers(self) -> set[str]:
        return {
            s.target
            for s in self.input_specs
            if s.kind is InputKind.BUFFER and s.persistent is False and s.target
        }

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        return tuple(self.inputs_to_lifted_tensor_constants.values())

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        return tuple(self.inputs_to_lifted_custom_objs.values())

    @property
    def user_inputs(self) -> tuple:
        return _values(self.input_specs, InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> tuple:
        return _values(self.output_specs, OutputKind.USER_OUTPUT)

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        return _named(self.input_specs, InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        return _named(self.input_specs, InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        return _named(self.input_specs, InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> dict[str, str]:
        return _named(self.input_specs, InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        return _named(self.output_specs, OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> dict[str, str]:
        return _named(self.output_specs, OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        return _named(self.output_specs, OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        return None

    @property
    def assertion_dep_token(self) -> None:
        return None

    @property
    def input_tokens(self) -> tuple:
        return ()

    @property
    def output_tokens(self) -> tuple:
        return ()

    def replace_all_uses(self, old: str, new: str) -> None:
        """Renames an input or output after its node was renamed."""
        for s in (*self.input_specs, *self.output_specs):
            if s.arg.name == old:
                s.arg.name = new

    def __str__(self) -> str:
        inputs = "\n".join(map(str, self.input_specs))
        outputs = "\n".join(map(str, self.output_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"
