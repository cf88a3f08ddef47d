"""Options of the flow for graphs."""

from __future__ import annotations

from typing import Any

__all__ = ["ConvertCustomConfig", "FuseCustomConfig", "PrepareCustomConfig"]


class _Preserved:
    """The base of all options: names of attributes that the graph module keeps."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []

    def set_preserved_attributes(self, attributes: list[str]) -> Any:
        self.preserved_attributes = attributes
        return self

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Any:
        new = cls()
        for name, value in table.items():
            name = cls._renamed().get(name, name)
            if name not in vars(new):
                raise ValueError(
                    f"{cls.__name__}.from_dict: unknown key {name!r}; known are {', '.join(vars(new))}"
                )
            setattr(new, name, value)
        return new

    @classmethod
    def _renamed(cls) -> dict[str, str]:
        return {}


class FuseCustomConfig(_Preserved):
    """Options of ``fuse_fx``."""


class PrepareCustomConfig(_Preserved):
    """Options of ``prepare_fx`` and ``prepare_qat_fx``."""

    def __init__(self) -> None:
        super().__init__()
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[type] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.float_to_observed_mapping: dict[Any, Any] = {}

    @classmethod
    def _renamed(cls) -> dict[str, str]:
        return {
            "non_traceable_module_name": "non_traceable_module_names",
            "non_traceable_module_class": "non_traceable_module_classes",
            "input_quantized_idxs": "input_quantized_indexes",
            "output_quantized_idxs": "output_quantized_indexes",
            "float_to_observed_custom_module_class": "float_to_observed_mapping",
        }

    def set_non_traceable_module_names(self, module_names: list[str]) -> PrepareCustomConfig:
        """Sets the paths of modules that stay one node."""
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[type]) -> PrepareCustomConfig:
        """Sets the classes of modules that stay one node."""
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Sets which inputs of the converted model are quantised."""
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Sets which results of the converted model stay quantised."""
        self.output_quantized_indexes = indexes
        return self

    def set_float_to_observed_mapping(
        self, float_class: type, observed_class: type, quant_type: Any = None
    ) -> PrepareCustomConfig:
        """Sets the observed class for a user's class."""
        self.float_to_observed_mapping[float_class] = observed_class
        return self


class ConvertCustomConfig(_Preserved):
    """Options of ``convert_fx``."""

    def __init__(self) -> None:
        super().__init__()
        self.observed_to_quantized_mapping: dict[Any, Any] = {}

    def set_observed_to_quantized_mapping(
        self, observed_class: type, quantized_class: type, quant_type: Any = None
    ) -> ConvertCustomConfig:
        """Sets the quantised class for a user's observed class."""
        self.observed_to_quantized_mapping[observed_class] = quantized_class
        return self
