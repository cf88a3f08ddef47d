"""Small public names: rearrange, sparse softmax, what serialization, data pipes, hooks and overrides offer
besides."""

import io
from collections.abc import Iterator

import facula.func
import facula.nn.attention.bias
import facula.serialization as serialization
import facula.sparse
import facula.utils.data as data
import pytest
from facula.utils.hooks import BackwardHook

import facula

X = facula.arange(24).reshape(2, 3, 4)


# ---- rearrange: shapes and errors as recorded from PyTorch 2.13


@pytest.mark.parametrize(
    ("pattern", "lengths", "expected"),
    [
        ("a b c -> (a b) c", {}, lambda: X.reshape(6, 4)),
        ("a b (c d) -> a c d b", {"d": 2}, lambda: X.reshape(2, 3, 2, 2).permute(0, 2, 3, 1)),
        ("a ... -> ... a", {}, lambda: X.permute(1, 2, 0)),
        ("... -> (...)", {}, lambda: X.reshape(24)),
        ("a ... -> (... a)", {}, lambda: X.permute(1, 2, 0).reshape(24)),
        ("a b c -> a 1 b c", {}, lambda: X.unsqueeze(1)),
        ("... (c d) -> c d ...", {"c": 2}, lambda: X.reshape(2, 3, 2, 2).permute(2, 3, 0, 1)),
        ("a (b b2) c -> b2 a c b", {"b2": 3}, lambda: X.permute(1, 0, 2).unsqueeze(-1)),
    ],
)
def test_rearrange_permutes_splits_and_joins(pattern, lengths, expected):
    assert facula.equal(facula.func.rearrange(X, pattern, **lengths), expected())


@pytest.mark.parametrize(
    ("pattern", "lengths", "text"),
    [
        ("a b -> b a", {}, r"Number of dimensions in pattern \(2\) must be equal"),
        ("a b c -> a b", {}, "Identifiers only on one side"),
        ("a b c", {}, "single '->' separator"),
        ("a a c -> a c", {}, "duplicate dimension 'a'"),
        ("a b c -> a b c", {"z": 3}, "Identifiers not found"),
        ("(a ...) -> a ...", {"a": 2}, "Ellipsis is parenthesis in the left side"),
        ("a b c -> c (a ...) b", {}, "Ellipsis found in right side"),
        ("a-b c -> c", {}, "Unknown character '-'"),
        ("a b c -> a b (c", {}, "Imbalanced parentheses"),
        ("a b c -> ((a b)) c", {}, "one-level"),
        ("a b c -> a b 2 c", {}, "unnamed axes of size 1"),
        ("a b (c d) -> a b c d", {"c": 3}, "does not evenly fit"),
        ("a b (c d) -> a b c d", {}, "cannot infer the sizes of 2 dimensions"),
    ],
)
def test_rearrange_says_what_is_wrong(pattern, lengths, text):
    with pytest.raises(ValueError, match=text):
        facula.func.rearrange(X, pattern, **lengths)


# ---- sparse softmax


def test_sparse_softmax_is_of_the_elements_that_are_there():
    v = facula.tensor([1.0, 2.0, 3.0], requires_grad=True)
    s = facula.sparse_coo_tensor(facula.tensor([[0, 0, 1], [0, 2, 1]]), v, (2, 3))
    y = facula.sparse.softmax(s, 1)
    assert facula.allclose(y.values(), facula.tensor([0.2689, 0.7311, 1.0]), atol=1e-4)
    (y.to_dense() * facula.tensor([[1.0, 0, 0], [0, 1.0, 0]])).sum().backward()
    assert facula.allclose(v.grad, facula.tensor([0.1966, -0.1966, 0.0]), atol=1e-4)
    assert facula.sparse.log_softmax(s, 0).values().tolist() == [0.0, 0.0, 0.0]
    hybrid = facula.sparse_coo_tensor(
        facula.tensor([[0, 1]]), facula.tensor([[1.0, 2.0], [3.0, 4.0]]), (3, 2)
    )
    assert facula.allclose(
        facula.sparse.softmax(hybrid, 1).values(), facula.tensor([[0.2689, 0.7311]] * 2), atol=1e-4
    )
    with pytest.raises(NotImplementedError, match="sparse.softmax: expected a tensor of layout sparse_coo"):
        facula.sparse.softmax(facula.ones(2), 0)


# ---- files


