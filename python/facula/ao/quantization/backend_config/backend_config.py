"""Configurations of backends for graphs."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType"]


class ObservationType(enum.Enum):
    """How the result of a pattern is observed: on its own, with the inputs' observer, or not."""

    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = 0
    OUTPUT_SHARE_OBSERVER_WITH_INPUT = 1
    INPUT_OUTPUT_NOT_OBSERVED = 2


@dataclass
class DTypeWithConstraints:
    """A dtype, and the limits of integers and scales that a backend takes."""

    dtype: Any = None
    quant_min_lower_bound: int | float | None = None
    quant_max_upper_bound: int | float | None = None
    scale_min_lower_bound: int | float | None = None
    scale_max_upper_bound: int | float | None = None
    scale_exact_match: float | None = None
    zero_point_exact_match: int | None = None


def _constrained(dtype: Any) -> DTypeWithConstraints:
    return dtype if isinstance(dtype, DTypeWithConstraints) else DTypeWithConstraints(dtype)


class DTypeConfig:
    """The dtypes of inputs, results, weights and biases that a pattern takes together."""

    def __init__(
        self,
        input_dtype: Any = None,
        output_dtype: Any = None,
        weight_dtype: Any = None,
        bias_dtype: Any = None,
        is_dynamic: bool | None = None,
    ) -> None:
        self.input_dtype_with_constraints = _constrained(input_dtype)
        self.output_dtype_with_constraints = _constrained(output_dtype)
        self.weight_dtype_with_constraints = _constrained(weight_dtype)
        self.bias_dtype, self.is_dynamic = bias_dtype, is_dynamic

    input_dtype = property(lambda self: self.input_dtype_with_constraints.dtype)
    output_dtype = property(lambda self: self.output_dtype_with_constraints.dtype)
    weight_dtype = property(lambda self: self.weight_dtype_with_constraints.dtype)

    def to_dict(self) -> dict[str, Any]:
        names = ("input_dtype", "output_dtype", "weight_dtype", "bias_dtype", "is_dynamic")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @classmethod
    def from_dict(cls, dtype_config_dict: dict[str, Any]) -> DTypeConfig:
        return cls(**dtype_config_dict)


class BackendPatternConfig:
    """One pattern: a class, a function, a method's name, or a tuple of them in the order of the calls."""

    _FIELDS = ("root_module", "qat_module", "reference_quantized_module", "fused_module", "fuser_method")

    def __init__(self, pattern: Any = None) -> None:
        self.pattern = pattern
        self.observation_type = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        self.dtype_configs: list[DTypeConfig] = []
        self.root_module = self.qat_module = self.reference_quantized_module = self.fused_module = None
        self.fuser_method: Callable | None = None

    def __repr__(self) -> str:
        return f"BackendPatternConfig({self.to_dict()})"

    def _set(self, name: str, value: Any) -> BackendPatternConfig:
        setattr(self, name, value)
        return self

    def set_pattern(self, pattern: Any) -> BackendPatternConfig:
        return self._set("pattern", pattern)

    def set_observation_type(self, observation_type: ObservationType) -> BackendPatternConfig:
        return self._set("observation_type", observation_type)

    def add_dtype_config(self, dtype_config: DTypeConfig) -> BackendPatternConfig:
        self.dtype_configs.append(dtype_config)
        return self

    def set_dtype_configs(self, dtype_configs: list[DTypeConfig]) -> BackendPatternConfig:
        return self._set("dtype_configs", dtype_configs)

    def set_root_module(self, root_module: Any) -> BackendPatternConfig:
        return self._set("root_module", root_module)

    def set_qat_module(self, qat_module: Any) -> BackendPatternConfig:
        return self._set("qat_module", qat_module)

    def set_reference_quantized_module(self, reference_quantized_module: Any) -> BackendPatternConfig:
        return self._set("reference_quantized_module", reference_quantized_module)

    def set_fused_module(self, fused_module: Any) -> BackendPatternConfig:
        return self._set("fused_module", fused_module)

    def set_fuser_method(self, fuser_method: Callable) -> BackendPatternConfig:
        """Sets the function of (is_qat, module, ...) that fuses the modules of the pattern."""
        return self._set("fuser_method", fuser_method)

    def to_dict(self) -> dict[str, Any]:
        table: dict[str, Any] = {
            "pattern": self.pattern,
            "observation_type": self.observation_type,
            "dtype_configs": [d.to_dict() for d in self.dtype_configs],
        }
        return table | {name: value for name in self._FIELDS if (value := getattr(self, name)) is not None}

    @classmethod
    def from_dict(cls, backend_pattern_config_dict: dict[str, Any]) -> BackendPatternConfig:
        table = dict(backend_pattern_config_dict)
        new = cls(table.pop("pattern", None))
        for item in table.pop("dtype_configs", []):
            new.add_dtype_config(item if isinstance(item, DTypeConfig) else DTypeConfig.from_dict(item))
        for name, value in table.items():
            if name != "observation_type" and name not in cls._FIELDS:
                raise ValueError(f"BackendPatternConfig.from_dict: unknown key {name!r}")
            setattr(new, name, value)
        return new


class BackendConfig:
    """The patterns of a backend."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._by_pattern: dict[Any, BackendPatternConfig] = {}

    def __repr__(self) -> str:
        return f"BackendConfig({self.to_dict()})"

    def set_name(self, name: str) -> BackendConfig:
        self.name = name
        return self

    def set_backend_pattern_config(self, config: BackendPatternConfig) -> BackendConfig:
        """Adds a pattern; it replaces one that was set before."""
        self._by_pattern[config.pattern] = config
        return self

    def set_backend_pattern_configs(self, configs: list[BackendPatternConfig]) -> BackendConfig:
        for config in configs:
            self.set_backend_pattern_config(config)
        return self

    @property
    def configs(self) -> list[BackendPatternConfig]:
        return list(self._by_pattern.values())

    def find(self, pattern: Any) -> BackendPatternConfig | None:
        """Returns the configuration of a pattern."""
        try:
            return self._by_pattern.get(pattern)
        except TypeError:  # not hashable
            return None

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configs": [c.to_dict() for c in self.configs]}

    @classmethod
    def from_dict(cls, backend_config_dict: dict[str, Any]) -> BackendConfig:
        new = cls(backend_config_dict.get("name", ""))
        for item in backend_config_dict.get("configs", []):
            config = item if isinstance(item, BackendPatternConfig) else BackendPatternConfig.from_dict(item)
            new.set_backend_pattern_config(config)
        return new
