"""The container image: built without a package index or a registry, and run as the manifests run it.

The base is made of Debian's packages, since no image can be pulled here. Takes root, podman, runc and mmdebstrap; where one is missing the
tests say which.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal import __version__

pytestmark = [pytest.mark.timeout(1200), pytest.mark.xdist_group("image")]

IMAGE = f"localhost/shoal:{__version__}"
ROOT = Path(__file__).resolve().parents[2]
USER = 65532
# What the machine that tests run on may lack the right to raise; the defaults of podman would need it.
CONFIG = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
# What a kubelet does: waits until it is ready, and ends it.
START_AND_STOP = """
import subprocess, time
began = time.monotonic()
shoal = subprocess.Popen(["shoal", "control", "start", "--port", "0"], stdout=subprocess.PIPE, text=True)
line = shoal.stdout.readline()
took_s = time.monotonic() - began
shoal.terminate()
print(f"{took_s:.1f} {shoal.wait(30)} {line}")
"""


@dataclass(frozen=True)
class Engine:
    """Podman with storage of its own."""

    command: tuple[str, ...]
    environ: dict[str, str]
    work: Path

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [
            *self.command,
            "run",
            "--rm",
            "--network=host",
            "--read-only",
            "--read-only-tmpfs=false",
        ]
        state = self.work / "state"
        state.mkdir(exist_ok=True)
        os.chown(state, USER, USER)
        mounts = [
            "--tmpfs=/tmp",
            f"--volume={state}:/var/lib/shoal",
            "--cap-drop=all",
            "--security-opt=no-new-privileges",
        ]
        return subprocess.run(
            [*command, *mounts, *arguments], env=self.environ, capture_output=True, text=True, check=check, timeout=120
        )


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The image built, in an engine that has only it."""
    if missing := [each for each in ("podman", "runc", "mmdebstrap") if shutil.which(each) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("building a base takes root")
    work = tmp_path_factory.mktemp("image")
    (work / "containers.conf").write_text(CONFIG)
    short = tempfile.mkdtemp(prefix="shoal-image-")  # podman's limit is 50 letters
    command = ("podman", f"--root={work}/root", f"--runroot={short}", f"--tmpdir={work}/tmp")
    environ = {**os.environ, "CONTAINERS_CONF": str(work / "containers.conf")}
    began = time.monotonic()
    made = subprocess.run(
        [str(ROOT / "scripts" / "image.sh"), "--podman", " ".join(command), "--output", str(work / "image.tar")],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:]
    print(f"{made.stdout.strip().splitlines()[-1]}, built in {time.monotonic() - began:.0f} s")
    yield Engine(command, environ, work)
    subprocess.run([*command, "rm", "--all", "--force", "--time=0"], env=environ, capture_output=True, check=False)
    subprocess.run([*command, "rmi", "--all", "--force"], env=environ, capture_output=True, check=False)
    shutil.rmtree(short, ignore_errors=True)


def test_the_image_is_configured_as_a_cluster_needs_it(engine: Engine) -> None:
    shown = subprocess.run(
        [*engine.command, "image", "inspect", IMAGE], env=engine.environ, capture_output=True, check=True
    )
    (about,) = json.loads(shown.stdout)
    config = about["Config"]
    assert config["User"] == f"{USER}:{USER}" and config["Entrypoint"] == ["/opt/shoal/bin/shoal"]
    assert not about.get("HealthCheck") and not config.get("Healthcheck") and not config.get("ExposedPorts")
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
    assert about["Size"] < 400_000_000
    assert (engine.work / "image.tar").stat().st_size < 400_000_000


def test_every_process_of_a_cluster_is_in_it(engine: Engine) -> None:
    for words in (
        "control start", "navigator manager", "krane start", "navigator edge", "sentinel start", "shard manager", "shard worker",
        "shard proxy",
    ):  # fmt: skip
        assert f"Usage: shoal {words}" in engine.run(IMAGE, *words.split(), "--help").stdout
    every = (
        "import shoal.app.cluster, shoal.app.fleet.agent, shoal.app.fleet.control, shoal.app.fleet.relay, shoal.app.navigator.edge, "
        "shoal.app.navigator.manager, shoal.app.sharding.manager, shoal.app.sharding.proxy, shoal.app.sharding.worker, "
        "shoal.sentinel.service, hvac, opentelemetry.sdk, os; from shoal.sentinel.supervisor import find_envoy; print(os.getuid(), find_envoy())"
    )
    user, envoy = engine.run("--entrypoint=/opt/shoal/bin/python", IMAGE, "-c", every).stdout.split()
    assert int(user) == USER
    assert "version:" in engine.run(f"--entrypoint={envoy}", IMAGE, "--version").stdout


def test_neither_compilers_nor_package_managers_are_in_it(engine: Engine) -> None:
    look = (
        "import shutil; print([n for n in ('cc', 'gcc', 'pip', 'apt-get', 'dpkg', 'perl', 'curl') if shutil.which(n)])"
    )
    assert engine.run("--entrypoint=/opt/shoal/bin/python", IMAGE, "-c", look).stdout.strip() == "[]"


def test_a_control_plane_starts_on_a_read_only_root_and_ends_with_sigterm(engine: Engine) -> None:
    written = engine.run("--entrypoint=/opt/shoal/bin/python", IMAGE, "-c", "open('/opt/shoal/x', 'w')", check=False)
    assert "Read-only file system" in written.stderr
    began = time.monotonic()
    engine.run(IMAGE, "version")
    print(f"`shoal version` in a new container: {time.monotonic() - began:.1f} s")
    # The first start makes keys and tables; the second is what a restarted pod does.
    for start in ("first", "second"):
        took_s, code, line = engine.run("--entrypoint=/opt/shoal/bin/python", IMAGE, "-c", START_AND_STOP).stdout.split(
            " ", 2
        )
        assert line.startswith("ready https://127.0.0.1:") and code == "0"
        print(f"control plane in a container, {start} start: ready in {took_s} s")
