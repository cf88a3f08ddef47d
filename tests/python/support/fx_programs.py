"""Programs that are traced into graphs, and what the graphs look like: for PyTorch and for Facula alike."""

import copy
import io
import math
import operator

SKIPPED_LINES = ("Use tlparse", "  signature: ")


def wrapped_helper(x, k):
    """A function that graphs do not enter."""
    return x * k if k > 1 else x


def tracked(torch):
    """Models and functions by name: what is traced, and arguments to run it with."""
    nn, F = torch.nn, torch.nn.functional

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.lin = nn.Linear(3, 3)
            self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Tanh()))
            self.register_buffer("scale", torch.full((3,), 2.0))
            self.plain = torch.arange(3.0)

        def forward(self, x, y: torch.Tensor = None, *, k: int = 2):
            h = self.lin(x + self.weight) * self.scale
            h = self.body(h).relu() + self.plain
            h = F.relu(h, inplace=True) + torch.add(x, 1)
            first, second = torch.chunk(h[..., None], 2)
            n = x.shape[0]
            z = x.new_zeros(n, 3) + x.view(x.size(0), -1)
            z += 1
            return {"a": z, "b": [h, (first, second)]}, self.weight @ self.weight, h.T.dtype, x.ndim

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)])
            self.heads = nn.ModuleDict({"a": nn.Flatten()})

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return self.heads["a"](x)

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2, 2))

        def forward(self, x, flag=True):
            return x @ self.w.t() if flag else x

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Inner()
            self.second = self.first

        def forward(self, x):
            return self.second(self.first(x), flag=False) - self.first(x)

    def arithmetic(x, y):
        a = -x + +y - ~(x > 0) * 1
        b = 2**x / (1 + abs(y)) // 3 % 2
        c = (x == y) & (x != y) | (x < y) ^ (x >= y)
        return a, b, c, [1, None, (2.5, "text")], x[1:, None, ..., ::2], 1 - x, 3 @ y

    def attributes(x, dim: int = -1):
        return x.shape[dim], x.to(torch.float64), x.to(dtype=torch.int32).type(torch.float16), x.device

    def in_place(x):
        y = x.clone()
        y.add_(1)
        y *= 2
        x.relu_()
        return operator.iadd(y, x)

    def trees(x):
        return {"sum": x[0] + x[1]["a"]}

    def kinds(a, b=2, *rest, d=4, **more):
        return a + b + d

    def helpers(x):
        return wrapped_helper(x, 3) + math.sqrt(x.size(0))

    def named(add, add_1, forward, list):
        return add + add_1 + forward + list

    def concrete(x, n, flag):
        for _ in range(n):
            x = x + 1
        return x if flag else -x

    def unread(x):
        torch.sigmoid(x)
        y = x + 1
        return y * float("inf") + float("nan")

    two = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    return {
        "residual": (Residual(), {}, None),
        "layers": (Layers().eval(), {}, (torch.ones(1, 1, 2, 2),)),
        "shared": (Outer(), {}, (two,)),
        "arithmetic": (arithmetic, {}, None),
        "attributes": (attributes, {}, None),
        "in_place": (in_place, {}, (two,)),
        "trees": (trees, {"x": (torch.fx.PH, {"a": torch.fx.PH})}, None),
        "kinds": (kinds, {}, None),
        "helpers": (helpers, {}, (two,)),
        "named": (named, {}, None),
        "concrete": (concrete, {"n": 2, "flag": False}, (two, 2, False)),
        "nothing": (concrete, {"n": 1, "flag": None}, None),
        "unread": (unread, {}, None),
        "linear": (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), {}, None),
    }


def _marks(fx):
    """This module's names, with ``wrap``, which wants to be called at the top level."""
    globals()["wrap"] = fx.wrap
    return globals()


def attempt(f, *args, **kwargs):
    """What a call gives, or the type and first line of what it raises."""
    try:
        return str(f(*args, **kwargs))
    except Exception as e:
        return f"{type(e).__name__}: {str(e).splitlines()[0]}"


