"""Counts of operations, as PyTorch's FlopCounterMode gives them."""

import facula.nn.functional as F
import pytest
from facula.utils._python_dispatch import TorchDispatchMode
from facula.utils.flop_counter import FlopCounterMode, conv_flop_count, register_flop_formula, sdpa_flop_count
from facula.utils.module_tracker import ModuleTracker

import facula
from facula import nn


def counted(f):
    with FlopCounterMode(display=False) as mode:
        f()
    return {str(k): n for k, n in mode.get_flop_counts().get("Global", {}).items()}


def leaf(*sizes):
    return facula.ones(*sizes, requires_grad=True)


# Recorded from PyTorch 2.13.
@pytest.mark.parametrize(
    ("f", "counts"),
    [
        (lambda: (leaf(2, 3, 5) @ facula.ones(5, 6)).sum().backward(), {"aten.mm": 720}),
        (lambda: facula.bmm(leaf(2, 3, 5), facula.ones(2, 5, 3)), {"aten.bmm": 180}),
        (
            lambda: facula.baddbmm(facula.ones(3, 3), leaf(2, 3, 5), facula.ones(2, 5, 3)),
            {"aten.baddbmm": 180},
        ),
        (lambda: facula.matmul(facula.ones(2, 3, 4, 5), facula.ones(3, 5, 6)), {"aten.bmm": 1440}),
        (
            lambda: F.conv1d(facula.ones(2, 3, 9), leaf(4, 3, 3)).sum().backward(),
            {"aten.convolution": 1008, "aten.convolution_backward": 1008},
        ),
        (
            lambda: F.conv2d(leaf(2, 4, 9, 9), leaf(4, 2, 3, 3), groups=2).sum().backward(),
            {"aten.convolution": 14112, "aten.convolution_backward": 42336},
        ),
        (lambda: nn.Linear(5, 7)(leaf(2, 3, 5)).sum().backward(), {"aten.addmm": 420, "aten.mm": 840}),
        (lambda: nn.Linear(5, 7, bias=False)(leaf(2, 3, 5)), {"aten.mm": 420}),
        (lambda: facula.dot(facula.ones(5), facula.ones(5)), {}),
    ],
)
def test_counts_are_pytorchs(f, counts):
    assert counted(f) == counts


def test_all_gradients_of_convolutions_are_counted():
    assert (
        sum(counted(lambda: F.conv3d(leaf(2, 4, 5, 5, 5), leaf(4, 4, 3, 3, 3)).sum().backward()).values())
        == 139968
    )
    transposed = counted(
        lambda: F.conv_transpose2d(leaf(2, 3, 9, 9), leaf(3, 4, 3, 3), stride=2).sum().backward()
    )
    assert sum(transposed.values()) == 104976


def test_attention_is_counted_as_two_products_and_its_gradient_as_five():
    q = leaf(2, 3, 5, 8)
    counts = counted(lambda: F.scaled_dot_product_attention(q, q, q).sum().backward())
    forward = sdpa_flop_count((2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8))
    assert forward == 2 * (2 * 3 * 5 * 5 * 8 * 2)
    assert counts == {
        "aten._scaled_dot_product_flash_attention": forward,
        "aten._scaled_dot_product_flash_attention_backward": forward * 5 // 2,
    }


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())

    def forward(self, x, y):
        return self.a(x).sum() + self.b(y).sum()


def test_counts_are_kept_by_module():
    model = Model()
    with FlopCounterMode(display=False) as mode:
        model(facula.ones(4, 8), facula.ones(2, 3, 8, 8))
    counts = mode.get_flop_counts()
    aten = facula.ops.aten
    assert counts["Global"] == counts["Model"] == {aten.addmm: 1024, aten.convolution: 27648}
    assert counts["Model.a"] == {aten.addmm: 1024} and counts["Model.b.0"] == {aten.convolution: 27648}
    assert mode.get_total_flops() == 28672


def test_the_table_shows_shares_of_modules(capsys):
    with FlopCounterMode(depth=3):
        Model()(facula.ones(4, 8), facula.ones(2, 3, 8, 8))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Module", "FLOP", "%", "Total"]
    assert any(line.split() == ["Model", "28.672K", "100.00%"] for line in lines)
    assert any(line.split() == ["Model.a", "1.024K", "3.57%"] for line in lines)


def test_formulas_of_users_are_asked():
    @facula.library.custom_op("flop_tests::twice", mutates_args=())
    def twice(x: facula.Tensor) -> facula.Tensor:
        return x * 2

    @register_flop_formula(facula.ops.flop_tests.twice)
    def formula(x_shape, out_shape=None, **kwargs):
        return 7 * x_shape[0]

    assert counted(lambda: twice(facula.ones(3))) == {"flop_tests.twice": 21}
    with FlopCounterMode(
        display=False, custom_mapping={facula.ops.aten.add: lambda *a, out_shape, **k: 5}
    ) as mode:
        facula.ones(2) + 1
    assert mode.get_total_flops() == 5
    with pytest.raises(RuntimeError, match="duplicate registrations"):
        register_flop_formula(facula.ops.aten.mm)(formula)
    with pytest.raises(ValueError, match="OpOverloadPacket"):
        register_flop_formula(facula.ops.aten.mm.default)(formula)


def test_convolutions_count_by_shapes():
    assert conv_flop_count([2, 3, 9], [4, 3, 3], [2, 4, 7]) == 1008
    assert conv_flop_count([2, 3, 9, 9], [3, 4, 3, 3], [2, 4, 19, 19], transposed=True) == 34992


def test_the_tracker_knows_the_modules_of_both_passes():
    model, inside = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), []

    class Where(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func._opname in ("addmm", "mm"):
                inside.append(max(tracker.parents, key=len))
            return func(*args, **(kwargs or {}))

    x = facula.ones(1, 2, requires_grad=True)
    with ModuleTracker() as tracker, Where():
        model(x).sum().backward()
        assert tracker.parents == {"Global"}
    first, second = "Sequential.0", "Sequential.1"
    assert inside == [first, second, second, second, first, first]
