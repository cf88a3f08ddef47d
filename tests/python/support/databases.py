"""The cases of PyTorch's databases of modules and optimizers, run by either library.

A case of a module: how it is constructed and called, its parameters, and what PyTorch computed in float64
from them. A case of an optimizer: its options, and how parameters moved.
"""

from __future__ import annotations

import copy
import math
import warnings


def class_of(torch, path):
    """``nn.Linear`` of a library."""
    found = torch
    for name in path.split("."):
        found = getattr(found, name)
    return found


def converted(torch, tree, dtype):
    """Tensors of floats in a tree as ``dtype``, with gradients of their own; others as they are."""
    if isinstance(tree, torch.Tensor):
        made = tree.detach().clone()
        if made.is_floating_point():
            made = made.to(dtype)
            made.requires_grad_(tree.requires_grad)
        return made
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[converted(torch, t, dtype) for t in tree])
    if isinstance(tree, (tuple, list)):
        return type(tree)(converted(torch, t, dtype) for t in tree)
    if isinstance(tree, dict):
        return {k: converted(torch, v, dtype) for k, v in tree.items()}
    return tree


def leaves(torch, tree):
    """The tensors of a tree."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, (tuple, list)):
        return [t for x in tree for t in leaves(torch, x)]
    if isinstance(tree, dict):
        return [t for x in tree.values() for t in leaves(torch, x)]
    return []


def run_module(torch, path, case, dtype):
    """What a case computes: outputs, gradients of inputs and parameters, the state after it."""
    module = class_of(torch, path)(*copy.deepcopy(case["args"]), **copy.deepcopy(case["kwargs"]))
    module.train(case["training"])
    module.to(dtype)
    args, kwargs = converted(torch, (case["inputs"], case["named_inputs"]), dtype)
    if "Lazy" in path:
        with torch.no_grad():
            module(*args, **kwargs)
    if "state" in case:
        module.load_state_dict(case["state"])
    before = {k: v.detach().clone() for k, v in module.state_dict().items()}
    outputs = leaves(torch, module(*args, **kwargs))
    loss = 0
    for k, out in enumerate(outputs):
        if out.requires_grad:
            weights = torch.arange(1.0, out.numel() + 1, dtype=dtype).add(k).cos().reshape(out.shape)
            loss = loss + (out * weights).sum()
    if torch.is_tensor(loss):
        loss.backward()
    inputs = [t for t in leaves(torch, (args, kwargs)) if t.requires_grad]
    return {
        "before": before,
        "outputs": [o.detach() for o in outputs],
        "input gradients": [t.grad for t in inputs],
        "gradients": {n: p.grad for n, p in module.named_parameters()},
        "after": {k: v.detach() for k, v in module.state_dict().items() if k in dict(module.named_buffers())},
    }


def failure(f):
    """The type and text of the error that a call raises; None if it raises none. Warnings count."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            f()
        except Exception as e:
            return type(e).__name__, str(e)
    return (caught[0].category.__name__, str(caught[0].message)) if caught else None


def fail_module(torch, path, case):
    """The error of a case, and whether construction raised it."""
    made = []

    def construct():
        made.append(class_of(torch, path)(*case["args"], **case["kwargs"]))

    found = failure(construct)
    if made and found is None:
        return False, failure(lambda: made[0](*case["inputs"], **case["named_inputs"]))
    return True, found


STEPS = 4


def run_optimizer(torch, name, kwargs):
    """How four parameters move, the names in the state, and those of options."""
    shapes = [(3, 2), (4, 2), (2, 3), (2, 2)] if name == "Muon" else [(3,), (4, 2), (2, 3, 2), ()]
    params = []
    for k, shape in enumerate(shapes):
        values = [math.sin(3 * k + 7 * i + 1) for i in range(math.prod(shape))]
        params.append(torch.nn.Parameter(torch.tensor(values, dtype=torch.float64).reshape(shape)))
    if name == "SparseAdam":
        params = params[1:3]
    optimizer = getattr(torch.optim, name)(params, **copy.deepcopy(kwargs))
    after = []
    for _ in range(STEPS):

        def closure():
            optimizer.zero_grad()
            terms = [((p - 0.3 * k) ** 2 * (k + 1)).sum() for k, p in enumerate(params)]
            loss = sum(terms) + sum((p * 3).cos().sum() for p in params)
            loss.backward()
            if name == "SparseAdam":
                for p in params:
                    p.grad = p.grad.to_sparse(1)
            return loss

        if name == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        after.append([p.detach().clone() for p in params])
    state = optimizer.state_dict()
    return {
        "after": after,
        "state": {k: sorted(v) for k, v in state["state"].items()},
        "options": sorted(state["param_groups"][0]),
    }


def fail_optimizer(torch, name, case):
    """The error of a case; its parameters are made as it says."""
    kept = {}

    def parameter(k):
        return kept.setdefault(k, torch.nn.Parameter(torch.tensor([[0.5 + k]])))

    def build(tree):
        if isinstance(tree, str) and tree.startswith("parameter "):
            return parameter(int(tree.split()[1]))
        if isinstance(tree, list):
            return [build(t) for t in tree]
        if isinstance(tree, tuple):
            return tuple(build(t) for t in tree)
        if isinstance(tree, dict):
            return {k: build(v) for k, v in tree.items()}
        return tree

    params = [parameter(0)] if case["params"] is None else build(case["params"])
    return failure(lambda: getattr(torch.optim, name)(params, **case["kwargs"]))
