"""The export-based flow of quantisation: quantizers, observers in graphs, conversion and lowering."""

import copy
import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from facula.ao.quantization import MinMaxObserver, PlaceholderObserver, disable_observer
from facula.ao.quantization.pt2e import allow_exported_model_train_eval, find_sequential_partitions
from facula.ao.quantization.pt2e.lower import reference
from facula.ao.quantization.pt2e.qat import fold_norms
from facula.ao.quantization.pt2e.recompose import recompose
from facula.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from facula.ao.quantization.quantizer import (
    ComposableQuantizer,
    EmbeddingQuantizer,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
    X86InductorQuantizer,
    XNNPACKQuantizer,
    get_default_x86_inductor_quantization_config,
    get_symmetric_quantization_config,
)
from facula.export import Dim, export, load, save
from facula.program import trace

import facula
from facula import c, nn
from facula.nn import functional as F

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
q_ops = facula.ops.quantized_decomposed
aten = facula.ops.aten


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.drop, self.fc = nn.Dropout(0.25), nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = F.relu(x + self.body(x))
        x = F.max_pool2d(torch_cat(x), 2)
        return self.fc(self.drop(F.adaptive_avg_pool2d(x, 1).flatten(1)[:, :8]))


def torch_cat(x):
    return facula.cat([x, x], 1)


def xnnpack(**options):
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**options))


def x86(**options):
    return X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(**options))


def converted(model, x, quantizer, **options):
    prepared = prepare_pt2e(export(model.eval(), (x,), **options).module(), quantizer)
    for _ in range(2):
        prepared(x)
    return convert_pt2e(prepared)


def targets(graph):
    return [n.target for n in graph.nodes if n.op == "call_function"]


@pytest.fixture
def net():
    facula.manual_seed(0)
    return Net()


@pytest.fixture
def x():
    return facula.randn(4, 3, 8, 8)


