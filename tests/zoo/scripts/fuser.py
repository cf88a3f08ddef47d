"""Graphs of modules changed as PyTorch's tutorials do: convolutions fused with norms, a profiling interpreter, patterns, shapes."""

import copy
import time
from collections import defaultdict

import numpy as np
import torch
import torch.fx as fx
import torch.nn as nn
from torch.fx import Interpreter, Transformer
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_module import split_module

rng = np.random.RandomState(1)
torch.set_printoptions(precision=4, sci_mode=False)


def filled(net):
    for p in net.parameters():
        p.data = torch.from_numpy(rng.randn(*p.shape).astype(np.float32)) * 0.3
    for name, b in net.named_buffers():
        if b.is_floating_point():
            b.copy_(torch.from_numpy(rng.rand(*b.shape).astype(np.float32)) + 0.2)
    return net


class WrappedBatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.mod = nn.BatchNorm2d(1)

    def forward(self, x):
        return self.mod(x)


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 1, 1)
        self.bn1 = nn.BatchNorm2d(1)
        self.conv2 = nn.Conv2d(1, 1, 1)
        self.nested = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 1, 1))
        self.wrapped = WrappedBatchNorm()

    def forward(self, x):
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.conv2(x)
        x = self.nested(x)
        return self.wrapped(x)


model = filled(M()).eval()
traced = fx.symbolic_trace(model)
print(traced.graph)


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    conv_b = torch.zeros_like(bn_rm) if conv_b is None else conv_b
    bn_var_rsqrt = torch.rsqrt(bn_rv + bn_eps)
    conv_w = conv_w * (bn_w * bn_var_rsqrt).reshape([-1] + [1] * (len(conv_w.shape) - 1))
    conv_b = (conv_b - bn_rm) * bn_var_rsqrt * bn_w + bn_b
    return nn.Parameter(conv_w), nn.Parameter(conv_b)


def fuse_conv_bn_eval(conv, bn):
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def replace_node_module(node, modules, new_module):
    parent, _, name = node.target.rpartition(".")
    setattr(modules[parent], name, new_module)


def fuse(model):
    model = copy.deepcopy(model)
    fx_model = fx.symbolic_trace(model)
    modules = dict(fx_model.named_modules())
    for node in fx_model.graph.nodes:
        if node.op != "call_module" or node.args[0].op != "call_module":
            continue
        if type(modules[node.target]) is nn.BatchNorm2d and type(modules[node.args[0].target]) is nn.Conv2d:
            if len(node.args[0].users) > 1:
                continue
            replace_node_module(
                node.args[0], modules, fuse_conv_bn_eval(modules[node.args[0].target], modules[node.target])
            )
            node.replace_all_uses_with(node.args[0])
            fx_model.graph.erase_node(node)
    fx_model.graph.lint()
    fx_model.recompile()
    return fx_model


fused = fuse(model)
print(fused.code.strip())
x = torch.from_numpy(rng.randn(2, 1, 4, 4).astype(np.float32))
print(torch.allclose(fused(x), model(x), atol=1e-5), model(x).flatten()[:4].detach())
print(
    torch.allclose(
        torch.nn.utils.fusion.fuse_conv_bn_eval(model.conv1, model.bn1)(x),
        model.bn1(model.conv1(x)),
        atol=1e-5,
    )
)


class ProfilingInterpreter(Interpreter):
    def __init__(self, mod):
        super().__init__(fx.symbolic_trace(mod))
        self.total_runtime_sec, self.runtimes_sec = [], defaultdict(list)

    def run(self, *args):
        t_start = time.time()
        return_val = super().run(*args)
        self.total_runtime_sec.append(time.time() - t_start)
        return return_val

    def run_node(self, n):
        t_start = time.time()
        return_val = super().run_node(n)
        self.runtimes_sec[n].append(time.time() - t_start)
        return return_val

    def summary(self):
        return [(n.op, str(n), len(times)) for n, times in self.runtimes_sec.items()]


interp = ProfilingInterpreter(model)
for _ in range(3):
    out = interp.run(x)
print(torch.equal(out, model(x)), len(interp.total_runtime_sec), interp.summary())

# ---- shapes, flops by hand
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 3 * 3, 5))
gm = fx.symbolic_trace(filled(net))
ShapeProp(gm).propagate(torch.zeros(2, 1, 8, 8))
for node in gm.graph.nodes:
    meta = node.meta["tensor_meta"]
    print(node.op, node.name, tuple(meta.shape), meta.dtype, meta.requires_grad)

# ---- a transformer of graphs, a pattern, a hand-made graph


class NegSigmSwapXformer(Transformer):
    def call_function(self, target, args, kwargs):
        return (
            torch.neg(*args, **kwargs)
            if target is torch.sigmoid
            else super().call_function(target, args, kwargs)
        )

    def call_method(self, n, args, kwargs):
        return args[0].sigmoid(*args[1:], **kwargs) if n == "neg" else super().call_method(n, args, kwargs)


def fn(x):
    return torch.sigmoid(x).neg()


changed = NegSigmSwapXformer(fx.symbolic_trace(fn)).transform()
inp = torch.linspace(-1, 1, 4)
print(torch.allclose(changed(inp), torch.neg(inp).sigmoid()), changed.code.strip())


class Pairs(nn.Module):
    def forward(self, x, w1, w2):
        m1 = torch.cat([w1, w2]).sum()
        m2 = torch.cat([w2, w1]).sum()
        return x + torch.max(m1) + torch.max(m2)


pairs = fx.symbolic_trace(Pairs())
found = fx.replace_pattern(
    pairs, lambda w1, w2: torch.cat([w1, w2]).sum(), lambda w1, w2: torch.stack([w1, w2]).sum()
)
print(len(found), pairs.code.strip())
graph = fx.Graph()
a, b = graph.placeholder("a"), graph.placeholder("b")
s = graph.call_function(torch.add, (a, b), {"alpha": 2})
with graph.inserting_before(s):
    r = graph.call_method("relu", (a,))
s.replace_input_with(a, r)
graph.output((s, graph.call_function(torch.mul, (s, s))))
made = fx.GraphModule({}, graph, "Made")
print(made(torch.tensor([-1.0, 2.0]), torch.ones(2)), graph)
parts = split_module(gm, net, lambda node: 0 if node.name in ("_0", "_1") else 1)
print(
    [n for n, _ in parts.named_children()],
    torch.allclose(parts(x.repeat(1, 1, 2, 2)), net(x.repeat(1, 1, 2, 2))),
)
