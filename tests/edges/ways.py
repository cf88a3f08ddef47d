"""The ways in which the peer is asked. For some calls it has no single answer: where sums overflow, which
parts of a complex product are NaN or what a comparison with NaN gives depends on the processor, the library
and how operands lie in memory. Each of its answers is PyTorch's.

A way is a processor (what the process is started with) and a layout (how the operands of the same call are
given, or which code takes them).
"""

from math import prod

# What makes the peer and its libraries believe in another processor.
PROCESSORS = {
    "this processor": {},
    # Without instructions for bfloat16, AMX's tiles among them.
    "AVX-512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "no vectors": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
}
VECTOR = 64  # elements that are a whole number of vectors for every dtype


class Layout:
    """Gives the operands of a call otherwise, without changing what it means."""

    name = "as given"

    def __init__(self, call):
        pass

    @staticmethod
    def fits(call):
        return True

    def argument(self, name, x):
        return x

    def operand(self, x):
        return x

    def result(self, x):
        """A result, or the gradient of an operand, as it belongs to the call."""
        return x


class WithoutOneDNN(Layout):
    name = "without oneDNN"


class Decomposed(Layout):
    """In the simpler operators that torch.compile makes of it, gradients too."""

    name = "decomposed as by torch.compile"


class ForwardMode(Layout):
    """The gradient put together from derivatives along each element (torch.func.jvp): other formulas of the
    peer's than those of backward(), for the same linear map.
    """

    name = "in forward mode"
    LARGEST = 100  # elements, each of which is a call

    @classmethod
    def fits(cls, call):
        return call["form"] == "call" and 0 < sum(t["n"] for t in operands(call) if "g" in t) <= cls.LARGEST


class GradientGraph(Layout):
    """With create_graph=True, where gradients come of formulas that have gradients themselves."""

    name = "with create_graph=True"

    @staticmethod
    def fits(call):
        return call["form"] == "call" and any("g" in t for t in operands(call))


class Mapped(Layout):
    """As the only call of a batch, by torch.vmap: many operators have another kernel for batches."""

    name = "by vmap"

    @staticmethod
    def fits(call):
        return call["form"] == "call"


class Gaps(Layout):
    """Every other element of memory: the peer's loops over single elements."""

    name = "with gaps"

    def operand(self, x):
        return x.unsqueeze(-1).repeat(*[1] * x.ndim, 2)[..., 0] if x.ndim else x


class Columns(Layout):
    """The first dimension is the innermost in memory; of four the third, fourth and second lie around it."""

    name = "columns"

    @staticmethod
    def fits(call):
        return any(len(t["shape"]) > 1 for t in operands(call))

    def operand(self, x):
        order = [1, *range(x.ndim - 1, 1, -1), 0] if x.ndim == 4 else list(range(x.ndim))[::-1]
        back = sorted(range(x.ndim), key=order.__getitem__)
        return x.permute(order).contiguous().permute(back)


class ChannelsLast(Layout):
    """The channels of images are the innermost in memory."""

    name = "channels last"

    @staticmethod
    def fits(call):
        return any(len(t["shape"]) in (4, 5) for t in operands(call))

    def operand(self, x):
        order = [0, *range(2, x.ndim), 1]
        if x.ndim not in (4, 5):
            return x
        return x.permute(order).contiguous().permute([0, x.ndim - 1, *range(1, x.ndim - 1)])


