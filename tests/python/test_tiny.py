"""facula.tiny: 8-bit networks, their gradients and updates, and their programs as C on this machine."""

import ctypes
import random
import re
import subprocess
import sys
from pathlib import Path

import facula.nn.functional as nf
import numpy as np
import pytest
from facula.tiny import Update

import facula as F
from facula import nn, tiny

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards.networks import Mobile, Scheme, calibrated, mcunet, small  # noqa: E402
from boards.targets import EXACT, STRICT  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    value = random.randrange(1 << 30)
    print("seed", value)
    F.manual_seed(value)


@pytest.fixture
def network():
    model, data = calibrated(small(), 32)
    net = tiny.quantize(model, data)
    return net, net.images(data[0][:1])


def sparse(net):
    """The last nine biases, half of the weights of a layer, all of two others, one of which is depthwise."""
    names = [c.name for c in net.convs]
    return Update(frozenset(names[-9:]), {names[-3]: 0.5, names[-6]: 1, names[-2]: 1})


class Board:
    """The programs of a folder, compiled for this machine."""

    def __init__(self, folder, *options):
        command = ["cc", *STRICT, *EXACT, *options, "-fPIC", "-shared", "-o", str(folder / "model.so")]
        made = subprocess.run(
            [*command, *map(str, sorted(folder.glob("*.c"))), "-lm"], capture_output=True, text=True
        )
        assert made.returncode == 0, made.stderr[:4000]
        self.library = ctypes.CDLL(str(folder / "model.so"))
        self.header = (folder / "model.h").read_text()

    def array(self, name, dtype):
        """The memory of an array of the program."""
        count = int(re.search(rf"\b{name}\[(\d+)\]", self.header)[1])
        kind = np.ctypeslib.as_ctypes_type(dtype) * count
        return np.frombuffer(kind.in_dll(self.library, name), dtype)

    def put(self, entry, image):
        offset = int(re.search(rf"define model_{entry}_image .*?\+ (\d+)", self.header)[1])
        memory = self.array("model_arena", np.uint64).view(np.int8)
        memory[offset : offset + image.numel()] = image.flatten().numpy()

    def infer(self, image, classes=10):
        self.put("infer", image)
        logits = np.zeros(classes, np.float32)
        assert self.library.model_infer(logits.ctypes.data_as(ctypes.c_void_p)) == 0
        return logits

    def train(self, image, label, rate):
        self.put("train", image)
        loss = ctypes.c_float()
        status = self.library.model_train(
            ctypes.byref(ctypes.c_int64(label)), ctypes.byref(ctypes.c_float(rate)), ctypes.byref(loss)
        )
        return status, loss.value


def test_a_quantized_network_is_close_to_its_model():
    model, data = calibrated(small(), 32)
    net = tiny.quantize(model, data)
    x = data[0]
    expected = model(x).detach().numpy()
    logits = net.logits(net.images(x)).detach().numpy()
    assert np.abs(logits - expected).max() < 0.12 * np.abs(expected).max()


def test_c_computes_and_trains_as_the_network_does(network, tmp_path):
    net, image = network
    report = tiny.compile(net, [], tmp_path, update=sparse(net))
    board = Board(tmp_path)
    np.testing.assert_allclose(board.infer(image), net.logits(image)[0].numpy(), rtol=1e-5, atol=1e-5)
    for step in range(10):
        loss = net.step(image, F.tensor([1]), F.tensor(0.05), report.update).item()
        status, by_c = board.train(image, 1, 0.05)
        assert status == 0
        np.testing.assert_allclose(by_c, loss, rtol=1e-4, err_msg=f"step {step}")
    for name, tensor in net.tensors().items():
        if tensor.dtype in (F.int8, F.int32) and "model_" + re.sub(r"\W", "_", name) in board.header:
            values = board.array("model_" + re.sub(r"\W", "_", name), tensor.numpy().dtype)
            off = np.abs(values - tensor.flatten().numpy().astype(np.int64))
            assert (off > 1 + 1e-3 * np.abs(values)).mean() < 0.01, name  # a tie of rounding may differ
    np.testing.assert_allclose(board.infer(image), net.logits(image)[0].numpy(), rtol=0.02, atol=0.02)


