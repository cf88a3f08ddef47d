"""The profiler: what it records, how that adds up, and that it is off when it should be."""

import gzip
import json
import multiprocessing
import sys
import threading
import warnings
from pathlib import Path

import pytest
from facula.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule

import facula
from facula import _C, nn

HERE = Path(__file__).name


def here() -> int:
    return sys._getframe(1).f_lineno


def line_of(event) -> int:
    file, _, rest = event.location.partition("(")
    assert file.endswith(HERE), event.location
    return int(rest.partition(")")[0])


def named(prof, name, category="operator"):
    return [e for e in prof.events() if e.name == name and e.category == category]


def test_an_operator_its_kernel_shapes_and_line_are_recorded():
    x = facula.ones(64, 3)
    x + x
    with facula.profile() as prof:
        y, line = x + x, here()
    (add,) = named(prof, "aten::add")
    assert line_of(add) == line and add.location.endswith(
        ": test_an_operator_its_kernel_shapes_and_line_are_recorded"
    )
    assert add.input_shapes[:2] == [[64, 3], [64, 3]] and add.input_dtypes[:2] == ["float32", "float32"]
    (kernel,) = [e for e in prof.events() if e.category == "kernel"]
    assert kernel.cpu_parent is add and line_of(kernel) == line
    assert y.shape == (64, 3)


def test_memory_of_an_operator_is_its_result():
    x = facula.ones(1000, 7, dtype=facula.float64)
    with facula.profile() as prof:
        y = x * 2
        del y
    (mul,) = named(prof, "aten::mul")
    assert mul.cpu_memory_usage == mul.self_cpu_memory_usage == 7000 * 8
    changes = [change for _, _, change in prof.events()._memory]
    assert changes[0] == 56000 and sum(changes) == 0


def test_self_times_add_up_to_the_outermost_totals():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
    x = facula.randn(4, 8)
    with facula.profile() as prof, record_function("all"):
        model(x).sum().backward()
    events = prof.events()
    assert len(events) > 10
    outermost = [e for e in events if e.cpu_parent is None]
    assert [e.name for e in outermost] == ["all"]
    assert sum(e.self_cpu_time_total for e in events) == pytest.approx(outermost[0].cpu_time_total)
    assert prof.key_averages().self_cpu_time_total == pytest.approx(events.self_cpu_time_total)
    for e in events:
        inside = sum(c.cpu_time_total for c in e.cpu_children)
        assert (
            e.self_cpu_time_total == pytest.approx(e.cpu_time_total - inside) and e.self_cpu_time_total >= 0
        )
        assert e.cpu_memory_usage == e.self_cpu_memory_usage + sum(c.cpu_memory_usage for c in e.cpu_children)


def test_a_gradient_is_attributed_to_the_line_of_its_call():
    w, x = facula.randn(5, 5, requires_grad=True), facula.randn(5, 5)
    with facula.profile() as prof:
        h, at_mm = x @ w, here()
        h, at_exp = h.exp(), here()
        loss = h.sum()
        loss.backward()
    (exp,) = named(prof, "ExpBackward0")
    assert exp.is_backward and line_of(exp) == at_exp and exp.input_shapes == [[5, 5]]
    (mm,) = [
        e
        for e in prof.events()
        if e.is_backward and e.name.endswith("mBackward0") and e.name.startswith("M") and e.cpu_children
    ]
    assert line_of(mm) == at_mm and all(line_of(c) == at_mm for c in mm.cpu_children)
    forward = next(e for e in named(prof, "aten::exp"))
    assert forward.sequence_nr == exp.sequence_nr and not forward.is_backward


def test_lines_of_big_operators_that_let_the_interpreter_go_are_known():
    x = facula.ones(1 << 21)
    with facula.profile() as prof:
        x.exp()
        line = here() - 1
    assert {line_of(e) for e in prof.events()} == {line}


def test_lines_inside_the_package_are_not_the_users():
    layer, x = nn.MultiheadAttention(8, 2), facula.randn(3, 2, 8)
    with facula.profile() as prof:
        layer(x, x, x)
    assert {e.location.partition("(")[0] for e in prof.events()} == {__file__}


