"""Which representation a client gets."""

from __future__ import annotations

import pytest

from shoal.apiserver.negotiate import PLAIN, Representation, body_type, flag, patch_type, query, representation
from shoal.errors import NotAcceptable, UnsupportedMediaType

KUBECTL = (
    b"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
TYPED_GO = b"application/vnd.kubernetes.protobuf,application/json"
METADATA = (
    b"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
    b"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)


@pytest.mark.parametrize(
    ("accept", "collection", "expected"),
    [
        (None, False, PLAIN),
        (b"", True, PLAIN),
        (b"*/*", True, PLAIN),
        (b"application/*", True, PLAIN),
        (TYPED_GO, False, PLAIN),
        (b"application/vnd.kubernetes.protobuf, */*", False, PLAIN),
        (b"application/json;stream=watch", False, PLAIN),
        (KUBECTL, True, Representation("application/json", "Table", "v1")),
        (METADATA, False, Representation("application/json", "PartialObjectMetadata", "v1")),
        (METADATA, True, PLAIN),
        (b"application/yaml", False, Representation("application/yaml")),
        (b"application/yaml;q=0.1, application/json;q=0.9", False, PLAIN),
    ],
)
def test_accept(accept: bytes | None, collection: bool, expected: Representation) -> None:
    assert representation(accept, collection=collection) == expected


@pytest.mark.parametrize("accept", [b"text/html", b"application/json;as=Table;g=other;v=v1", b"application/json;q=0"])
def test_what_cannot_be_made_is_refused(accept: bytes) -> None:
    with pytest.raises(NotAcceptable):
        representation(accept, collection=True)


def test_a_kind_without_metadata_has_no_table() -> None:
    with pytest.raises(NotAcceptable):
        representation(b"application/json;as=Table;v=v1;g=meta.k8s.io", collection=False, tables=False)


def test_bodies_are_json_unless_said_otherwise_and_unknown_ones_are_refused() -> None:
    assert body_type(None) == "application/json"
    assert body_type(b"application/json; charset=utf-8") == "application/json"
    with pytest.raises(UnsupportedMediaType):
        body_type(b"text/plain")


def test_custom_resources_take_no_strategic_patch() -> None:
    strategic = b"application/strategic-merge-patch+json"
    assert patch_type(strategic, strategic=True) == strategic.decode()
    with pytest.raises(UnsupportedMediaType):
        patch_type(strategic, strategic=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("watch=1", True),
        ("watch=true", True),
        ("watch=false", False),
        ("watch=0", False),
        ("watch=", True),
    ],
)
def test_flags(text: str, expected: bool) -> None:
    assert flag(query(text), "watch") is expected
