"""Times and traces as recipes take them: Timer, comparisons, fuzzed sizes, a profiler with its schedule, statistics that are logged."""

import json
import os
from datetime import datetime, timedelta

import torch
import torch.utils.benchmark as benchmark
from torch import monitor
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.benchmark import Compare, FuzzedParameter, FuzzedTensor, Fuzzer, ParameterAlias
from torch.utils.flop_counter import FlopCounterMode


def batched_dot_mul_sum(a, b):
    return a.mul(b).sum(-1)


def batched_dot_bmm(a, b):
    return torch.bmm(a.reshape(-1, 1, a.shape[-1]), b.reshape(-1, b.shape[-1], 1)).flatten(-3)


x = torch.arange(640.0).reshape(10, 64) / 640
assert batched_dot_mul_sum(x, x).allclose(batched_dot_bmm(x, x))
t0 = benchmark.Timer(
    stmt="batched_dot_mul_sum(x, x)", setup="from __main__ import batched_dot_mul_sum", globals={"x": x},
    label="Multithreaded batch dot", sub_label="mul/sum", num_threads=1,
)  # fmt: skip
m = t0.timeit(20)
print(
    m.number_per_run, m.number_per_run * len(m.times) >= 20, m.mean > 0, m.median > 0, m.title.splitlines()[0]
)
print(m.task_spec.stmt, m.num_threads, type(m).__name__)
auto = benchmark.Timer("x.sum()", globals={"x": x}).blocked_autorange(min_run_time=0.01)
print(auto.has_warnings in (True, False), auto.iqr >= 0, len(auto.times) > 0)
adaptive = benchmark.Timer("x + 1", globals={"x": x}).adaptive_autorange(max_run_time=0.05)
print(adaptive.median < 1)

results = []
for rows, n in ((1, 8), (4, 16)):
    label, sub_label = "Batched dot", f"[{rows}, {n}]"
    ones = torch.ones(rows, n)
    for name, f in (("mul/sum", batched_dot_mul_sum), ("bmm", batched_dot_bmm)):
        timer = benchmark.Timer(
            "f(x, x)", globals={"x": ones, "f": f}, label=label, sub_label=sub_label, description=name
        )
        results.append(timer.timeit(5))
compare = Compare(results)
compare.trim_significant_figures()
lines = str(compare).splitlines()
print(
    lines[0].strip("[- ]"),
    [w for w in lines[1].replace("|", " ").split()],
    [line.split("|")[0].strip() for line in lines[3:5]],
)
merged = benchmark.Measurement.merge(results + results)
print(len(merged), [m.number_per_run for m in merged])

fuzzer = Fuzzer(
    parameters=[
        FuzzedParameter("k0", minval=1, maxval=1024, distribution="loguniform"),
        FuzzedParameter("k1", minval=4, maxval=64, distribution="uniform"),
        FuzzedParameter("ratio", minval=0.5, maxval=1.5, distribution="uniform"),
    ],
    tensors=[
        FuzzedTensor("x", size=("k0", "k1"), min_elements=64, max_elements=20000, probability_contiguous=0.6)
    ],
    seed=0,
)
for tensors, tensor_params, params in fuzzer.take(6):
    p = tensor_params["x"]
    print(
        tuple(tensors["x"].shape),
        tensors["x"].stride(),
        p["numel"],
        [int(d) for d in p["order"]],
        p["is_contiguous"],
        p["dtype"],
        params["k0"],
        round(params["ratio"], 4),
    )
print(fuzzer.rejection_rate)
print(
    ParameterAlias("k0"),
    benchmark.select_unit(2e-5),
    benchmark.unit_to_english("us"),
    round(benchmark.trim_sigfig(0.0012345, 2), 6),
)

# ---- a profiler
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
traces = []


def trace_handler(prof):
    traces.append(prof.step_num)
    prof.export_chrome_trace("trace.json")


with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
    on_trace_ready=trace_handler,
    record_shapes=True,
) as prof:
    for _ in range(6):
        with record_function("model_inference"):
            model(torch.ones(4, 8)).sum().backward()
        prof.step()
print(traces, os.path.getsize("trace.json") > 100, "traceEvents" in json.load(open("trace.json")))
events = prof.key_averages()
names = {e.key for e in events}
print("model_inference" in names, any("addmm" in n or "linear" in n for n in names))
row = next(e for e in events if e.key == "model_inference")
print(row.count, row.cpu_time_total > 0, "Self CPU" in events.table(sort_by="cpu_time_total", row_limit=3))
with FlopCounterMode(display=False) as flops:
    model(torch.ones(4, 8)).sum().backward()
print(flops.get_total_flops())

# ---- events
seen = []
handle = monitor.register_event_handler(lambda e: seen.append((e.name, sorted(e.data.items()))))
stat = monitor.Stat(
    "loss",
    [monitor.Aggregation.MEAN, monitor.SUM, monitor.MAX, monitor.MIN, monitor.COUNT],
    timedelta(hours=1),
    3,
)
for value in (1.0, 2.5, 4.0, 9.0):
    stat.add(value)
print(seen, stat.name, stat.count, sorted((k.name, v) for k, v in stat.get().items()))
monitor.log_event(monitor.Event(name="epoch", timestamp=datetime(2024, 1, 1), data={"epoch": 3, "ok": "yes"}))
monitor.unregister_event_handler(handle)
monitor.log_event(monitor.Event("gone", datetime(2024, 1, 1), {}))
print(len(seen), seen[-1])
