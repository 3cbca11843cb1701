"""A server with the built-in plugins and objects to try them on."""

from __future__ import annotations

from typing import Any

from shoal.testing.servers import ServerAnswer

NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def a_container(name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "example.com/image:1", **more}


def a_pod(name: str = "p", *, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": [a_container()], **spec}}


def denied(answer: ServerAnswer) -> str:
    """What a refusal says."""
    assert answer.status == 403, f"{answer.status}: {answer.body.decode()}"
    found: str = answer.json["message"]
    return found


def warnings(answer: ServerAnswer) -> list[str]:
    found = answer.headers.get("warning", "")
    texts = found.removeprefix('299 - "').removesuffix('"').split('", 299 - "')
    return [text.replace('\\"', '"') for text in texts if text]
