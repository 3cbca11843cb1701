"""Credentials, faults and progress of image pulls."""

from __future__ import annotations

import base64
import json

from shoal.node.runtime.docker.images import Layers, auth_header, matching, pull_fault
from shoal.node.runtime.model import (
    ImageFault,
    RegistryCredentials,
)
from shoal.node.runtime.process.images import parse_reference


def test_credentials_match_the_registry_of_the_image_most_specific_first() -> None:
    hub = RegistryCredentials(server="https://index.docker.io/v1/", username="hub")
    whole = RegistryCredentials(server="r.example:5000", username="whole")
    part = RegistryCredentials(server="r.example:5000/team", username="part")

    def users(reference: str) -> list[str]:
        return [each.username for each in matching(parse_reference(reference), (hub, whole, part))]

    assert users("busybox:1") == ["hub"]
    assert users("docker.io/a/b") == ["hub"]
    assert users("r.example:5000/team/app") == ["part", "whole"]
    assert users("r.example:5000/teamwork/app") == ["whole"]
    assert users("other.example/app") == []


def test_the_credentials_header_is_url_safe_base64() -> None:
    header = auth_header(RegistryCredentials(server="r", username="ü", password="?~"))
    assert json.loads(base64.urlsafe_b64decode(header)) == {
        "username": "ü",
        "password": "?~",
        "serveraddress": "r",
    }


def test_an_unreachable_registry_is_a_different_fault_than_a_refusal() -> None:
    assert pull_fault("dial tcp 127.0.0.1:1: connect: connection refused") is ImageFault.REGISTRY
    assert pull_fault("Get https://x/v2/: dial tcp: lookup x: no such host") is ImageFault.REGISTRY
    assert pull_fault("manifest for x:1 not found: manifest unknown") is ImageFault.PULL


def test_progress_is_the_sum_over_the_layers() -> None:
    layers = Layers("x:1")
    assert layers.add({"status": "Pulling fs layer", "id": "a"}) is None
    layers.add({"status": "Downloading", "id": "a", "progressDetail": {"current": 1, "total": 10}})
    layers.add({"status": "Downloading", "id": "b", "progressDetail": {"current": 2, "total": 20}})
    found = layers.add({"status": "Downloading", "id": "a", "progressDetail": {"current": 5, "total": 10}})
    assert found is not None
    assert (found.done_bytes, found.total_bytes) == (7, 30)