def answers(torch):
    """Texts by name."""
    fx = torch.fx
    exec("wrap('wrapped_helper')", _marks(fx))
    found = {}
    for name, (root, concrete, _) in tracked(torch).items():
        gm = fx.symbolic_trace(root, concrete or None)
        found[f"{name}: graph"] = str(gm.graph)
        found[f"{name}: code"] = gm.code
        if name != "residual":  # its forward gives a dtype and an unread default, which have no import
            found[f"{name}: again"] = copy.deepcopy(gm).code
    for name, f in {
        "control flow": lambda x: x if x.sum() > 0 else -x,
        "loop": lambda x: [y for y in x],
        "len": lambda x: len(x),
        "range": lambda x: range(x),
        "int": lambda x: int(x),
        "assignment": lambda x: x.__setitem__(0, 1) or operator.setitem(x, 0, 1),
        "star": lambda x: max(*x),
        "contains": lambda x: {x: 1},
        "not a function": 3,
        "argument": lambda x: torch.add(x, object),
        "unknown": lambda x: x.add(other=1j) + x[{1, 2}],
    }.items():
        found[f"refused: {name}"] = attempt(lambda f=f: fx.symbolic_trace(f).code)
    _edits(torch, found)
    _rewrites(torch, found)
    _runs(torch, found)
    _modules(torch, found)
    return {
        k: "\n".join(line for line in v.splitlines() if not line.startswith(SKIPPED_LINES))
        for k, v in found.items()
    }


def _edits(torch, found):
    fx = torch.fx

    def chain(x, y):
        return torch.relu(x).neg() + torch.sigmoid(y) * x

    gm = fx.symbolic_trace(chain)
    nodes = {n.name: n for n in gm.graph.nodes}
    relu, neg = nodes["relu"], nodes["neg"]
    found["uses"] = str(
        [(n.name, list(n.users), n.all_input_nodes, n.op, n.next, n.prev) for n in nodes.values()]
    )
    found["formats"] = "\n".join(str(n.format_node()) for n in gm.graph.nodes)
    with gm.graph.inserting_after(relu):
        new = gm.graph.call_method("abs", (relu,))
    neg.replace_input_with(relu, new)
    gm.recompile()
    found["inserted"] = gm.code
    new.replace_all_uses_with(nodes["x"])
    found["erased while used"] = attempt(gm.graph.erase_node, relu)
    gm.graph.erase_node(new)
    found["dead"] = str(gm.graph.eliminate_dead_code()) + str(gm.graph)
    neg.update_kwarg("k", 1)
    neg.insert_arg(1, 5)
    neg.update_arg(1, 6)
    nodes["sigmoid"].append(neg)
    found["arguments"] = str(gm.graph) + str([n.name for n in gm.graph.find_nodes(op="placeholder")])
    found["mutation"] = attempt(lambda: neg.args[0].graph.nodes and neg.kwargs.update(k=2))
    other = fx.Graph()
    x = other.placeholder("x", type_expr=torch.Tensor, default_value=None)
    found["copied"] = str(other.graph_copy(gm.graph, {nodes["x"]: x})) + str(other)
    found["lint"] = attempt(lambda: fx.Graph().call_function(torch.add, (neg, 1)).graph.lint())
    late = fx.Graph()
    a = late.placeholder("a")
    b = late.call_function(torch.neg, (a,))
    late.output(b)
    a.prepend(b)
    found["lint: order"] = attempt(late.lint)
    found["op"] = attempt(other.create_node, "bogus", "a")
    found["target"] = attempt(other.call_function, "a")
    g = fx.Graph()
    v = g.placeholder("v")
    g.output((g.get_attr("foo.bar"), g.call_module("sub", (v,), {"z": slice(v, None)})))
    found["dict"] = attempt(lambda: fx.GraphModule({}, g))
    gm = fx.GraphModule({"foo.bar": torch.ones(2), "sub": torch.nn.ReLU()}, g, "Named")
    found["members"] = str([n for n, _ in gm.named_buffers()]) + gm._get_name() + gm.code
    found["no output"] = attempt(lambda: fx.GraphModule({}, fx.Graph()).code)
    found["erased twice"] = str(len(g.nodes)) + str([n for n in reversed(g.nodes)])


