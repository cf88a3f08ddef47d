"""Export: the graph of a module, its sizes, its state, and files of it that C++ loads too."""

import io
import json
import os
import random
import re
import subprocess
import sys
import zipfile

import pytest
from facula.export import Dim, ExportedProgram, export, load, save
from facula.export.exported_program import GuardError
from facula.export.graph_signature import InputKind, OutputKind
from facula.fx import Interpreter, Transformer, replace_pattern

import facula
from facula import _C, nn
from facula.nn import functional as F


def equal(a, b, tolerance=0.0):
    assert a.shape == b.shape and a.dtype == b.dtype
    assert facula.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True), (a - b).abs().max()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.register_buffer("calls", facula.zeros(1))

    def forward(self, x, scale=None):
        self.calls.add_(1)
        y = self.last(self.norm(self.first(x)).relu())
        return {"y": y if scale is None else y * scale, "total": y.sum()}


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(17, 16), nn.Embedding(32, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 17, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        n = ids.size(1)
        x = self.tokens(ids) + self.places(facula.arange(n, device=ids.device))
        mask = facula.triu(facula.full((n, n), float("-inf")), 1)
        return self.head(self.blocks(x, mask=mask))


def batch():
    return Dim("batch", min=1, max=64)


MODELS = {
    "mlp": (Mlp, lambda n: (facula.rand(n, 4),), lambda: {"x": {0: batch()}}),
    "cnn": (lambda: Cnn().eval(), lambda n: (facula.rand(n, 3, 12, 12),), lambda: ({0: batch()},)),
    "cnn, training": (Cnn, lambda n: (facula.rand(n, 3, 12, 12),), lambda: ({0: batch()},)),
    "gpt": (lambda: Gpt().eval(), lambda n: (facula.randint(0, 17, (n, 9)),), lambda: {"ids": {0: batch()}}),
}


@pytest.fixture(params=MODELS)
def model(request):
    make, inputs, dynamic = MODELS[request.param]
    facula.manual_seed(0)
    return make, inputs, dynamic()


def state_copy(module):
    return {k: v.clone() for k, v in module.state_dict().items()}


def results_of(f, *args):
    out = f(*args)
    return list(out.values()) if isinstance(out, dict) else [out]


def test_an_exported_module_computes_the_same_for_every_batch(model, tmp_path):
    make, inputs, dynamic = model
    module = make()
    program = export(module, inputs(3), dynamic_shapes=dynamic)
    before = state_copy(module)
    save(program, tmp_path / "m.fpt")
    loaded = load(tmp_path / "m.fpt")
    native, _ = _C.load_program(str(tmp_path / "m.fpt"))
    eager = make()
    for n in (3, 1, 2, 64):
        args = inputs(n)
        eager.load_state_dict(before)
        module.load_state_dict(before)
        expected = results_of(eager, *args)
        for got in (results_of(program.module(), *args), native.run(args)[: len(expected)]):
            for a, b in zip(got, expected):
                equal(a, b, 2e-6)
        for name, t in eager.state_dict().items():  # what the module writes, the program writes
            equal(module.state_dict()[name], t, 1e-6)
    fresh = load(tmp_path / "m.fpt")
    eager.load_state_dict(before)
    for a, b in zip(results_of(fresh.module(), *inputs(0 + 4)), results_of(eager, *inputs(4))):
        assert a.shape == b.shape
    assert str(loaded) == str(program)


def test_the_signature_names_parameters_buffers_arguments_and_mutations():
    program = export(Mlp(), (facula.rand(2, 4),), {"scale": facula.ones(3)})
    kinds = [(s.kind, s.target) for s in program.graph_signature.input_specs]
    assert kinds[:2] == [(InputKind.PARAMETER, "first.weight"), (InputKind.PARAMETER, "first.bias")]
    assert kinds[-3:] == [
        (InputKind.BUFFER, "calls"),
        (InputKind.USER_INPUT, None),
        (InputKind.USER_INPUT, None),
    ]
    assert program.graph_signature.user_inputs == ("x", "scale")
    assert program.graph_signature.buffers_to_mutate == {"add": "calls"}
    assert [s.kind for s in program.graph_signature.output_specs] == [
        OutputKind.BUFFER_MUTATION, OutputKind.USER_OUTPUT, OutputKind.USER_OUTPUT,
    ]  # fmt: skip
    assert program.graph_signature.parameters == tuple(n for n, _ in Mlp().named_parameters())
    assert set(program.state_dict) == set(Mlp().state_dict())
    module = program.module()
    assert module(scale=facula.ones(3), x=facula.rand(2, 4))["y"].shape == (2, 3)
    with pytest.raises(RuntimeError, match=r"exported_program.module\(\)"):
        program(facula.rand(2, 4))


def test_an_exported_module_trains():
    facula.manual_seed(1)
    eager, x = Mlp(), facula.rand(6, 4)
    other = Mlp()
    other.load_state_dict(eager.state_dict())
    exported = export(other, (x,)).module()
    for net in (eager, exported):
        optimizer = facula.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            net(x)["y"].square().sum().backward()
            optimizer.step()
    for name, p in eager.named_parameters():
        equal(exported.get_parameter(name), p, 1e-6)


def test_sizes_beyond_a_dim_are_refused_with_the_dim_and_the_fix():
    program = export(Mlp(), (facula.rand(3, 4),), dynamic_shapes={"x": {0: Dim("batch", min=2, max=8)}})
    module = program.module()
    with pytest.raises(GuardError, match=r"x.size\(\)\[0\] <= 8: it is 9.*Dim batch is from 2 to 8\n.*max=9"):
        module(facula.rand(9, 4))
    with pytest.raises(GuardError, match=r">= 2: it is 1"):
        module(facula.rand(1, 4))
    with pytest.raises(GuardError, match=r"x.size\(\)\[1\] == 4: it is 5"):
        module(facula.rand(3, 5))
    with pytest.raises(GuardError, match="int64"):
        module(facula.zeros(3, 4, dtype=facula.int64))
    with pytest.raises(GuardError, match="structure"):
        module(facula.rand(3, 4), scale=facula.ones(3))
    assert str(program.range_constraints) == "{s0: VR[2, 8]}"


def test_one_dim_at_two_places_means_equal_sizes():
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    n = Dim("n")
    module = export(
        Sum(), (facula.rand(3), facula.rand(3)), dynamic_shapes={"a": {0: n}, "b": {0: n}}
    ).module()
    assert module(facula.ones(5), facula.ones(5)).tolist() == [2.0] * 5
    with pytest.raises(GuardError, match=r"b.size\(\)\[0\] == 5: it is 4"):
        module(facula.ones(5), facula.ones(4))
    with pytest.raises(RuntimeError, match=r"(?s)Constraints violated.*same Dim"):
        export(
            Sum(), (facula.rand(3), facula.rand(3)), dynamic_shapes={"a": {0: Dim("k")}, "b": {0: Dim("l")}}
        )


def test_code_that_fixes_a_dynamic_size_is_refused_unless_it_may():
    class Loop(nn.Module):
        def forward(self, x):
            return sum(x[k] for k in range(x.size(0)))

    x = facula.rand(3, 2)
    for dim in (Dim("rows"), Dim.DYNAMIC):
        with pytest.raises(RuntimeError, match="Constraints violated"):
            export(Loop(), (x,), dynamic_shapes=({0: dim},))
    program = export(Loop(), (x,), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    assert [(r.lower, r.upper) for r in program.range_constraints.values()][0] == (3, 3)
    equal(program.module()(facula.ones(3, 5)), facula.full((5,), 3.0))
    with pytest.raises(GuardError):
        program.module()(facula.ones(4, 5))


def test_an_example_of_one_row_does_not_fix_the_size():
    program = export(Cnn().eval(), (facula.rand(1, 3, 8, 8),), dynamic_shapes=({0: Dim("batch")},))
    assert program.module()(facula.rand(5, 3, 8, 8)).shape == (5, 5)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.transpose(0, 1).contiguous().sin(),
        lambda x: x.transpose(0, 1).reshape(4, -1, 2, 1).cos(),
        lambda x: x.transpose(0, 1).exp().reshape(-1, 4),
        lambda x: (x[:-1] - x[1:]).permute(1, 2, 0).flatten(1),
        lambda x: x + facula.ones(1, 4, 1) + x[:1],
        lambda x: facula.cat([x, x[:1]]).expand(2, -1, 4, 2).sum(1),
    ],
)
def test_strides_and_broadcasts_do_not_exclude_one_row(f):
    class Net(nn.Module):
        def forward(self, x):
            return f(x)

    program = export(Net(), (facula.rand(3, 4, 2),), dynamic_shapes=({0: Dim("rows")},))
    assert str(program.range_constraints) == "{s0: VR[1, int_oo]}"
    for n in (1, 2, 100):
        x = facula.rand(n, 4, 2)
        got, expected = program.module()(x), f(x)
        equal(got, expected, 1e-6)
        assert [s for s, k in zip(got.stride(), got.shape) if k > 1] == [
            s for s, k in zip(expected.stride(), expected.shape) if k > 1
        ]