def test_training_lowers_the_loss(network):
    net, image = network
    update = net.chosen(sparse(net))
    losses = [net.step(image, F.tensor([3]), 0.05, update).item() for _ in range(30)]
    assert losses[-1] < losses[0] / 1.5


def one_layer():
    """A network of one convolution, and its input."""
    model = Mobile(8, [])
    model, data = calibrated(model, 8, images=2)
    net = tiny.quantize(model, data)
    return net, net.images(data[0][:1])


def test_scaled_gradients_are_those_of_the_numbers_that_the_integers_stand_for():
    net, image = one_layer()
    conv = net.convs[0]
    update = Update(frozenset([conv.name]), {conv.name: 1.0})
    logits, run = net.run(image, update)
    loss = nf.cross_entropy(logits, F.tensor([2]))
    gradients = F.autograd.grad(loss, [leaf for _, _, leaf in run.leaves])
    by_name = {what: g for (layer, what, _), g in zip(run.leaves, gradients) if layer is conv}

    s, x_scale = conv.weight_scale, conv.in_scale.scale
    weight = (conv.weight.float() * s.reshape(-1, 1, 1, 1)).requires_grad_()
    bias = (conv.bias.float() * s * x_scale).requires_grad_()
    x = (image.permute(0, 3, 1, 2).float() - conv.in_scale.zero) * x_scale
    y, out = nf.conv2d(x, weight, bias, 2, 1), conv.out_scale
    q = run.values[conv.name].q.permute(0, 3, 1, 2).float()
    y = y * ((q > -128) & (q < 127)).float()
    y = y + ((q - out.zero) * out.scale - y).detach()  # the value of the integers, the gradient of y
    mean, q = y.mean((2, 3)), run.values["mean"].q.flatten(1).float()
    mean = mean + ((q - out.zero) * out.scale - mean).detach()
    expected = nf.cross_entropy(nf.linear(mean, net.classifier.weight, net.classifier.bias), F.tensor([2]))
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
    to_weight, to_bias = F.autograd.grad(expected, [weight, bias])
    scaled = by_name["weight"] / (s**2).reshape(-1, 1, 1, 1)  # what a step subtracts, in integers
    np.testing.assert_allclose(
        (scaled * s.reshape(-1, 1, 1, 1)).numpy(), to_weight.numpy(), rtol=2e-3, atol=1e-6
    )
    scaled = by_name["bias"] / (s * x_scale) ** 2
    np.testing.assert_allclose((scaled * s * x_scale).numpy(), to_bias.numpy(), rtol=2e-3, atol=1e-6)


def test_updates_round_to_the_nearest_integer_and_saturate():
    net, image = one_layer()
    conv = net.convs[0]
    before = conv.weight.clone()
    net.step(image, F.tensor([2]), 1e-6, Update(frozenset([conv.name]), {conv.name: 1.0}))
    assert (conv.weight == before).all()  # changes below half a step change nothing
    net.step(image, F.tensor([2]), 1e12, Update(frozenset(), {conv.name: 1.0}))
    moved = conv.weight[conv.weight != before]
    assert moved.numel() and set(moved.tolist()) <= {-128, 127}


def test_results_are_rounded_to_the_nearest_integer_and_saturate():
    net, image = one_layer()
    conv = net.convs[0]
    x = np.pad(image[0].numpy().astype(np.int64) - conv.in_scale.zero, ((1, 1), (1, 1), (0, 0)))
    weight = conv.weight.numpy().astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (0, 1))[::2, ::2]
    sums = np.einsum("yxcij,ocij->yxo", windows, weight) + conv.bias.numpy().astype(np.int64)
    exact = np.clip(sums * conv.multiplier.numpy().astype(np.float64) + conv.out_scale.zero, -128, 127)
    clear = np.abs(exact - np.floor(exact) - 0.5) > 1e-3  # no ties
    q = net.run(image, Update(classifier=False))[1].values[conv.name].q[0].numpy()
    np.testing.assert_array_equal(q[clear], np.rint(exact)[clear])
    assert (q != np.trunc(exact)).any()


def test_the_gradient_of_a_weight_reads_inputs_less_their_zero_point(network):
    net, image = network
    conv = next(c for c in net.convs if c.in_scale.zero != 0 and c.groups == 1)
    zero = F.full(net.input_shape, net.in_scale.zero, dtype=F.int8)
    _, run = net.run(zero, Update(classifier=False))
    x = run.values[conv.source]
    assert x.centred().abs().max() <= 255 and (x.centred() + conv.in_scale.zero == x.q.float()).all()


