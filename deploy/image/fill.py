"""Installs Shoal from a folder of wheels into a virtual environment and removes what no process reads: fill.py FROM TO.

Runs inside the build with nothing but Python: pip itself is run from its wheel and does not stay.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

# Sources of native code, stubs, and the packages' own tests
UNREAD = (".c", ".cc", ".cpp", ".h", ".pxd", ".pxi", ".pyi", ".pyx")
TESTS = ("test", "tests")


def main(source: Path, target: Path) -> None:
    venv.create(target, with_pip=False, symlinks=True)
    (pip,) = source.glob("wheels/pip-*.whl")
    (shoal,) = source.glob("wheels/shoal_fleet-*.whl")
    install = [
        target / "bin" / "python",
        pip / "pip",
        "install",
        "--quiet",
        "--no-cache-dir",
        "--no-index",
        "--no-deps",
    ]
    lock = source / "requirements.lock"
    wheels = ["--find-links", source / "wheels", "--only-binary", ":all:", "--require-hashes", "--requirement", lock]
    subprocess.run([*map(str, install), *map(str, wheels)], check=True)
    subprocess.run([*map(str, install), str(shoal)], check=True)
    for path in list(_unread(target)):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _unread(target: Path) -> Iterator[Path]:
    (packages,) = target.glob("lib/python3*/site-packages")
    yield from (path for path in packages.rglob("*") if path.suffix in UNREAD and path.is_file())
    for package in packages.iterdir():
        if package.name != "shoal":
            yield from (path for name in TESTS for path in package.rglob(name) if (path / "__init__.py").exists())
    yield target / "include"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
