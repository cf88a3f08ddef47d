"""Custom operators: a schema, the implementation, a fake implementation for metadata, and a gradient.

>>> from facula import Tensor
>>> @facula.library.custom_op("mine::scaled", mutates_args=())
... def scaled(x: Tensor, factor: float) -> Tensor:
...     return facula.from_numpy(x.numpy() * factor)
>>> @scaled.register_fake
... def _(x, factor):
...     return facula.empty_like(x)
>>> def keep(ctx, inputs, output):
...     ctx.factor = inputs[1]
>>> scaled.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=keep)
>>> scaled(facula.ones(2), 3.0)
tensor([3., 3.])

They behave like built-in operators: ``facula.ops.mine.scaled``; a traced program calls each as one
operator, with the registered gradient.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import typing
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _C
from ._modes import no_grad
from ._ops import FunctionSchema, OpOverload, OpOverloadPacket, _defined, forget, ops

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]

Tensor = _C.Tensor

# ---- the behaviour of an operator

_DEVICES = "CPU CUDA XPU MPS HPU XLA IPU MTIA Lazy PrivateUse1 Meta".split()
_KEYS = {
    *_DEVICES,
    *("Autograd" + d for d in ["", *_DEVICES]),
    *("Autocast" + d for d in _DEVICES),
    *"CompositeImplicitAutograd CompositeExplicitAutograd CompositeExplicitAutogradNonFunctional".split(),
    *"BackendSelect ADInplaceOrView FuncTorchBatched Functionalize Python Undefined Tracer".split(),
}


def _key(name: str) -> str:
    """Returns a dispatch key from its name or a device type."""
    if name in _KEYS:
        return name
    keys = {d.lower(): d for d in _DEVICES} | {"default": "CompositeExplicitAutograd"}
    if name not in keys:
        raise RuntimeError(f"could not parse dispatch key: {name}")
    return keys[name]


def _any_meta(values: Iterable[Any]) -> bool:
    """Returns whether any of the values, or of their items, is a tensor on meta."""
    return any(
        x.is_meta if isinstance(x, Tensor) else isinstance(x, (list, tuple)) and _any_meta(x) for x in values
    )


class _Functions:
    """The functions that were registered for one operator; the native operator calls them."""

    def __init__(self, qualname: str, opdef: CustomOpDef | None = None) -> None:
        self.qualname, self.opdef = qualname, opdef
        self.kernels: dict[str, Callable] = {}  # by dispatch key
        self.disabled: set[str] = set()
        self.fake_function: Callable | None = None
        self.backward: Callable | None = None
        self.setup_context: Callable | None = None
        self.vmap: Callable | None = None
        self.autocast: dict[str, Any] = {}  # device type: dtype
        self.function: type | None = None  # the autograd function, created on demand
        self.schema: FunctionSchema  # set when the operator is defined

    @property
    def dotted(self) -> str:
        overload = self.schema.overload_name or "default"
        return self.schema.name.replace("::", ".") + "." + overload

    @property
    def composite(self) -> bool:
        """Returns whether it is composed of operators, which the tape and traces see."""
        return "CompositeImplicitAutograd" in self.kernels and not self._explicit()

    def _explicit(self) -> Callable | None:
        kernel = self.kernels.get("CPU")
        if kernel is None or ("cpu" in self.disabled and "CompositeExplicitAutograd" in self.kernels):
            kernel = self.kernels.get("CompositeExplicitAutograd", kernel)
        return kernel

    def run(self, *args: Any, **kwargs: Any) -> Any:
        if _any_meta(args) or _any_meta(kwargs.values()):
            return self.fake(*args, **kwargs)
        kernel = self._explicit() or self.kernels.get("CompositeImplicitAutograd")
        if kernel is None:
            there = ", ".join(sorted(self.kernels)) or "none"
            raise NotImplementedError(
                f"Could not run '{self.qualname}' with arguments from the 'CPU' backend: its kernels are "
                "for: "
                f"{there}\n  hint: register one with "
                f"{_C.package_name()}.library.impl('{self.qualname}', 'CPU', f)"
            )
        output = kernel(*args, **kwargs)
        if self.opdef is not None:
            _check_memory(self.opdef._name, self.schema, args, kwargs, output)
        return output

    def below(self, *args: Any, **kwargs: Any) -> Any:
        """The results without history, from who takes calls below the tape if anybody does."""
        if not _C.is_dispatched_in_python(args):
            return self.run(*args, **kwargs)
        from ._ops import operator_of

        return operator_of(self.schema)(*args, **kwargs)

    def fake(self, *args: Any, **kwargs: Any) -> Any:
        f = self.fake_function or self.kernels.get("Meta") or self.kernels.get("CompositeImplicitAutograd")
        if f is None and not self.schema.returns:
            return None
        if f is None and self.opdef is not None:
            raise RuntimeError(
                f"There was no fake impl registered for {self.opdef}. This is necessary for tracing to work. "
                f"Please use `{self.opdef._init_fn.__name__}.register_fake` to add an fake impl."
            )
        if f is None:
            raise NotImplementedError(
                f"{self.qualname}: attempted to run this operator on tensors without data, but there was no "
                f"fake impl or Meta kernel registered; add one with {_C.package_name()}.library.register_fake"
            )
        _contexts.append(FakeImplCtx(self.qualname))
        try:
            return f(*args, **kwargs)
        finally:
            _contexts.pop()

    def set_native_kernel(self, key: str, kernel: Callable) -> None:
        """Registers a C++ kernel of a library."""
        self.kernels[key] = kernel

    # ---- gradients

    def record(self, *args: Any, **kwargs: Any) -> Any:
        if self.backward is None and self.opdef is None:
            own = self.kernels.get("AutogradCPU") or self.kernels.get("Autograd")
            if own is None and _C.is_dispatched_in_python(args):
                with no_grad():
                    return self.below(*args, **kwargs)
            # without a formula, autograd records the operators that the kernel calls
            return (own or self.run)(*args, **kwargs)
        if self.function is None:
            self.function = _autograd_function(self)
        flat: list = []
        for x in args:
            flat += x if _is_tensor_list(x) else [x]
        results = self.function.apply((args, kwargs), *flat)  # type: ignore[attr-defined]
        returns = self.schema.returns
        if not returns:
            return None
        if len(returns) == 1:
            return list(results) if returns[0].type.endswith("[]") else results[0]
        return results

    def save(self, ctx: Any, args: tuple, kwargs: dict, output: Any) -> None:
        if self.setup_context is None:
            return
        keywords = {"keyword_only_inputs": kwargs} if kwargs else {}
        self.setup_context(ctx=ctx, inputs=args, output=output, **keywords)

    def pull(self, ctx: Any, args: tuple, kwargs: dict, grads: list) -> list:
        """Returns the gradients of the positional arguments; lists of tensors item by item."""
        if self.backward is None:
            raise RuntimeError(
                f"Trying to backward through {self.dotted} but no autograd formula was registered. "
                "Please use register_autograd to add one."
            )
        returns = self.schema.returns
        grad_arguments = [grads] if len(returns) == 1 and returns[0].type.endswith("[]") else grads
        gradients = self.backward(ctx, *grad_arguments)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        if len(gradients) != len(args):
            raise RuntimeError(
                f"the backward of {self.dotted} returned an incorrect number of gradients (expected "
                f"{len(args)}, got {len(gradients)})"
            )
        flat: list = []
        for x, g in zip(args, gradients):
            if not _is_tensor_list(x):
                flat.append(g)
                continue
            if g is not None and (not isinstance(g, (list, tuple)) or len(g) != len(x)):
                raise RuntimeError(
                    f"Expected the return from backward of {self.dotted} to be of the same structure as the "
                    f"inputs: a list of {len(x)} gradients, got {_of_what(g)}"
                )
            flat += [None] * len(x) if g is None else list(g)
        return flat

    def gradient(self, args: tuple, kwargs: dict, results: tuple, grads: tuple, needs: list[bool]) -> list:
        """Returns the gradients of a call in a trace, by the tensors of the call in order."""
        returns = self.schema.returns
        single = len(returns) == 1 and not returns[0].type.endswith("[]")
        as_list = len(returns) == 1 and not single
        output = results[0] if single else list(results) if as_list else results
        ctx = _TraceContext(_by_argument(args, iter(needs)))
        self.save(ctx, args, kwargs, output)
        if ctx.materialize:
            grads = tuple(_C.functions.zeros_like(r) if g is None else g for g, r in zip(grads, results))
        flat, gradients = self.pull(ctx, args, kwargs, list(grads)), []
        it = iter(flat)
        for p, x in zip(self.schema.arguments, args):
            n = len(x) if _is_tensor_list(x) else 1
            of_argument = [next(it) for _ in range(n)]
            if p.type.startswith("Tensor"):
                gradients += of_argument
        return gradients

    def batched(self, args: tuple, kwargs: dict, flags: list[bool], size: int) -> Any:
        """Runs one call for a batch of calls (vmap), by the registered rule: the batch is the first
        dimension of the tensors that ``flags`` marks, and of all results.
        """
        it = iter(flags)

        def dim(kind: str, x: Any) -> Any:
            if not kind.startswith("Tensor"):
                return None
            marks = [0 if next(it) else None for _ in (x if isinstance(x, list) else [x])]
            return marks if isinstance(x, list) else marks[0]

        in_dims = tuple([dim(p.type, x) for p, x in zip(self.schema.arguments, args)])
        results, out_dims = self.vmap(VmapInfo(size, "error"), in_dims, *args, **kwargs)  # type: ignore[misc]

        def in_front(t: Tensor, d: int | None) -> Tensor:
            return t.expand(size, *t.shape) if d is None else t.movedim(d, 0)

        if isinstance(results, Tensor):
            return in_front(results, out_dims)
        dims = out_dims if isinstance(out_dims, (tuple, list)) else [out_dims] * len(results)
        return [in_front(t, d) for t, d in zip(results, dims)]

    def autocast_arguments(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        from . import amp
        from .utils._pytree import tree_map

        dtype = self.autocast.get("cpu")
        if dtype is None or not amp.is_autocast_enabled("cpu"):
            return args, kwargs

        def cast(x: Any) -> Any:
            eligible = isinstance(x, Tensor) and x.is_floating_point() and x.dtype != _C.float64
            return x.to(dtype) if eligible else x

        return tree_map(cast, (args, kwargs))


class VmapInfo(typing.NamedTuple):
    """The first argument of a rule of :func:`register_vmap`."""

    batch_size: int
    randomness: str


def _of_what(x: Any) -> str:
    return f"{len(x)} of them" if isinstance(x, (list, tuple)) else type(x).__name__


def _is_tensor_list(x: Any) -> bool:
    return isinstance(x, list) and any(isinstance(t, Tensor) for t in x)


def _by_argument(args: tuple, flags: Any) -> tuple:
    """Arranges flags, one per tensor, in the structure of the arguments."""

    def of(x: Any) -> Any:
        if _is_tensor_list(x):
            return [next(flags, False) for _ in x]
        return next(flags, False) if isinstance(x, Tensor) else False

    return tuple(map(of, args))


class _TraceContext:
    """The ctx of a backward that is recorded with its forward."""

    def __init__(self, needs_input_grad: tuple) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple = ()
        self.materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def set_materialize_grads(self, on: bool) -> None:
        self.materialize = on

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Has no effect: the graph derives it from the dtype."""

    mark_dirty = mark_non_differentiable