def test_the_channels_with_the_largest_weights_are_trained(network):
    net, image = network
    conv = net.convs[-3]
    update = net.chosen(Update(frozenset(), {conv.name: 0.25}))
    sums = conv.weight.float().abs().sum((0, 2, 3))
    chosen = update.channels[conv.name]
    others = F.tensor([c for c in range(sums.numel()) if c not in chosen.tolist()])
    assert sums[chosen].min() >= sums[others].max()
    before = conv.weight.clone()
    net.step(image, F.tensor([1]), 1.0, update)
    assert (conv.weight[:, others] == before[:, others]).all()
    assert (conv.weight[:, chosen] != before[:, chosen]).any()


def test_a_depthwise_layer_learns_its_weights(network):
    net, image = network
    conv = net.convs[-2]
    assert conv.groups > 1
    before = conv.weight.clone()
    rate = 100.0  # at 1.0 every change may be less than half a unit of the 8-bit weights
    net.step(image, F.tensor([1]), rate, net.chosen(Update(frozenset(), {conv.name: 1})))
    assert (conv.weight != before).any()
    with pytest.raises(ValueError, match="groups"):
        net.chosen(Update(frozenset(), {conv.name: 0.5}))


def test_no_gradient_of_a_complete_weight_is_stored_and_depthwise_layers_work_in_place(network, tmp_path):
    net, _ = network
    names = [c.name for c in net.convs]
    report = tiny.compile(net, [], tmp_path, update=Update(frozenset(names), {n: 1 for n in names}))
    sizes = {c.weight.numel() * 4 for c in net.convs}
    assert not [b for b in report.code.blocks if "backward_weight" in b.name and b.bytes in sizes]
    source = (tmp_path / "model.c").read_text()
    calls = re.findall(
        r"facula_int8_depthwise\(.*?model_arena \+ (\d+)\), .*?model_arena \+ (\d+)\), \d", source
    )
    assert calls and any(a == b for a, b in calls)


def test_the_input_of_a_growing_convolution_is_the_end_of_its_result(tmp_path):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 64, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    )
    model = nn.Sequential(model, nn.Flatten(), nn.Linear(64, 2))
    x = F.randn(2, 3, 16, 16)
    net = tiny.quantize(model, [x])
    report = tiny.compile(net, [], tmp_path, update=Update())
    assert report.code.arena < 64 * 256 + 1024  # the result alone is 64 * 256 bytes
    image = net.images(x[:1])
    board = Board(tmp_path)
    np.testing.assert_allclose(board.infer(image, 2), net.logits(image)[0].numpy(), rtol=1e-5, atol=1e-5)


def test_a_bad_label_or_rate_is_an_error_and_changes_nothing(network, tmp_path):
    net, image = network
    tiny.compile(net, [], tmp_path, update=sparse(net))
    board = Board(tmp_path)
    variables = [
        n for n in re.findall(r"^extern \w+ (model_\w+)\[", board.header, re.M) if n != "model_arena"
    ]
    before = {n: board.array(n, np.uint8).copy() for n in variables}
    for label, rate in [(10, 0.1), (-1, 0.1), (-100, 0.1), (1 << 40, 0.1), (1, np.nan), (1, np.inf)]:
        assert board.train(image, label, rate)[0] == 1
        assert all((board.array(n, np.uint8) == before[n]).all() for n in variables)
    assert board.train(image, 9, 0.1)[0] == 0
    assert any((board.array(n, np.uint8) != before[n]).any() for n in variables)


