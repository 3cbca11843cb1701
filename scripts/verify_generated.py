"""Check that the generated schema tables are what the installed schema package makes today."""

from __future__ import annotations

import filecmp
import sys
import tempfile
from pathlib import Path

from shoal.kube.schema.compile import OUTPUT, compile_tables


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        fresh = Path(name)
        compile_tables(fresh)
        names = sorted(path.name for path in fresh.iterdir())
        _, different, missing = filecmp.cmpfiles(fresh, OUTPUT, names, shallow=False)
    for stale in (*different, *missing):
        print(f"stale: {OUTPUT / stale}; run: make setup", file=sys.stderr)
    return 1 if different or missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
