"""`make release` in a clone: what stops it, what it builds, and what it leaves in git."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = "9.9.9"
CHART = "apiVersion: v2\nname: sample\nversion: 0.0.1\nappVersion: 0.0.1\n"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t.example", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This tree as it is now, committed, with a chart."""
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(folder))
    for name in git(ROOT, "ls-files", "--modified", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / "charts" / "sample" / "templates").mkdir(parents=True)
    (folder / "charts" / "sample" / "Chart.yaml").write_text(CHART)
    (folder / "charts" / "sample" / "templates" / "a.yaml").write_text("kind: ConfigMap\n")
    git(folder, "config", "user.name", "t")
    git(folder, "config", "user.email", "t@t.example")
    commit(folder)
    return folder


def commit(clone: Path) -> None:
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "x")


def release(clone: Path, *options: str, code: int = 0) -> str:
    command = [sys.executable, "scripts/release.py", *options]
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "PYTHONPATH": str(clone / "src")}
    done = subprocess.run(command, cwd=clone, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def prepared(clone: Path) -> Path:
    changelog = clone / "CHANGELOG.md"
    if "## [Unreleased]\n\n#" not in changelog.read_text():  # right after a release
        changelog.write_text(
            changelog.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n\n- x\n", 1)
        )
    release(clone, "--prepare", VERSION)
    commit(clone)
    return clone


def test_a_release_is_refused_with_what_to_do(clone: Path) -> None:
    (clone / "left").touch()
    assert release(clone, code=1).startswith("error: not everything is committed; commit or stash it:\n?? left")
    (clone / "left").unlink()
    releases = clone / "docs" / "releases.json"
    version = json.loads(releases.read_text())["releases"][-1]["version"]
    code = clone / "src" / "shoal" / "__init__.py"
    code.write_text(f'__version__ = "{version}"\n')
    git(clone, "commit", "--quiet", "--allow-empty", "--all", "--message", "x")
    assert f"{version} is released already; write the next one with" in release(clone, code=1)
    code.write_text(f'__version__ = "{VERSION}"\n')
    commit(clone)
    assert f"CHANGELOG.md has no changes under ## [{VERSION}]" in release(clone, code=1)
    assert "version is 'next'; use numbers" in release(clone, "--prepare", "next", code=1)
    prepared(clone)
    chart = clone / "charts" / "sample" / "Chart.yaml"
    assert chart.read_text() == f'apiVersion: v2\nname: sample\nversion: {VERSION}\nappVersion: "{VERSION}"\n'
    chart.write_text(CHART)
    commit(clone)
    assert f"sample/Chart.yaml has version 0.0.1; set it to {VERSION}" in release(clone, "--dry-run", code=1)
    assert not (clone / "dist").exists() and not git(clone, "tag")


def test_a_dry_run_builds_everything_and_leaves_nothing_in_git(clone: Path) -> None:
    head = git(prepared(clone), "rev-parse", "HEAD")
    said = release(clone, "--dry-run", "--no-image")
    assert f"{VERSION} can be released; nothing is tagged" in said and "without a container image, as asked" in said
    check_built(clone / "dist")
    assert git(clone, "rev-parse", "HEAD") == head and not git(clone, "tag") and not git(clone, "status", "--porcelain")


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_release_is_tagged_and_noted_and_its_files_are_the_same_each_time(clone: Path) -> None:
    head = git(prepared(clone), "rev-parse", "HEAD")
    release(clone, "--dry-run", "--no-image")
    sums = (clone / "dist" / "SHA256SUMS").read_text()
    assert f"{VERSION} is tagged v{VERSION}" in release(clone, "--no-image")
    assert (clone / "dist" / "SHA256SUMS").read_text() == sums
    assert git(clone, "rev-parse", f"v{VERSION}^{{commit}}") == head == git(clone, "rev-parse", "HEAD~1")
    noted = json.loads((clone / "docs" / "releases.json").read_text())["releases"]
    assert noted[-1] == {"version": VERSION, "commit": head} and len(noted) > 1
    assert not git(clone, "status", "--porcelain")
    assert f"{VERSION} is released already" in release(clone, code=1)


def check_built(dist: Path) -> None:
    names = {path.name for path in dist.iterdir()}
    wheel, source, chart = (
        f"shoal_fleet-{VERSION}-py3-none-any.whl",
        f"shoal_fleet-{VERSION}.tar.gz",
        f"sample-{VERSION}.tgz",
    )
    assert names >= {wheel, source, chart, f"shoal-fleet-{VERSION}.sbom.json", "SHA256SUMS"}
    assert [name for name in names if name.startswith("pytest_shoal-") and name.endswith(".whl")]
    checked = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=dist, capture_output=True, text=True, check=True
    )
    assert checked.stdout.count(": OK") == len(names) - 1
    with zipfile.ZipFile(dist / wheel) as files:
        assert {"shoal/examples/hello.yaml", "shoal/kube/schema/generated/types.json"} <= set(files.namelist())
    with tarfile.open(dist / chart) as packed:
        assert packed.getnames() == ["sample/Chart.yaml", "sample/templates/a.yaml"]
    with tarfile.open(dist / source) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert {"pyproject.toml", "examples/hello.yaml", "scripts/hatch_build.py", "src/shoal/app/main.py"} <= inside
    assert not [name for name in inside if "generated/" in name or name.endswith(".pyc")]
    about = json.loads((dist / f"shoal-fleet-{VERSION}.sbom.json").read_text())["metadata"]["component"]
    assert about == {"type": "application", "name": "shoal-fleet", "version": VERSION}