def test_skip_data_leaves_elements_out():
    file = io.BytesIO()
    with serialization.skip_data():
        facula.save({"w": facula.ones(3)}, file)
    file.seek(0)
    assert facula.load(file)["w"].tolist() == [0.0, 0.0, 0.0]
    full = io.BytesIO()
    facula.save({"w": facula.ones(3)}, full)
    full.seek(0)
    with serialization.skip_data():
        assert facula.load(full)["w"].shape == (3,)
    full.seek(0)
    assert facula.load(full)["w"].tolist() == [1.0, 1.0, 1.0]


def test_places_of_storages_are_the_cpu():
    storage = facula.ones(2).untyped_storage()
    assert serialization.location_tag(storage) == "cpu"
    assert serialization.default_restore_location(storage, "cpu") is storage
    with pytest.raises(RuntimeError, match="don't know how to restore data location"):
        serialization.default_restore_location(storage, "elsewhere")
    with pytest.raises(RuntimeError, match="CUDA device"):
        serialization.validate_cuda_device("cuda:0")
    with pytest.raises(NotImplementedError, match="register_package"):
        serialization.register_package(1, None, None)


def test_versions_are_compared():
    class Module:
        __name__, __version__ = "m", "1.2.3"

    assert serialization.check_module_version_greater_or_equal(Module, (1, 2))
    assert not serialization.check_module_version_greater_or_equal(Module, (2, 0))
    Module.__version__ = "x"
    with pytest.raises(RuntimeError, match="malformed"):
        serialization.check_module_version_greater_or_equal(Module, (1, 2))


# ---- data pipes


def test_determinism_can_be_asked_for():
    @data.non_deterministic
    class Any(data.IterDataPipe):
        pass

    @data.non_deterministic(lambda shuffled: shuffled)
    class Some(data.IterDataPipe):
        def __init__(self, shuffled):
            pass

    Any(), Some(True)
    with data.guaranteed_datapipes_determinism():
        Some(False)
        with pytest.raises(TypeError, match="is non-deterministic"):
            Some(True)
        with pytest.raises(TypeError, match="is non-deterministic"):
            Any()


def test_arguments_and_elements_of_pipes_are_looked_at():
    @data.argument_validation
    def length(pipe: data.IterDataPipe, more: int = 0) -> int:
        return more

    assert length(data.IterDataPipe()) == 0
    with pytest.raises(TypeError, match="Expected argument 'pipe' as a IterDataPipe"):
        length([1])

    class Numbers(data.IterDataPipe):
        @data.runtime_validation
        def __iter__(self) -> Iterator[tuple[int, str]]:
            yield 1, "a"
            yield 2, 3

    with pytest.raises(RuntimeError, match="Expected an instance as subtype of"):
        list(Numbers())
    with data.runtime_validation_disabled():
        assert list(Numbers()) == [(1, "a"), (2, 3)]


# ---- hooks


def test_backward_hooks_see_gradients_of_inputs_and_outputs():
    seen = []
    hook = BackwardHook("module", [lambda m, gi, go: seen.append((m, gi, go))], [])
    (x,) = hook.setup_input_hook((facula.ones(2, requires_grad=True),))
    hook.setup_output_hook((x * 3,))[0].sum().backward()
    ((module, (gi,), (go,)),) = seen
    assert module == "module" and gi.tolist() == [3.0, 3.0] and go.tolist() == [1.0, 1.0]


def test_overridable_functions_have_stand_ins():
    found = facula.overrides.get_testing_overrides()
    assert found[facula.add](1, 2) == -1 and len(found) > 500


