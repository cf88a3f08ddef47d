"""Records what PyTorch's modules hold: the names and values of their attributes, which pickles carry.

    .peer/bin/python tests/golden/record_module_attributes.py

``module_attributes.json.gz`` has {class: {attribute: value}}, beside those of every module, of modules made
with as few arguments as they take ("": arguments). ``test_torch_alias.py`` compares those that Facula has.
"""

import json
import re
import sys
from pathlib import Path


def shown(value, module_class):
    if isinstance(value, list) and value and all(hasattr(v, "requires_grad") for v in value):
        return f"{len(value)} parameters"
    is_function = callable(value) and not isinstance(value, module_class)
    return value.__name__ if is_function else re.sub(" at 0x[0-9a-f]+", "", repr(value))


def attributes(nn):
    """Of the classes of nn that some of these arguments make."""
    held = {}
    for name in sorted(vars(nn)):
        made = getattr(nn, name)
        if not (isinstance(made, type) and issubclass(made, nn.Module)):
            continue
        for arguments in ((), (4,), (2,), (4, 4), (4, 4, 2), (2, 4), (2, 2, 2, 2), (8, 2)):
            try:
                module = made(*arguments)
            except (TypeError, ValueError, NotImplementedError, IndexError):
                continue
            plain = vars(nn.Module())
            own = {k: shown(v, nn.Module) for k, v in module.__getstate__().items() if k not in plain}
            tables = {k: sorted(vars(module)[k]) for k in ("_parameters", "_buffers", "_modules")}
            held[name] = {"": list(arguments), **own, **{k: v for k, v in tables.items() if v}}
            break
    return held


if __name__ == "__main__":
    import torch.nn

    answers = json.dumps(attributes(torch.nn), indent=0, sort_keys=True)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
    from support import recording

    recording.write("module_attributes.json", answers + "\n")
