"""The guides do what they say: every kubectl line of them is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.clients.conftest import Kubectl

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


def kubectl_lines(guide: Path) -> list[list[str]]:
    blocks = re.findall(r"```console\n(.*?)```", guide.read_text(), re.DOTALL)
    lines = [
        line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ kubectl ")
    ]
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.parametrize("guide", sorted(GUIDES.glob("*.md")), ids=lambda guide: guide.stem)
def test_every_kubectl_line_works(kubectl: Kubectl, tmp_path: Path, guide: Path) -> None:
    lines = kubectl_lines(guide)
    assert lines, f"{guide.name} has no commands to run"
    manifests = tmp_path / "your-manifests"
    manifests.mkdir()
    (manifests / "one.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n")
    for words in lines:
        if "--watch" in words:
            with kubectl.started(*words) as watching:
                assert watching.stdout is not None
                assert watching.stdout.readline()
        else:
            kubectl(*(word.replace("your-manifests/", f"{manifests}/") for word in words))
