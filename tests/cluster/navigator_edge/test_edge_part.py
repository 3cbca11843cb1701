"""The edge as a part of a cluster's process, and its commands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
import yaml
from typer.testing import CliRunner

from shoal.app.commands.navigator import app
from shoal.app.components import ComponentDeps
from shoal.app.connect import in_process
from shoal.app.navigator.part import EdgePart
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.client import builtin
from shoal.errors import ConfigError
from shoal.navigator.edge import rbac
from shoal.testing.navigator import recording_manager
from shoal.testing.servers import local_server


async def test_an_edge_in_the_servers_process_has_an_account_and_a_name_of_its_own(tmp_path: Path) -> None:
    async with local_server() as server, recording_manager() as manager:
        connect = in_process(server.server.handler, RealClock())
        metrics = Metrics()
        host = ComponentDeps(connect, RealClock(), Ids(), Random(), metrics, "process-1", tmp_path)
        join = manager.join_file()
        part = EdgePart(host, join, "edge-of-east")
        running = asyncio.create_task(part.run(), name="part")
        await manager.until(lambda: manager.model.verifications and manager.model.state("pods") == "synced")
        assert manager.sessions[-1].edge == "edge-of-east"
        part.stop()
        await asyncio.wait_for(running, 10)
        accounts = connect("shoal:setup").of(builtin("serviceaccounts"))
        assert await accounts.get(rbac.SERVICE_ACCOUNT, rbac.NAMESPACE)
        assert b'shoal_edge_rows{kind="namespaces"}' in metrics.render()


def test_manifests_are_printed_for_an_administrator() -> None:
    result = CliRunner().invoke(app, ["manifests", "--edge-namespace", "mesh", "--revision", "canary"])
    assert result.exit_code == 0, result.output
    objects = list(yaml.safe_load_all(result.output))
    assert [obj["kind"] for obj in objects] == ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
    assert objects[3]["subjects"][0]["namespace"] == "mesh"
    assert any(rule.get("resourceNames") == ["istio", "istio-canary"] for rule in objects[2]["rules"])


def test_manifests_for_namespaces_have_roles_in_these_alone() -> None:
    result = CliRunner().invoke(app, ["manifests", "--namespace", "a", "--namespace", "b"])
    assert result.exit_code == 0, result.output
    objects = list(yaml.safe_load_all(result.output))
    assert [(obj["kind"], obj["metadata"].get("namespace")) for obj in objects[2:]] == [
        ("Role", "a"), ("RoleBinding", "a"), ("Role", "b"), ("RoleBinding", "b"),
    ]  # fmt: skip
    resources = {name for rule in objects[2]["rules"] for name in rule["resources"]}
    assert "pods" in resources and not {"nodes", "namespaces"} & resources
    assert {subject["namespace"] for subject in objects[3]["subjects"]} == {rbac.NAMESPACE}
    pattern = CliRunner().invoke(app, ["manifests", "--namespace", "team-*"])
    assert isinstance(pattern.exception, ConfigError) and "team-*" in str(pattern.exception)


def test_an_edge_without_a_join_file_names_the_missing_setting(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["edge", "--join", str(tmp_path / "none.yaml")])
    assert isinstance(result.exception, ConfigError)
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        raise result.exception
