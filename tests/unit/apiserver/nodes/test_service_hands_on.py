"""Which bodies are handed on while they come in: those for a proxy, whatever objects are called."""

from __future__ import annotations

import pytest

from shoal.apiserver.nodes.service import hands_on


@pytest.mark.parametrize(
    "target",
    [
        b"/api/v1/namespaces/default/pods/web/proxy",
        b"/api/v1/namespaces/default/pods/web:8080/proxy/a/b?c=d",
        b"/api/v1/namespaces/default/services/https:web:443/proxy/",
        b"/api/v1/nodes/node-1/proxy/healthz",
        b"/api/v1/namespaces/default/pods/web/proxy?path=/x",
    ],
)
def test_proxies_hand_on(target: bytes) -> None:
    assert hands_on(target)


@pytest.mark.parametrize(
    "target",
    [
        b"/api/v1/namespaces/default/pods/proxy",
        b"/api/v1/namespaces/default/pods/proxy-1/status",
        b"/apis/example.com/v1/namespaces/default/proxies/proxy/proxy",
        b"/api/v1/namespaces/proxy/configmaps",
        b"/api/v1/namespaces/default/pods?fieldSelector=/proxy/",
    ],
)
def test_names_that_look_like_it_do_not(target: bytes) -> None:
    assert not hands_on(target)