def test_a_whole_stack_leads_from_the_line_to_the_start():
    def inner():
        return facula.ones(3)

    with profile(with_stack=True) as prof:
        inner()
    stack = prof.events()[0].stack
    assert [line.rpartition(": ")[2] for line in stack[:2]] == [
        "inner",
        "test_a_whole_stack_leads_from_the_line_to_the_start",
    ]
    with profile() as prof:
        inner()
    assert len(prof.events()[0].stack) == 1


def test_in_place_and_out_forms_are_recorded():
    x, y = facula.ones(3), facula.empty(3)
    with facula.profile() as prof:
        x.exp_()
        facula.exp(x, out=y)
        x += 1
    assert [e.name for e in prof.events() if e.category == "operator"] == [
        "aten::exp_",
        "aten::exp",
        "aten::add_",
    ]


def test_a_library_call_lies_in_its_operator():
    a = facula.randn(40, 40)
    with facula.profile() as prof:
        a @ a
    (library,) = [e for e in prof.events() if e.category == "library"]
    assert library.cpu_parent.category == "operator"


def test_compilation_is_told_apart_from_the_call():
    def call():
        with facula.profile() as prof:
            (facula.ones(3, 5, 7) * 3).sinh()
        return {e.name for e in prof.events() if e.category == "compile"}

    assert "plan sinh" in call()
    assert not call()


def test_averages_sum_by_name_shape_and_line():
    a, b = facula.ones(2), facula.ones(3)
    with facula.profile() as prof:
        for _ in range(3):
            a.exp()
        b.exp()
    sums = {e.key: e for e in prof.key_averages() if e.category == "operator"}
    assert sums["aten::exp"].count == 4 and sums["aten::exp"].cpu_time_total == pytest.approx(
        sum(e.cpu_time_total for e in named(prof, "aten::exp"))
    )
    assert sorted(
        (e.input_shapes, e.count)
        for e in prof.key_averages(group_by_input_shape=True)
        if e.key == "aten::exp" and e.category == "operator"
    ) == [
        ([[2]], 3),
        ([[3]], 1),
    ]
    assert sorted(
        e.count
        for e in prof.key_averages(group_by_stack_n=1)
        if e.key == "aten::exp" and e.category == "operator"
    ) == [1, 3]
    assert prof.key_averages().total_average().count == len(prof.events())