def test_the_code_is_clean_under_sanitizers(network, tmp_path):
    net, image = network
    tiny.compile(net, [], tmp_path, update=sparse(net))
    numbers = ", ".join(map(str, image.flatten().tolist()))
    (tmp_path / "main.c").write_text(
        f'#include <string.h>\n#include "model.h"\nstatic const int8_t image[] = {{{numbers}}};\n'
        "int main(void) {\n  float y[10], rate = 0.1f, loss;\n  int64_t label = 1;\n"
        "  memcpy(model_train_image, image, sizeof image);\n"
        "  if (model_train(&label, &rate, &loss)) return 1;\n"
        "  memcpy(model_infer_image, image, sizeof image);\n  return model_infer(y);\n}\n"
    )
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = [str(f) for f in tmp_path.glob("*.c")]
    made = subprocess.run(
        ["cc", *STRICT, *EXACT, *checks, "-o", str(tmp_path / "main"), *sources, "-lm"],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    assert subprocess.run([tmp_path / "main"], capture_output=True, text=True).stderr == ""


def test_a_budget_that_is_exceeded_names_the_largest_tensors(network, tmp_path):
    net, _ = network
    with pytest.raises(
        tiny.MemoryExceeded, match=r"bytes of RAM and has 1,000(.|\n)*largest tensors(.|\n)*int8\["
    ):
        tiny.compile(net, [], tmp_path, ram=1000)
    with pytest.raises(tiny.MemoryExceeded, match="flash"):
        tiny.compile(net, [], tmp_path, flash=1000)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 2)

    def forward(self, x):
        y = self.conv(x)
        y = y.softmax(1)  # no 8-bit form
        return self.head(y.mean((2, 3)))


def test_a_layer_without_8_bit_form_is_named_with_its_line():
    with pytest.raises(NotImplementedError, match=r"softmax \(.*test_tiny.py, line \d+: y = y.softmax\(1\)"):
        tiny.quantize(Attention(), [F.randn(1, 3, 8, 8)])


def test_bad_data_is_refused():
    model = small().eval()
    with pytest.raises(ValueError, match="at least one batch"):
        tiny.quantize(model, [])
    with pytest.raises(ValueError, match="not finite"):
        tiny.quantize(model, [F.full((1, 3, 32, 32), float("nan"))])
    with pytest.raises(NotImplementedError, match="Linear"):
        tiny.quantize(nn.Sequential(nn.Conv2d(3, 8, 3)), [F.randn(1, 3, 8, 8)])


def test_the_analytic_memory_is_that_of_the_published_schemes():
    model, data = calibrated(mcunet(), 128, 1, 1)
    net = tiny.quantize(model, data)
    names = [c.name for c in net.convs]
    schemes = {
        49.8: Scheme(20, {24: 1 / 4, 27: 1 / 2, 30: 1 / 2}),
        74.8: Scheme(21, {21: 1, 24: 1, 27: 1 / 2, 30: 1}),
        99.8: Scheme(22, {21: 1, 24: 1, 27: 1, 30: 1, 36: 1 / 8, 39: 1 / 4}),
        125.0: Scheme(24, {21: 1 / 4, 24: 1, 27: 1, 30: 1, 33: 1 / 2, 39: 1 / 2}),
        148.4: Scheme(23, {21: 1, 24: 1, 27: 1, 30: 1, 36: 1, 39: 1 / 2}),
        1400.4: Scheme(42, dict.fromkeys(range(42), 1)),
    }
    for published, scheme in schemes.items():
        assert abs(tiny.memory(net, scheme.update(names)) / 1024 - published) < 0.3


def test_evolution_finds_the_best_update_within_the_budget(network):
    net, _ = network
    names = [c.name for c in net.convs]
    pointwise = [c.name for c in net.convs[-9:] if c.groups == 1]
    gains = tiny.Contributions(0.5, {3: 0.05, 6: 0.08, 9: 0.1})
    gains.weights = {(n, r): random.random() * r for n in pointwise for r in (0.5, 1.0)}
    budget = 6000
    found = tiny.evolve(net, gains, budget, generations=60, population=48)
    assert tiny.memory(net, found) <= budget
    best = 0.0
    for count in (0, 3, 6, 9):  # every combination
        last = frozenset(names[len(names) - count :])
        updates = [Update(last)]
        for n in pointwise:
            if n in last:
                updates += [Update(last, {**u.weights, n: r}) for u in updates for r in (0.5, 1.0)]
        fitting = [u for u in updates if tiny.memory(net, u) <= budget]
        best = max([best, *(gains.of(net, u) for u in fitting)])
    assert gains.of(net, found) >= 0.95 * best


