"""The throughput of a module under calls of several threads."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

__all__ = ["ExecutionStats", "ThroughputBenchmark"]


class ExecutionStats:
    """The result of a run: mean latency of a call in milliseconds, and the number of calls."""

    def __init__(
        self, latency_avg_ms: float, num_iters: int, total_time_seconds: float, threads: int
    ) -> None:
        self.latency_avg_ms, self.num_iters = latency_avg_ms, num_iters
        self.total_time_seconds, self._threads = total_time_seconds, threads

    @property
    def iters_per_second(self) -> float:
        return self.num_iters / self.total_time_seconds

    def __str__(self) -> str:
        return (
            f"Average latency per example: {self.latency_avg_ms:.3f} ms\n"
            f"Total number of iterations: {self.num_iters}\n"
            f"Iterations per second (across all threads): {self.iters_per_second:.2f}\n"
            f"Total time: {self.total_time_seconds:.3f} s"
        )

    __repr__ = __str__


class ThroughputBenchmark:
    """Calls ``module`` from several threads with inputs drawn from those passed to ``add_input``.

    >>> bench = facula.utils.ThroughputBenchmark(facula.nn.Linear(2, 3))
    >>> bench.add_input(facula.ones(1, 2))
    >>> bench.benchmark(num_calling_threads=2, num_iters=10).num_iters
    10
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._inputs: list[tuple[tuple, dict]] = []

    def add_input(self, *args: Any, **kwargs: Any) -> None:
        self._inputs.append((args, kwargs))

    def run_once(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the module's result for these arguments."""
        return self._module(*args, **kwargs)

    def benchmark(
        self,
        num_calling_threads: int = 1,
        num_warmup_iters: int = 10,
        num_iters: int = 100,
        profiler_output_path: str = "",
    ) -> ExecutionStats:
        """Runs ``num_warmup_iters`` calls in each thread, then measures ``num_iters`` calls of all
        threads together. With ``profiler_output_path``, a trace of them is written to that path.
        """
        if not self._inputs:
            raise RuntimeError("ThroughputBenchmark: expected inputs, which add_input() takes")
        if num_calling_threads < 1 or num_iters < 1:
            raise RuntimeError("ThroughputBenchmark: expected at least one thread and one iteration")
        counter, lock, failed = iter(range(num_iters)), threading.Lock(), []
        start = threading.Barrier(num_calling_threads + 1)

        def call(draw: random.Random) -> None:
            args, kwargs = draw.choice(self._inputs)
            self._module(*args, **kwargs)

        def work(seed: int) -> None:
            draw = random.Random(seed)
            try:
                for _ in range(num_warmup_iters):
                    call(draw)
            except BaseException as e:  # noqa: BLE001  raised again by the caller
                failed.append(e)
            start.wait()
            try:
                while not failed:
                    with lock:
                        if next(counter, None) is None:
                            return
                    call(draw)
            except BaseException as e:  # noqa: BLE001
                failed.append(e)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(num_calling_threads)]
        for t in threads:
            t.start()
        start.wait()
        began = time.perf_counter()
        if profiler_output_path:
            from .. import profiler

            with profiler.profile() as p:
                for t in threads:
                    t.join()
            p.export_chrome_trace(profiler_output_path)
        for t in threads:
            t.join()
        took = time.perf_counter() - began
        if failed:
            raise failed[0]
        return ExecutionStats(
            took * num_calling_threads / num_iters * 1e3, num_iters, took, num_calling_threads
        )
