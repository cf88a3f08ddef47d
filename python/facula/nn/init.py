"""Initial values of parameters. All functions fill the tensor in place, without recording gradients, and
return it.
"""

from __future__ import annotations

import math

from .. import _C, _namespace

Tensor = _C.Tensor
_f = _C.functions


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns the factor that preserves the variance of activations through this nonlinearity."""
    if nonlinearity in (
        "linear",
        "conv1d",
        "conv2d",
        "conv3d",
        "sigmoid",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
    ):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ValueError(f"negative_slope {param} not a valid number")
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: object = None) -> Tensor:
    with _C.GradMode(False):
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: object = None) -> Tensor:
    with _C.GradMode(False):
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: object = None,
) -> Tensor:
    """Fills with normal numbers, truncated to [a, b]."""
    # The inverse of the distribution function, applied to uniform numbers between its values at a and b.
    lower, upper = (math.erf((limit - mean) / (std * math.sqrt(2))) for limit in (a, b))
    with _C.GradMode(False):
        return (
            tensor.uniform_(lower, upper, generator=generator)
            .erfinv_()
            .mul_(std * math.sqrt(2))
            .add_(mean)
            .clamp_(a, b)
        )


def constant_(tensor: Tensor, val: float) -> Tensor:
    with _C.GradMode(False):
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with _C.GradMode(False):
        return tensor.copy_(_f.eye(*tensor.shape, device=tensor.device))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: object = None) -> Tensor:
    """Glorot and Bengio, 2010, uniform."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: object = None) -> Tensor:
    """Glorot and Bengio, 2010, normal."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: object = None,
) -> Tensor:
    """He et al., 2015, uniform."""
    if _no_elements(tensor):
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: object = None,
) -> Tensor:
    """He et al., 2015, normal."""
    if _no_elements(tensor):
        return tensor
    return normal_(
        tensor,
        0.0,
        calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode)),
        generator,
    )


def _no_elements(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        import warnings

        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return True
    return False


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fills a convolution's weight such that it passes its input on, channel by channel, in each of the
    groups.

    >>> nn.init.dirac_(facula.empty(2, 2, 3))
    tensor([[[0., 1., 0.],
             [0., 0., 0.]],
    <BLANKLINE>
            [[0., 0., 0.],
             [0., 1., 0.]]])
    """
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = tensor.shape[0] // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])
    with _C.GradMode(False):
        tensor.zero_()
        for g in range(groups):
            for k in range(min(per_group, tensor.shape[1])):
                tensor[(g * per_group + k, k, *centre)] = 1
    return tensor


def orthogonal_(tensor: Tensor, gain: float = 1, generator: object = None) -> Tensor:
    """Fills with a random matrix with orthogonal rows or columns; ``[rows, ...]`` is flattened to two
    dimensions.

    Source: Saxe et al., "Exact solutions to the nonlinear dynamics of learning", 2013.
    """
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with _C.GradMode(False):
        q = _f.randn([max(rows, columns), min(rows, columns)], dtype=_C.float64, generator=generator)
        for _ in range(3):  # Cholesky QR: each pass squares the distance from orthogonality
            factor = _C.linalg.cholesky(q.t() @ q)
            q = _C.linalg.solve_triangular(factor, q.t(), upper=False).t()
        if rows < columns:
            q = q.t()
        return tensor.copy_((q * gain).reshape(tensor.shape))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: object = None) -> Tensor:
    """Fills with normal numbers and sets this fraction of each column to zero.  Martens, 2010."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with _C.GradMode(False):
        tensor.normal_(0, std, generator=generator)
        for k in range(columns):
            tensor[_f.randperm(rows, generator=generator)[:zeros], k] = 0
    return tensor


def _former(name: str) -> object:
    def f(*args: object, **kwargs: object) -> Tensor:
        import warnings

        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2
        )
        return globals()[name + "_"](*args, **kwargs)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"The former name of {name}_."
    return f


uniform, normal, constant, eye = _former("uniform"), _former("normal"), _former("constant"), _former("eye")
dirac, orthogonal, sparse = _former("dirac"), _former("orthogonal"), _former("sparse")
xavier_uniform, xavier_normal = _former("xavier_uniform"), _former("xavier_normal")
kaiming_uniform, kaiming_normal = _former("kaiming_uniform"), _former("kaiming_normal")

# PyTorch's inner functions, which do not record the fill; the public ones here do not either.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
_namespace.overridable(
    globals(), lambda f: f.__name__ in ("uniform_", "normal_", "constant_", "kaiming_uniform_")
)
