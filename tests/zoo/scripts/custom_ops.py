"""Operators of one's own in Python, as the tutorial has them: schemas, fakes, gradients, mutation, vmap, kernels, checks."""

import numpy as np
import torch
from torch import Tensor
from torch.library import Library, opcheck

torch.set_printoptions(precision=4, sci_mode=False)


@torch.library.custom_op("pics::crop", mutates_args=())
def crop(pic: Tensor, box: list[int]) -> Tensor:
    array = pic.numpy(force=True)
    return torch.from_numpy(array[:, box[1] : box[3], box[0] : box[2]].copy())


@crop.register_fake
def _(pic, box):
    return pic.new_empty(pic.shape[0], box[3] - box[1], box[2] - box[0])


@torch.library.custom_op("pics::paste", mutates_args=())
def paste(im1: Tensor, im2: Tensor, coord: list[int]) -> Tensor:
    out = im1.clone()
    x, y = coord
    out[:, y : y + im2.shape[1], x : x + im2.shape[2]] = im2
    return out


@paste.register_fake
def _(im1, im2, coord):
    return torch.empty_like(im1)


def backward(ctx, grad_output):
    return paste(grad_output.new_zeros(ctx.pic_shape), grad_output, list(ctx.coords)), None


def setup_context(ctx, inputs, output):
    pic, box = inputs
    ctx.coords, ctx.pic_shape = box[:2], pic.shape


crop.register_autograd(backward, setup_context=setup_context)
img = torch.arange(48.0).reshape(3, 4, 4).requires_grad_()
out = crop(img, [1, 0, 3, 2])
print(out.shape, out[0], torch.ops.pics.crop.default._schema)
out.pow(2).sum().backward()
print(img.grad[0])
for k in range(3):
    opcheck(crop, (torch.randn(3, 6, 6, requires_grad=k > 0), [k, 0, 4, 3]))
print(crop, crop(torch.ones(1, 4, 4, device="meta"), [0, 0, 2, 3]).shape)


@torch.library.custom_op("mine::sin_", mutates_args={"output"})
def numpy_sin(input: Tensor, output: Tensor) -> None:
    assert input.device == output.device
    np.sin(input.numpy(), out=output.numpy())


x, y = torch.linspace(0, 1, 4), torch.zeros(4)
version = y._version
print(numpy_sin(x, y), y, y._version > version)


@torch.library.custom_op("mine::cube", mutates_args=())
def cube(x: Tensor) -> tuple[Tensor, Tensor]:
    return x**3, 3 * x**2


@cube.register_fake
def _(x):
    return torch.empty_like(x), torch.empty_like(x)


@cube.register_vmap
def _(info, in_dims, x):
    result = cube(x)
    return result, (in_dims[0], in_dims[0])


def cube_backward(ctx, grad, grad_dx):
    x, dx = ctx.saved_tensors
    return grad * dx + 6 * grad_dx * x


def cube_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output[1])


cube.register_autograd(cube_backward, setup_context=cube_setup)
t = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
print(cube(t)[0], torch.autograd.grad(cube(t)[0].sum(), t)[0], torch.autograd.grad(cube(t)[1].sum(), t)[0])
print(torch.vmap(cube)(torch.arange(6.0).view(2, 3))[0])

# ---- the older way
lib = Library("old", "DEF")
lib.define("scale(Tensor x, float factor, *, int times=1) -> Tensor")


def scale(x, factor, *, times=1):
    return x * factor**times


lib.impl("scale", scale, "CompositeExplicitAutograd")
print(torch.ops.old.scale(torch.ones(2), 3.0, times=2), torch.ops.old.scale.default._schema)


@torch.library.impl("old::scale", "Meta", lib=lib)
def scale_meta(x, factor, *, times=1):
    return torch.empty_like(x)


print(torch.ops.old.scale(torch.ones(2, device="meta"), 3.0).device)
lib.define("twice(Tensor self, Scalar? add=None) -> Tensor")


@torch.library.impl(lib, "twice", "CPU")
def twice(self, add=None):
    return self * 2 + (0 if add is None else add)


torch.library.register_autograd("old::twice", lambda ctx, g: (g * 2, None), lib=lib)
v = torch.ones(2, requires_grad=True)
torch.ops.old.twice(v, 5).sum().backward()
print(torch.ops.old.twice(torch.ones(2)), v.grad)
try:
    torch.ops.old.nothing
except AttributeError as e:
    print("AttributeError", "nothing" in str(e))
try:
    torch.ops.old.scale(torch.ones(2))
except (RuntimeError, TypeError) as e:
    print("missing:", "factor" in str(e))


@torch.library.custom_op("mine::foo", mutates_args=())
def foo(x: Tensor, n: int, s: str = "a") -> Tensor:
    return x * n + len(s)


print(torch.ops.mine.foo.default._schema, foo(torch.ones(1), 2, "abc"))


@foo.register_kernel("cpu")
def _(x, n, s="a"):
    return x * n - len(s)


print(foo(torch.ones(1), 2, "abc"))
print(torch.library.infer_schema(numpy_sin._init_fn, mutates_args={"output"}))
kernel = torch.library.get_kernel("aten::add.Tensor", "CPU")
print(hasattr(kernel, "call_boxed"))
