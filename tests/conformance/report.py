"""What a replay found, as tables and pages."""

import collections
import re

from record import DTYPES, FORMS, NAMESPACES

STATUSES = ("passed", "nearer", "explained", "failed", "absent", "unrecordable")


def namespace(name):
    return next((n for n in NAMESPACES if name.startswith(n + ".")), "facula")


def status(r):
    """An entry passes when it has calls and all of them pass; it is nearer when its other calls are nearer to
    double precision than PyTorch's, and explained when what fails are differences that stay.
    """
    if r["status"] != "present":
        return r["status"]
    if not sum(r["counts"].values()):
        return "unrecordable"
    if not r["failures"]:
        return "nearer" if r["nearer"] else "passed"
    return "explained" if all(f["reason"] for f in r["failures"]) else "failed"


def grid(head, rows):
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(map(str, r))} |" for r in rows),
    ]


def by_namespace(results):
    rows = collections.defaultdict(collections.Counter)
    for name, r in results.items():
        for key in (namespace(name), "all"):
            rows[key][status(r)] += 1
    order = [n for n in ("facula", *NAMESPACES, "all") if n in rows]
    return grid(
        ["namespace", "entries", *STATUSES],
        [[n, sum(rows[n].values()), *(rows[n][s] for s in STATUSES)] for n in order],
    )


def by_calls(results, title, keys, pick):
    """Calls that passed, are nearer, are explained and failed, by dtype or by form."""
    total, nearer, explained, failed = (collections.Counter() for _ in range(4))
    for r in results.values():
        for counted, to in (("counts", total), ("nearer", nearer)):
            for key, n in r.get(counted, {}).items():
                to[pick(key)] += n
        for f in r.get("failures", ()):
            (explained if f["reason"] else failed)[pick(f["call"])] += 1
    others = (nearer, explained, failed)
    rows = [
        [k, total[k], total[k] - sum(x[k] for x in others), *(x[k] for x in others)] for k in keys if total[k]
    ]
    rows.append(["all", *(sum(r[i] for r in rows) for i in range(1, 6))])
    return grid([title, "calls", "passed", "nearer", "explained", "failed"], rows)


def dtype_of(key):
    first = key.split()[0]
    return first if first in DTYPES else "error" if first == "error" else "process"


def form_of(key):
    return next((f for f in FORMS if f in key.split()), "process")


def tables(results):
    return [
        *by_namespace(results),
        "",
        *by_calls(results, "dtype", (*DTYPES, "error", "process"), dtype_of),
        "",
        *by_calls(results, "form", (*FORMS, "process"), form_of),
    ]


def kind(failure):
    """Failures that differ only in numbers are of one kind."""
    text = re.sub(r"'[^']*'|\[[^\]]*\]|-?\d[-\d.e+j()]*|\bnan\b|\binf\b", "#", failure["line"])
    return form_of(failure["call"]), text[:70]


def classes(failures):
    """Failures grouped by kind, the most frequent first."""
    groups = collections.defaultdict(list)
    for name, f in failures:
        groups[kind(f)].append((name, f))
    lines = [f"{len(failures)} failures of {len({n for n, _ in failures})} entries", ""]
    for (form, text), members in sorted(groups.items(), key=lambda g: -len(g[1])):
        names = collections.Counter(n for n, _ in members)
        lines.append(f"== {len(members)}  {form}: {text}")
        lines.append("   in " + ", ".join(f"{n} ({k})" for n, k in names.most_common(30)))
        for name, f in members[:3]:
            lines.append(f"   {name} {f['call']}: {f['line']}")
    return "\n".join(lines) + "\n"


def few(failures):
    """One of each kind."""
    kinds = collections.defaultdict(list)
    for f in failures:
        kinds[kind(f)].append(f)
    return "; ".join(
        f"{v[0]['call']}: {v[0]['line']}".replace("|", "\\|")
        + (f" (and {len(v) - 1} like it)" if v[1:] else "")
        for v in list(kinds.values())[:4]
    )


def page(results):
    named = collections.defaultdict(list)
    for n, r in sorted(results.items()):
        named[status(r)].append(n)
    lines = [
        "# Conformance",
        "",
        "Written by `make conformance`: how Facula answers the calls of PyTorch's own database of operators.",
        "An entry passes when it has calls and every one of them passes, in every form and dtype; it is",
        "nearer when the other calls give what is nowhere further than PyTorch's result from the one in",
        "double precision (second and directional derivatives: from differences of the function), or, in",
        "single precision, than that one moves when its operands change by four epsilons; and explained",
        "when what fails are differences that stay, listed call by call in",
        "`tests/conformance/differences.txt`.",
        "",
        "Where the tests of the database look at less, so does this: at the absolute values of",
        "eigenvectors, and at Hermitian or triangular directions of operands that are. A derivative or an",
        "`out=` that differs and that PyTorch's own test is expected to find wrong is no call; the last",
        "section counts them.",
        "",
        *tables(results),
        "",
        "## Failed",
        "",
    ]
    for n in named["failed"]:
        r = results[n]
        bad = [f for f in r["failures"] if not f["reason"]]
        lines.append(f"- `{n}` ({len(bad)} of {sum(r['counts'].values())}): {few(bad)}")
    lines += ["", "## Differences that stay", ""]
    reasons = collections.defaultdict(collections.Counter)
    for n, r in results.items():
        for f in r.get("failures", ()):
            if f["reason"]:
                reasons[f["reason"]][n] += 1
    for why, names in sorted(reasons.items(), key=lambda x: -sum(x[1].values())):
        lines.append(f"- {why}: {', '.join(f'`{n}` ({k})' for n, k in sorted(names.items()))}")
    lines += ["", "## Absent", "", " ".join(f"`{n}`" for n in named["absent"])]
    lines += ["", "## Unrecordable", ""]
    lines += [f"- `{n}`: {results[n].get('reason', 'no calls')}" for n in named["unrecordable"]]
    lines += ["", "## Samples that are not recorded", ""]
    skipped = collections.Counter()
    for r in results.values():
        skipped.update(r["skipped"])
    lines += [f"- {n}: {why}" for why, n in skipped.most_common(40)]
    rest = sum(skipped.values()) - sum(n for _, n in skipped.most_common(40))
    return "\n".join([*lines, f"- {rest}: for other reasons, once or twice each"]) + "\n"
