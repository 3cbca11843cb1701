"""Earlier releases of Shoal, built from the repository's history, to run beside this version.

``docs/releases.json`` has the commit of each release. A release gets its own tree and its own virtual environment with
the dependencies of its own lock file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASES = ROOT / "docs" / "releases.json"
LOCK = "requirements-dev.lock"


def newest_release() -> str:
    """The version of the newest release."""
    return str(json.loads(RELEASES.read_text())["releases"][-1]["version"])


def build_release(version: str, folder: Path) -> Path:
    """Build a release in ``folder``; returns its Python."""
    commit = commit_of(version)
    tree, venv = folder / "tree", folder / "venv"
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    if (tree / LOCK).read_bytes() == (ROOT / LOCK).read_bytes():
        _copy_environment(Path(sys.prefix), venv)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        install = [
            str(venv / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "-qq",
            "--no-deps",
            "--require-hashes",
            "-r",
            LOCK,
        ]
        subprocess.run(install, cwd=tree, check=True)
    python = venv / "bin" / "python"
    (site,) = (venv / "lib").glob("python*/site-packages")
    for link in site.glob("*shoal*.pth"):
        link.unlink()
    (site / "_shoal.pth").write_text(str(tree / "src"))
    subprocess.run([str(python), "-m", "shoal.kube.schema.compile"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    where = subprocess.run(
        [str(python), "-c", "import shoal; print(shoal.__file__)"], cwd=tree, check=True, capture_output=True, text=True
    ).stdout
    assert where.startswith(str(tree)), f"release {version} would run {where.strip()}"
    return python


def commit_of(version: str) -> str:
    """The commit of a release; fails when the history does not have it."""
    found = {each["version"]: each["commit"] for each in json.loads(RELEASES.read_text())["releases"]}
    assert version in found, f"docs/releases.json has no version {version!r}"
    commit: str = found[version]
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    assert known.returncode == 0, (
        f"commit {commit} of release {version} is not in this clone: clone with the whole history"
    )
    return commit


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def _copy_environment(source: Path, target: Path) -> None:
    """A virtual environment with the same packages: the files are shared, the paths in its scripts are its own."""
    shutil.copytree(source, target, symlinks=True, copy_function=_link)
    for script in (target / "bin").iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        content = script.read_bytes()
        if content.startswith(b"#!") and str(source).encode() in content:
            script.unlink()
            script.write_bytes(content.replace(str(source).encode(), str(target).encode()))
            script.chmod(0o755)