def test_a_table_is_sorted_and_limited():
    with facula.profile() as prof:
        for _ in range(3):
            facula.ones(200, 200).exp()
    table = prof.key_averages().table(sort_by="count", row_limit=2).splitlines()
    assert table[1].split()[0] == "Name" and len(table) == 3 + 2 + 3 and table[-3].endswith("more")
    counts = [e.count for e in sorted(prof.key_averages(), key=lambda e: -e.count)]
    assert counts[0] == 3 and "Self CPU time total" in table[-1]
    assert "exp" in str(prof) and HERE in str(prof)
    with pytest.raises(ValueError, match="cannot sort by 'nothing'"):
        prof.key_averages().table(sort_by="nothing")


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_trace_has_complete_events_that_nest(tmp_path, suffix):
    w = facula.randn(5, 5, requires_grad=True)
    with facula.profile() as prof:
        (w @ w).sum().backward()
    file = tmp_path / ("trace" + suffix)
    prof.export_chrome_trace(str(file))
    text = gzip.decompress(file.read_bytes()).decode() if suffix.endswith("gz") else file.read_text()
    events = json.loads(text)["traceEvents"]
    assert [f.name for f in tmp_path.iterdir()] == [file.name]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(prof.events()) and all(
        e["dur"] >= 0 and {"ts", "pid", "tid", "name", "cat"} <= e.keys() for e in complete
    )
    open_until: list[float] = []
    for e in sorted(complete, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= e["ts"] + 1e-6:
            open_until.pop()
        assert not open_until or e["ts"] + e["dur"] <= open_until[-1] + 2e-3
        open_until.append(e["ts"] + e["dur"])
    starts = [e["id"] for e in events if e["ph"] == "s"]
    assert starts and starts == [e["id"] for e in events if e["ph"] == "f"]
    assert any(e["ph"] == "C" and e["args"]["bytes"] > 0 for e in events)


def test_parts_of_the_program_have_names():
    @record_function("decorated")
    def double(x):
        return x * 2

    with facula.profile() as prof:
        with record_function("outer"):
            double(facula.ones(2))
            double(facula.ones(2))
    outer, decorated = prof.events()[0], [e for e in prof.events() if e.name == "decorated"]
    assert (
        outer.name == "outer"
        and outer.is_user_annotation
        and [e.cpu_parent for e in decorated] == [outer, outer]
    )
    assert all(c.name == "aten::mul" for e in decorated for c in e.cpu_children if c.category == "operator")
    with record_function("nothing is recorded"):
        facula.ones(2)


def test_an_exception_leaves_the_profiler_off_and_the_events_usable():
    with pytest.raises(RuntimeError, match="mat1 and mat2|matmul|mm"):
        with facula.profile() as prof:
            with record_function("fails"):
                facula.ones(2, 3) @ facula.ones(2, 3)
    assert not _C.profile_enabled()
    assert named(prof, "fails", "user")
    with facula.profile() as prof:
        facula.ones(1)
    assert named(prof, "aten::ones")


def test_profiles_do_not_nest():
    with facula.profile() as prof:
        with pytest.raises(RuntimeError, match="profiles do not nest"):
            with facula.profile():
                pass
        facula.ones(2)
    assert not _C.profile_enabled() and named(prof, "aten::ones")


def test_a_profile_that_has_not_ended_says_so():
    with pytest.raises(RuntimeError, match="has not ended"):
        profile().events()


def test_threads_are_recorded_apart():
    def work():
        for _ in range(20):
            with record_function("work"):
                facula.ones(10).exp()

    with facula.profile() as prof:
        threads = [threading.Thread(target=work, name=f"worker {k}") for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    by_thread: dict[int, list] = {}
    for e in prof.events():
        by_thread.setdefault(e.thread, []).append(e)
    assert len(by_thread) == 4
    for events in by_thread.values():
        assert (
            sum(e.name == "work" for e in events) == 20
            and sum(e.name == "aten::exp" and e.category == "operator" for e in events) == 20
        )
        assert all(e.cpu_parent is None or e.cpu_parent.thread == e.thread for e in events)


def child(queue):
    try:
        facula.ones(3).exp()
        was_on = _C.profile_enabled()
        with facula.profile() as prof:
            facula.ones(3)
        queue.put((was_on, len(named(prof, "aten::ones"))))
    except BaseException as e:
        queue.put(repr(e))


def test_a_forked_child_records_nothing_until_it_asks():
    with facula.profile() as prof:
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        p = context.Process(target=child, args=(queue,))
        p.start()
        assert queue.get() == (False, 1)
        p.join()
        facula.ones(2)
    assert len(named(prof, "aten::ones")) == 1


def test_workers_of_a_loader_do_not_disturb_a_profile():
    data = facula.utils.data.TensorDataset(facula.arange(8))
    with facula.profile() as prof:
        batches = [b[0].tolist() for b in facula.utils.data.DataLoader(data, batch_size=4, num_workers=2)]
        facula.ones(2)
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7]] and named(prof, "aten::ones")


# torch.profiler.schedule of torch 2.13: first letters of NONE, WARMUP, RECORD; S is RECORD_AND_SAVE.
SCHEDULES = {
    (1, 1, 1, 0, 0, 0): "NWSNWSNWSNWS",
    (0, 1, 3, 2, 0, 0): "WRRSWRRSNNNN",
    (2, 1, 2, 0, 3, 0): "NNNNNWRSNNWR",
    (1, 0, 2, 1, 1, 0): "NNRSNNNNNNNN",
    (3, 1, 1, 2, 1, 1): "NWSNNNWSNNNN",
    (0, 0, 1, 0, 0, 0): "SSSSSSSSSSSS",
}