@pytest.mark.parametrize("rearrange", ["contiguous", "reshape"])
def test_a_copy_that_is_a_view_for_one_row_excludes_one_row_if_it_is_written(rearrange):
    class Net(nn.Module):
        def forward(self, x):
            y = x.transpose(0, 1)
            y = y.contiguous() if rearrange == "contiguous" else y.reshape(-1)
            y.add_(1)
            return x * 2, y

    program = export(Net(), (facula.rand(3, 4),), dynamic_shapes=({0: Dim("rows")},))
    with pytest.raises(GuardError, match=">= 2: it is 1"):
        program.module()(facula.rand(1, 4))
    x = facula.rand(2, 4)
    for got, expected in zip(program.module()(x), Net()(x)):
        equal(got, expected)


def test_arguments_that_are_no_tensors_are_part_of_the_program():
    class Scaled(nn.Module):
        def forward(self, x, times, flag=None):
            return x * times

    module = export(Scaled(), (facula.ones(2), 3)).module()
    assert module(facula.ones(2), 3).tolist() == [3.0, 3.0]
    with pytest.raises(GuardError, match="times is 4, and the program was exported for 3"):
        module(facula.ones(2), 4)


def test_fx_runs_and_changes_exported_graphs():
    program = export(Cnn().eval(), (facula.rand(2, 3, 8, 8),))
    x = facula.rand(2, 3, 8, 8)
    module = program.module()
    expected = module(x)
    equal(Interpreter(module).run(x), expected)

    class Negated(Transformer):
        def call_function(self, target, args, kwargs):
            if target is facula.ops.aten.relu.default:
                return super().call_function(facula.ops.aten.neg.default, args, kwargs)
            return super().call_function(target, args, kwargs)

    changed = Negated(module).transform()
    assert "neg.default" in changed.code and "relu" not in changed.code
    matches = replace_pattern(
        module, lambda a: facula.ops.aten.relu.default(a), lambda a: facula.ops.aten.tanh.default(a)
    )
    assert len(matches) == 1 and not facula.equal(module(x), expected)


