"""Who may do what: every resource, verb and subresource for every kind of user, against a table that people can read.

``authorization_matrix.txt`` says what is expected. What the server serves and the table does not mention fails, with
the line to add. Every cell is asked by a real request and by a SubjectAccessReview.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.node_access import NodesConfig
from shoal.apiserver.registry import Served
from shoal.testing.servers import LocalServer, local_server

TABLE = Path(__file__).with_name("authorization_matrix.txt")
LETTERS = {
    "c": "create", "d": "delete", "D": "deletecollection", "g": "get", "l": "list", "p": "patch", "u": "update",
    "w": "watch",
}  # fmt: skip
VERBS = {verb: letter for letter, verb in LETTERS.items()}
# name, groups; what they are bound to is in ``a_cluster_with_people``
PEOPLE = {
    "admin": ("ann", ()),
    "edit": ("ed", ()),
    "view": ("vera", ()),
    "node": ("system:node:it", ("system:nodes",)),
    "other-node": ("system:node:other", ("system:nodes",)),
    "account": ("system:serviceaccount:team:idle", ()),
    "nobody": ("bob", ()),
}
GROUPS = {
    "account": ("system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"),
    "node": ("system:nodes", "system:authenticated"),
    "other-node": ("system:nodes", "system:authenticated"),
}
NAME = "it"  # of everything: the node, its pod, what the pod needs
NAMESPACE = "team"
METHODS = {
    "create": "POST", "delete": "DELETE", "deletecollection": "DELETE", "get": "GET", "list": "GET",
    "patch": "PATCH", "update": "PUT", "watch": "GET",
}  # fmt: skip
RBAC = "rbac.authorization.k8s.io"
# paths that are answered though the list of paths at / does not show them
UNLISTED = ("/", "/healthz/ping", "/livez/ping", "/readyz/ping", "/.well-known/openid-configuration", "/openid/v1/jwks")


@dataclass(frozen=True)
class Route:
    """One row of the table: a resource, a subresource or a path, with the verbs it is served with."""

    name: str
    verbs: str
    served: Served | None = None
    subresource: str = ""


@dataclass(frozen=True)
class Row:
    verbs: str
    allowed: dict[str, str]


def letters(verbs: Any) -> str:
    return "".join(sorted((VERBS[verb] for verb in verbs), key=str.lower)) or "-"


def table() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for line in TABLE.read_text().splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        assert len(words) == 2 + len(PEOPLE), f"a line needs a name, verbs and {len(PEOPLE)} columns: {line}"
        assert words[0] not in rows, f"{words[0]} is there twice"
        rows[words[0]] = Row(words[1], dict(zip(PEOPLE, words[2:], strict=True)))
    return rows


def routes(server: LocalServer) -> Iterator[Route]:
    """Everything the server serves, once per version."""
    for served in server.server.core.registry:
        resource = served.resource
        yield Route(resource.qualified, letters(resource.verbs), served)
        for sub in resource.subresources:
            yield Route(f"{resource.qualified}/{sub.name}", letters(sub.verbs), served, sub.name)


async def paths(server: LocalServer) -> list[str]:
    """The paths that are no resources; those of single API groups are one."""
    listed = (await server.get("/"))["paths"]
    shown = [f"{path[:5].rstrip('/')}/*" if path.startswith(("/apis/", "/api/")) else path for path in listed]
    return list(dict.fromkeys([*shown, *UNLISTED]))


def column_line(name: str, verbs: str, allowed: dict[str, str]) -> str:
    cells = [f"{name:<64}", f"{verbs:<9}", *(f"{allowed.get(person, '-'):<{max(len(person), 8)}}" for person in PEOPLE)]
    return " ".join(cells).rstrip()


@asynccontextmanager
async def a_cluster_with_a_node() -> AsyncIterator[LocalServer]:
    """Metrics are served while there are nodes. This node has no address, so the server does not ask it."""
    files = {"ca": Path("ca.crt"), "certificate": Path("client.crt"), "key": Path("client.key")}
    async with local_server(config=ServerConfig(ca_certificate="test CA", nodes=NodesConfig(**files))) as server:
        await server.post("/api/v1/nodes", {"metadata": {"name": NAME}})
        yield server


@asynccontextmanager
async def a_cluster_with_people() -> AsyncIterator[LocalServer]:
    """Three users with a default role in one namespace; a node with a pod that needs one of everything."""
    async with a_cluster_with_a_node() as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for role in ("admin", "edit", "view"):
            user = {"kind": "User", "name": PEOPLE[role][0], "apiGroup": RBAC}
            reference = {"kind": "ClusterRole", "name": role, "apiGroup": RBAC}
            await server.post(
                f"/apis/{RBAC}/v1/namespaces/{NAMESPACE}/rolebindings",
                {"metadata": {"name": role}, "roleRef": reference, "subjects": [user]},
            )
        core = f"/api/v1/namespaces/{NAMESPACE}"
        await server.post(f"{core}/serviceaccounts", {"metadata": {"name": NAME}})
        await server.post(f"{core}/pods", {"metadata": {"name": NAME}, "spec": POD})
        await server.post("/api/v1/persistentvolumes", {"metadata": {"name": NAME}, "spec": VOLUME})
        attached = {"attacher": "a", "nodeName": NAME, "source": {"persistentVolumeName": NAME}}
        await server.post("/apis/storage.k8s.io/v1/volumeattachments", {"metadata": {"name": NAME}, "spec": attached})
        pool = {"name": NAME, "generation": 1, "resourceSliceCount": 1}
        slice_ = {"driver": "example.com", "nodeName": NAME, "pool": pool}
        await server.post("/apis/resource.k8s.io/v1/resourceslices", {"metadata": {"name": NAME}, "spec": slice_})
        yield server


POD = {
    "nodeName": NAME,
    "serviceAccountName": NAME,
    "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": NAME}]}}],
    "resourceClaims": [{"name": NAME, "resourceClaimName": NAME}],
    "volumes": [
        {"name": "a", "secret": {"secretName": NAME}},
        {"name": "b", "configMap": {"name": NAME}},
        {"name": "c", "persistentVolumeClaim": {"claimName": NAME}},
    ],
}
VOLUME = {
    "accessModes": ["ReadWriteOnce"],
    "capacity": {"storage": "1Gi"},
    "claimRef": {"namespace": NAMESPACE, "name": NAME},
    "hostPath": {"path": "/a"},
}


def url(route: Route, verb: str) -> str:
    assert route.served is not None
    resource = route.served.resource
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    if resource.namespaced:
        base += f"/namespaces/{NAMESPACE}"
    name = NAMESPACE if resource.plural == "namespaces" else NAME
    target = f"{base}/{resource.plural}"
    if verb in ("get", "patch", "update", "delete") or route.subresource:
        target += f"/{name}"
    if route.subresource:
        target += f"/{route.subresource}"
    return (
        f"{target}?watch=1&timeoutSeconds=1" if verb == "watch" else f"{target}?dryRun=All" if verb != "get" else target
    )


def headers(person: str) -> dict[str, str]:
    name, groups = PEOPLE[person]
    found = {"Impersonate-User": name, "content-type": "application/json"}
    return {**found, "Impersonate-Group": "\x00".join(groups)} if groups else found


async def refused(server: LocalServer, person: str, method: str, target: str, verb: str) -> bool:
    """Whether a request is turned away at the gate; what becomes of it behind is not asked here."""
    reply = await server.transport.stream(
        method, target, headers=headers(person), body=b"{}" if method in ("POST", "PUT", "PATCH") else b""
    )
    try:
        if reply.status != 403:
            return False
        text = b"".join([chunk async for chunk in reply.chunks()]).decode()
        return f"cannot {verb} resource" in text or f"cannot {verb} path" in text
    finally:
        await reply.close()


async def reviewed(server: LocalServer, person: str, attributes: dict[str, Any]) -> bool:
    name, _ = PEOPLE[person]
    spec = {"user": name, "groups": list(GROUPS.get(person, ("system:authenticated",))), **attributes}
    answer = await server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    return answer["status"]["allowed"]  # type: ignore[no-any-return]


def attributes(route: Route, verb: str) -> dict[str, Any]:
    assert route.served is not None
    resource = route.served.resource
    named = verb in ("get", "patch", "update", "delete") or route.subresource
    namespace, name = NAMESPACE if resource.namespaced else "", NAME if named else ""
    if resource.plural == "namespaces" and named:
        namespace = name = NAMESPACE
    asked = {
        "verb": verb, "group": resource.group, "version": resource.version, "resource": resource.plural,
        "subresource": route.subresource, "namespace": namespace, "name": name,
    }  # fmt: skip
    return {"resourceAttributes": asked}


async def found(server: LocalServer, route: Route) -> dict[str, str]:
    """Who may what on a route, by asking."""
    allowed = {}
    for person in PEOPLE:
        may = []
        for verb in (LETTERS[letter] for letter in route.verbs):
            if route.served is not None:
                passed = not await refused(server, person, METHODS[verb], url(route, verb), verb)
                said = await reviewed(server, person, attributes(route, verb))
            else:
                path = route.name.replace("*", "v1" if route.name == "/api/*" else "apps/v1")
                passed = not await refused(server, person, "GET", path, verb)
                said = await reviewed(server, person, {"nonResourceAttributes": {"verb": verb, "path": path}})
            assert passed == said, f"{person} {verb} {route.name}: the request and the review differ ({passed}, {said})"
            if passed:
                may.append(verb)
        allowed[person] = letters(may)
    return allowed


async def test_everything_served_has_a_line_and_every_line_is_served() -> None:
    async with a_cluster_with_a_node() as server:
        rows = table()
        served = list(routes(server)) + [Route(path, "g") for path in await paths(server)]
        missing = [
            column_line(route.name, route.verbs, {})
            for route in served
            if route.name not in rows or rows[route.name].verbs != route.verbs
        ]
        assert not missing, f"decide who may, and put these lines into {TABLE.name}:\n" + "\n".join(missing)
        gone = set(rows) - {route.name for route in served}
        assert not gone, f"{TABLE.name} has lines for what is not served: {sorted(gone)}"


async def test_every_user_may_do_what_the_table_says_and_nothing_else() -> None:
    async with a_cluster_with_people() as server:
        rows = table()
        served = list(routes(server)) + [Route(path, "g") for path in await paths(server)]
        wrong = []
        for route in served:
            allowed = await found(server, route)
            expected = rows[route.name].allowed if route.name in rows else {}
            if allowed != expected:
                wrong.append(column_line(route.name, route.verbs, allowed))
        assert not wrong, f"{TABLE.name} says otherwise; what was found:\n" + "\n".join(wrong)
