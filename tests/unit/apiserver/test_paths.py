"""What a path names."""

from __future__ import annotations

import pytest

from shoal.apiserver.paths import ResourcePath, parse


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ResourcePath("", "v1", "pods")),
        ("/api/v1/namespaces", ResourcePath("", "v1", "namespaces")),
        ("/api/v1/namespaces/a", ResourcePath("", "v1", "namespaces", None, "a")),
        ("/api/v1/namespaces/a/status", ResourcePath("", "v1", "namespaces", None, "a", "status")),
        ("/api/v1/namespaces/a/finalize", ResourcePath("", "v1", "namespaces", None, "a", "finalize")),
        ("/api/v1/namespaces/a/pods", ResourcePath("", "v1", "pods", "a")),
        ("/api/v1/namespaces/a/pods/", ResourcePath("", "v1", "pods", "a")),
        ("/api/v1/namespaces/a/pods/p/status", ResourcePath("", "v1", "pods", "a", "p", "status")),
        ("/apis/apps/v1/namespaces/a/deployments/d", ResourcePath("apps", "v1", "deployments", "a", "d")),
        ("/apis/x.io/v1/things/t", ResourcePath("x.io", "v1", "things", None, "t")),
        ("/apis/x.io/v1/things/t/ports/22/tcp", ResourcePath("x.io", "v1", "things", None, "t", "ports", "22/tcp")),
        ("/api/v1/watch/pods", ResourcePath("", "v1", "pods", deprecated_watch=True)),
        ("/api/v1/watch/namespaces/a/pods/p", ResourcePath("", "v1", "pods", "a", "p", deprecated_watch=True)),
        ("/api/v1/nodes/n/proxy/a/b/", ResourcePath("", "v1", "nodes", None, "n", "proxy", "a/b/")),
    ],
)
def test_resource_paths(path: str, expected: ResourcePath) -> None:
    assert parse(path) == expected


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/a/b/c/d",
    "/api/v1/", "/api/v1/namespaces/a/pods/p/status/more", "/openapi/v3/api/v1", "/api/v1/namespaces/a/pods//status",
    "/api/v1/namespaces//pods", "/api//pods", "/apis//v1/pods", "/api/v1//pods", "/api/v1/namespaces/a/pods/p//",
    "/api/v1/watch/namespaces/a/pods/p/status"])  # fmt: skip
def test_other_paths_are_not_resources(path: str) -> None:
    assert parse(path) is None