def test_models_give_the_results_recorded_from_torchao(tmp_path):
    command = [sys.executable, "-m", "facula.torch", TESTS / "quantize/exported.py", tmp_path / "results.npz"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run(command, check=True, env=environment)
    ours, theirs = np.load(tmp_path / "results.npz"), np.load(TESTS / "golden/exported.npz")
    for key in theirs.files:
        a, b = ours[key].astype(np.float64), theirs[key].astype(np.float64)
        if key.endswith(".y"):
            # Results are in steps of the last scale, those of dynamic layers plain numbers.
            assert np.abs(a - b).max() <= (1e-5 if key.startswith("dynamic") else 1.01), key
        elif "scales" in key:
            np.testing.assert_allclose(a, b, rtol=1e-5)
        else:
            np.testing.assert_array_equal(a, b, err_msg=key)


@pytest.mark.parametrize("quantizer", [xnnpack, x86])
def test_products_are_sums_of_integers_within_a_step_of_the_graph_in_floating_point(net, x, quantizer):
    model = converted(net, x, quantizer(**({"is_per_channel": True} if quantizer is xnnpack else {})))
    lowered = targets(model.lowered_graph)
    assert lowered.count(aten._int8_conv2d.default) == 2
    assert lowered.count(aten._int8_linear.default) == 1
    assert aten.conv2d.default not in lowered and aten.linear.default not in lowered
    assert targets(model.graph).count(aten.conv2d.default) == 2
    step = max(n.args[1] for n in model.graph.nodes if n.target == q_ops.quantize_per_tensor.default)
    assert (model(x) - reference(model)(x)).abs().max() <= step * 1.01
    assert (model(x) - net.eval()(x)).abs().max() < 0.1


def test_a_graph_that_was_exported_without_gradients_is_the_same(net, x):
    models = [converted(copy.deepcopy(net), x, xnnpack())]
    with facula.no_grad():
        models.append(converted(copy.deepcopy(net), x, xnnpack()))
    assert targets(models[0].lowered_graph) == targets(models[1].lowered_graph)
    assert facula.equal(models[0](x), models[1](x))


def test_moves_and_pools_are_applied_to_integers(net, x):
    lowered = converted(net, x, xnnpack()).lowered_graph
    by_name = {n.target._opname: n for n in lowered.nodes if hasattr(n.target, "_opname")}
    for name in ("cat", "max_pool2d"):
        operands = by_name[name].all_input_nodes
        assert all(n.target._opname not in ("_dequantize_affine",) for n in operands), name


def test_a_converted_program_is_exported_saved_loaded_and_compiled(net, x, tmp_path):
    model = converted(net, x, xnnpack(is_per_channel=True), dynamic_shapes=({0: Dim("batch", min=2)},))
    program = export(model, (x,), dynamic_shapes=(({0: Dim("batch", min=2)},),))
    assert targets(program.graph).count(aten._int8_conv2d.default) == 2
    save(program, tmp_path / "model.pt2")
    again = load(tmp_path / "model.pt2").module()
    for batch in (4, 7):
        images = facula.randn(batch, 3, 8, 8)
        assert facula.equal(again(images), model(images))
    assert facula.equal(facula.compile(model)(x), model(x))


def test_a_converted_program_runs_without_python(net, x, tmp_path):
    model = converted(net, x, xnnpack(is_per_channel=True))
    facula.package(export(model, (x,)), tmp_path / "model.fpk")
    np.save(tmp_path / "x.npy", x.numpy())
    code = (
        "import sys, importlib.util, numpy\n"
        "spec = importlib.util.spec_from_file_location('packaged', sys.argv[1])\n"
        "packaged = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(packaged)\n"
        "program = packaged.load_package(sys.argv[2] + '/model.fpk', sys.argv[3])\n"
        "numpy.save(sys.argv[2] + '/y.npy', program(numpy.load(sys.argv[2] + '/x.npy')))\n"
        "assert 'facula' not in sys.modules\n"
    )
    library = Path(facula.__file__).with_name("libfacula.so")
    command = [sys.executable, "-c", code, ROOT / "python/facula/packaged.py", tmp_path, library]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(np.__file__).parents[1])}
    subprocess.run(command, check=True, env={**environment, "FACULA_CACHE_DIR": str(tmp_path / "cache")})
    assert np.array_equal(np.load(tmp_path / "y.npy"), model(x).detach().numpy())


def test_a_converted_program_is_printed_as_c_with_weights_of_bytes(net, x, tmp_path):
    x = x[:1]
    model = converted(net, x, xnnpack(is_per_channel=True))
    c.compile(trace(model, x), tmp_path)
    assert "extern const int8_t" in (tmp_path / "model.h").read_text()
    options = "-O1 -shared -fPIC -ffp-contract=off -fno-strict-aliasing -Wall -Wextra -Wconversion -Werror"
    files = [tmp_path / "model.c", tmp_path / "model_weights.c", "-o", tmp_path / "model.so", "-lm"]
    subprocess.run(["cc", *options.split(), *files], check=True)
    numbers = np.ctypeslib.ndpointer(np.float32)
    run = ctypes.CDLL(str(tmp_path / "model.so")).model_run
    run.argtypes = [numbers, numbers]
    y = np.zeros((1, 5), np.float32)
    assert run(x.numpy(), y) == 0
    # A library that adds the bias in another order may round to the next step.
    step = [n for n in model.graph.nodes if n.target == q_ops.quantize_per_tensor.default][-1].args[1]
    assert np.abs(y - model(x).detach().numpy()).max() <= 1.01 * step


