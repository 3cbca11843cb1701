"""What users install: pinned, with hashes, under licences that may be used, and as a bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_locked_packages_pass_the_audit_and_are_in_the_bill_of_materials(tmp_path: Path) -> None:
    bill = tmp_path / "sbom.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "sbom.py"), str(bill)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = {each["name"]: each for each in json.loads(bill.read_text())["components"]}
    assert {"sqlalchemy", "uvloop", "orjson"} <= set(found)
    assert all(each["hashes"] for each in found.values())
