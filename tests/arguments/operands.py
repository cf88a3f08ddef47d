"""Tensors of argument trees, for either library (`lib`): `t((2, 3), "float32", layout="expanded")`."""

import numpy as np

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
LAYOUTS = (
    "transposed gaps offset reversed expanded overlapping conj neg meta sparse_coo sparse_csr parameter view "
    "channels_last"
).split()
CONTENTS = "ones zeros negative_zeros nan inf special extreme outside".split()
HELD = 1 << 16  # elements that are stored; larger tensors are one element, expanded
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 1e38, 1e-45, 2.0**31, -(2.0**63), 0.5]


def numbers(shape, dtype, content, seed, low, high):
    """An array of float64 or int64, with what the tensor holds as far as its dtype can."""
    n = int(np.prod(shape, dtype=object)) if shape else 1
    rng = np.random.Generator(np.random.PCG64(seed))
    integral = "int" in dtype
    fixed = {"ones": 1, "zeros": 0, "negative_zeros": -0.0, "nan": np.nan, "inf": np.inf}
    if content in fixed and not (integral and not np.isfinite(fixed[content])):
        return np.full(n, fixed[content])
    if content == "special" and not integral:
        return rng.choice(SPECIAL, n)
    if content in ("extreme", "special", "nan", "inf") and integral:
        ends = np.iinfo(dtype)
        return rng.choice(np.array([ends.min, ends.max, 0, 1], dtype=dtype), n)
    if content == "extreme":
        return rng.choice([1e300, -1e300, 3e38, 65504.0], n)
    x = rng.uniform(low, high, n)
    if content == "outside" and n:
        x[rng.integers(n)] = rng.choice([high, low - 1, high + 1e6, -1, -1e12])
    return np.floor(x) if integral else x


def stored(lib, shape, dtype, content, seed, low, high):
    """A contiguous tensor."""
    own = getattr(lib, dtype)
    x = numbers(shape, dtype, content, seed, low, high)
    with np.errstate(all="ignore"):
        if dtype == "bool":
            x = np.nan_to_num(x) > (low + high) / 2
        elif "int" in dtype:
            x = np.clip(np.nan_to_num(x), np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
        elif dtype.startswith("complex"):
            x = x + 1j * numbers(shape, dtype, content, seed + 1, low, high)
    return lib.from_numpy(np.ascontiguousarray(x)).to(own).reshape(shape).clone()  # its memory may grow


def laid_out(lib, x, layout):
    """The numbers of `x` in another layout, as far as it has one."""
    if layout == "meta":
        return lib.empty(x.shape, dtype=x.dtype, device="meta")
    if layout == "conj":
        return x.conj() if x.is_complex() else x
    if layout == "neg":
        return x.conj().imag if x.is_complex() else x
    if layout == "parameter":
        return lib.nn.Parameter(x, requires_grad=x.is_floating_point() or x.is_complex())
    if layout == "offset":
        room = lib.zeros(x.numel() + 3, dtype=x.dtype)
        return room[3:].view(x.shape).copy_(x)
    if layout == "sparse_coo":
        return x.to_sparse()
    if x.dim() == 0:
        return x
    if layout == "sparse_csr":
        return x.to_sparse_csr() if x.dim() == 2 else x.to_sparse()
    if layout == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "reversed":
        order = tuple(reversed(range(x.dim())))
        return x.permute(order).contiguous().permute(order)
    if layout == "gaps":
        return lib.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), dtype=x.dtype)[..., 1::2].copy_(x)
    if layout == "expanded":
        return x[:1].expand(x.shape) if x.shape[0] else x
    if layout == "overlapping":
        return x.as_strided(x.shape, (1,) * x.dim()) if x.numel() else x
    if layout == "view":
        return x.unsqueeze(0)[0]
    if layout == "channels_last" and x.dim() == 4:
        return x.contiguous(memory_format=lib.channels_last)
    return x


def plain(x):
    """The same numbers, contiguous and alone in their memory."""
    x = x.detach().resolve_conj().resolve_neg()
    return x if x.numel() > HELD else x.contiguous().clone()


def maker(lib, leaves, alike=""):
    """`t` for a library; `leaves` gets the tensors that have a gradient. `alike`: "plain" makes every tensor
    contiguous, "meta" one without memory.
    """

    def t(shape, dtype="float32", layout="", content="", seed=0, grad=False, low=-2, high=2):
        n = 1
        for s in shape:
            n *= s
        if n > HELD:
            x = stored(lib, (), dtype, content, seed, low, high)
            x = lib.empty(shape, dtype=x.dtype, device="meta") if layout == "meta" else x.expand(shape)
        else:
            x = laid_out(lib, stored(lib, shape, dtype, content, seed, low, high), layout)
        if alike == "meta":
            x = lib.empty(x.shape, dtype=x.dtype, device="meta")
        if alike == "plain" and layout not in ("meta", "sparse_coo", "sparse_csr"):
            x = plain(x).requires_grad_(x.requires_grad)
        if grad and (x.is_floating_point() or x.is_complex()) and x.is_leaf:
            x.requires_grad_(True)
        if x.requires_grad:
            leaves.append(x)
        return x

    return t