def test_training_follows_train_and_eval_and_ends_near_the_float_model(net, x):
    prepared = prepare_qat_pt2e(export(net.train(), (x,)).module(), xnnpack(is_qat=True, is_per_channel=True))
    calls = targets(prepared.graph)
    assert calls.count(aten.batch_norm.default) == 2 and aten.dropout.default in calls
    optimizer = facula.optim.SGD(prepared.parameters(), lr=0.05)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = (prepared(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    before = prepared.norm.running_mean.clone()
    prepared.eval().apply(disable_observer)
    evaluated = prepared(x)
    assert facula.equal(before, prepared.norm.running_mean) and facula.equal(evaluated, prepared(x))
    model = convert_pt2e(prepared)
    assert aten.batch_norm.default not in targets(model.graph)
    assert not [n for n in model.graph.nodes if n.target == aten.copy_.default]
    scale = [n for n in model.graph.nodes if n.target == q_ops.quantize_per_tensor.default][-1].args[1]
    assert (model(x) - evaluated).abs().max() <= 2.01 * scale


def test_train_and_eval_of_an_exported_graph_switch_normalisation(net, x):
    model = allow_exported_model_train_eval(export(net.train(), (x,)).module())
    model.eval()
    assert facula.allclose(model(x), net.eval()(x), atol=1e-5)
    model.train()
    assert not facula.allclose(model(x), model(x))


@pytest.mark.parametrize(
    "name, layer, norm, sizes",
    [
        ("conv1d", nn.Conv1d(4, 6, 3, padding=2, dilation=2, stride=2), nn.BatchNorm1d(6), (9,)),
        ("conv2d", nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6, affine=False), (5, 6)),
        ("conv3d", nn.Conv3d(4, 6, (1, 2, 3), (2, 1, 2), (1, 0, 2)), nn.BatchNorm3d(6), (5, 6, 7)),
        ("conv3d", nn.Conv3d(4, 6, 3, dilation=2, groups=2, bias=False), nn.BatchNorm3d(6), (7, 7, 7)),
        ("conv_transpose1d", nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d(6), (5,)),
        ("conv_transpose2d", nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), nn.BatchNorm2d(6), (5, 6)),
        ("conv_transpose2d", nn.ConvTranspose2d(4, 6, 3, bias=False), nn.BatchNorm2d(6), (5, 6)),
        ("linear", nn.Linear(4, 6), nn.BatchNorm1d(6), ()),
    ],
)
def test_layers_are_restored_and_normalisation_becomes_a_part_of_them(name, layer, norm, sizes):
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    model, x = nn.Sequential(layer, norm).eval(), facula.randn(2, 4, *sizes)
    graph = export(model, (x,)).module()
    recompose(graph)
    assert [t._opname for t in targets(graph.graph)] == [name, "batch_norm"]
    assert facula.equal(graph(x), model(x))
    fold_norms(graph)
    assert [t._opname for t in targets(graph.graph)] == [name]
    assert facula.allclose(graph(x), model(x), atol=1e-5)


def test_modules_are_left_in_floating_point_by_name_and_class(net, x):
    config = get_symmetric_quantization_config(is_per_channel=True)
    q = XNNPACKQuantizer().set_global(config).set_module_name("fc", None)
    assert aten._int8_linear.default not in targets(converted(net, x, q).lowered_graph)
    q = XNNPACKQuantizer().set_global(config).set_module_type(nn.Conv2d, None)
    assert aten._int8_conv2d.default not in targets(converted(copy.deepcopy(net), x, q).lowered_graph)
    q = XNNPACKQuantizer().set_module_name("body.0", config)
    assert targets(converted(copy.deepcopy(net), x, q).lowered_graph).count(aten._int8_conv2d.default) <= 1
    q = x86().set_module_type_qconfig(nn.Linear, None)
    assert aten._int8_linear.default not in targets(converted(copy.deepcopy(net), x, q).lowered_graph)


def test_dynamic_layers_compute_exact_sums_for_any_batch():
    facula.manual_seed(1)
    net = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))
    x = facula.randn(5, 3, 16)
    model = converted(
        net, x, xnnpack(is_dynamic=True, is_per_channel=True), dynamic_shapes=({0: Dim("n", min=2)},)
    )
    assert targets(model.lowered_graph).count(aten._int8_linear.default) == 2
    for n in (5, 9):
        x = facula.randn(n, 3, 16)
        assert facula.allclose(model(x), reference(model)(x), atol=1e-5)
        assert (model(x) - net(x)).abs().max() < 0.05