def test_convolution_is_that_of_its_rank():
    x, w = facula.randn(1, 2, 5), facula.randn(3, 2, 3)
    y = facula.convolution(x, w, None, [2], [1], [1], False, [0], 1)
    assert facula.equal(y, facula.nn.functional.conv1d(x, w, stride=2, padding=1))
    x, w = facula.randn(1, 2, 4, 4), facula.randn(2, 3, 3, 3)
    y = facula.convolution(x, w, facula.ones(3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1)
    expected = facula.nn.functional.conv_transpose2d(
        x, w, facula.ones(3), stride=2, padding=1, output_padding=1
    )
    assert facula.equal(y, expected)


def test_a_tensor_that_is_saved_warns_of_its_hooks():
    class Hooked:
        _backward_hooks = {0: test_overridable_functions_have_stand_ins}  # noqa: RUF012

    with pytest.warns(UserWarning, match="will not be serialized"):
        facula.utils.hooks.warn_if_has_hooks(Hooked())
    Hooked._backward_hooks = {0: facula.utils.hooks.unserializable_hook(lambda g: g)}
    facula.utils.hooks.warn_if_has_hooks(Hooked())


# ---- FileCheck


TEXT = "graph(%x):\n  %1 = add(%x)\n  %2 = mul(%1)  # again mul\n  return %2\n"


@pytest.mark.parametrize(
    "checks",
    [
        lambda c: c.check("add").check("mul"),
        lambda c: c.check("add").check_next("mul").check_same("again").check_not("add"),
        lambda c: c.check_not("sub").check("return").check_not("mul"),
        lambda c: c.check_count("mul", 2, exactly=True),
        lambda c: c.check_dag("mul").check_dag("add").check("return"),
        lambda c: c.check_regex(r"%\d = add"),
    ],
)
def test_file_checks_that_hold(checks):
    checks(facula.testing.FileCheck()).run(TEXT)


@pytest.mark.parametrize(
    ("checks", "why"),
    [
        (lambda c: c.check("mul").check("add"), 'Expected to find "add"'),
        (lambda c: c.check("graph").check_next("mul"), 'Expected to find "mul"'),
        (lambda c: c.check("add").check_same("mul"), 'Expected to find "mul"'),
        (lambda c: c.check("graph").check_not("add").check("return"), 'Expected to not find "add"'),
        (lambda c: c.check_count("mul", 1, exactly=True), "more often"),
        (lambda c: c.check_count("mul", 3), 'Expected to find "mul"'),
        (lambda c: c.check_regex("div|sub"), "match of"),
        (lambda c: c.check_source_highlighted("add"), "highlighted"),
    ],
)
def test_file_checks_that_do_not(checks, why):
    with pytest.raises(RuntimeError, match=why):
        checks(facula.testing.FileCheck()).run(TEXT)


def test_file_checks_of_a_text():
    facula.testing.FileCheck().run(
        "# CHECK: add\n# CHECK-NEXT: mul\n# CHECK-COUNT-1: mul\n# CHECK-NOT: add", TEXT
    )
    facula.testing.FileCheck().check_source_highlighted("mul").run("  mul(x)\n  ~~~ here\n")
    with pytest.raises(RuntimeError, match="CHECK"):
        facula.testing.FileCheck().run("nothing", TEXT)


# ---- products, threads, the processor


@pytest.mark.parametrize("dtype", [facula.float32, facula.bfloat16])
def test_products_of_groups_are_those_of_each_group(dtype):
    a, b = facula.randn(5, 4).to(dtype), facula.randn(2, 4, 3).to(dtype)
    offs = facula.tensor([2, 4], dtype=facula.int32)
    grouped_mm = facula.nn.functional.grouped_mm
    y = grouped_mm(a, b, offs=offs)
    assert facula.equal(y, facula.cat([a[:2] @ b[0], a[2:4] @ b[1], facula.zeros(1, 3, dtype=dtype)]))
    assert facula.equal(grouped_mm(b.mT, a.T, offs=offs)[:, :4].T, y[:4])
    assert facula.equal(grouped_mm(b, b.mT), b @ b.mT)
    c = facula.randn(5, 3).to(dtype)
    assert facula.equal(grouped_mm(a.T, c, offs=offs)[1], a[2:4].T @ c[2:4])


def test_products_of_groups_refuse_what_does_not_fit():
    a, b = facula.ones(5, 4), facula.ones(2, 4, 3)
    for offs, why in (
        ([4, 2], "increasing"),
        ([1, 9], "increasing"),
        ([2], "2 increasing"),
        (None, "offsets"),
    ):
        given = None if offs is None else facula.tensor(offs, dtype=facula.int32)
        with pytest.raises(RuntimeError, match=f"grouped_mm.*{why}"):
            facula.nn.functional.grouped_mm(a, b, offs=given)
    with pytest.raises(RuntimeError, match="float64"):
        facula.nn.functional.grouped_mm(a.double(), b.double())


def test_throughput_counts_calls_of_all_threads():
    calls = []
    bench = facula.utils.ThroughputBenchmark(lambda x, y=0: calls.append((x, y)))
    with pytest.raises(RuntimeError, match="inputs"):
        bench.benchmark()
    bench.add_input(1)
    bench.add_input(2, y=3)
    stats = bench.benchmark(num_calling_threads=3, num_warmup_iters=2, num_iters=20)
    assert stats.num_iters == 20 and len(calls) == 26 and set(calls) <= {(1, 0), (2, 3)}
    assert stats.latency_avg_ms > 0 and "20" in str(stats)

    def fails():
        raise ValueError("this module fails")

    bench = facula.utils.ThroughputBenchmark(fails)
    bench.add_input()
    with pytest.raises(ValueError, match="this module fails"):
        bench.benchmark(num_calling_threads=2)


def test_the_processor_and_devices_have_names():
    found = facula.cpu.get_capabilities()
    assert found["num_logical_cores"] >= 1 and found["architecture"]
    with pytest.raises(TypeError):
        found["avx2"] = True
    device = facula.utils.dlpack.DLDeviceType(facula.ones(1).__dlpack_device__()[0])
    assert device is facula.utils.dlpack.DLDeviceType.kDLCPU
    counted = facula.histogramdd(facula.ones(3, 1), [2])
    assert isinstance(counted, facula.return_types.histogramdd)


# ---- what PyTorch's recipes use


def test_parameters_are_swapped_or_made_anew_where_modules_are_told_so():
    future = facula.__future__
    module = facula.nn.Linear(2, 3)
    weight = module.weight
    module(facula.ones(1, 2)).sum().backward()
    try:
        future.set_swap_module_params_on_conversion(True)
        module.double()
        assert module.weight is weight and weight.dtype == facula.float64 == weight.grad.dtype
        state = {
            "weight": facula.ones(3, 2, dtype=facula.float64),
            "bias": facula.zeros(3, dtype=facula.float64),
        }
        module.load_state_dict(state)
        assert module.weight is weight and isinstance(weight, facula.nn.Parameter) and weight.sum() == 6
        module.load_state_dict({k: v.float() for k, v in state.items()}, assign=True)
        assert module.weight is weight and weight.dtype == facula.float32 and weight.requires_grad
        future.set_swap_module_params_on_conversion(False)
        future.set_overwrite_module_params_on_conversion(True)
        module.double()
        assert module.weight is not weight and weight.dtype == facula.float32
    finally:
        future.set_swap_module_params_on_conversion(False)
        future.set_overwrite_module_params_on_conversion(False)
    assert not future.get_swap_module_params_on_conversion()
    assert not future.get_overwrite_module_params_on_conversion()


def test_a_mode_leaves_to_its_base_what_it_does_not_change():
    class Times(facula.overrides.BaseTorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return super().__torch_function__(facula.mul if func is facula.add else func, types, args, kwargs)

    with Times():
        assert facula.add(facula.tensor(3.0), 4.0) == 12 and facula.sub(facula.tensor(3.0), 4.0) == -1


def test_a_context_of_jvp_forgets_what_it_is_told_to():
    class Exp(facula.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.result = x.exp()
            return ctx.result

        @staticmethod
        def jvp(ctx, t):
            found = t * ctx.result
            del ctx.result
            return found

    with facula.autograd.forward_ad.dual_level():
        y = Exp.apply(facula.autograd.forward_ad.make_dual(facula.zeros(2), facula.ones(2)))
        assert facula.autograd.forward_ad.unpack_dual(y).tangent.tolist() == [1, 1]


def test_parts_of_a_program_are_named_by_two_calls():
    with facula.profiler.profile() as prof:
        record = facula.ops.profiler._record_function_enter_new("part", None)
        facula.ones(2) + 1
        facula.ops.profiler._record_function_exit._RecordFunction(record)
    assert "part" in [e.name for e in prof.events()] and prof.profiler is prof


def test_settings_of_pytorchs_compiler_are_kept():
    inductor = pytest.importorskip("facula._inductor").config
    config = facula._dynamo.config
    with config.patch(suppress_errors=True, made_up=3):
        assert config.suppress_errors and config.made_up == 3
    assert not config.suppress_errors and not hasattr(config, "made_up")

    @inductor.patch({"max_autotune": True})
    def inside():
        return inductor.max_autotune

    assert inside() and inside() and not inductor.max_autotune
    assert facula._dynamo.utils.counters["frames"]["total"] == 0
    explained = facula._dynamo.explain(lambda x: x.sin() if x.sum() > 0 else x.cos())(facula.ones(2))
    assert (explained.graph_count, explained.graph_break_count, explained.op_count) == (2, 1, 3)
    with pytest.warns(UserWarning, match="nothing is logged of PyTorch's compiler: graph_code"):
        facula.set_logs(graph_code=True)


def test_what_this_build_is_made_of():
    assert "oneDNN" in facula.__config__.show() and "threads" in facula.__config__.parallel_info()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: facula.library.wrap_triton(len)[(1,)](facula.ones(1)),
            NotImplementedError,
            "wrap_triton: kernels of Triton do not run here: 'len'",
        ),
        (
            lambda: facula.sparse.to_sparse_semi_structured(facula.ones(4, 4)),
            RuntimeError,
            "at least two of each four consecutive elements of a row must be zero",
        ),
        (
            lambda: facula.masked.masked_tensor(X.float().to_sparse(), (X > 0).to_sparse()),
            NotImplementedError,
            "masked_tensor: data and mask must be strided",
        ),
    ],
)
def test_what_recipes_use_and_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_causal_bias_shows_its_mask():
    bias = facula.nn.attention.bias.causal_lower_right(1, 2)
    assert repr(bias) == "tensor([[True, True]])"