def test_training_with_the_tools_of_the_search_learns(network):
    net, _ = network
    images = F.randint(-80, 0, (64, 32, 32, 3)).to(F.int8)
    labels = F.arange(64) % 2
    images[::2] += 100  # bright and dark
    update = Update(frozenset(c.name for c in net.convs[-6:]))
    tiny.fit(net, update, (images, labels), 0.3, epochs=30)
    assert tiny.accuracy(net, (images, labels)) > 0.9


def test_the_readme_leads_from_a_trained_model_to_a_board_that_learns(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    lines = next(b for b in re.findall(r"```python\n(.*?)```", text, re.S) if "tiny.quantize" in b)
    assert len(lines.splitlines()) <= 6
    model, typical_images = calibrated(Mobile(8, [(8, 3, 1, 8)], classes=2), 16)
    images, labels = F.randn(48, 3, 16, 16), F.arange(48) % 2
    images[::2] += 1.5  # bright and dark
    data = (images, labels)
    names = {"tiny": tiny, "model": model, "typical_images": typical_images, "train": data, "test": data}
    monkeypatch.chdir(tmp_path)
    exec(lines, names)
    network, board = names["network"], Board(tmp_path / "board")
    rows = network.images(images)
    before = np.mean([board.infer(x, 2).argmax() == y for x, y in zip(rows.split(1), labels.tolist())])
    for _ in range(4):
        for x, y in zip(rows.split(1), labels.tolist()):
            assert board.train(x, y, 0.03)[0] == 0
    after = np.mean([board.infer(x, 2).argmax() == y for x, y in zip(rows.split(1), labels.tolist())])
    assert after > max(before, 0.8) or after == 1


def test_a_picture_shows_every_tensor_of_a_step(network, tmp_path):
    net, _ = network
    report = tiny.compile(net, [], tmp_path, update=sparse(net))
    report.save(tmp_path / "arena.svg")
    picture = (tmp_path / "arena.svg").read_text()
    assert picture.count("<rect") == sum(b.entry == "train" for b in report.code.blocks)
    assert "_int8_conv2d: int8[1, 8, 16, 16]" in picture


def test_parts_without_the_tiled_functions_and_the_order_give_the_same_integers(network, tmp_path):
    net, image = network
    from facula.tiny import _compile

    update = net.chosen(sparse(net))
    _compile.write(net, update, tmp_path / "tiled")
    plain = _compile.write(net, update, tmp_path / "plain", tiled=False, reorder=False)
    one, other = Board(tmp_path / "tiled"), Board(tmp_path / "plain")
    np.testing.assert_array_equal(one.infer(image), other.infer(image))
    assert "facula_int8" not in (tmp_path / "plain" / "model.c").read_text()
    losses = [(one.train(image, 1, 0.05)[1], other.train(image, 1, 0.05)[1]) for _ in range(3)]
    np.testing.assert_allclose(*zip(*losses), rtol=1e-3)
    assert plain.arena >= tiny.compile(net, [], tmp_path / "third", update=update).code.arena


def infers_and_trains_as_the_network_does(net, image, update, folder, steps=5, **options):
    report = tiny.compile(net, [], folder, update=update, **options)
    board = Board(folder)
    np.testing.assert_allclose(board.infer(image), net.logits(image)[0].numpy(), rtol=1e-5, atol=1e-5)
    for _ in range(steps):
        loss = net.step(image, F.tensor([1]), F.tensor(0.05), report.update).item()
        status, by_c = board.train(image, 1, 0.05)
        assert status == 0
        np.testing.assert_allclose(by_c, loss, rtol=1e-4)
    return report


class Pooled(nn.Module):
    """Convolutions with a maximum over windows between them, and a layer that reads all pixels."""

    def __init__(self):
        super().__init__()
        self.first, self.pool = nn.Conv2d(3, 8, 3, padding=1), nn.MaxPool2d(3, 2, 1)
        self.second = nn.Conv2d(8, 8, 3, 2)
        self.hidden, self.head = nn.Linear(8 * 3 * 2, 24), nn.Linear(24, 10)

    def forward(self, x):
        x = self.second(self.pool(self.first(x).relu())).relu()
        return self.head(self.hidden(x.flatten(1)).relu())


def test_pools_and_hidden_linear_layers_are_those_of_the_model(tmp_path):
    model, x = Pooled().eval(), F.randn(4, 3, 13, 9)
    net = tiny.quantize(model, [x])
    image = net.images(x[:1])
    expected = model(x).detach().numpy()
    off = np.abs(net.logits(image).numpy() - expected[:1]).max()
    assert off < 0.12 * np.abs(expected).max()
    names = [conv.name for conv in net.convs]
    assert names == ["first", "second", "hidden"]
    update = Update(frozenset(names), {n: 1 for n in names})
    infers_and_trains_as_the_network_does(net, image, update, tmp_path)


def test_the_gradient_of_a_pool_is_that_of_the_largest_integer():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    x = F.randn(2, 3, 10, 10)
    net = tiny.quantize(model, [x])
    image = net.images(x[:1])
    _, run = net.run(image, Update(frozenset([net.convs[0].name])))
    before, after = run.values[net.convs[0].name], run.values[net.layers[1].name]
    pixels = before.q[0].numpy().astype(int).reshape(4, 2, 4, 2, 4)
    np.testing.assert_array_equal(after.q[0].numpy(), pixels.max((1, 3)))
    seen = F.autograd.grad(after.surrogate.sum(), run.leaves[0][2])[0].numpy()
    clipped = (after.q[0] > -128) & (after.q[0] < 127)  # of the largest, which alone has a gradient
    counted = clipped.float().sum((0, 1)).numpy() * net.convs[0].multiplier.numpy()
    np.testing.assert_allclose(seen, counted, rtol=1e-5)


def test_images_of_one_channel(tmp_path):
    convs = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8)
    model, x = nn.Sequential(*convs, nn.Flatten(), nn.Linear(392, 10)), F.randn(4, 1, 9, 9)
    net = tiny.quantize(model, [x])
    image = net.images(x[:1])
    expected = model(x[:1]).detach().numpy()
    assert np.abs(net.logits(image).numpy() - expected).max() < 0.12 * np.abs(expected).max()
    infers_and_trains_as_the_network_does(net, image, Update(frozenset(["2"]), {"2": 1}), tmp_path)
    code = (tmp_path / "model.c").read_text()
    assert "facula_int8_conv(" in code and "facula_int8_depthwise(" in code


