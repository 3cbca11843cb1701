"""The control plane from istiod's Deployment and its mesh configuration."""

from __future__ import annotations

import orjson
import pytest

from shoal.navigator.edge.mesh.plan import control_plane, istiod_of, mesh_config, version_of
from shoal.testing import istio


def test_a_control_plane_is_read_from_its_deployment() -> None:
    _, deployment, config = istio.control_plane(revision="canary", cluster="west", version="1.28.0-distroless")
    istiod = istiod_of(deployment)
    assert istiod is not None
    assert (istiod.revision, istiod.version, istiod.cluster_id) == ("canary", "1.28.0", "west")
    assert istiod.config_map == config["metadata"]["name"] == "istio-canary"
    key, data = control_plane(istiod, mesh_config(config))
    spec = orjson.loads(data)["spec"]
    assert key == "istio-system/istiod-canary" and spec["trustDomain"] == "example.org"


def test_other_deployments_are_ignored() -> None:
    assert istiod_of(istio.deployment("shop", "front", "v1")) is None
    assert istiod_of({"metadata": {"name": "x"}}) is None


@pytest.mark.parametrize(
    ("image", "labels", "version"),
    [
        ("docker.example/istio/pilot:1.22.3", {}, "1.22.3"),
        ("docker.example:5000/istio/pilot:1.22.3-distroless", {}, "1.22.3"),
        ("pilot@sha256:abc", {"app.kubernetes.io/version": "1.9.0"}, "1.9.0"),
        ("pilot:latest", {}, "latest"),
        ("pilot:latest", {"operator.istio.io/version": "1.8.0"}, "1.8.0"),
        ("", {}, ""),
    ],
)
def test_the_version_is_that_of_the_image_else_of_the_labels(image: str, labels: dict[str, str], version: str) -> None:
    assert version_of(image, labels) == version


def test_the_root_namespace_is_istiods_own_unless_the_mesh_says_otherwise() -> None:
    istiod = istiod_of(istio.control_plane()[1])
    assert istiod is not None
    assert orjson.loads(control_plane(istiod, {})[1])["spec"]["rootNamespace"] == "istio-system"
    named = control_plane(istiod, {"rootNamespace": "root"})
    assert orjson.loads(named[1])["spec"]["rootNamespace"] == "root"


@pytest.mark.parametrize("text", ["{", "- a", "just text"])
def test_a_mesh_configuration_that_cannot_be_read_says_so(text: str) -> None:
    with pytest.raises(ValueError, match="mesh configuration"):
        mesh_config({"data": {"mesh": text}})
    assert mesh_config({}) == {}