def test_hub_has_a_progress_bar():
    with facula.hub.tqdm(range(3), disable=True) as bar:
        assert list(bar) == [0, 1, 2]
    from facula.hub import _Progress

    with _Progress(total=2) as bar:
        bar.update(2)
    assert bar.n == 2 and list(_Progress([5, 6])) == [5, 6]


def written(folder):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader").EventFileLoader
    files = sorted(p for p in folder.rglob("*tfevents*"))
    return [(e.step, v) for p in files for e in loader(str(p)).Load() for v in e.summary.value]


def test_precision_by_recall_is_written(tmp_path):
    pytest.importorskip("tensorboard")
    from facula.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as w:
        labels, predictions = facula.tensor([0, 1, 1, 0]), facula.tensor([0.2, 0.8, 0.6, 1.0])
        w.add_pr_curve("pr", labels, predictions, 3, num_thresholds=3)  # at least 0, 0.5, 1
        with pytest.raises(ValueError, match="between 0 and 1"):
            w.add_pr_curve("pr", labels, predictions * 2)
    ((step, value),) = written(tmp_path)
    assert step == 3 and [d.size for d in value.tensor.tensor_shape.dim] == [6, 3]
    assert value.metadata.plugin_data.plugin_name == "pr_curves"
    rows = [[2, 2, 0], [2, 1, 1], [0, 1, 1], [0, 0, 2], [1 / 2, 2 / 3, 0], [1, 1, 0]]
    assert list(value.tensor.float_val) == pytest.approx([x for row in rows for x in row])