def test_a_multilayer_perceptron_of_rows(tmp_path):
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10))
    x = F.randn(8, 20)
    net = tiny.quantize(model, [x])
    image = net.images(x[:1])
    infers_and_trains_as_the_network_does(net, image, Update(frozenset(["0"]), {"0": 1}), tmp_path)


@pytest.mark.parametrize("patches", [2, 3, 5])
def test_patches_compute_the_same_integers_in_less_memory(patches, tmp_path):
    size = random.choice([32, 39, 64])
    model, data = calibrated(
        Mobile(8, [(8, 3, 1, 16), (64, random.choice([3, 5, 7]), 2, 8), (48, 3, 1, 8)]), size, 2, 2
    )
    net = tiny.quantize(model, data)
    image = net.images(data[0][:1])
    update = net.chosen(Update(frozenset([net.convs[-1].name])))
    parts = tiny.Network(net.in_scale, net.input_shape, net.layers, patches)
    assert 1 < parts.patched(update) < len(net.layers)
    np.testing.assert_array_equal(parts.logits(image).numpy(), net.logits(image).numpy())
    whole = tiny.compile(net, [], tmp_path / "whole", update=update)
    report = infers_and_trains_as_the_network_does(
        net.copy(), image, update, tmp_path / "parts", patches=patches
    )
    assert report.code.arena < whole.code.arena


def test_trained_layers_are_computed_as_a_whole(network):
    net, _ = network
    net.patches = 4
    assert net.patched(Update(frozenset([net.convs[0].name]))) == 0
    assert net.patched(Update(frozenset([net.convs[2].name]))) <= 2


