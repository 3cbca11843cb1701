"""The guide to testing does what it says: its test passes, tells its seed, and has broken something."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "testing.md"


def test_the_test_of_the_guide_runs_as_it_stands(tmp_path: Path) -> None:
    files = dict(re.findall(r"Save as `([\w.]+)`:\n\n```python\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    assert set(files) == {"conftest.py", "test_client.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_client.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    faults = re.search(r"(\d+) faults injected, .* seeds: 1\b", done.stdout)
    assert faults is not None and int(faults[1]) >= 4, done.stdout
