"""A cluster joins the fleet by one command and leaves it again; what is in the way is named with its fix."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from joining_fleet import IMAGE, JoiningFleet, joining_fleet

from shoal.app.joining.manifests import NAMESPACE
from shoal.client import Client, Scope, builtin
from shoal.crds.sentinel import GROUP
from shoal.errors import NotFound
from shoal.testing.waiting import eventually_blocking

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

LABELLED = Scope(label_selector="app.kubernetes.io/managed-by=shoal-cluster-join")


@pytest.fixture(scope="module")
def running() -> Iterator[JoiningFleet]:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,  # the agents' pods mount a volume over /tmp
        joining_fleet(Path(folder), "process") as found,
    ):
        yield found


def join(running: JoiningFleet, *options: str, timeout: str = "90s") -> tuple[int, str]:
    done = running.shoal(
        "cluster", "join", "eu-1", "--kubeconfig", str(running.cluster.kubeconfig), "--region", "eu", "--replicas", "1",
        "--timeout", timeout, *options,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def leave(running: JoiningFleet, *options: str) -> str:
    done = running.shoal("cluster", "leave", "eu-1", "--kubeconfig", str(running.cluster.kubeconfig), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def labelled(client: Client) -> list[str]:
    """The names of what joining has made and leaving has to remove."""
    names = []
    for name, group in (
        ("deployments", "apps"), ("secrets", ""), ("serviceaccounts", ""),
        ("clusterroles", "rbac.authorization.k8s.io"), ("rolebindings", "rbac.authorization.k8s.io"),
    ):  # fmt: skip
        found = await client.of(builtin(name, group)).list(LABELLED)
        names += [f"{name}/{each['metadata']['name']}" for each in found.items]
    return names


async def test_a_cluster_joins_and_leaves_without_a_trace(running: JoiningFleet) -> None:
    code, text = join(running, "--image", IMAGE)
    assert code == 0, text + running.fleet.logs()
    assert "cluster eu-1 has joined region eu" in text and "shoal-edge: 1 of 1 pods available" in text
    (agent,) = running.fleet.api.get("/agents")["items"]
    assert (agent["cluster"], agent["region"], agent["state"]) == ("eu-1", "eu", "Joined")

    code, text = join(running, "--image", IMAGE)  # again: repairs, and does not add tokens
    assert code == 0, text
    tokens = [each for each in running.fleet.api.get("/tokens?kind=agent")["items"] if each["state"] == "active"]
    assert [each["name"] for each in tokens] == ["agent-eu-1"]

    done = running.shoal("cluster", "leave", "eu-1", "--kubeconfig", str(running.cluster.kubeconfig), "--context", "no")
    assert done.returncode == 2, "nothing was removed for an unknown fleet"
    async with running.cluster.client() as client:
        assert await labelled(client)
        text = leave(running)
        assert "cluster eu-1 has left the fleet" in text and "navigator: cluster eu-1 forgotten" in text
        kept = await labelled(client)
        assert all(name.endswith("/shoal-sentinel") for name in kept), kept
        with pytest.raises(NotFound):
            await client.of(builtin("namespaces")).get(NAMESPACE)
        definitions = builtin("customresourcedefinitions", "apiextensions.k8s.io")
        assert any(GROUP in each["metadata"]["name"] for each in (await client.of(definitions).list()).items)
        leave(running, "--purge")
        assert not await labelled(client)
        assert not [each for each in (await client.of(definitions).list()).items if "shard.io" in each["spec"]["group"]]
    assert running.fleet.api.get("/agents")["items"] == []


@pytest.mark.chaos
def test_what_keeps_a_cluster_from_joining_is_named_with_the_fix(running: JoiningFleet, tmp_path: Path) -> None:
    code, text = join(running)
    assert code == 2 and "image is not set" in text and "--image REGISTRY/NAME:TAG" in text

    code, text = join(running, "--image", "registry.example/nobody/none:1", timeout="4s")
    assert code == 1 and ("shoal-krane: ErrImagePull" in text or "shoal-krane: ImagePullBackOff" in text), text
    assert "images.yaml" in text

    nowhere = ("--advertise-url", "https://127.0.0.1:1", "--no-edge", "--no-sharding")
    code, text = join(running, "--image", IMAGE, *nowhere, timeout="8s")
    assert code == 1 and "shoal-edge of an earlier join removed" in text
    assert "Connection refused" in text and "ImagePull" not in text and "--https-proxy" in text, text
    leave(running)

    weak = yaml.safe_load(running.cluster.kubeconfig.read_text())
    weak["users"][0]["user"] = {"token": weak_token(running)}
    (tmp_path / "weak").write_text(yaml.safe_dump(weak))
    weak_doctor = partial(running.shoal, "doctor", "cluster", "--kubeconfig", str(tmp_path / "weak"))
    done = eventually_blocking(
        weak_doctor, until=lambda found: "not allowed: create" in found.stdout
    )  # a token works soon
    assert done.returncode == 1
    done = running.shoal("doctor", "cluster", "--kubeconfig", str(running.cluster.kubeconfig))
    assert done.returncode == 0, done.stdout


def weak_token(running: JoiningFleet) -> str:
    done = running.shoal("token", "create", "--user", "eve", "--dir", str(running.cluster.folder))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_manifests_are_printed_instead_of_applied(running: JoiningFleet) -> None:
    wanted = ("cluster", "join", "us-1", "--region", "us", "--image", IMAGE, "--print")
    done = running.shoal(*wanted)
    assert done.returncode == 2 and "which only this machine reaches" in done.stderr
    urls = ("--advertise-url", "https://fleet.example:7400", "--navigator-url", "https://fleet.example:7410")
    done = running.shoal(*wanted, *urls, "--namespaces", "a,b", "--https-proxy", "http://proxy.example:3128")
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    kinds = [each["kind"] for each in objects]
    assert {"Namespace", "Role", "Secret", "Deployment", "NetworkPolicy", "PodDisruptionBudget"} <= set(kinds)
    (secret,) = [each for each in objects if each["kind"] == "Secret"]
    join_file = yaml.safe_load(secret["stringData"]["krane.yaml"])
    assert join_file["url"] == "https://fleet.example:7400" and join_file["cluster"] == "us-1"
