"""What a controller behind the proxy reads has no trace of epochs, and is otherwise unchanged."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from shoal.sharding.model import epoch_annotation
from shoal.sharding.proxy.reading import without_epoch

EPOCH, OTHER = epoch_annotation("web"), epoch_annotation("other")


def obj(*annotations: str, **about: Any) -> dict[str, Any]:
    notes = {"annotations": dict.fromkeys(annotations, "5")} if annotations else {}
    return {"kind": "Website", "metadata": {"name": "a", "resourceVersion": "7", **about, **notes}, "spec": {"x": 1}}


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (obj(EPOCH), obj()),
        (obj(EPOCH, "mine", OTHER), obj("mine", OTHER)),
        (obj("mine"), obj("mine")),
        ({"items": [obj(EPOCH), obj()], "metadata": {}}, {"items": [obj(), obj()], "metadata": {}}),
        ({"type": "MODIFIED", "object": obj(EPOCH)}, {"type": "MODIFIED", "object": obj()}),
        ({"kind": "Table", "rows": [{"cells": ["a"], "object": obj(EPOCH)}]},
         {"kind": "Table", "rows": [{"cells": ["a"], "object": obj()}]}),
        ({"kind": "Status", "message": EPOCH}, {"kind": "Status", "message": EPOCH}),
    ],
)  # fmt: skip
def test_the_epoch_is_left_out(sent: Any, seen: Any) -> None:
    assert orjson.loads(without_epoch(orjson.dumps(sent), "web")) == seen


def test_what_has_none_is_passed_on_as_it_is() -> None:
    for body in (b"", b"not JSON", b'{"kind": "X"}', EPOCH.encode()):
        assert without_epoch(body, "web") == body
