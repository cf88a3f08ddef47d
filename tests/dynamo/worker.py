"""Runs tests of the archived suite with what `import torch` gives: a line of JSON for each.

python worker.py FOLDER RESULTS MODULE...
"""

import contextlib
import importlib
import io
import json
import signal
import sys
import unittest

SECONDS = 60  # of a test


class Timeout(Exception):
    pass


def tests_of(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from tests_of(part)
        else:
            yield part


def stop(*_):
    raise Timeout(f"more than {SECONDS} s")


def outcome(test):
    from torchdynamo import testing

    testing.outcomes.clear()
    result = unittest.TestResult()
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            test.run(result)
    finally:
        signal.alarm(0)
    row = {"test": test.id(), "counts": list(testing.outcomes)}
    row["skipped"] = bool(result.skipped or result.expectedFailures or result.unexpectedSuccesses)
    errors = result.errors + result.failures
    row["passed"] = not errors and not row["skipped"]
    if errors:
        row["error"] = errors[0][1].strip()[-1500:]
    return row


def main():
    folder, results, *modules = sys.argv[1:]
    sys.path.insert(0, folder)
    with open(results, "w") as out:
        for name in modules:
            try:
                suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(name))
            except Exception as error:  # noqa: BLE001  (a module of the suite that this library cannot import)
                row = {"test": name, "passed": False, "error": str(error)[:300], "counts": []}
                out.write(json.dumps(row) + "\n")
                continue
            for test in tests_of(suite):
                out.write(json.dumps(outcome(test)) + "\n")
                out.flush()


if __name__ == "__main__":
    main()