def test_operators_are_decomposed_on_request():
    program = export(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), (facula.rand(2, 3),))
    table = {facula.ops.aten.relu.default: lambda x: facula.ops.aten.clamp_min.default(x, 0)}
    lowered = program.run_decompositions(table)
    targets = [str(n.target) for n in lowered.graph.nodes if n.op == "call_function"]
    assert not any("relu" in t for t in targets) and len(targets) == 2
    x = facula.randn(2, 3)
    equal(lowered.module()(x), program.module()(x))
    assert lowered.graph_signature.parameters == program.graph_signature.parameters


def test_a_file_is_a_plain_archive_of_json_and_aligned_bytes(tmp_path):
    net = nn.Linear(3, 2)
    save(export(net, (facula.rand(2, 3),)), path := tmp_path / "m.fpt", extra_files={"note": "hello"})
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        head = json.loads(z.read("facula.json"))
        assert head["format"] == "facula program" and head["version"] == 1
        assert z.read("extra/note") == b"hello"
        weights = [
            facula.frombuffer(bytearray(z.read(f"storages/{k}")), dtype=facula.float32) for k in range(2)
        ]
        assert facula.equal(weights[0].view(2, 3), net.weight.detach())
        for info in z.infolist():
            with open(path, "rb") as f:
                f.seek(info.header_offset + 26)
                name, extra = (int.from_bytes(f.read(2), "little") for _ in range(2))
            assert (info.header_offset + 30 + name + extra) % 64 == 0
    extra = {"note": ""}
    load(path, extra_files=extra)
    assert extra == {"note": "hello"}
    buffer = io.BytesIO()
    save(export(net, (facula.rand(2, 3),)), buffer)
    equal(load(buffer).module()(facula.ones(2, 3)), net(facula.ones(2, 3)))


