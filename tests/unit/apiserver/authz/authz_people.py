"""Roles, bindings and people for the tests of authorization."""

from __future__ import annotations

from typing import Any

from shoal.testing.servers import LocalServer, ServerAnswer

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
SUBJECT_KINDS = {"user": "User", "group": "Group"}


def subject(text: str) -> dict[str, Any]:
    """``user:bob``, ``group:devs`` or ``account:namespace/name``."""
    kind, _, name = text.partition(":")
    if kind == "account":
        namespace, _, account = name.rpartition("/")
        made = {"kind": "ServiceAccount", "name": account}
        return {**made, "namespace": namespace} if namespace else made
    return {"kind": SUBJECT_KINDS[kind], "name": name, "apiGroup": GROUP}


def role(name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more.pop("metadata", {})}, "rules": list(rules), **more}


def rule(verbs: str, resources: str, groups: str = "", **more: Any) -> dict[str, Any]:
    return {"verbs": verbs.split(","), "apiGroups": groups.split(","), "resources": resources.split(","), **more}


def binding(name: str, role_name: str, *subjects: str, kind: str = "ClusterRole") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name},
        "subjects": [subject(text) for text in subjects],
    }


class People:
    """Requests as other users."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server

    async def ask(self, user: str, method: str, path: str, body: Any = None, **headers: str) -> ServerAnswer:
        """``user`` may be followed by groups: ``bob/devs/testers``."""
        name, *groups = user.split("/")
        sent = {"Impersonate-User": name, **headers}
        if groups:
            sent["Impersonate-Group"] = "\x00".join(groups)
        return await self.server.call(method, path, body, sent)

    async def grant(self, path: str, *objects: dict[str, Any]) -> None:
        for obj in objects:
            await self.server.post(f"{RBAC}/{path}", obj)