def test_embeddings_read_rows_of_bytes():
    facula.manual_seed(2)
    net = nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 3))
    i = facula.tensor([[1, 39, 0], [7, 7, 2]])
    model = converted(net, i, ComposableQuantizer([EmbeddingQuantizer(), xnnpack()]))
    tables = [n.args[0] for n in model.lowered_graph.nodes if n.target == aten.embedding.default]
    assert any(getattr(model, n.target).dtype == facula.uint8 for n in tables if n.op == "get_attr")
    assert (model(i) - net(i)).abs().max() < 0.05


class Specified(Quantizer):
    """Quantises linear layers by these specifications of input and weight."""

    def __init__(self, activation, weight):
        super().__init__()
        self.activation, self.weight = activation, weight

    def annotate(self, model):
        for n in model.graph.nodes:
            if n.target == aten.linear.default:
                inputs = {n.args[0]: self.activation, n.args[1]: self.weight}
                n.meta["quantization_annotation"] = QuantizationAnnotation(inputs, _annotated=True)
        return model

    def validate(self, model):
        pass


def spec(dtype, low, high, scheme=facula.per_tensor_affine, observer=MinMaxObserver, **options):
    return QuantizationSpec(dtype, observer.with_args(eps=2**-20), low, high, scheme, **options)


@pytest.mark.parametrize(
    "activation, weight, is_lowered, error",
    [
        (spec(facula.uint8, 0, 255), spec(facula.int8, -127, 127, facula.per_tensor_symmetric), True, 0.03),
        (spec(facula.int8, -100, 90), spec(facula.int8, -7, 7, facula.per_tensor_symmetric), True, 0.3),
        (spec(facula.int16, -(2**15), 2**15 - 1), spec(facula.int8, -127, 127), False, 0.03),
        (spec(facula.uint8, 0, 255), spec(facula.uint8, 0, 255), False, 0.03),
        (None, spec(facula.int8, -127, 127, facula.per_tensor_symmetric), False, 0.03),
        (None, QuantizationSpec(facula.float16, PlaceholderObserver), False, 0.003),
    ],
)
@pytest.mark.parametrize("sizes", [(8,), (3, 8), (2, 3, 8)])
def test_products_that_are_no_sums_of_bytes_stay_in_floating_point(
    activation, weight, is_lowered, error, sizes
):
    net, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), facula.randn(*sizes)
    model = converted(net, x, Specified(activation, weight))
    assert targets(model.lowered_graph).count(aten._int8_linear.default) == 2 * is_lowered
    assert facula.allclose(model(x), reference(model)(x), atol=1e-5)
    assert (model(x) - net(x)).abs().max() < error


class Linear(Quantizer):
    """Quantises linear layers alone, whose results share the parameters of the input."""

    def annotate(self, model):
        spec = QuantizationSpec(
            facula.int8, MinMaxObserver.with_args(eps=2**-12), -128, 127, facula.per_tensor_affine
        )
        for (partition,) in find_sequential_partitions(model, [nn.Linear]):
            n = partition.output_nodes[0]
            note = QuantizationAnnotation({n.args[0]: spec, n.args[1]: spec}, _annotated=True)
            note.output_qspec = SharedQuantizationSpec((n.args[0], n))
            n.meta["quantization_annotation"] = note
        return model

    def validate(self, model):
        pass


def test_a_quantizer_of_users_shares_observers():
    model = converted(nn.Sequential(nn.Linear(4, 4)), facula.randn(3, 4), Linear())
    calls = [n for n in model.graph.nodes if n.target == q_ops.quantize_per_tensor.default]
    assert len(calls) == 2 and calls[0].args[1:] == calls[1].args[1:]


def test_a_composed_quantizer_must_not_change_annotations():
    class Changing(Linear):
        def annotate(self, model):
            for n in model.graph.nodes:
                n.meta["quantization_annotation"] = QuantizationAnnotation()
            return model

    graph = export(nn.Linear(4, 4), (facula.randn(3, 4),)).module()
    with pytest.raises(RuntimeError, match="Changing has changed annotations on node linear"):
        prepare_pt2e(graph, ComposableQuantizer([Linear(), Changing()]))


