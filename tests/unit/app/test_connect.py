"""The users of components: names, groups, and impersonation over a network."""

from __future__ import annotations

import pytest

from shoal.app.components import users_of
from shoal.app.connect import acting_as, agent_of, groups_of
from shoal.client import AccessConfig


@pytest.mark.parametrize(
    ("user", "agent", "groups"),
    [
        ("system:kube-scheduler", "kube-scheduler", ()),
        ("system:kube-controller-manager", "kube-controller-manager", ()),
        (
            "system:serviceaccount:kube-system:job-controller",
            "kube-controller-manager",
            ("system:serviceaccounts", "system:serviceaccounts:kube-system"),
        ),
        ("system:node:node-1", "kubelet", ("system:nodes",)),
        ("shoal:simulated-nodes", "simulated-nodes", ("system:nodes",)),
    ],
)
def test_a_component_has_the_name_and_groups_of_its_user(user: str, agent: str, groups: tuple[str, ...]) -> None:
    assert agent_of(user) == agent
    assert groups_of(user) == groups


def test_acting_as_a_user_keeps_the_credentials_and_asks_for_name_and_groups() -> None:
    access = AccessConfig(url="https://127.0.0.1:1", token="secret")
    acting = acting_as(access, "system:node:node-1")
    assert acting.token == "secret"
    assert acting.headers == (("impersonate-user", "system:node:node-1"), ("impersonate-group", "system:nodes"))


def test_a_node_process_asks_for_the_rights_of_a_node_and_of_the_proxy_and_not_of_simulated_nodes() -> None:
    assert users_of(["nodes"]) == ["system:node:node-1", "system:kube-proxy"]
    assert users_of(["nodes"], simulated=True) == ["shoal:simulated-nodes"]