def test_settings_of_a_run_are_written(tmp_path):
    pytest.importorskip("tensorboard")
    from facula.utils.tensorboard import SummaryWriter
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    with SummaryWriter(str(tmp_path)) as w:
        w.add_hparams({"lr": 0.1, "kind": "a"}, {"acc": 0.5}, {"kind": ["a", "b"]}, run_name="r")
        with pytest.raises(ValueError, match="'x' should be int"):
            w.add_hparams({"x": None}, {})
    values = {v.tag: v for _, v in written(tmp_path / "r")}
    assert set(values) == {
        "_hparams_/experiment",
        "_hparams_/session_start_info",
        "_hparams_/session_end_info",
        "acc",
    }
    data = values["_hparams_/session_start_info"].metadata.plugin_data.content
    start = HParamsPluginData.FromString(data).session_start_info.hparams
    assert start["lr"].number_value == 0.1 and start["kind"].string_value == "a"


# ---- statistics and events


def test_statistics_of_a_window_are_logged_when_it_is_full():
    from datetime import timedelta

    from facula import monitor

    seen = []
    handle = monitor.register_event_handler(seen.append)
    try:
        stat = monitor.Stat(
            "loss", [monitor.MEAN, monitor.MAX, monitor.COUNT, monitor.VALUE], timedelta(hours=1), 2
        )
        assert set(stat.get().values()) == {0.0} and stat.count == 0
        for v in (1, 4.0, 9.0):  # the third is one too many for the window
            stat.add(v)
        assert stat.count == 0 and stat.get()[monitor.Aggregation.MEAN] == 2.5
        assert [e.name for e in seen] == [monitor.STAT_EVENT]
        assert seen[0].data == {"loss.mean": 2.5, "loss.max": 4.0, "loss.count": 2.0, "loss.value": 4.0}
        short = monitor.Stat("short", [monitor.SUM], timedelta(milliseconds=1))
        short.add(3)
        del short
        assert seen[-1].data == {"short.sum": 3.0}
    finally:
        monitor.unregister_event_handler(handle)
    monitor.log_event(monitor.Event("later", seen[0].timestamp, {}))
    assert len(seen) == 2
    written = []
    writer = type("Writer", (), {"add_scalar": lambda self, name, v, walltime: written.append((name, v))})
    monitor.TensorboardEventHandler(writer())(seen[0])
    assert ("loss.mean", 2.5) in written


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m, d: m.Event("x", d.datetime.now(), {"a": [1]}), TypeError),
        (lambda m, d: m.Event("x", 3, {}), TypeError),
        (lambda m, d: m.Stat("x", ["mean"], d.timedelta(1)), TypeError),
        (lambda m, d: m.Stat("x", [m.MEAN], 3), TypeError),
        (lambda m, d: m.Stat("x", [m.MEAN], d.timedelta(0)), ValueError),
        (lambda m, d: m.log_event(3), TypeError),
        (lambda m, d: m.register_event_handler(3), TypeError),
        (lambda m, d: m.data_value_t(), TypeError),
    ],
)
def test_a_statistic_or_event_that_cannot_be_is_refused(call, error):
    import datetime

    with pytest.raises(error):
        call(facula.monitor, datetime)