class WholeVectors(Layout):
    """Operators that work element by element: repeated until no element is left over beside vectors."""

    name = "whole vectors"

    def __init__(self, call):
        self.shape = operands(call)[0]["shape"]
        self.n = prod(self.shape)

    @staticmethod
    def fits(call):
        shapes = [t["shape"] for t in operands(call)]
        return bool(call.get("each") and shapes and prod(shapes[0]) and all(s == shapes[0] for s in shapes))

    def operand(self, x):
        x = x.reshape(-1)
        return x.repeat(-(-VECTOR // self.n) * VECTOR)[: -(-self.n // VECTOR) * VECTOR]

    def result(self, x):
        return x[: self.n].reshape(self.shape) if x.ndim else x  # a result that is one number is none of this


class Beside(Layout):
    """Operators that work element by element: with a number before each element, which a function of one
    element does not see. What changes with that number is memory that was not set, and no answer.
    """

    name = "between other numbers"
    NUMBERS = (3.0, 5.0)

    def __init__(self, call, number=NUMBERS[0]):
        self.number = number

    @staticmethod
    def fits(call):
        shapes = [t["shape"] for t in operands(call)]
        same = all(s == shapes[0] for s in shapes) and all(t["T"].startswith("float") for t in operands(call))
        return bool(call.get("each") and call["form"] == "call" and shapes and prod(shapes[0]) and same)

    def operand(self, x):
        x = x.reshape(-1, 1)
        return x.repeat(1, 2).index_fill_(1, x.new_zeros(1).long(), self.number).reshape(-1)

    def result(self, x):
        return x[1::2] if x.ndim else x


class AllDimensions(Layout):
    """dim=None, which means what dim=[] does."""

    name = "with dim=None for dim=[]"

    @staticmethod
    def fits(call):
        return call["args"].get("dim", 0) == []

    def argument(self, name, x):
        return None if name == "dim" else x


class Wider(Layout):
    """The same numbers in float64 or complex128, what comes of them rounded once: not the same call, and so
    counted apart. Who equals that is right where the peer's sums and products in its dtype are not.
    """

    name = "in a wider dtype"
    PARTS = {"float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "complex64": "float32"}
    PARTS |= dict.fromkeys(
        ("uint8", "int8", "int16", "int32", "int64"), "float32"
    )  # where the result is a float

    def __init__(self, call):
        self.own, self.part = call["dtype"], self.PARTS[call["dtype"]]

    @classmethod
    def fits(cls, call):
        return call["dtype"] in cls.PARTS and call["form"] != "out"

    def operand(self, x):
        if str(x.dtype) != f"torch.{self.own}":
            return x
        return x.cdouble() if x.is_complex() else x.double()

    def result(self, x):
        if str(x.dtype) == "torch.float64":
            return {"float16": x.half, "bfloat16": x.bfloat16, "float32": x.float}[self.part]()
        return x.cfloat() if x.is_complex() else x


class DecomposedColumns(Decomposed, Columns):
    name = "decomposed as by torch.compile, columns"


class GapsWithoutOneDNN(WithoutOneDNN, Gaps):
    name = "without oneDNN, with gaps"


class ChannelsLastWithoutOneDNN(WithoutOneDNN, ChannelsLast):
    name = "without oneDNN, channels last"


EVERYWHERE = (Layout, Gaps, Columns, ChannelsLast, WithoutOneDNN, Decomposed, Mapped)
ALONE = (Gaps, Columns, ChannelsLast, WholeVectors, WithoutOneDNN, AllDimensions, Decomposed)
ALONE += (GradientGraph, Mapped)
HERE = (*ALONE, DecomposedColumns, GapsWithoutOneDNN, ChannelsLastWithoutOneDNN, ForwardMode, Wider)


def layouts(processor, call):
    """Those that a call is asked in, beside the first answer."""
    return [x for x in (HERE if processor == "this processor" else EVERYWHERE) if x.fits(call)]


def operands(call):
    """The encoded tensors among the arguments."""

    def visit(v):
        if isinstance(v, list):
            for x in v:
                yield from visit(x)
        elif isinstance(v, dict) and "T" in v:
            yield v

    return [t for v in call["args"].values() for t in visit(v)]


def named(processor, layout):
    """As the report says it."""
    where = {p: f"on a processor with {p}" for p in ("AVX-512", "AVX2")}
    where["no vectors"] = "on a processor without vectors"
    return ", ".join(x for x in (where.get(processor), layout) if x and x != Layout.name)