def _autograd_function(functions: _Functions) -> type:
    from .autograd.function import Function

    class Generated(Function):
        @staticmethod
        def forward(ctx: Any, call: tuple, *flat: Any) -> tuple:
            args, kwargs = call
            output = functions.below(*args, **kwargs)
            ctx.call = (
                tuple(len(x) if _is_tensor_list(x) else None for x in args),
                _by_argument(
                    args, iter([n for n, x in zip(ctx.needs_input_grad[1:], flat) if isinstance(x, Tensor)])
                ),
            )
            ctx.needs_input_grad, ctx.call = ctx.call[1], ctx.call[0]
            functions.save(ctx, args, kwargs, output)
            return tuple(output) if isinstance(output, (list, tuple)) else (output,)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple:
            shapes = tuple([_A_TENSOR] * n if n is not None else None for n in ctx.call)
            return (None, *functions.pull(ctx, shapes, {}, list(grads)))

    name = "GeneratedBackwardFor_" + functions.dotted.replace(".", "_")
    Generated.__name__ = Generated.__qualname__ = name
    return Generated


_A_TENSOR = _C.tensor(0)  # a placeholder for an item of a list of tensors


def _check_memory(name: str, schema: FunctionSchema, args: tuple, kwargs: dict, output: Any) -> None:
    outputs = list(output) if isinstance(output, (list, tuple)) else [output]
    outputs = [t for t in outputs if isinstance(t, Tensor)]
    if not outputs:
        return
    others: list = []
    for x in (*args, *kwargs.values()):
        others += x if isinstance(x, list) else [x]
    others = [t for t in others if isinstance(t, Tensor)]
    for k, t in enumerate(outputs):
        if any(t is o or (o.numel() and _C.same_storage(t, o)) for o in (*others, *outputs[:k])):
            raise RuntimeError(
                f"{name}: The output of this custom operator (1) must not also be an input to this custom "
                "operator and (2) may not alias any inputs to this custom operator or other returns. The "
                "most common way to trigger this error is if we have y = custom_op(x) and y and x are the "
                "same Tensor. Please instead return a clone of the offending output tensor(s) (e.g. return "
                "x.clone()) or refactor the custom operator to not return y."
            )