class Remembers(nn.Module):
    """Assigns attributes in its forward, as models do that compute tables for their inputs once."""

    def __init__(self):
        super().__init__()
        self.table, self.seen, self.calls = facula.zeros(1, 1), [], 0

    def forward(self, x):
        if self.table.shape[0] != x.shape[1]:
            self.table = facula.arange(x.shape[1], dtype=x.dtype).view(-1, 1)
        if not hasattr(self, "scale"):
            self.scale = x.new_ones(1) * 2
        self.seen.append(x)
        self.calls += 1
        return (x @ self.table) * self.scale


def test_attributes_that_a_module_assigns_are_restored():
    """The oracle is the module's own arithmetic, after an export and without one."""
    module, x = nn.Sequential(Remembers()), facula.rand(4, 3)
    table = module[0].table
    with pytest.warns(
        UserWarning, match=r"tensor attributes self\.0\.table, self\.0\.seen, self\.0\.scale were"
    ):
        program = export(module, (x,), dynamic_shapes=({0: Dim("batch")},))
    assert module[0].table is table and module[0].seen == [] and module[0].calls == 0
    assert not hasattr(module[0], "scale")
    x = facula.rand(5, 3)
    expected = ((x[:, 1] + 2 * x[:, 2]) * 2).view(5, 1)
    equal(program.module()(x), expected, 1e-6)
    equal(module(x), expected, 1e-6)
    assert module[0].calls == 1 and module[0].seen[0] is x


def test_an_export_that_fails_restores_attributes():
    class Fails(Remembers):
        def forward(self, x):
            y = super().forward(x)
            return y if y.sum() > 0 else x

    module = Fails()
    with pytest.raises((NotImplementedError, RuntimeError)):
        export(module, (facula.rand(4, 3),))
    assert module.calls == 0 and module.table.shape == (1, 1) and not module.seen


def rewritten(path, change):
    """The archive with some of its JSON files changed."""
    with zipfile.ZipFile(path) as z:
        parts = {i.filename: z.read(i) for i in z.infolist()}
    parts = {k: change(k, v) for k, v in parts.items()}
    with zipfile.ZipFile(path, "w") as z:
        for k, v in parts.items():
            z.writestr(k, v)


def test_a_later_version_is_refused_with_both_versions_named(tmp_path):
    save(export(nn.ReLU(), (facula.rand(2),)), path := tmp_path / "m.fpt")
    rewritten(path, lambda k, v: v.replace(b'"version": 1', b'"version": 7') if k == "facula.json" else v)
    for read in (load, lambda p: _C.load_program(str(p))):
        with pytest.raises(RuntimeError, match=r"version 7 .*reads versions up to 3"):
            read(path)


