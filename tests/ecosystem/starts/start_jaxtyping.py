"""Annotated shapes, checked when functions are called."""

import torch
from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from made import data, show, whole


@jaxtyped(typechecker=beartype)
def gathered(x: Float[torch.Tensor, "n d"], k: Int[torch.Tensor, "m"]) -> Float[torch.Tensor, "m d"]:
    return x[k]


show("rows", gathered(data(5, 3), whole(4, below=5)))
for wrong in (data(5), whole(5, 3, below=2)):
    try:
        gathered(wrong, whole(4, below=5))
        show("checked", "no")
    except Exception as e:
        show("refused", type(e).__name__)
show(
    "instance",
    [isinstance(data(2, 3), Float[torch.Tensor, "2 3"]), isinstance(data(2, 3), Float[torch.Tensor, "3 3"])],
)