def test_conversion_without_data_names_the_value(net, x):
    prepared = prepare_pt2e(export(net.eval(), (x,)).module(), xnnpack())
    with pytest.raises(RuntimeError, match=r"observer of x \(activation_post_process_0\) has seen no data"):
        convert_pt2e(prepared)


def test_scales_that_are_none_and_wrong_arguments_raise(net, x):
    class Broken(MinMaxObserver):
        def calculate_qparams(self):
            return facula.tensor([float("nan")]), facula.tensor([0])

    class Bad(Linear):
        def annotate(self, model):
            spec = QuantizationSpec(facula.int8, Broken.with_args(), -128, 127, facula.per_tensor_affine)
            n = next(n for n in model.graph.nodes if n.target == aten.linear.default)
            n.meta["quantization_annotation"] = QuantizationAnnotation({n.args[0]: spec}, _annotated=True)
            return model

    with pytest.raises(RuntimeError, match="convert_pt2e: .*: scales must be positive and finite"):
        converted(nn.Sequential(nn.Linear(4, 4)), facula.randn(3, 4), Bad())
    with pytest.raises(TypeError, match="expected the graph of an exported program, got Net"):
        prepare_pt2e(net, xnnpack())
    with pytest.raises(TypeError, match="expected a Quantizer, got NoneType"):
        prepare_pt2e(export(net.eval(), (x,)).module(), None)
    with pytest.raises(ValueError, match="quant_min 3 must be <= quant_max 2"):
        QuantizationSpec(facula.int8, MinMaxObserver, 3, 2)
    with pytest.raises(AssertionError, match="limits within -128 and 127"):
        q_ops.quantize_per_tensor(x, 1.0, 0, -200, 127, facula.int8)


def test_a_converted_model_is_copied_and_its_state_loaded(net, x):
    model = converted(net, x, xnnpack(is_per_channel=True))
    again = copy.deepcopy(model)
    assert facula.equal(again(x), model(x))
    state = model.state_dict()
    state["_scale_0"] = state["_scale_0"] * 2
    again.load_state_dict(state)
    assert not facula.equal(again(x), model(x))
    assert facula.allclose(again(x), reference(again)(x), atol=0.1)


TUTORIAL = """
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e import MinMaxObserver, move_exported_model_to_eval
from torchao.quantization.pt2e.lowering import lower_pt2e_quantized_to_x86
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer

class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(5, 10)

    def forward(self, x):
        return self.linear(x)

example_inputs = (torch.randn(1, 5),)
m = M().eval()
exported = torch.export.export(m, example_inputs).module()
prepared = prepare_pt2e(exported, XNNPACKQuantizer().set_global(get_symmetric_quantization_config()))
prepared(*example_inputs)
quantized = convert_pt2e(prepared)
move_exported_model_to_eval(quantized)
torch.export.save(torch.export.export(quantized, example_inputs), "quantized.pt2")
loaded = torch.export.load("quantized.pt2").module()
assert torch.equal(loaded(*example_inputs), quantized(*example_inputs))
assert (m(*example_inputs) - quantized(*example_inputs)).abs().max() < 0.1
config = get_symmetric_quantization_config(is_qat=True)
exported = torch.export.export(M(), example_inputs).module()
qat = prepare_qat_pt2e(exported, XNNPACKQuantizer().set_global(config))
qat(*example_inputs).sum().backward()
convert_pt2e(qat)
assert Quantizer.__module__.startswith("torch.ao")
assert lower_pt2e_quantized_to_x86(quantized, example_inputs) is quantized
"""


def test_programs_of_tutorials_find_the_flow_under_names_of_other_libraries(tmp_path):
    (tmp_path / "tutorial.py").write_text(TUTORIAL)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "facula.torch", tmp_path / "tutorial.py"]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
