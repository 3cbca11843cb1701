"""The wheel has all that an installed Shoal needs, and runs far from any checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.clients.wheels import ROOT, build_wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, unpacked into an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build_wheel(folder)) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def shoal(installed: Path, folder: Path, *argv: str) -> str:
    command = [sys.executable, "-m", "shoal", *argv]
    environ = {"PYTHONPATH": str(installed), "SHOAL_HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_files_of_the_build_and_nothing_of_the_tests(installed: Path) -> None:
    assert {path.name for path in installed.iterdir()} == {"shoal", f"{distribution(installed)}.dist-info"}
    for each in (
        "examples/hello.yaml",
        "kube/schema/generated/types.json",
        "kube/schema/generated/openapi.json.gz",
        "py.typed",
    ):
        assert (installed / "shoal" / each).is_file(), each
    entry = (installed / f"{distribution(installed)}.dist-info" / "entry_points.txt").read_text()
    assert "shoal = shoal.app.main:main" in entry
    texts = [path for path in (installed / "shoal").rglob("*") if path.suffix in (".py", ".yaml") and path.is_file()]
    assert len(texts) > 1000
    assert not [path for path in texts if str(ROOT) in path.read_text()]


def distribution(installed: Path) -> str:
    (about,) = installed.glob("*.dist-info")
    return about.name.removesuffix(".dist-info")


def test_commands_run_from_it_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    where = "import shoal, shoal.kube.schema.builtin as b; print(shoal.__file__, len(b.described_definitions()))"
    done = subprocess.run(
        [sys.executable, "-c", where],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    file, definitions = done.stdout.split()
    assert file == str(installed / "shoal" / "__init__.py") and int(definitions) > 500
    assert "examples/hello.yaml" in shoal(installed, tmp_path, "examples")
    assert (tmp_path / "examples" / "canary.yaml").read_bytes() == (ROOT / "examples" / "canary.yaml").read_bytes()
    assert "app demo" not in shoal(installed, tmp_path, "rollout", "plan", "-f", "examples/rehearsal.yaml")
    assert "kind: ClusterRole" in shoal(installed, tmp_path, "krane", "manifests")