def _rewrites(torch, found):
    fx = torch.fx

    def program(x, w1, w2):
        m1 = torch.cat([w1, w2]).sum()
        m2 = torch.cat([w1, w2]).sum()
        return x + torch.max(m1) + torch.max(m2)

    def pattern(w1, w2):
        return torch.cat([w1, w2]).sum()

    def replacement(w1, w2):
        return torch.stack([w1, w2])

    gm = fx.symbolic_trace(program)
    found["replaced"] = str(fx.replace_pattern(gm, pattern, replacement)) + gm.code

    def chained(x):
        return torch.relu(torch.relu(torch.relu(x)))

    gm = fx.symbolic_trace(chained)
    matches = fx.replace_pattern(gm, lambda x: torch.relu(x), lambda x: torch.sigmoid(x))
    found["replaced: chain"] = str(len(matches)) + gm.code
    gm = fx.symbolic_trace(chained)
    matches = fx.replace_pattern(gm, lambda x: torch.relu(torch.relu(x)), lambda x: -x)
    found["replaced: overlap"] = str(len(matches)) + gm.code

    def leaks(x):
        y = torch.neg(x)
        return torch.relu(y) + y

    gm = fx.symbolic_trace(leaks)
    matches = fx.replace_pattern(gm, lambda x: torch.relu(torch.neg(x)), lambda x: x)
    found["replaced: leak"] = str(len(matches)) + gm.code
    gm = fx.symbolic_trace(lambda x: torch.sum(x + 1, 0) * torch.sum(x + 1, 1))
    matches = fx.replace_pattern(gm, lambda x: torch.sum(x + 1, 0), lambda x: x.relu())
    found["replaced: literals"] = str(len(matches)) + gm.code

    def pair(x):
        a, b = x.split(2)
        return a.sin() + b.cos()

    gm = fx.symbolic_trace(pair)
    matches = fx.replace_pattern(gm, lambda a, b: (a.sin(), b.cos()), lambda a, b: (b, a))
    found["replaced: two"] = str(len(matches)) + gm.code


def _runs(torch, found):
    fx = torch.fx
    gm = fx.symbolic_trace(lambda x, y=3: torch.neg(x) * y + torch.sigmoid(x))
    found["interpreted"] = str(fx.Interpreter(gm).run(torch.tensor([0.0, 1.0])))
    found["interpreted: nothing"] = attempt(fx.Interpreter(gm).run)
    try:
        fx.Interpreter(gm).run(3)
    except Exception as e:
        found["interpreted: wrong"] = f"{type(e).__name__}: {e}"

    class Swap(fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            return result + 1 if n.op == "call_function" else result

        def call_function(self, target, args, kwargs):
            return super().call_function(torch.abs if target is torch.neg else target, args, kwargs)

    found["interpreted: other"] = str(Swap(gm).run(torch.tensor([0.0, 1.0]), 2))

    class Tanh(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(torch.tanh if target is torch.sigmoid else target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return super().call_method("cos" if target == "sin" else target, args, kwargs)

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    found["transformed"] = (
        Tanh(gm).transform().code + fx.Transformer(fx.symbolic_trace(model)).transform().code
    )
    gm = fx.symbolic_trace(lambda x: {"a": x.sin()})
    found["transformed: method"] = Tanh(gm).transform().code
    from importlib import import_module

    shape_prop = import_module(torch.__name__ + ".fx.passes.shape_prop")
    gm = fx.symbolic_trace(lambda x: torch.chunk(x.sum(0), 3))
    shape_prop.ShapeProp(gm).propagate(torch.ones(2, 3))
    found["shapes"] = str(
        [(n.name, n.meta.get("type"), str(n.meta.get("tensor_meta"))) for n in gm.graph.nodes]
    )
    split = import_module(torch.__name__ + ".fx.passes.split_module").split_module

    def steps(x, y):
        a = x.relu()
        b = (a + y).sin()
        return b + a, b

    gm = fx.symbolic_trace(steps)
    parts = {"relu": 0, "add": 0, "sin": 1, "add_1": 2}
    cut = split(gm, gm, lambda n: parts[n.name])
    found["split"] = cut.code + "".join(m.code for m in cut.children())
    found["split: runs"] = str(cut(torch.tensor([1.0]), torch.tensor([2.0])))
    found["split: cycle"] = attempt(lambda: split(gm, gm, lambda n: int(n.name in ("relu", "add_1"))))


def _modules(torch, found):
    fx = torch.fx
    nn = torch.nn
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU())))
    found["submodules"] = str(
        [gm.add_submodule("a.b", nn.ReLU()), gm.delete_submodule("a.c"), gm.delete_submodule("0.weight")]
    )
    found["submodules: names"] = str([n for n, _ in gm.named_modules()])
    gm.delete_all_unused_submodules()
    found["submodules: used"] = str([n for n, _ in gm.named_modules()])
    found["keys"] = str(list(gm.state_dict()))
    found["repr"] = repr(gm)
    found["str"] = str(gm)

    class Calls(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.ReLU)

        def getattr(self, attr, value, cache):
            return super().getattr(attr, value, cache)

    graph = Calls().trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    found["tracer"] = str(graph).replace("torch._C._nn.linear", "torch.linear")
    file = io.BytesIO()
    torch.save(gm, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    found["saved"] = type(again).__name__ + again.code + str(list(again.state_dict()))
