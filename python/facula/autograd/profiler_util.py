"""The contents of a profile: events, their sums by name, tables and traces."""

from __future__ import annotations

import gzip
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex, overload

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]


class Interval:
    """A time interval, in microseconds since the beginning of the profile."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval(start={self.start}, end={self.end})"


def _shown_time(us: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3f}{unit}"
    return f"{us:.3f}us"


def _shown_bytes(n: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} B"


class _Times:
    """The common part of events and their sums; times are in microseconds."""

    name: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    cpu_memory_usage: int
    self_cpu_memory_usage: int
    allocated: int

    @property
    def key(self) -> str:
        return self.name

    @property
    def cpu_time(self) -> float:
        """The mean time of a call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        return _shown_time(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        return _shown_time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return _shown_time(self.self_cpu_time_total)

    # There is no other device.
    device_time_total = self_device_time_total = device_time = 0.0
    device_memory_usage = self_device_memory_usage = 0


class FunctionEvent(_Times):
    """One event: an operator call, a kernel, a library function, a compilation, or a part that the
    program named.

    ``category`` is ``"operator"``, ``"kernel"``, ``"library"``, ``"compile"`` or ``"user"``. ``location``
    is the line of the user's program, ``"file(line): function"``; for a gradient, that of the
    differentiated call.
    """

    count = 1

    def __init__(self, raw: tuple[Any, ...], origin: int) -> None:
        (self.id, self._parent_id, self.thread, self.category, self.name, start, end, own, allocated, freed,
         self.sequence_nr, self.is_backward, stack, shapes, dtypes, result) = raw  # fmt: skip
        self.time_range = Interval((start - origin) / 1e3, (end - origin) / 1e3)
        self.cpu_time_total = (end - start) / 1e3
        self.self_cpu_time_total = own / 1e3
        self.allocated, self.freed = allocated, freed
        self.cpu_memory_usage = self.self_cpu_memory_usage = allocated - freed
        self.input_shapes: list[Any] = json.loads(shapes) if shapes else []
        self.input_dtypes: list[str] = json.loads(dtypes) if dtypes else []
        self.result_shape: list[int] | None = json.loads(result) if result else None
        self.flops = 0  # set if requested
        self.stack: list[str] = stack.split("\n") if stack else []
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []

    @property
    def location(self) -> str:
        return self.stack[0] if self.stack else ""

    @property
    def is_async(self) -> bool:
        """Whether it may have ended on another thread, as collectives do."""
        return bool(self.name.startswith("gloo:"))

    @property
    def is_user_annotation(self) -> bool:
        return self.category == "user"

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} category={self.category} "
            f"cpu_time={self.cpu_time_str} thread={self.thread} input_shapes={self.input_shapes} "
            f"location={self.location!r}>"
        )


class FunctionEventAvg(_Times):
    """The sum of the events of one name (and shapes, and line, if these are separated)."""

    def __init__(self, first: FunctionEvent | None = None) -> None:
        self.name = first.name if first else ""
        self.category = first.category if first else ""
        self.input_shapes: list[Any] | None = first.input_shapes if first else None
        self.stack: list[str] = first.stack if first else []
        self.count = self.flops = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = self.allocated = 0
        self.is_user_annotation = first.is_user_annotation if first else False
        self._locations: dict[str, float] = {}

    def add(self, e: FunctionEvent) -> None:
        self.count += 1
        self.flops += e.flops
        # Recursive calls are nested: their time counts once.
        outer = e.cpu_parent
        while outer is not None and (outer.name, outer.category) != (e.name, e.category):
            outer = outer.cpu_parent
        if outer is None:
            self.cpu_time_total += e.cpu_time_total
            self.cpu_memory_usage += e.cpu_memory_usage
            self.allocated += e.allocated
        self.self_cpu_time_total += e.self_cpu_time_total
        self.self_cpu_memory_usage += e.self_cpu_memory_usage
        if e.location:
            self._locations[e.location] = self._locations.get(e.location, 0.0) + e.cpu_time_total

    @property
    def location(self) -> str:
        """The line with the largest time, and the number of others."""
        if not self._locations:
            return ""
        first = max(self._locations, key=self._locations.__getitem__)
        return first + (f" and {len(self._locations) - 1} more" if len(self._locations) > 1 else "")

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} category={self.category} "
            f"self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} count={self.count} "
            f"input_shapes={self.input_shapes}>"
        )


