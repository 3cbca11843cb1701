"""``shoal why pod``: its output, and the choice of the cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.app.commands.why import ClusterChoice
from shoal.app.main import main
from shoal.base.clock import Clock
from shoal.client import Client
from shoal.errors import ConfigError
from shoal.scheduler.explain import PodExplanation
from shoal.scheduler.model import TAINTED, NodeExplanation

FOUND = PodExplanation(
    namespace="default", name="web", node="b", phase="Running", message="", said="", nominated="",
    nodes=(
        NodeExplanation("a", scores={"NodeResourcesFit": 90}), NodeExplanation("b", scores={"NodeResourcesFit": 80}),
        NodeExplanation("c", TAINTED),
    ),
)  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """The requested pods; the explanation is always ``FOUND``."""
    calls: list[tuple[str, str]] = []

    async def explain(client: Client, namespace: str, name: str, *, clock: Clock) -> PodExplanation:
        calls.append((namespace, name))
        return FOUND

    monkeypatch.setattr("shoal.scheduler.explain.explain", explain)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "apps")))
    return calls


def kubeconfig(folder: Path, namespace: str, url: str = "https://127.0.0.1:1") -> Path:
    path = folder / "kubeconfig"
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "namespace": namespace}}],
        "clusters": [{"name": "x", "cluster": {"server": url}}],
    }
    path.write_text(json.dumps(document))
    return path


def test_a_table_shows_the_node_of_the_pod_and_the_score_of_each_node(
    asked: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", "pod", "web"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "default/web: on b, nodes with a higher score now: 1"
    assert shown[2].split() == ["NODE", "FITS", "SCORE", "WHY"]
    assert shown[4].split(maxsplit=3) == ["b", "yes", "80", "is here; NodeResourcesFit 80"]
    assert shown[5].split(maxsplit=3) == ["c", "no", "-", "TaintToleration: node(s) had untolerated taint(s)"]
    assert asked == [("apps", "web")]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_json_and_yaml_contain_everything(
    form: str, asked: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    import yaml

    assert main(["why", "pod", "web", "-n", "default", "-o", form]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["node"] == "b"
    assert document["nodes"][1] == {
        "node": "b", "here": True, "fits": True, "score": 80, "scores": {"NodeResourcesFit": 80}, "plugin": "",
        "reasons": [],
    }  # fmt: skip
    assert document["nodes"][2]["reasons"] == ["node(s) had untolerated taint(s)"]
    assert asked == [("default", "web")]


def test_the_cluster_comes_from_the_options_else_the_environment_else_shoal_home(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("given", "environment", "home")}
    for name, folder in folders.items():
        (folder / "pki").mkdir(parents=True)
        kubeconfig(folder, name)
    environment = {"SHOAL_HOME": str(folders["home"])}
    assert ClusterChoice().access(environment).namespace == "home"
    assert ClusterChoice(dir=folders["given"]).access(environment).namespace == "given"
    assert ClusterChoice(kubeconfig=str(folders["given"] / "kubeconfig")).access(environment).namespace == "given"
    environment["KUBECONFIG"] = str(folders["environment"] / "kubeconfig")
    assert ClusterChoice().access(environment).namespace == "environment"
    assert ClusterChoice(dir=folders["given"]).access(environment).namespace == "given"
    with pytest.raises(ConfigError, match="no cluster found there"):
        ClusterChoice(dir=tmp_path / "nothing").access(environment)