def test_fuzzed_sizes_keep_to_their_constraints_and_follow_from_the_seed():
    from facula.utils.benchmark import (
        FuzzedParameter,
        FuzzedSparseTensor,
        FuzzedTensor,
        Fuzzer,
        ParameterAlias,
    )

    def fuzzer(seed):
        return Fuzzer(
            [
                FuzzedParameter("n", 2, 50, "loguniform"),
                FuzzedParameter("m", distribution={3: 0.5, ParameterAlias("n"): 0.5}),
                FuzzedParameter("step", distribution={1: 0.5, 2: 0.5}, strict=True),
                FuzzedParameter("density", 0.2, 0.5, "uniform"),
                FuzzedParameter("coalesced", distribution={True: 0.5, False: 0.5}),
            ],
            [
                FuzzedTensor("x", ("n", "m"), steps=("step", 1), min_elements=20, max_elements=400),
                FuzzedSparseTensor("s", ("n", "m")),
            ],
            constraints=[lambda p: p["n"] != 7],
            seed=seed,
        )

    first, again = list(fuzzer(1).take(20)), list(fuzzer(1).take(20))
    assert [p for *_, p in first] == [p for *_, p in again] != [p for *_, p in fuzzer(2).take(20)]
    for tensors, properties, p in first:
        x, facts = tensors["x"], properties["x"]
        assert (
            x.shape == (p["n"], p["m"]) and 20 <= x.numel() <= 400 and p["n"] != 7 and p["m"] in (3, p["n"])
        )
        assert facts["is_contiguous"] == x.is_contiguous() and facts["steps"] == (p["step"], 1)
        assert tensors["s"].is_coalesced() == p["coalesced"]
    with pytest.raises(ValueError, match="cycle"):
        list(Fuzzer([FuzzedParameter("a", distribution={ParameterAlias("a"): 1.0})], []).take(1))
    with pytest.raises(ValueError, match="Failed to generate"):
        list(Fuzzer([FuzzedParameter("a", 1, 2, "uniform")], [], constraints=[lambda p: False]).take(1))
    with pytest.raises(AssertionError, match="sum to 1"):
        FuzzedParameter("a", distribution={1: 0.4})


# ---- control flow


