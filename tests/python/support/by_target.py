"""Results and gradients of operators' first samples, by what makes this process's kernels.

python by_target.py PART PARTS FILE        every PARTS-th operator
python by_target.py special 1 FILE         those of the namespace `special`
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import facula as F
from support.operators import UNDEFINED, arguments, call, cases, tensors, usual_dtype


def is_special(case):
    return case.base.startswith("special_") or hasattr(F.special, case.base.rstrip("_"))


def results(part, parts):
    found = {}
    for number, case in enumerate(cases()):
        if not (is_special(case) if part == "special" else number % int(parts) == int(part)):
            continue
        if not case.samples or case.base in UNDEFINED:
            continue
        F.manual_seed(0)
        args = arguments(case, 0, usual_dtype(case))
        given = tensors(args)
        got = tensors(call(case, args))
        found[case.name] = [t.detach().clone() for t in got + (given if case.writes else [])]
        if not case.differentiable or case.writes or case.random:
            continue
        leaves = [t.requires_grad_() for t in given if t.is_floating_point() or t.is_complex()]
        made = [t for t in tensors(call(case, args)) if t.requires_grad]
        if not made:
            continue
        try:
            F.autograd.backward(made, [F.ones_like(t) for t in made])
        except (NotImplementedError, RuntimeError) as e:
            assert "not implemented" in str(e) or "no second derivative" in str(e), f"{case.name}: {e}"
        found[case.name] += [t.grad.detach() for t in leaves if t.grad is not None]
    return found


if __name__ == "__main__":
    F.save(results(sys.argv[1], sys.argv[2]), sys.argv[3])
