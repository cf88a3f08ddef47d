"""Behaviours as small functions, run with Facula and with PyTorch, whose results are recorded
(tests/golden/probes.txt).

A probe is a function `probe(torch, P)` whose inner functions, marked by @P, each give one value or raise.
"""

import re
import warnings


def norm(x):
    """A value that both libraries print alike."""
    if hasattr(x, "detach"):
        return [round(v, 5) if isinstance(v, float) else v for v in x.detach().reshape([-1]).tolist()]
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return repr(x)
    if isinstance(x, float):
        return round(x, 6)
    if isinstance(x, (list, tuple)):
        return type(x)(norm(i) for i in x)
    if isinstance(x, dict):
        return {k: norm(v) for k, v in x.items()}
    return x


def anonymous(text: str) -> str:
    return re.sub(r"\b(torch|facula)\b", "LIB", text)


# An error's name of the function: "diff: ", "torch.diff(): ", "diff expects".
NAMED = re.compile(r"^(?:torch\.)?\w+(?:\(\): |: | (?=expects\b))")


def results(torch, probe) -> dict[str, str]:
    """Name of each inner function of a probe: the text of its value, or of its error."""
    found = {}

    def P(f):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                text = str(norm(f()))
        except Exception as e:
            message = NAMED.sub("", str(e).splitlines()[0]) if str(e) else ""
            text = f"{type(e).__name__}: {anonymous(message)[:60]}"  # how it goes on may differ
        assert f.__name__ not in found, f.__name__
        found[f.__name__] = anonymous(text).replace("\n", "|")

    probe(torch, P)
    return found
