"""Tiny data and weights that are the same with every library of tensors, and numbers of results to print."""

import numpy as np
import torch


def data(*shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape).astype(np.float32))


def uniform(*shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).rand(*shape).astype(np.float32))


def whole(*shape, below, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).randint(0, below, shape))


def fill(module, seed=0):
    """Gives parameters values by their order: matrices keep the size of what they multiply, scales are near 1."""
    random = np.random.RandomState(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            values = np.asarray(random.randn(*p.shape), np.float32)
            if p.dim() >= 2:
                values /= np.float32(max(np.prod(p.shape[1:]), 1) ** 0.5)
            else:
                values = np.float32(0.1) * values + np.float32(name.endswith(("weight", "scale", "gamma")))
            p.copy_(torch.from_numpy(np.asarray(values)).to(p.dtype))
    return module


def train(parameters, loss, steps=3, lr=0.01):
    """The losses of some steps of SGD."""
    parameters = list(parameters)
    optimizer, losses = torch.optim.SGD(parameters, lr=lr), []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def show(name, value):
    """Prints a line of numbers: of a tensor its shape, mean, size, and a mean with weights that its order changes."""
    if hasattr(value, "detach"):
        value = value.detach()
        value = value.to_dense() if value.layout != torch.strided else value
        value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        value = value.resolve_neg().numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        x = value.astype(np.float64).ravel()
        weights = np.cos(np.arange(x.size))
        numbers = [x.mean(), np.sqrt((x * x).mean()), (x * weights).mean()] if x.size else []
        print(name, list(value.shape), *(f"{n:.6g}" for n in numbers), flush=True)
    elif isinstance(value, dict):
        for key in value:
            show(f"{name}.{key}", value[key])
    elif isinstance(value, (list, tuple)):
        if all(isinstance(v, (int, float)) for v in value):
            print(name, *(f"{v:.6g}" for v in value), flush=True)
        else:
            for k, v in enumerate(value):
                show(f"{name}.{k}", v)
    elif isinstance(value, float):
        print(name, f"{value:.6g}", flush=True)
    else:
        print(name, value, flush=True)