def test_damaged_files_raise_one_clear_error(tmp_path):
    save(export(Mlp(), (facula.rand(2, 4),)), path := tmp_path / "m.fpt")
    good = path.read_bytes()
    seed = int(facula.randint(0, 2**31, ()))
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(60):
        bad = bytearray(good)
        if rng.random() < 0.3:
            bad = bad[: rng.randrange(len(bad))]
        else:
            for _ in range(rng.randrange(1, 4)):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
        path.write_bytes(bad)
        for read in (load, lambda p: _C.load_program(str(p))):
            try:
                read(path)
            except RuntimeError as e:
                assert re.match(r"load\b", str(e)) or "load" in str(e), e


def test_results_that_are_constants_and_shared_weights_survive_files(tmp_path):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = nn.Linear(2, 2)
            self.b.weight = self.a.weight

        def forward(self, x):
            return x, (self.b(self.a(x)), 5, None, "text")

    program = export(Mixed(), (facula.rand(3, 2),))
    save(program, path := tmp_path / "m.fpt")
    loaded = load(path)
    x = facula.rand(3, 2)
    got, (y, five, none, text) = loaded.module()(x)
    assert (five, none, text) == (5, None, "text") and got is x
    equal(y, program.module()(x)[1][0])
    state = loaded.state_dict
    assert state["a.weight"] is state["b.weight"]


def test_exported_programs_are_of_their_class():
    program = export(nn.ReLU(), (facula.rand(2),))
    assert isinstance(program, ExportedProgram)
    assert "relu = facula.ops.aten.relu.default" in str(program)
    with pytest.raises(ValueError, match="instance of"):
        export(lambda x: x, (facula.rand(2),))


def test_a_draft_reports_the_sizes_that_the_module_fixes():
    class Loop(nn.Module):
        def forward(self, x):
            return sum(x[k] for k in range(x.size(0)))

    program = facula.export.draft_export(
        Loop(), (facula.rand(3, 2),), dynamic_shapes=({0: Dim("rows"), 1: Dim("columns")},)
    )
    assert not program._report.successful()
    assert "size 0 of x" in str(program._report) and "size 1" not in str(program._report)
    assert facula.export.draft_export(nn.ReLU(), (facula.rand(2),))._report.successful()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_export_with_a_dynamic_batch(kind):
    facula.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = getattr(nn, kind)(4, 6, 2, batch_first=True, bidirectional=True)

        def forward(self, x):
            return self.rnn(x)[0]

    net = Net()
    module = export(net, (facula.rand(2, 5, 4),), dynamic_shapes=({0: batch()},)).module()
    for n in (2, 5):
        x = facula.rand(n, 5, 4)
        equal(module(x), net(x), 1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_embeddings_export_with_dynamic_sizes(mode, tmp_path):
    net, n, b = nn.EmbeddingBag(7, 3, mode=mode, padding_idx=2), Dim("n"), Dim("b")
    rows = export(net, (facula.randint(0, 7, (5, 4)),), dynamic_shapes={"input": {0: b, 1: n}}).module()
    for sizes in ((1, 4), (2, 1), (6, 5)):
        x = facula.randint(0, 7, sizes)
        equal(rows(x), net(x), 1e-6)
    example = facula.randint(0, 7, (9,)), facula.tensor([0, 2, 4])
    lines = export(net, example, dynamic_shapes={"input": {0: n}, "offsets": {0: b}})
    save(lines, tmp_path / "m.fpt")
    native, _ = _C.load_program(str(tmp_path / "m.fpt"))
    for size, offsets in ((9, [0, 1, 4]), (1, [0]), (12, [0, 0, 3, 7])):
        x = facula.randint(0, 7, (size,)), facula.tensor(offsets)
        equal(lines.module()(*x), net(*x), 1e-6)
        equal(native.run(x)[0], net(*x), 1e-6)
    with pytest.raises((IndexError, RuntimeError), match="index -1 is out of bounds"):
        native.run((facula.randint(0, 7, (3,)), facula.tensor([0, 5])))


def test_hostile_contents_with_valid_checksums_raise_one_clear_error(tmp_path):
    save(export(Mlp(), (facula.rand(2, 4),), dynamic_shapes={"x": {0: batch()}}), path := tmp_path / "m.fpt")
    with zipfile.ZipFile(path) as z:
        good = {i.filename: z.read(i) for i in z.infolist()}
    seed = int(facula.randint(0, 2**31, ()))
    print("seed", seed)
    rng = random.Random(seed)
    names = [n for n in good if n.endswith(".json")]
    for _ in range(int(os.environ.get("FACULA_HOSTILE_FILES", "150"))):
        parts = dict(good)
        name = rng.choice(names)
        text = bytearray(parts[name])
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(3)] = rng.choice(
                [b"", b"9", b"-1", b"[", b"}", b'"', b"99999999999", b"s0", b"%"]
            )
        parts[name] = bytes(text)
        with zipfile.ZipFile(path, "w") as z:
            for k, v in parts.items():
                z.writestr(k, v)
        for read in (load, lambda p: _C.load_program(str(p))):
            try:
                read(path)
            except (RuntimeError, NotImplementedError) as e:
                assert str(e).startswith("load"), e


