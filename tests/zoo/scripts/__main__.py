"""Scripts as tutorials have them, on Facula's peer: what they print becomes the file beside each, which
tests/python/test_scripts.py compares with what they print behind the alias.

    .peer/bin/python tests/zoo/scripts   (PYTHONPATH: a folder with torchvision, and one with NumPy and Pillow)
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

for script in sorted(HERE.glob("*.py")):
    if script.name.startswith("_"):
        continue
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(script)]
        printed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    script.with_suffix(".txt").write_text(printed)
    print(script.name, len(printed.splitlines()), "lines")