def test_control_flow_is_what_python_would_do():
    import facula._higher_order_ops as ops

    x = facula.arange(6.0).view(2, 3)
    w = facula.ones(3, requires_grad=True)
    facula.cond(x.sum() > 0, lambda a, b: (a * b).sum(), lambda a, b: b.sum(), (x, w)).backward()
    assert w.grad.tolist() == [3.0, 5.0, 7.0]
    assert ops.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (0, x))[1].equal(x * 8)
    carry, rows = ops.scan(lambda c, v: (c + v, c * v), facula.zeros(2), x, dim=1, reverse=True)
    assert carry.tolist() == [3.0, 12.0] and rows.tolist() == [[0.0, 27.0], [2.0, 20.0], [0.0, 0.0]]
    assert ops.associative_scan(facula.add, x, 1).equal(x.cumsum(1))
    assert ops.associative_scan(facula.add, x, 0, reverse=True).equal(x.flip(0).cumsum(0).flip(0))
    assert ops.map(lambda r, k: r * k, x, facula.tensor(2.0)).equal(x * 2)
    assert [t.tolist() for t in ops.foreach_map(facula.mul, [w.detach(), x[0]], 2)] == [
        [2.0] * 3,
        [0.0, 2.0, 4.0],
    ]
    with pytest.raises(RuntimeError, match="single-element tensor"):
        facula.cond(facula.tensor([True, False]), lambda: 1, lambda: 2)
    with pytest.raises(RuntimeError, match="only consists of tensor leaves"):
        facula.cond(True, lambda a: a, lambda a: a, (3,))
    with pytest.raises(RuntimeError, match="same number of elements"):
        ops.while_loop(lambda i: i < 3, lambda i: (i, i), (0,))


# ---- tensors over a mesh of one process


def test_a_tensor_over_a_mesh_of_one_process_is_the_whole():
    from facula.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
    from facula.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    import facula.distributed as dist

    dist.init_process_group("gloo", world_size=1, rank=0)
    try:
        mesh = dist.init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
        x = facula.arange(6.0).view(2, 3)
        d = distribute_tensor(x, mesh, [Shard(0)])
        assert isinstance(d, DTensor) and d.placements == (Shard(0),) and type(d.to_local()) is facula.Tensor
        assert facula.equal((d + 1).full_tensor(), x + 1) and (d @ d.T).placements == (Replicate(),)
        leaf = facula.ones(2, requires_grad=True)
        (DTensor.from_local(leaf, mesh, [Replicate()]) * 3).to_local().sum().backward()
        assert leaf.grad.tolist() == [3.0, 3.0]
        plain = facula.nn.Sequential(facula.nn.Linear(3, 4), facula.nn.ReLU(), facula.nn.Linear(4, 2))
        want = plain(x)
        net = parallelize_module(plain, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        assert facula.equal(net(x), want) and type(net(x)) is facula.Tensor
        assert net[0].weight.placements == (Shard(0),) and net[2].weight.placements == (Shard(1),)
        assert isinstance(net[0].weight, facula.nn.Parameter) and isinstance(net[0].weight, DTensor)
        optimizer = facula.optim.Adam(net.parameters(), lr=0.1)
        net(x).sum().backward()
        optimizer.step()
        assert not facula.equal(net(x), want)
        assert isinstance(distribute_module(facula.nn.Linear(2, 2), mesh).bias, DTensor)
        with pytest.raises(RuntimeError, match="bigger than default world size"):
            dist.init_device_mesh("cpu", (2,))
        with pytest.raises(ValueError, match="same length as `device_mesh.ndim`"):
            distribute_tensor(x, mesh, [Shard(0), Shard(1)])
        with pytest.raises(RuntimeError, match="distribute leaf tensors"):
            distribute_tensor(leaf * 1, mesh, [Shard(0)])
        with pytest.raises(NotImplementedError, match="only support nn.Linear and nn.Embedding"):
            parallelize_module(facula.nn.ReLU(), mesh, ColwiseParallel())
    finally:
        dist.destroy_process_group()


def test_powers_are_summed_without_a_root():
    x = facula.tensor([[1.0, -2.0], [3.0, 0.0]])
    assert facula.linalg._powsum(x, 3).item() == 36 and facula.linalg._powsum(x, 2, dim=0).tolist() == [10, 4]
    with pytest.raises(NotImplementedError, match="_powsum"):
        facula.linalg._powsum(facula.tensor([1]), 2)


def test_measurements_of_a_task_are_merged_by_the_run():
    from facula.utils.benchmark import Measurement, TaskSpec

    spec = TaskSpec("x", "")
    (merged,) = Measurement.merge([Measurement(2, [1.0], spec), Measurement(4, [4.0], spec)])
    assert merged.number_per_run == 1 and merged.raw_times == [0.5, 1.0]


def test_a_variable_says_whether_files_may_run_code(tmp_path, monkeypatch):
    facula.save(range(3), tmp_path / "code.pt")
    with pytest.raises(Exception, match="neither tensor, container nor number"):
        facula.load(tmp_path / "code.pt")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        assert facula.load(tmp_path / "code.pt") == range(3)
    with pytest.raises(Exception, match="neither tensor"):
        facula.load(tmp_path / "code.pt", weights_only=True)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="Only one of"):
        facula.load(tmp_path / "code.pt")


