"""A plugin of pytest that compiles each test function: ``make test-compiled``.

A test whose arguments are parameters alone is called again, so that what was captured runs too, unless
the plain function does not pass twice either.
"""

import inspect

import pytest

import facula

CALLS = 3


def _is_repeatable(item) -> bool:
    parameters = set(getattr(getattr(item, "callspec", None), "params", ()))
    return not (set(item._fixtureinfo.argnames) - parameters) and item.instance is None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    plain = pyfuncitem.obj
    if inspect.iscoroutinefunction(plain) or inspect.isgeneratorfunction(plain):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    compiled = facula.compile(plain)
    compiled(**arguments)
    for _ in range(CALLS - 1 if _is_repeatable(pyfuncitem) else 0):
        try:
            compiled(**arguments)
        except Exception:
            try:
                plain(**arguments)
            except Exception:  # it does not pass twice
                break
            raise
    return True
