"""The guides do what they say: every kubectl line of them is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.conftest import NODES, SIMULATED, Kubectl, find_kubectl

from shoal.testing.servers import ServerProcess, server_process
from shoal.testing.waiting import eventually_blocking

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


# those for users of a cluster; the commands of the fleet's guides are run by test_fleet_guide
OF_CLUSTERS = sorted(
    guide for guide in GUIDES.glob("*.md") if "\n$ kubectl " in guide.read_text() and guide.stem != "fleet"
)


@pytest.fixture(params=OF_CLUSTERS, ids=lambda guide: guide.stem)
def guide(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def cluster(guide: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """The cluster that a guide starts; one with nodes is the guide's own, for it changes them."""
    if "--runtime simulated" not in guide.read_text():
        yield request.getfixturevalue("api_server")
        return
    with server_process(None, *SIMULATED) as started:
        kubectl = Kubectl(find_kubectl(), started.kubeconfig, "default", started.directory)
        eventually_blocking(
            lambda: kubectl("get", "nodes", "-o", "name").split(), until=lambda found: len(found) == len(NODES)
        )
        yield started


def kubectl_lines(text: str) -> list[tuple[list[str], str]]:
    """The commands of a guide's console blocks, each with the output that is shown for it."""
    found: list[tuple[list[str], str]] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE):
            line, _, output = command.partition("\n")
            if line.startswith("kubectl "):
                found.append((shlex.split(line)[1:], output))
    return found


def files_of(text: str) -> dict[str, str]:
    """The files that a guide tells to save."""
    return dict(re.findall(r"Save as `([\w.-]+)`:\n\n```yaml\n(.*?)```", text, re.DOTALL))


def test_every_kubectl_line_works(kubectl: Kubectl, tmp_path: Path, guide: Path) -> None:
    text = guide.read_text()
    lines = kubectl_lines(text)
    assert lines, f"{guide.name} has no commands to run"
    manifests = tmp_path / "your-manifests"
    manifests.mkdir()
    (manifests / "one.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n")
    files = files_of(text)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    for line, output in lines:
        words = [str(tmp_path / word) if word in files else word for word in line]
        words = [word.replace("your-manifests/", f"{manifests}/") for word in words]
        if "--watch" in words:
            with kubectl.started(*words) as watching:
                assert watching.stdout is not None
                assert watching.stdout.readline()
        elif output.startswith("error"):
            assert output.strip().rpartition(": ")[2] in kubectl.fails(*words)
        else:
            kubectl(*words)