_Any = FunctionEvent | FunctionEventAvg

_SORTS: dict[str, Callable[[Any], float]] = {
    name: (lambda e, name=name: getattr(e, name))  # type: ignore[misc]
    for name in """cpu_time_total self_cpu_time_total cpu_time cpu_memory_usage self_cpu_memory_usage count
                   device_time_total self_device_time_total device_time""".split()
} | {
    "cpu_time_avg": lambda e: e.cpu_time,
    "self_cpu_time": lambda e: e.self_cpu_time_total,
    "total": lambda e: e.cpu_time_total,
    "self": lambda e: e.self_cpu_time_total,
    "memory": lambda e: e.allocated,
}


def _clipped(text: str, width: int, keep_end: bool = False) -> str:
    if len(text) <= width:
        return text
    return "..." + text[len(text) - width + 3 :] if keep_end else text[: width - 3] + "..."


class EventList(list[_Any]):
    """Events, or their sums. Its repr is a table.

    >>> with facula.profile() as prof:
    ...     y = facula.ones(100, 100).exp()
    >>> [e.name for e in prof.events() if e.category == "operator"]
    ['aten::ones', 'aten::full', 'aten::exp']
    """

    def __init__(
        self,
        events: Iterable[_Any] = (),
        *,
        memory: Iterable[tuple[int, int, int]] = (),
        origin: int = 0,
        profile_memory: bool = False,
        held: int = 0,
        thread_names: dict[int, str] | None = None,
    ) -> None:
        super().__init__(events)
        self._memory = list(memory)
        self._origin = origin
        self._profile_memory = profile_memory
        self._held = held
        self._thread_names = thread_names or {}

    @property
    def self_cpu_time_total(self) -> float:
        return sum(e.self_cpu_time_total for e in self)

    @overload
    def __getitem__(self, i: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, i: slice) -> list[Any]: ...
    def __getitem__(self, i: Any) -> Any:
        return super().__getitem__(i)

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__()

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Returns sums by name, optionally separated by the shapes of the operands and by the innermost
        lines of the program.
        """
        sums: dict[Any, FunctionEventAvg] = {}
        for e in self:
            key = (e.name, e.category, str(e.input_shapes) if group_by_input_shapes else "",
                   tuple(e.stack[:group_by_stack_n]))  # fmt: skip
            if key not in sums:
                sums[key] = FunctionEventAvg(e)
                if not group_by_input_shapes:
                    sums[key].input_shapes = None
                sums[key].stack = e.stack[:group_by_stack_n]
            sums[key].add(e)
        return EventList(sums.values(), profile_memory=self._profile_memory)

    def total_average(self) -> FunctionEventAvg:
        """Returns the sum over all events."""
        total = FunctionEventAvg()
        for e in self:
            total.count += e.count
            total.self_cpu_time_total += e.self_cpu_time_total
            total.self_cpu_memory_usage += e.self_cpu_memory_usage
        total.name = "Total"
        total.cpu_time_total = total.self_cpu_time_total
        total.cpu_memory_usage = total.self_cpu_memory_usage
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """Returns a table, sorted by decreasing ``sort_by``: ``"cpu_time_total"``,
        ``"self_cpu_time_total"``, ``"cpu_memory_usage"``, ``"count"``, ...
        """
        rows: list[Any] = list(self)
        if top_level_events_only:
            rows = [e for e in rows if not isinstance(e, FunctionEvent) or e.cpu_parent is None]
        if sort_by is not None:
            by = _SORTS.get(sort_by.replace("cuda_", "device_"))
            if by is None:
                raise ValueError(f"table: cannot sort by {sort_by!r}; known are {', '.join(sorted(_SORTS))}")
            rows.sort(key=by, reverse=True)
        units = {"s": 1e6, "ms": 1e3, "us": 1.0}
        if time_unit is not None and time_unit not in units:
            raise ValueError(f"table: time_unit must be 's', 'ms' or 'us', not {time_unit!r}")

        def time(us: float) -> str:
            return _shown_time(us) if time_unit is None else f"{us / units[time_unit]:.3f}{time_unit}"

        total = sum(e.self_cpu_time_total for e in self)

        def percent(part: float) -> str:
            return f"{100 * part / total:.2f}%" if total else "--"

        columns: list[tuple[str, Callable[[Any], str]]] = [
            ("Name", lambda e: _clipped(e.name, max_name_column_width)),
            ("Kind", lambda e: e.category),
            ("Self CPU %", lambda e: percent(e.self_cpu_time_total)),
            ("Self CPU", lambda e: time(e.self_cpu_time_total)),
            ("CPU total", lambda e: time(e.cpu_time_total)),
            ("CPU time avg", lambda e: time(e.cpu_time)),
        ]
        if self._profile_memory:
            columns += [
                ("CPU Mem", lambda e: _shown_bytes(e.cpu_memory_usage)),
                ("Self CPU Mem", lambda e: _shown_bytes(e.self_cpu_memory_usage)),
            ]
        columns.append(("# of Calls", lambda e: str(e.count)))
        if any(e.input_shapes for e in rows):
            columns.append(
                ("Input Shapes", lambda e: _clipped(str(e.input_shapes or ""), max_shapes_column_width))
            )
        if any(e.location for e in rows):
            columns.append(("Source Location", lambda e: _clipped(e.location, max_src_column_width, True)))
        if most := max((e.flops for e in rows), default=0):
            step = min(int(math.log10(most) / 3), len(_FLOPS) - 1)
            columns.append(
                (f"Total {_FLOPS[step]}", lambda e: f"{e.flops / 1e3**step:.3f}" if e.flops else "--")
            )
        lines = [[title for title, _ in columns]]
        lines += [[f(e) for _, f in columns] for e in (rows if row_limit < 0 else rows[:row_limit])]
        widths = [max(len(line[k]) for line in lines) for k in range(len(columns))]
        left = {"Name", "Kind", "Input Shapes", "Source Location"}
        text = [
            "  ".join(
                f"{cell:{'<' if title in left else '>'}{w}}"
                for cell, w, (title, _) in zip(line, widths, columns)
            ).rstrip()
            for line in lines
        ]
        rule = "  ".join("-" * w for w in widths)
        out = ([header] if header else []) + [rule, text[0], rule, *text[1:]]
        if row_limit >= 0 and len(rows) > row_limit:
            out.append(f"... {len(rows) - row_limit} more")
        out += [rule, f"Self CPU time total: {time(total)}"]
        return "\n".join(out) + "\n"

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for Perfetto or chrome://tracing; compressed if the name ends with ``.gz``."""
        write_beside(path, json.dumps(self._trace()))

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Writes a line for each stack with its sum in microseconds, in the format of flame graphs."""
        if metric not in ("self_cpu_time_total", "self_device_time_total"):
            raise ValueError(f"export_stacks: metric must be 'self_cpu_time_total', not {metric!r}")
        sums: dict[str, float] = {}
        for e in self:
            if e.stack:
                names = [line.replace(" ", "_").replace(";", ",") for line in reversed(e.stack)]
                key = ";".join([*names, e.name.replace(" ", "_")])
                sums[key] = sums.get(key, 0.0) + getattr(e, metric)
        write_beside(path, "".join(f"{k} {int(v)}\n" for k, v in sums.items() if int(v)))

    def _trace(self) -> dict[str, Any]:
        pid = os.getpid()
        out: list[dict[str, Any]] = [
            {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": "facula"}}
        ]
        for tid in sorted({e.thread for e in self}):
            name = self._thread_names.get(tid, f"thread {tid}")
            out.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}})
        forward: dict[int, FunctionEvent] = {}
        for e in sorted(self, key=lambda e: e.id):
            args: dict[str, Any] = {"id": e.id}
            if e.input_shapes:
                args |= {"shapes": e.input_shapes, "dtypes": e.input_dtypes}
            if e.location:
                args["location"] = e.location
            if len(e.stack) > 1:
                args["stack"] = e.stack
            if e.allocated or e.freed:
                args |= {"allocated bytes": e.allocated, "freed bytes": e.freed}
            if e.sequence_nr >= 0:
                args["sequence"] = e.sequence_nr
            one = {"ph": "X", "pid": pid, "tid": e.thread, "cat": e.category, "name": e.name}
            times = {"ts": round(e.time_range.start, 3), "dur": round(e.cpu_time_total, 3)}
            out.append(one | times | {"args": args})
            if e.sequence_nr < 0:
                continue
            flow = {
                "pid": pid,
                "tid": e.thread,
                "cat": "forward to backward",
                "name": "gradient",
                "id": e.sequence_nr,
            }
            if not e.is_backward:
                forward[e.sequence_nr] = e
            elif e.sequence_nr in forward:
                first = forward.pop(e.sequence_nr)
                out.append(flow | {"ph": "s", "tid": first.thread, "ts": round(first.time_range.start, 3)})
                out.append(flow | {"ph": "f", "bp": "e", "ts": round(e.time_range.start, 3)})
        held = self._held - sum(change for _, _, change in self._memory)
        for time, _, change in sorted(self._memory):
            held += change
            at = round((time - self._origin) / 1e3, 3)
            out.append({"ph": "C", "pid": pid, "name": "memory", "ts": at, "args": {"bytes": held}})
        return {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": out}


def write_beside(path: str | os.PathLike[str], text: str) -> None:
    """Writes the file atomically: under another name, which is then renamed."""
    path = os.fspath(path)
    beside = f"{path}.{os.getpid()}.{threading.get_native_id()}.tmp"
    try:
        if path.endswith(".gz"):
            with gzip.open(beside, "wt", encoding="utf-8") as zipped:
                zipped.write(text)
        else:
            with open(beside, "w", encoding="utf-8") as file:
                file.write(text)
        os.replace(beside, path)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


_FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose2d")


def _counted(e: FunctionEvent) -> int:
    """Returns the floating-point operations of one call from its shapes; a multiplication and an addition
    are 2.
    """
    name, shapes, result = e.name.removeprefix("aten::").rstrip("_"), e.input_shapes, e.result_shape
    if e.category != "operator" or result is None:
        return 0
    places = math.prod(result)
    if name in ("add", "mul"):
        return places
    if name in ("mm", "bmm", "_matmul", "linear"):
        return 2 * places * (shapes[0][-1] if shapes[0] else 0)
    if name in ("addmm", "baddbmm"):
        return 2 * places * shapes[1][-1]
    if name in _CONVOLUTIONS:
        weight, transposed = shapes[1], name == "conv_transpose2d"
        return 2 * (math.prod(shapes[0]) if transposed else places) * math.prod(weight[1:])
    return 0


def count_flops(events: EventList) -> None:
    """Sets the counts of events; a call inside of a counted one is part of it."""
    for e in events:
        outer, flops = e.cpu_parent, _counted(e)
        while flops and outer is not None:
            flops, outer = (0 if outer.flops else flops), outer.cpu_parent
        e.flops = flops


def parse(recorded: tuple[int, int, list[Any], list[Any]], profile_memory: bool, held: int) -> EventList:
    """Returns the events of a recording, in order of start, with their relations."""
    start, _, raw, memory = recorded
    events = [FunctionEvent(r, start) for r in raw]
    by_id = {e.id: e for e in events}
    events.sort(key=lambda e: e.id)
    for e in events:
        parent = by_id.get(e._parent_id)
        if parent is not None:
            e.cpu_parent = parent
            parent.cpu_children.append(e)
    for e in events:
        e.self_cpu_memory_usage -= sum(c.cpu_memory_usage for c in e.cpu_children)
    names = {t.native_id: t.name for t in threading.enumerate() if t.native_id is not None}
    return EventList(
        events,
        memory=memory,
        origin=start,
        profile_memory=profile_memory,
        held=held,
        thread_names=names,
    )