@pytest.mark.parametrize("arguments", SCHEDULES)
def test_a_schedule_is_pytorchs(arguments):
    names = ("wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = schedule(**dict(zip(names, arguments)))
    letters = {
        ProfilerAction.NONE: "N",
        ProfilerAction.WARMUP: "W",
        ProfilerAction.RECORD: "R",
        ProfilerAction.RECORD_AND_SAVE: "S",
    }
    assert "".join(letters[s(k)] for k in range(12)) == SCHEDULES[arguments]


def test_a_schedule_refuses_what_makes_no_sense():
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
        schedule(wait=0, warmup=1, active=0)
    with pytest.warns(UserWarning, match="warmup"):
        schedule(wait=0, warmup=0, active=1)


def test_steps_are_recorded_as_scheduled():
    ready = []

    def trace_ready(p):
        ready.append((p.step_num, [e.name for e in p.events() if e.category == "user"]))

    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=trace_ready,
    ) as prof:
        for k in range(10):
            facula.ones(k + 1)
            prof.step()
    assert ready == [(4, ["ProfilerStep#2", "ProfilerStep#3"]), (8, ["ProfilerStep#6", "ProfilerStep#7"])]
    assert not _C.profile_enabled()


def test_the_older_interface_is_there():
    with facula.autograd.profiler.profile(record_shapes=True) as prof:
        with facula.autograd.profiler.record_function("part"):
            facula.ones(2, 2).exp()
    assert named(prof, "aten::exp")[0].input_shapes == [[2, 2]] and "part" in prof.table()
    with facula.autograd.profiler.profile(enabled=False) as prof:
        assert not _C.profile_enabled()


def test_flame_graphs_get_stacks(tmp_path):
    with profile(with_stack=True) as prof:
        for _ in range(200):
            facula.ones(100).exp()
    file = tmp_path / "stacks"
    prof.export_stacks(str(file))
    first = file.read_text().splitlines()[0]
    assert first.rpartition(" ")[2].isdigit() and HERE in first


def test_a_custom_function_and_its_gradient_are_recorded():
    class Twice(facula.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = facula.ones(3, requires_grad=True)
    with facula.profile() as prof:
        y, line = Twice.apply(x), here()
        y.sum().backward()
    (forward,) = named(prof, "Twice", "user")
    (backward,) = named(prof, "TwiceBackward")
    assert line_of(forward) == line_of(backward) == line and forward.sequence_nr == backward.sequence_nr
    assert [c.name for c in forward.cpu_children if c.category == "operator"] == ["aten::mul"]
    assert "aten::mul" in [c.name for c in backward.cpu_children]


def test_a_step_of_an_optimizer_is_named():
    p = nn.Parameter(facula.ones(2))
    p.grad = facula.ones(2)
    optimizer = facula.optim.SGD([p], lr=0.1)
    with facula.profile() as prof:
        optimizer.step()
    assert prof.events()[0].name == "Optimizer.step#SGD.step"


def test_operations_are_counted_where_asked():
    with facula.autograd.profiler.profile(with_flops=True) as p:
        facula.ones(8, 8) @ facula.ones(8, 8)
        facula.ones(2, 3, 4) @ facula.ones(2, 4, 5)
        facula.nn.functional.conv2d(facula.ones(1, 3, 8, 8), facula.ones(4, 3, 3, 3))
        facula.nn.functional.linear(facula.ones(2, 3), facula.ones(4, 3), facula.ones(4))
        facula.ones(3) + facula.ones(3)
    counted = sorted(e.flops for e in p.key_averages() if e.flops)
    # As PyTorch counts: 2 for a multiplication and an addition, calls inside of others once.
    assert counted == sorted([2 * 8**3, 2 * 2 * 3 * 4 * 5, 2 * 4 * 27 * 36, 2 * 2 * 3 * 4, 3])
    assert "Total KFLOPs" in p.key_averages().table()
    with facula.autograd.profiler.profile() as p:
        facula.ones(8, 8) @ facula.ones(8, 8)
    assert not any(e.flops for e in p.events()) and "FLOPs" not in p.key_averages().table()


def test_operators_have_the_names_of_their_namespaces():
    @facula.library.custom_op("tests::profiled", mutates_args=())
    def profiled(x: facula.Tensor) -> facula.Tensor:
        return x.exp()

    net, x = nn.Linear(3, 2), facula.ones(4, 3)
    with facula.profile() as prof:
        net(x).sum().backward()
        profiled(x)
    names = {e.key for e in prof.key_averages() if e.category == "operator"}
    assert {"aten::linear", "aten::sum", "aten::exp", "tests::profiled"} <= names
    assert {n for n in names if "::" not in n} == {"AccumulateGrad", "AddmmBackward0", "SumBackward0"}
    assert "aten::linear" in str(prof)
