"""The files of volumes made from config maps, secrets, the pod and tokens."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from node_pods import POD

from shoal.node.env import EnvironmentSources
from shoal.node.errors import VolumeFault
from shoal.node.volumes.content import File, TokenProjection, VolumeSources, files_of


def content(volume: dict[str, Any], **sources: Any) -> dict[str, File]:
    tokens = sources.pop("tokens", {})
    return files_of(
        {"name": "v", **volume}, POD, VolumeSources(environment=EnvironmentSources(**sources), tokens=tokens)
    )


def test_volumes_hold_the_files_of_their_objects() -> None:
    maps = {"m": {"data": {"a": "1", "b": "2"}, "binaryData": {"c": base64.b64encode(b"\xff").decode()}}}
    assert content({"configMap": {"name": "m"}}, config_maps=maps) == {
        "a": File(b"1"),
        "b": File(b"2"),
        "c": File(b"\xff"),
    }
    items = [{"key": "a", "path": "deep/file", "mode": 0o400}]
    chosen = {"configMap": {"name": "m", "items": items, "defaultMode": 0o600}}
    assert content(chosen, config_maps=maps) == {"deep/file": File(b"1", 0o400)}
    downward = {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}
    assert content(downward) == {"name": File(b"p")}


def test_a_projected_volume_joins_its_sources() -> None:
    wish = TokenProjection("", 3607, "token")
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    found = content(
        {"projected": {"sources": sources}}, config_maps={"ca": {"data": {"ca.crt": "PEM"}}}, tokens={wish: "t.o.k"}
    )
    assert {path: file.data for path, file in found.items()} == {"token": b"t.o.k", "ca.crt": b"PEM", "namespace": b"n"}


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "x"}}, 'configmap "x" not found'),
        ({"secret": {"secretName": "x"}}, 'secret "x" not found'),
        (
            {"configMap": {"name": "m", "items": [{"key": "z", "path": "z"}]}},
            "references non-existent configmap key: z",
        ),
        ({"configMap": {"name": "m", "items": [{"key": "a", "path": "../out"}]}}, "invalid path '../out'"),
    ],
)
def test_a_missing_object_or_key_of_a_volume_is_named_in_the_error(volume: dict[str, Any], message: str) -> None:
    with pytest.raises(VolumeFault) as caught:
        content(volume, config_maps={"m": {"data": {"a": "1"}}})
    assert str(caught.value) == message