def test_losses_of_the_top_level_take_numbers_for_reductions_and_reduce_nothing_by_default():
    x, y = facula.linspace(-1, 1, 6).view(2, 3), facula.linspace(0.1, 0.9, 6).view(2, 3)
    t = facula.tensor([1.0, -1.0])
    log_probs = facula.linspace(-2, 1, 40).view(5, 2, 4).log_softmax(-1)
    targets, lengths = facula.tensor([[1, 2, 3], [3, 2, 1]]), ([5, 5], [3, 2])
    losses = {
        "kl_div": (x, y),
        "binary_cross_entropy_with_logits": (x, y),
        "cosine_embedding_loss": (x, y, t),
        "hinge_embedding_loss": (x, y),
        "margin_ranking_loss": (x, y, facula.ones(2, 3)),
        "triplet_margin_loss": (x, y, x + 1),
        "ctc_loss": (log_probs, targets, *lengths),
    }
    for name, args in losses.items():
        f, inner = getattr(facula, name), getattr(facula.nn.functional, name)
        for number, text in enumerate(("none", "mean", "sum")):
            assert facula.equal(f(*args, reduction=number), inner(*args, reduction=text)), name
        assert facula.equal(f(*args), inner(*args, reduction="none")), name


def test_functions_of_networks_of_the_top_level_take_arguments_in_the_order_of_operators():
    x = facula.linspace(-1, 1, 6).view(2, 3)
    w, b, mean, var = facula.tensor([[1.0, 2, 3], [0.1, 0.2, 0.3], [0.5, 0.5, 0.5], [2.0, 2, 2]])
    # Recorded of PyTorch.
    normed = facula.tensor([[-0.9607, -1.3556, -1.1849], [-0.1121, 0.3414, 1.3607]])
    assert facula.allclose(facula.batch_norm(x, w, b, mean, var, False, 0.1, 1e-5, False), normed, atol=1e-4)
    rows = facula.tensor([[-1.1247, 0.2000, 3.9741]] * 2)
    assert facula.allclose(facula.layer_norm(x, [3], w, b, 1e-5, False), rows, atol=1e-4)
    y = facula.linspace(0.1, 0.9, 6).view(2, 3)
    weighted = facula.binary_cross_entropy_with_logits(x, y, None, w, 2)
    assert weighted.item() == pytest.approx(5.2056, abs=1e-4)
    assert facula.nuclear_norm(x, True).shape == (1, 1)


def test_files_are_mapped_on_the_cpu_only(tmp_path):
    path = tmp_path / "numbers"
    facula.arange(4.0).numpy().tofile(path)
    assert facula.from_file(str(path), size=4, device="cpu", layout=facula.strided).tolist() == [0, 1, 2, 3]
    with pytest.raises(NotImplementedError, match="from_file: .* device=meta"):
        facula.from_file(str(path), size=4, device="meta")
    with pytest.raises(RuntimeError, match="cannot be pinned"):
        facula.from_file(str(path), size=4, pin_memory=True)


def test_result_types_of_arguments_by_keyword():
    x = facula.ones(2, dtype=facula.float16)
    assert facula.result_type(tensor=x, other=1) == facula.result_type(scalar=1, tensor=x) == facula.float16
    assert facula.result_type(scalar1=1, scalar2=2.0) == facula.float32
    with pytest.raises(TypeError, match="takes two tensors or numbers"):
        facula.result_type(x)


def test_copies_may_be_asked_not_to_wait():
    x = facula.zeros(2)
    assert x.copy_(facula.ones(2), non_blocking=True).tolist() == [1, 1]
    assert x.copy_(facula.zeros(2), True).tolist() == [0, 0] and x.copy_(src=facula.ones(2)).sum() == 2
    for wrong in ({"non_blocking": 1}, {"nonblocking": True}):
        with pytest.raises(TypeError, match="copy_"):
            x.copy_(facula.ones(2), **wrong)
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        x.copy_(facula.ones(2), True, True)
