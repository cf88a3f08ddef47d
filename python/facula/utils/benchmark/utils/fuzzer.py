"""Tensors of random sizes and layouts, for benchmarks that should cover more than a few cases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .... import _C

__all__ = ["FuzzedParameter", "FuzzedSparseTensor", "FuzzedTensor", "Fuzzer", "ParameterAlias"]

Tensor = _C.Tensor


class FuzzedParameter:
    """A number, or one of several values, that is drawn for each set of tensors.

    ``distribution`` is "uniform" or "loguniform" between ``minval`` and ``maxval``, both inclusive
    (integers if both are), or a dict of values with their probabilities. A ``strict`` parameter keeps its
    value while others are drawn again because a constraint does not hold.
    """

    def __init__(
        self,
        name: str,
        minval: float | None = None,
        maxval: float | None = None,
        distribution: str | dict[Any, float] | None = None,
        strict: bool = False,
    ) -> None:
        if isinstance(distribution, dict):
            total = sum(distribution.values())
            if min(distribution.values(), default=0) < 0 or abs(total - 1) > 1e-5:
                raise AssertionError(
                    f"FuzzedParameter: probabilities must be 0 or more and sum to 1, got {total}"
                )
            if minval is not None or maxval is not None:
                raise AssertionError("FuzzedParameter: a dict of values takes no minval and maxval")
        elif distribution not in ("loguniform", "uniform"):
            raise AssertionError(f"FuzzedParameter: unknown distribution: {distribution}")
        elif minval is None or maxval is None:
            raise AssertionError(f"FuzzedParameter: {distribution} needs minval and maxval")
        self._name, self._distribution, self.strict = name, distribution, strict
        self._minval, self._maxval = minval, maxval

    @property
    def name(self) -> str:
        return self._name

    def sample(self, state: Any) -> Any:
        """Draws a value from a ``numpy.random.RandomState``."""
        if isinstance(self._distribution, dict):
            values = list(self._distribution)
            return values[state.choice(len(values), p=tuple(self._distribution.values()))]
        low: Any = self._minval
        high: Any = self._maxval
        if self._distribution == "loguniform":
            drawn = int(2 ** state.uniform(low=math.log2(low), high=math.log2(high)))
            return min(max(drawn, low), high)
        if isinstance(low, int) and isinstance(high, int):
            return int(state.randint(low=low, high=high + 1))
        return state.uniform(low=low, high=high)


class ParameterAlias:
    """A value of a :class:`FuzzedParameter` that stands for the value of another parameter."""

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias[alias_to: {self.alias_to}]"


class FuzzedTensor:
    """A tensor whose ``size`` and ``steps`` are numbers or names of parameters.

    It contains every ``steps[d]``-th element of a larger tensor, whose dimensions have a random order in
    memory unless it is contiguous, with probability ``probability_contiguous``. ``dim_parameter`` names
    the number of dimensions. Sets of parameters that violate ``min_elements``, ``max_elements`` or
    ``max_allocation_bytes`` are drawn again.
    """

    def __init__(
        self,
        name: str,
        size: tuple[str | int, ...],
        steps: tuple[str | int, ...] | None = None,
        probability_contiguous: float = 0.5,
        min_elements: int | None = None,
        max_elements: int | None = None,
        max_allocation_bytes: int | None = None,
        dim_parameter: str | None = None,
        roll_parameter: str | None = None,
        dtype: _C.dtype = _C.float32,
        cuda: bool = False,
        tensor_constructor: Callable[..., Tensor] | None = None,
    ) -> None:
        self._name, self._size, self._steps, self._dtype, self._cuda = name, size, steps or (), dtype, cuda
        self._probability_contiguous, self._dim_parameter = probability_contiguous, dim_parameter
        self._min_elements, self._max_elements = min_elements, max_elements
        self._max_allocation_bytes = max_allocation_bytes
        self._tensor_constructor = tensor_constructor

    @property
    def name(self) -> str:
        return self._name

    @staticmethod
    def default_tensor_constructor(size: Any, dtype: _C.dtype, **kwargs: Any) -> Tensor:
        if dtype.is_floating_point or dtype.is_complex:
            return _C.functions.rand(size, dtype=dtype)
        return _C.functions.randint(1, 127, size, dtype=dtype)

    def _make_tensor(self, params: dict[str, Any], state: Any) -> tuple[Tensor, dict[str, Any]]:
        size, steps, allocated = self._get_size_and_steps(params)
        allocated_tensor = self._allocate(allocated, params)
        if self._cuda:
            allocated_tensor = allocated_tensor.cuda()
        order = list(range(len(size)))
        if state.rand() > self._probability_contiguous and len(order) > 1:
            while order == sorted(order):
                order = [int(d) for d in state.permutation(allocated_tensor.dim())]
            back = sorted(range(len(order)), key=order.__getitem__)
            allocated_tensor = allocated_tensor.permute(order).contiguous().permute(back)
        tensor = allocated_tensor[tuple(slice(0, n * step, step) for n, step in zip(size, steps))]
        return tensor, {
            "numel": int(tensor.numel()),
            "order": order,
            "steps": steps,
            "is_contiguous": tensor.is_contiguous(),
            "dtype": str(self._dtype),
        }

    def _allocate(self, allocated: tuple[int, ...], params: dict[str, Any]) -> Tensor:
        constructor = self._tensor_constructor or self.default_tensor_constructor
        return constructor(size=allocated, dtype=self._dtype, **params)

    def _get_size_and_steps(self, params: dict[str, Any]) -> tuple[tuple, tuple, tuple]:
        dim = len(self._size) if self._dim_parameter is None else params[self._dim_parameter]

        def resolved(values: tuple) -> tuple:
            values_of_dims = tuple(params.get(v, v) for v in values)[:dim]
            return values_of_dims + (1,) * (dim - len(values_of_dims))

        size, steps = resolved(self._size), resolved(self._steps)
        return size, steps, tuple(n * step for n, step in zip(size, steps))

    def satisfies_constraints(self, params: dict[str, Any]) -> bool:
        size, _, allocated = self._get_size_and_steps(params)
        elements = math.prod(int(n) for n in size)
        taken = math.prod(int(n) for n in allocated) * self._dtype.itemsize
        most, least, memory = self._max_elements, self._min_elements, self._max_allocation_bytes
        return (
            (most is None or elements <= most)
            and (least is None or elements >= least)
            and (memory is None or taken <= memory)
        )


class FuzzedSparseTensor(FuzzedTensor):
    """A sparse tensor. The parameters ``density`` and ``coalesced`` determine its number of elements and
    whether an index may occur twice, ``sparse_dim`` the number of sparse dimensions.
    """

    def __init__(
        self,
        name: str,
        size: tuple[str | int, ...],
        min_elements: int | None = None,
        max_elements: int | None = None,
        dim_parameter: str | None = None,
        sparse_dim: str | None = None,
        nnz: str | None = None,
        density: str | None = None,
        coalesced: str | None = None,
        dtype: _C.dtype = _C.float32,
        cuda: bool = False,
    ) -> None:
        super().__init__(
            name,
            size,
            min_elements=min_elements,
            max_elements=max_elements,
            dim_parameter=dim_parameter,
            dtype=dtype,
            cuda=cuda,
        )
        self._sparse_dim = sparse_dim

    @staticmethod
    def sparse_tensor_constructor(
        size: Any, dtype: _C.dtype, sparse_dim: int, nnz: int, is_coalesced: bool
    ) -> Tensor:
        """Returns elements at ``nnz`` random indices; each index occurs twice unless the result is
        coalesced.
        """
        from ....sparse import sparse_coo_tensor

        sizes = [size] * sparse_dim if isinstance(size, int) else list(size)
        if nnz and min(sizes[:sparse_dim], default=1) <= 0:
            raise AssertionError(f"sparse_tensor_constructor: no room for {nnz} elements in {sizes}")
        f = _C.functions
        values = FuzzedTensor.default_tensor_constructor([nnz, *sizes[sparse_dim:]], dtype)
        places = f.rand([sparse_dim, nnz]) * _C.tensor(sizes[:sparse_dim]).unsqueeze(1)
        indices = places.to(_C.int64)
        if not is_coalesced:
            again = FuzzedTensor.default_tensor_constructor(values.shape, dtype)
            values, indices = f.cat([values, again]), f.cat([indices, indices], 1)
        sparse = sparse_coo_tensor(indices, values, sizes)
        return sparse.coalesce() if is_coalesced else sparse

    def _make_tensor(self, params: dict[str, Any], state: Any) -> tuple[Tensor, dict[str, Any]]:
        size, _, _ = self._get_size_and_steps(params)
        density = params["density"]
        count = math.ceil(sum(size) * density)
        if count > sum(size):
            raise AssertionError(f"FuzzedSparseTensor: density must be at most 1, got {density}")
        dims = min(params["sparse_dim"] if self._sparse_dim else len(size), len(size))
        tensor = self.sparse_tensor_constructor(size, self._dtype, dims, count, params["coalesced"])
        if self._cuda:
            tensor = tensor.cuda()
        return tensor, {
            "numel": int(tensor.numel()),
            "shape": tensor.size(),
            "is_coalesced": tensor.is_coalesced(),
            "density": density,
            "sparsity": 1.0 - density,
            "sparse_dim": tensor.sparse_dim(),
            "dense_dim": tensor.dense_dim(),
            "is_hybrid": len(size) > tensor.sparse_dim(),
            "dtype": str(self._dtype),
        }


class Fuzzer:
    """Draws parameters and creates tensors from them; ``take(n)`` yields n sets of both.

    ``constraints`` are predicates on a dict of the parameters, which have to hold. The same ``seed``
    yields the same sets.

    >>> from facula.utils.benchmark import FuzzedParameter, FuzzedTensor, Fuzzer
    >>> sizes = FuzzedParameter("n", minval=2, maxval=9, distribution="uniform")
    >>> fuzzer = Fuzzer([sizes], [FuzzedTensor("x", size=("n", 3))], seed=0)
    >>> for tensors, properties, params in fuzzer.take(1):
    ...     print(tensors["x"].shape == (params["n"], 3), properties["x"]["steps"])
    True (1, 1)
    """

    def __init__(
        self,
        parameters: Iterable[FuzzedParameter | Iterable[FuzzedParameter]],
        tensors: Iterable[FuzzedTensor | Iterable[FuzzedTensor]],
        constraints: Iterable[Callable[..., bool]] | None = None,
        seed: int | None = None,
    ) -> None:
        if seed is None:
            import numpy

            seed = int(numpy.random.RandomState().randint(0, 2**32 - 1, dtype=numpy.int64))
        self._seed = seed
        self._parameters: tuple[FuzzedParameter, ...] = _flat(parameters, FuzzedParameter)
        self._tensors: tuple[FuzzedTensor, ...] = _flat(tensors, FuzzedTensor)
        self._constraints = tuple(constraints or ())
        both = {p.name for p in self._parameters} & {t.name for t in self._tensors}
        if both:
            raise ValueError(f"Duplicate names in parameters and tensors: {both}")
        self._rejections = self._total_generated = 0

    def take(self, n: int) -> Iterator[tuple[dict[str, Tensor], dict[str, dict], dict[str, Any]]]:
        import numpy

        from ....random import manual_seed

        state = numpy.random.RandomState(self._seed)
        manual_seed(int(state.randint(low=0, high=2**63, dtype=numpy.int64)))
        for _ in range(n):
            params = self._generate(state)
            drawn = {t.name: t._make_tensor(params, state) for t in self._tensors}
            tensors = {name: tensor for name, (tensor, _) in drawn.items()}
            yield tensors, {name: properties for name, (_, properties) in drawn.items()}, params

    @property
    def rejection_rate(self) -> float:
        """The fraction of the drawn sets of parameters that did not satisfy the constraints."""
        return self._rejections / self._total_generated if self._total_generated else 0.0

    def _generate(self, state: Any) -> dict[str, Any]:
        strict: dict[str, Any] = {}
        for _ in range(1000):
            drawn: dict[str, Any] = {}
            for p in self._parameters:
                drawn[p.name] = strict[p.name] if p.name in strict else p.sample(state)
                if p.strict:
                    strict[p.name] = drawn[p.name]
            params = _without_aliases(drawn)
            self._total_generated += 1
            if all(f(params) for f in self._constraints) and all(
                t.satisfies_constraints(params) for t in self._tensors
            ):
                return params
            self._rejections += 1
        raise ValueError("Failed to generate a set of valid parameters.")


def _flat(items: Iterable[Any], kind: type) -> tuple:
    return tuple(itertools.chain.from_iterable([i] if isinstance(i, kind) else i for i in items))


def _without_aliases(params: dict[str, Any]) -> dict[str, Any]:
    """Replaces aliases in the parameters, which may refer to one another, by values."""
    resolved = {}
    for name, value in params.items():
        passed = {name}
        while isinstance(value, ParameterAlias):
            if value.alias_to in passed:
                raise ValueError(f"ParameterAlias cycle detected\n{params}")
            passed.add(value.alias_to)
            value = params[value.alias_to]
        resolved[name] = value
    return resolved