def test_sizes_that_the_file_does_not_have_take_no_memory(tmp_path):
    save(export(nn.Linear(3, 2), (facula.rand(2, 3),)), path := tmp_path / "m.fpt")
    for old, new in (
        (b'"storages": [\n  24', b'"storages": [\n  99999999999999'),
        (b"   3\n   ],", b"   30000000000\n   ],"),
    ):
        save(export(nn.Linear(3, 2), (facula.rand(2, 3),)), path)
        rewritten(path, lambda k, v, old=old, new=new: v.replace(old, new) if k == "tensors.json" else v)
        for read in (load, lambda p: _C.load_program(str(p))):
            with pytest.raises(RuntimeError, match="damaged"):
                read(path)


def test_a_result_of_a_class_that_hides_its_tensors_is_refused_by_its_name():
    class Answer:
        def __init__(self, y):
            self.y = y

    class Net(nn.Module):
        def forward(self, x):
            return Answer(x + 1)

    with pytest.raises(RuntimeError, match=r"returns an object of .*Answer.*\n.*register_pytree_node"):
        export(Net(), (facula.rand(2),))


OTHER_PROCESS = """
import sys, facula
from facula.export import load
for read in (load, facula._C.load_program):
    try:
        read(sys.argv[1])
    except (RuntimeError, NotImplementedError) as e:
        print(e)
"""


def test_custom_operators_are_exported_and_a_process_without_them_names_them(tmp_path):
    @facula.library.custom_op("exported_test::scaled", mutates_args=())
    def scaled(x: facula.Tensor, by: float) -> facula.Tensor:
        return x * by

    scaled.register_fake(lambda x, by: facula.empty_like(x))

    class Net(nn.Module):
        def forward(self, x):
            return scaled(x, 3.0) + 1

    path = tmp_path / "m.fpt"
    save(export(Net(), (facula.rand(3, 2),), dynamic_shapes=({0: Dim("rows")},)), path)
    x = facula.rand(1, 2)
    equal(load(path).module()(x), Net()(x))
    equal(_C.load_program(str(path))[0].run([x])[0], Net()(x))
    done = subprocess.run([sys.executable, "-c", OTHER_PROCESS, path], capture_output=True, text=True)
    assert done.stdout.count("the program calls exported_test::scaled") == 2, done.stdout + done.stderr


def test_dynamo_export_takes_any_tensor_that_the_module_does_not_read():
    class Second(nn.Module):
        def forward(self, x, y):
            return y * 2

    x, y = facula.ones(2, 2), facula.ones(3)
    module, guards = facula._dynamo.export(Second(), x, y)
    assert not guards and module(x, y).tolist() == module(facula.ones(5), y).tolist() == [2.0] * 3
    with pytest.raises(GuardError, match="y.size"):
        module(x, facula.ones(4))
    with pytest.raises(GuardError, match="exported for a tensor"):
        module(3, y)
    with pytest.raises(GuardError, match="2 dimensions"):
        export(Second(), (x, y)).module()(facula.ones(5), y)