class FakeImplCtx:
    """The context of a fake implementation (:func:`get_ctx`)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """Returns a size that depends on the elements of the arguments. opcheck accepts any number in its
        place; traced functions do not support such sizes.
        """
        if _unknown_sizes is None:
            raise NotImplementedError(
                f"{self._name}: the size of a result depends on elements, which a traced function cannot have"
            )
        _unknown_sizes.append(1000003 + len(_unknown_sizes))
        return _unknown_sizes[-1]

    new_unbacked_symint = create_unbacked_symint = new_dynamic_size


_contexts: list[FakeImplCtx] = []
_unknown_sizes: list[int] | None = None  # set while opcheck runs a fake implementation


def get_ctx() -> FakeImplCtx:
    """Returns the context of the fake implementation that is running."""
    if not _contexts:
        raise RuntimeError("get_ctx: only a fake implementation (register_fake) has a context while it runs")
    return _contexts[-1]


# ---- schemas


def _schema_types() -> dict[Any, str]:
    types: dict[Any, str] = {}
    scalars = {
        int: "SymInt",
        float: "float",
        bool: "bool",
        str: "str",
        int | float | bool: "Scalar",
        _C.dtype: "ScalarType",
        _C.device: "Device",
    }
    for kind, text in ({Tensor: "Tensor"} | scalars).items():
        types[kind] = text
        types[typing.Optional[kind]] = text + "?"  # noqa: UP007, UP045
    for kind in (Tensor, typing.Optional[Tensor], int, float, bool, int | float | bool):  # noqa: UP045
        for items in (list[kind], typing.List[kind], Sequence[kind], typing.Sequence[kind]):  # noqa: UP006
            types[items] = types[kind] + "[]"
            if kind is not Tensor and kind != typing.Optional[Tensor]:  # noqa: UP045
                types[typing.Optional[items]] = types[kind] + "[]?"  # noqa: UP045
    return types


_TYPES = _schema_types()
_RETURNS = {Tensor, list[Tensor], typing.List[Tensor], int, float, bool, int | float | bool}  # noqa: UP006


def _annotation(prototype: Callable, annotation: Any) -> Any:
    if isinstance(annotation, str):
        return eval(annotation, getattr(prototype, "__globals__", {}))  # like typing.get_type_hints
    return annotation


def _default(value: Any, fail: Callable) -> str:
    if value is None or isinstance(value, (int, float, bool)):
        return "=" + str(value)
    if isinstance(value, str):
        return f'="{value}"'
    if isinstance(value, _C.dtype):
        return "=" + str(value).rpartition(".")[2]
    if isinstance(value, _C.device):
        return f'="{value}"'
    raise fail(f"has an unsupported default value type {type(value)}")


def infer_schema(
    prototype_function: Callable,
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """Infers the schema from a function's annotations; ``mutates_args`` names the arguments that it
    writes, or is "unknown": all tensors may be written.

    >>> def f(x: facula.Tensor, k: int = 2) -> facula.Tensor: ...
    >>> facula.library.infer_schema(f, mutates_args=())
    '(Tensor x, SymInt k=2) -> Tensor'
    """
    signature = inspect.signature(prototype_function)

    def error(text: str) -> ValueError:
        return ValueError(f"infer_schema(func): {text} Got func with signature {signature})")

    if mutates_args != "unknown" and isinstance(mutates_args, str):
        raise ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are mutated or the "
            "string 'unknown'. "
        )
    mutated = None if mutates_args == "unknown" else set(mutates_args)
    if mutated is not None and (extra := mutated - set(signature.parameters)):
        raise error(
            f"{extra} in mutates_args were not found in the custom op's signature. mutates_args should "
            "contain the names of all args that the custom op mutates, or just the string 'unknown' if you "
            "don't know."
        )
    texts, keyword_only, tensors = [], False, 0
    for name, p in signature.parameters.items():
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise error("We do not support positional-only args, varargs, or varkwargs.")
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            texts.append("*")
            keyword_only = True
        if p.annotation is p.empty:
            raise error(f"Parameter {name} must have a type annotation.")
        kind = _annotation(prototype_function, p.annotation)
        text = _TYPES.get(kind) if _hashable(kind) else None
        if text is None:
            raise error(f"Parameter {name} has unsupported type {kind}. The valid types are: {list(_TYPES)}.")
        if mutated is None or name in mutated:
            if not text.startswith("Tensor"):
                if mutated is not None:
                    raise error(
                        f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can "
                        "be mutated"
                    )
            else:
                text = f"Tensor(a{tensors}!)" + text.removeprefix("Tensor")
        tensors += text.startswith("Tensor")
        default = ""
        if p.default is not p.empty:
            default = _default(p.default, lambda why, name=name: error(f"Parameter {name} {why}."))
        texts.append(f"{text} {name}{default}")
    if signature.return_annotation is signature.empty:
        raise error("No return type annotation was provided. Please add one.")
    returns = _returns_text(_annotation(prototype_function, signature.return_annotation), error)
    return f"{op_name or ''}({', '.join(texts)}) -> {returns}"


def _hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


def _returns_text(annotation: Any, error: Callable) -> str:
    if annotation is None or annotation is type(None):
        return "()"
    items = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else (annotation,)
    for item in items:
        if not _hashable(item) or item not in _RETURNS:
            raise error(f"Return has unsupported type {item}. The valid types are: {list(_RETURNS)}.")
    texts = [_TYPES[item] for item in items]
    return texts[0] if typing.get_origin(annotation) is not tuple else f"({', '.join(texts)})"


# ---- definitions


def _split(qualname: str) -> tuple[str, str]:
    namespace, _, name = qualname.partition("::")
    if not namespace or not name or "::" in name:
        raise ValueError(
            f'Expected `qualname` to be of the form "namespace::name", but got {qualname}. The qualname '
            "passed to the library APIs must consist of a namespace and a name, e.g. aten::sin"
        )
    return namespace, name


def _define(schema: str, opdef: CustomOpDef | None = None, tags: Any = ()) -> str:
    """Defines ``ns::name(...) -> ...`` and returns its full name, with the overload."""
    head = schema.partition("(")[0].strip()
    namespace, name = _split(head)
    functions = _Functions(head, opdef)
    full = _C.define_operator(schema, functions)
    _defined[full] = functions
    forget(namespace, name.partition(".")[0])
    facts = _C.operator_facts(full)
    functions.schema = FunctionSchema(facts, namespace, facts["overload"] or "default")
    return full


def _retire(full: str) -> None:
    if full not in _defined:
        return
    namespace, name = _split(full)
    _C.retire_operator(full)
    del _defined[full]
    forget(namespace, name.partition(".")[0])


def _full_name(op: Any) -> str:
    """Returns the full name of an operator from a name, an overload or a definition."""
    if isinstance(op, CustomOpDef):
        return op._qualname
    if isinstance(op, OpOverload):
        return op._operators[0]
    if isinstance(op, OpOverloadPacket):
        return op.default._operators[0]
    if not isinstance(op, str):
        raise ValueError(f"expected the name of an operator, an OpOverload or a CustomOpDef, got {type(op)}")
    _split(op)
    return op.removesuffix(".default")


def _functions_of(what: str, op: Any) -> _Functions:
    full = _full_name(op)
    if full in _defined:
        return _defined[full]
    if "::" in full and _C.operator_overloads(full.partition(".")[0]) and _is_native(full):
        return _adopt(full)
    short_name = full.partition("::")[2] if full.startswith("aten::") else full
    if _C.operator_overloads(short_name.partition(".")[0]):
        whose = "a definition, from which all follows" if "::" in short_name else "built in"
        raise NotImplementedError(f"{what}: {full} is {whose}, and cannot be given another implementation")
    raise RuntimeError(f"{what}: operator {full} does not exist; define it first")


def _is_native(full: str) -> bool:
    return _C.operator_facts(full)["native"] is not None


def _adopt(full: str) -> _Functions:
    """Lets Python add functions to an operator that a library defined in C++."""
    namespace, name = _split(full)
    functions = _Functions(full)
    facts = _C.operator_facts(full)
    functions.schema = FunctionSchema(facts, namespace, facts["overload"] or "default")
    _C.adopt_operator(full, functions)
    _defined[full] = functions
    forget(namespace, name.partition(".")[0])
    return functions


class Library:
    """Definitions ("DEF", one per namespace, or "FRAGMENT") or implementations ("IMPL") of a namespace.

    >>> lib = facula.library.Library("mine2", "DEF")
    >>> _ = lib.define("twice(Tensor x) -> Tensor")
    >>> lib.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    >>> facula.ops.mine2.twice(facula.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if kind == "DEF":
            _C.claim_namespace(ns)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._defined: list[str] = []

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Defines an operator, ``name(Tensor x) -> Tensor``, and returns its name."""
        if self.kind == "IMPL":
            raise RuntimeError(
                f'def("{schema.partition("(")[0]}"): Cannot define an operator inside of a library of kind '
                "IMPL. All definitions should be placed in the (unique) library of kind DEF for their "
                "namespace."
            )
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        name = schema.partition("(")[0].strip()
        text = schema if "::" in name else f"{self.ns}::{schema.strip()}"
        self._defined.append(_define(text, tags=tags))
        return name

    def _qualified(self, op_name: Any) -> str:
        if isinstance(op_name, OpOverload):
            return op_name._operators[0]
        if not isinstance(op_name, str):
            raise RuntimeError(
                "impl should be passed either a name or an OpOverload object as the first argument"
            )
        return op_name if "::" in op_name else f"{self.ns}::{op_name}"

    def impl(
        self,
        op_name: Any,
        fn: Callable,
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """Registers an implementation for a dispatch key: a device, "CompositeImplicitAutograd" (recorded
        operators), "Autograd" (a recording function), "Meta" (the fake implementation).
        """
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if with_keyset:
            raise NotImplementedError(
                "impl: there are no sets of dispatch keys to hand on (with_keyset=True)"
            )
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        _give_kernel("impl", self._qualified(op_name), _key(key), fn)

    def _register_fake(
        self, op_name: str, fn: Callable, _stacklevel: int = 1, *, allow_override: bool = True
    ) -> None:
        _functions_of("register_fake", self._qualified(op_name)).fake_function = fn

    def fallback(self, fn: Callable, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        if fn is not fallthrough_kernel:
            raise NotImplementedError("fallback: operators have no kernels that serve all of them")

    def _destroy(self) -> None:
        for full in self._defined:
            _retire(full)
        self._defined = []
        if self.kind == "DEF":
            _C.release_namespace(self.ns)


def fallthrough_kernel() -> None:
    """An implementation that passes the call to the next dispatch key."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def _give_kernel(what: str, qualname: str, key: str, fn: Callable) -> None:
    functions = _functions_of(what, qualname)
    if fn is fallthrough_kernel:
        functions.kernels.pop(key, None)
        return
    if key in functions.kernels and functions.opdef is None:
        warnings.warn(
            f"Overriding a previously registered kernel for the same operator and the same dispatch key: "
            f"{functions.schema}, {key}",
            stacklevel=3,
        )
    functions.kernels[key] = fn


_libraries: dict[str, Library] = {}  # libraries of the functions below, by namespace


def define(qualname: Any, schema: Any = None, *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Defines ``define("ns::name", "(Tensor x) -> Tensor")``; :func:`impl` and similar functions
    implement it.
    """
    if isinstance(qualname, Library):  # the former define(lib, schema): a decorator of the implementation

        def wrap(f: Callable) -> Callable:
            name = qualname.define(schema, tags=tags)
            qualname.impl(name, f)
            return f

        return wrap
    if not isinstance(qualname, str):
        raise ValueError(
            f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}"
        )
    namespace, name = _split(qualname)
    if not re.fullmatch(r"\(.*\) -> .*", schema.strip()):
        raise ValueError(
            f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but '
            f'got "{schema}"'
        )
    lib = lib or _libraries.setdefault(namespace, Library(namespace, "FRAGMENT"))
    lib.define(name + schema, tags=tags)
    return None


def impl(qualname: Any, types: Any, func: Callable | None = None, *, lib: Library | None = None) -> Any:
    """Registers an implementation for device types ("cpu", "cuda", "default") or dispatch keys; a
    decorator without ``func``.
    """
    if isinstance(qualname, Library):  # impl(lib, name, dispatch_key="")
        library, name, key = qualname, types, func or ""

        def wrap(f: Callable) -> Callable:
            library.impl(name, f, key)  # type: ignore[arg-type]
            return f

        return wrap
    keys = [_key(t) for t in ([types] if isinstance(types, str) else types)]

    def register(f: Callable) -> Callable:
        for key in keys:
            _give_kernel("impl", _full_name(qualname), key, f)
        return f

    _functions_of("impl", qualname)
    return register if func is None else (register(func), None)[1]


def register_kernel(
    op: Any, device_types: Any, func: Callable | None = None, /, *, lib: Library | None = None
) -> Any:
    """Registers an implementation for device types; None means all."""
    if isinstance(op, CustomOpDef):
        return op.register_kernel(device_types, func)
    return impl(_full_name(op), "default" if device_types is None else device_types, func, lib=lib)


def register_fake(
    op: Any,
    func: Callable | None = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = True,
) -> Any:
    """Registers a function that returns tensors with the sizes, dtypes and strides of an operator's
    results, for tensors without data (``facula.empty_like(x)``). A decorator without ``func``.
    """

    def register(f: Callable) -> Callable:
        _functions_of("register_fake", op).fake_function = f
        return f

    return register if func is None else register(func)


def impl_abstract(
    qualname: str, func: Callable | None = None, *, lib: Any = None, _stacklevel: int = 1
) -> Any:
    """:func:`register_fake` under its former name."""
    return register_fake(qualname, func, lib=lib)


def register_autograd(
    op: Any,
    backward: Callable,
    /,
    *,
    setup_context: Callable | None = None,
    lib: Library | None = None,
) -> None:
    """Registers a gradient: ``setup_context(ctx, inputs, output)`` saves what ``backward(ctx, *grads)``
    needs, which returns one gradient, or None, for each positional argument.
    """
    functions = _functions_of("register_autograd", op)
    if functions.schema.is_mutable or any(r.is_alias for r in functions.schema.returns):
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {functions.dotted} with schema "
            f"{functions.schema}. Please create a functional operator and register an autograd formula "
            "for that."
        )
    if any(a.kwarg_only and a.type.startswith("Tensor") for a in functions.schema.arguments):
        raise NotImplementedError(
            "register_autograd with kwarg-only Tensor args. In the original definition of the op, please "
            "make "
            f"your tensors not kwarg-only. Got: {functions.schema}"
        )
    functions.backward, functions.setup_context = backward, setup_context


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None) -> None:
    """Casts floating-point arguments of the operator to ``cast_inputs`` where autocast is on."""
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"Unknown device type: {device_type}")
    _functions_of("register_autocast", op).autocast[device_type] = cast_inputs


def register_vmap(op: Any, func: Callable | None = None, /, *, lib: Library | None = None) -> Any:
    """Registers a rule for :func:`facula.vmap`: ``func(info, in_dims, *args)`` returns the results and
    their batch dimensions. A decorator without ``func``.
    """

    def register(f: Callable) -> Callable:
        _functions_of("register_vmap", op).vmap = f
        return f

    return register if func is None else (register(func), None)[1]


class _BuiltIn:
    """The implementation of a built-in operator."""

    def __init__(self, operator: OpOverload) -> None:
        self._operator = operator

    def call_boxed(self, keys: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Computes the operator's result, without recording."""
        with no_grad():
            return self._operator(*args, **kwargs)

    def __repr__(self) -> str:
        return f"SafeKernelFunction(debug='{self._operator}, from its definition')"


def _built_in(full: str) -> OpOverload | None:
    namespace, _, name = full.partition("::")
    packet, _, overload = name.partition(".")
    if namespace != "aten":
        return None
    try:
        return getattr(getattr(ops.aten, packet), overload or "default")
    except AttributeError:
        return None


def get_kernel(op: Any, dispatch_key: str) -> Callable | _BuiltIn:
    """Returns the implementation for a dispatch key: the registered function, or for a built-in operator
    an object whose ``call_boxed(keys, ...)`` computes.
    """
    if dispatch_key not in _KEYS:
        raise ValueError(f"Invalid dispatch key: {dispatch_key}")
    full = _full_name(op)
    operator = op if isinstance(op, OpOverload) else _built_in(full)
    if dispatch_key == "CPU" and operator is not None and operator.namespace == "aten":
        return _BuiltIn(operator)
    functions = _functions_of("get_kernel", op)
    if dispatch_key not in functions.kernels:
        raise RuntimeError(f"{functions.qualname} has no kernel for {dispatch_key}")
    return functions.kernels[dispatch_key]


# ---- custom_op


class CustomOpDef:
    """An operator created from a function: it can be called, and its methods register more functions."""

    def __init__(self, namespace: str, name: str, schema: str, fn: Callable, tags: Any = None) -> None:
        self._namespace, self._name, self._init_fn = namespace, name, fn
        self._qualname = f"{namespace}::{name}"
        if self._qualname in _defined:  # a notebook cell that ran again
            _retire(self._qualname)
        _define(self._qualname + schema, self, tags)
        self._functions = _defined[self._qualname]
        self._opoverload = getattr(getattr(ops, namespace), name).default

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: Any, fn: Callable | None = None, /) -> Any:
        """Registers an implementation for these device types; None means all. A decorator without ``fn``."""
        names = ["default"] if device_types is None else device_types
        keys = [_key(t) for t in ([names] if isinstance(names, str) else names)]

        def register(f: Callable) -> Callable:
            for key in keys:
                self._functions.kernels[key] = f
            return f

        return register if fn is None else register(fn)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Any:
        """Within the block, disables or enables the kernel of a device; the kernel for all devices
        replaces it.
        """
        before = set(self._functions.disabled)
        (self._functions.disabled.discard if enabled else self._functions.disabled.add)(device_type)
        try:
            yield
        finally:
            self._functions.disabled = before

    def register_fake(self, fn: Callable, /) -> Callable:
        """See :func:`register_fake`."""
        return register_fake(self, fn)

    def register_autograd(self, backward: Callable, /, *, setup_context: Callable | None = None) -> None:
        """See :func:`register_autograd`."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Callable | None = None) -> Any:
        """See :func:`register_vmap`."""
        return register_vmap(self, func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """See :func:`register_autocast`."""
        register_autocast(self, device_type, cast_inputs)


def custom_op(
    name: str,
    fn: Callable | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Creates an operator from a function that Facula treats as opaque; a decorator without ``fn``.

    ``name`` is ``namespace::name``. The schema is inferred from the annotations, or passed.
    ``mutates_args`` names the arguments that the function writes: it must not write others. Results must
    be new tensors.
    """

    def make(f: Callable) -> CustomOpDef:
        text = infer_schema(f, mutates_args=mutates_args) if schema is None else schema
        namespace, op_name = _split(name)
        definition = CustomOpDef(namespace, op_name, text, f, tags)
        declared = definition._functions.schema
        tensors = [a for a in declared.arguments if a.kwarg_only and a.type.startswith("Tensor")]
        if schema is not None and declared.is_mutable != (mutates_args != () and bool(mutates_args)):
            _retire(definition._qualname)
            raise ValueError(
                f"custom_op: mutates_args={mutates_args!r} does not agree with what the schema says is "
                f"written: {declared}"
            )
        if tensors:
            _retire(definition._qualname)
            raise NotImplementedError(
                "custom_op with kwarg-only Tensor args. Please make your tensors not kwarg-only. Got: "
                f"{declared}"
            )
        definition.register_kernel(device_types, f)
        return definition

    return make if fn is None else make(fn)


# ---- checks


class OpCheckError(Exception):
    """Raised if a check of :func:`opcheck` fails."""


def _leaves(tree: Any) -> list[Tensor]:
    from .utils._pytree import tree_leaves

    return [t for t in tree_leaves(tree) if isinstance(t, Tensor)]


def _copied(tree: Any) -> Any:
    from .utils._pytree import tree_map

    return tree_map(
        lambda t: t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t, tree
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(a.isclose(b, 0.0, 0.0, True).all())


def _test_schema(op: OpOverload, args: tuple, kwargs: dict, **_: Any) -> None:
    args, kwargs = _copied((args, kwargs))
    before = _copied((args, kwargs))
    with _C.GradMode(False):
        results = _leaves(op(*args, **kwargs))
    for k, a in enumerate(op._schema.arguments):
        now = kwargs.get(a.name) if k >= len(args) else args[k]
        then = before[1].get(a.name) if k >= len(args) else before[0][k]
        for x, y in zip(_leaves(now), _leaves(then)):
            if not a.is_write and not _same(x, y):
                raise RuntimeError(f"Argument {a.name} is not defined as mutable but was mutated")
            if not a.is_alias and any(r.numel() and _C.same_storage(r, x) for r in results):
                raise RuntimeError(f"Argument {a.name} is not defined to alias output but was aliasing")
    for k, r in enumerate(results):
        if any(r.numel() and _C.same_storage(r, other) for other in results[:k]) and not op.is_view:
            raise RuntimeError("Outputs alias each other, which the schema does not say")


def _test_autograd_registration(op: OpOverload, args: tuple, kwargs: dict, **_: Any) -> None:
    functions, facts = op._functions, _C.operator_facts(op._operators[0])
    native = functions is None and facts["native"] is not None
    if not any(t.requires_grad for t in _leaves((args, kwargs))) or not (native or functions is not None):
        return
    if functions is not None:
        own = any(key.startswith("Autograd") for key in functions.kernels)
        registered = functions.opdef is not None or functions.backward is not None or own
    else:
        registered = facts["gradient"]
    if registered or op._can_decompose():
        return
    with _C.GradMode(True):
        results = _leaves(op(*_copied(args), **_copied(kwargs)))
    if any(r.requires_grad for r in results):
        raise RuntimeError(
            f"{op} gives tensors that require gradients, but no autograd formula was registered; use "
            "register_autograd, and don't record gradients in the kernel itself"
        )


def _test_faketensor(op: OpOverload, args: tuple, kwargs: dict, **_: Any) -> None:
    global _unknown_sizes
    args, kwargs = _copied((args, kwargs))
    with _C.GradMode(False):
        results = _leaves(op(*_copied(args), **_copied(kwargs)))
        if not _C.operator_facts(op._operators[0])["foreign"]:
            return  # results of other operators follow from shape rules, which their calls check
        _unknown_sizes = []
        try:
            fake = _C.infer_operator(op._operators[0], *args, **kwargs)
            unknown = set(_unknown_sizes)
        finally:
            _unknown_sizes = None
    text = (
        f"When comparing the output of {op} on tensors without and with data, found mismatched tensor "
        "metadata: "
    )
    if len(results) != len(fake):
        raise RuntimeError(f"{text}{len(fake)} and {len(results)} tensors")
    for r, (sizes, dtype, strides) in zip(results, fake):
        if len(sizes) != r.dim() or any(s != n for s, n in zip(sizes, r.shape) if s not in unknown):
            raise RuntimeError(f"{text}Shapes {r.shape} and {sizes} are not equal!")
        if dtype != r.dtype:
            raise RuntimeError(f"{text}Dtypes {r.dtype} and {dtype} are not equal!")
        moving = [k for k, n in enumerate(r.shape) if n > 1]
        if not unknown and r.numel() and any(strides[k] != r.stride(k) for k in moving):
            raise RuntimeError(f"{text}Strides {r.stride()} and {tuple(strides)} are not equal!")


def _test_program(op: OpOverload, args: tuple, kwargs: dict, *, dynamic: bool, atol: Any, rtol: Any) -> None:
    """Checks that eager and a traced program give equal results and gradients."""
    from . import autograd, program
    from .testing import assert_close

    close = {} if atol is None and rtol is None else {"atol": atol or 0.0, "rtol": rtol or 0.0}

    def outcome(f: Callable) -> tuple:
        copies = _copied((args, kwargs))
        results = [r for r in _leaves(f(*copies[0], **copies[1]))]
        inputs = [t for t in _leaves(copies) if t.requires_grad]
        with_history = [r for r in results if r.requires_grad]
        grads: tuple = ()
        if inputs and with_history:
            ones = [_C.functions.ones_like(r) for r in with_history]
            grads = autograd.grad(with_history, inputs, ones, allow_unused=True)
        written = [t.detach() for t in _leaves(copies)]
        return [r.detach() for r in results], list(grads), written

    copies = _copied((args, kwargs))
    try:
        traced = program.trace(op, *copies[0], dynamic=dynamic, **copies[1])
    except NotImplementedError as e:
        if "depends on elements" in str(e):
            return  # programs do not support data-dependent sizes, as the error says
        raise
    for one, other in zip(outcome(op), outcome(traced)):
        for a, b in zip(one, other):
            if a is None or b is None:
                if a is not b:
                    raise RuntimeError(f"{op}: only one of eager and the traced program gives a gradient")
                continue
            assert_close(b, a, **close)


_CHECKS: dict[str, Callable] = {
    "test_schema": _test_schema,
    "test_autograd_registration": _test_autograd_registration,
    "test_faketensor": _test_faketensor,
    "test_aot_dispatch_static": lambda op, a, k, **c: _test_program(op, a, k, dynamic=False, **c),
    "test_aot_dispatch_dynamic": lambda op, a, k, **c: _test_program(op, a, k, dynamic=True, **c),
}
_USUAL = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(
    op: Any,
    args: tuple,
    kwargs: dict | None = None,
    *,
    test_utils: str | Sequence[str] = _USUAL,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Checks an operator on sample arguments: that it writes and aliases only what its schema says, that
    its gradient is registered, that its fake implementation agrees, and that a traced program agrees with
    eager.

    Returns "SUCCESS" or the exception by the name of the check; raises the first failure unless disabled.
    """
    op = op._opoverload if isinstance(op, CustomOpDef) else op
    if isinstance(op, OpOverloadPacket):
        op = op.default
    if not isinstance(op, OpOverload):
        raise ValueError(
            f"opcheck(op, ...): op must be instance of OpOverload, e.g. ops.aten.sin.default, got {type(op)}"
        )
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(names) <= set(_CHECKS):
        raise ValueError(
            f"opcheck(op, ..., test_utils={names}), expected test_utils to be subset of {tuple(_CHECKS)} but "
            "it was not"
        )
    outcomes: dict[str, Any] = {}
    for name in names:
        compare = {"atol": atol, "rtol": rtol} if "dispatch" in name else {}
        try:
            _CHECKS[name](op, tuple(args), dict(kwargs or {}), **compare)
            outcomes[name] = "SUCCESS"
        except Exception as e:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {e}") from e
            outcomes[name] = e
    return outcomes


def triton_op(
    name: str, fn: Callable | None = None, /, *, mutates_args: Any, schema: str | None = None
) -> Any:
    """Makes an operator, like :func:`custom_op`, of a function that may launch Triton kernels. A call that
    launches one raises; a call that launches none, as on the CPU, works.
    """
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


class _TritonKernel:
    """A Triton kernel; launching it raises an error."""

    def __init__(self, kernel: Callable) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> _TritonKernel:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = getattr(self.kernel, "__name__", repr(self.kernel))
        raise NotImplementedError(
            f"library.wrap_triton: kernels of Triton do not run here: '{name}'\n"
            "  hint: write what it computes with operators, which are compiled into one kernel"
        )

    run = __call__


def wrap_triton(triton_kernel: Callable, /) -> Any:
    """Stands for a kernel of Triton in a function of :func:`triton_op`; launching it raises."""
    return _TritonKernel(triton_kernel)
