"""Specs for the runtime: DNS, users, the hosts file."""

from __future__ import annotations

import pytest
from node_pods import POD

from shoal.node.errors import ConfigFault
from shoal.node.pods.spec import hosts_file, sandbox_spec, security_of
from shoal.node.runtime.model import Image


def test_a_sandbox_searches_the_domains_of_the_cluster() -> None:
    found = sandbox_spec(POD, 0, "/x", dns_servers=("10.96.0.10",), domain="cluster.local")
    assert found.dns_searches == ("n.svc.cluster.local", "svc.cluster.local", "cluster.local")
    assert found.dns_options == ("ndots:5",)


def test_running_as_root_can_be_forbidden() -> None:
    pod = {**POD, "spec": {**POD["spec"], "securityContext": {"runAsNonRoot": True, "runAsUser": 7}}}
    assert security_of(pod, {"name": "c"}, Image(id="i", names=())).user == 7
    with pytest.raises(ConfigFault, match="breaks non-root policy"):
        security_of(pod, {"name": "c", "securityContext": {"runAsUser": 0}}, Image(id="i", names=()))


def test_the_hosts_file_has_the_pod_and_its_aliases() -> None:
    aliases = [{"ip": "1.2.3.4", "hostnames": ["foo", "bar"]}]
    pod = {**POD, "spec": {**POD["spec"], "hostAliases": aliases, "subdomain": "sub"}}
    lines = hosts_file(pod, ("10.0.0.1",)).splitlines()
    assert "10.0.0.1\tp.sub.n.svc.cluster.local\tp" in lines
    assert "1.2.3.4\tfoo\tbar" in lines