def test_rounding_at_random_has_the_exact_mean(tmp_path):
    net, image = one_layer()
    conv = net.convs[0]
    update = Update(frozenset([conv.name]), {conv.name: 1.0}, classifier=False)
    rate = 3e-2 / max(change_of(net.copy(), image, update, 1.0).max(), 1e-9)  # changes far below half a step
    assert not change_of(net.copy(), image, update, rate, whole=True).any()
    exact = change_of(net.copy(), image, update, rate)
    moved = np.zeros_like(exact)
    steps = 2000
    for number in range(steps):
        copy = net.copy()
        copy.step(image, F.tensor([2]), rate, update, number=F.tensor(number))
        moved += (copy.convs[0].weight - conv.weight).numpy()
    inside = np.abs(conv.weight.numpy()) < 127
    total, expected = (moved * inside).sum(), (exact * inside).sum() * steps
    deviation = np.sqrt((np.abs(exact) * inside).sum() * steps)
    assert abs(total - expected) < 6 * deviation + 1
    report = tiny.compile(net, [], tmp_path, update=update, stochastic=True)
    assert "const int64_t* number" in report.code.functions[0]
    board = Board(tmp_path)
    board.put("train", image)
    loss = ctypes.c_float()
    arguments = ctypes.c_int64(2), ctypes.c_float(rate), ctypes.c_int64(7), loss
    assert board.library.model_train(*map(ctypes.byref, arguments)) == 0
    net.step(image, F.tensor([2]), rate, update, number=F.tensor(7))
    trained = board.array("model_" + re.sub(r"\W", "_", conv.name) + "_weight", np.int8)
    assert (trained != conv.weight.flatten().numpy()).mean() < 0.02  # a tie of rounding may differ


def change_of(net, image, update, rate, whole=False):
    """What a step adds to the weights of the first convolution, before rounding, or in whole integers."""
    conv = net.convs[0]
    before = conv.weight.clone()
    if whole:
        net.step(image, F.tensor([2]), rate, update)
        return (conv.weight - before).numpy()
    logits, run = net.run(image, update)
    leaf = next(leaf for _, what, leaf in run.leaves if what == "weight")
    gradient = F.autograd.grad(nf.cross_entropy(logits, F.tensor([2])), leaf)[0]
    return (gradient / (conv.weight_scale**2).reshape(-1, 1, 1, 1) * -rate).numpy()


POWER_LOSS = """#include <stdio.h>
#include <string.h>

#include "model.h"
#include "model_store.h"

static unsigned char flash[2][MODEL_STORE_BYTES];
static long budget; /* bytes until the power fails */

static int spend(void) { return budget-- > 0; }
int model_flash_erase(int slot) {
  for (uint32_t i = 0; i < MODEL_STORE_BYTES; ++i)
    if (spend()) flash[slot][i] = 0xff;
    else return 1;
  return 0;
}
int model_flash_write(int slot, uint32_t offset, const void* data, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; ++i)
    if (spend()) flash[slot][offset + i] &= ((const unsigned char*)data)[i];
    else return 1;
  return 0;
}
int model_flash_read(int slot, uint32_t offset, void* data, uint32_t bytes) {
  memcpy(data, flash[slot] + offset, bytes);
  return 0;
}

int main(void) {
  float* weight = model_head_weight;
  if (model_load() != 1) return 1;
  for (int former = 0; former < 2; ++former) { /* each slot is the older one once */
    unsigned char before[sizeof flash];
    budget = 1000000000;
    *weight = 1 + (float)former;
    if (model_save()) return 2;
    memcpy(before, flash, sizeof flash);
    for (long fails = 0;; ++fails) {
      memcpy(flash, before, sizeof flash);
      *weight = 5;
      budget = fails;
      const int failed = model_save();
      *weight = 9;
      if (model_load()) return 3;
      if (*weight != (failed ? 1 + (float)former : 5)) return 4;
      if (!failed) {
        printf("%ld\\n", fails);
        break;
      }
    }
    memcpy(flash, before, sizeof flash);
  }
  return 0;
}
"""


def test_a_loss_of_power_at_any_byte_leaves_the_former_parameters(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model.add_module("head", nn.Linear(8, 2))
    tiny.compile(model, [F.randn(2, 3, 8, 8)], tmp_path, saves=True)
    (tmp_path / "main.c").write_text(POWER_LOSS)
    sources = [str(f) for f in tmp_path.glob("*.c")]
    made = subprocess.run(
        ["cc", *STRICT, *EXACT, "-o", str(tmp_path / "main"), *sources, "-lm"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    run = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert run.returncode == 0
    size = int(re.search(r"STORE_BYTES (\d+)", (tmp_path / "model_store.h").read_text())[1])
    assert [int(line) for line in run.stdout.split()] == [
        2 * size,
        2 * size,
    ]  # all bytes of erasing and writing
