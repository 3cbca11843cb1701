"""Tokens with scopes: an answer does not depend on anything outside of them.

Two worlds are asked the same questions with the same token: one has everything, the other only what the token may read.
All answers must be equal, byte for byte: items, counts, suggestions, errors and what is "not found".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from answers_client import ROOT, Client, Streaming, an_api
from answers_world import World, a_pod, a_service, a_slice, an_object, stamp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shoal.base.access import EVERYTHING, NOTHING, Access
from shoal.kube.objects import Obj
from shoal.navigator.answers.api import Authenticate, Caller
from shoal.navigator.answers.checks import MemoryChecks, SavedCheck
from shoal.navigator.connections import CallEndpoint, ServiceConnection, connections_json
from shoal.navigator.model import KINDS, KindStatus
from shoal.navigator.view import Moment
from shoal.rest.api import RestApi
from shoal.testing.views import AT_S, MemoryEdges, MemoryFleet, MemoryHistory, MemoryView, a_cluster
from shoal.wire.navigator.v1.navigator_pb import ClusterEvents, PodLogs, ProxyConfig, ServiceConnections

CLUSTERS = ("eu-1", "eu-2", "us-1")
SPACES = {"team-a": "w1", "team-b": "w2", "sentinel": ""}  # namespace → the workspace that its label names
SCOPES = (
    "cluster=eu-1", "cluster=eu-*,namespace=team-a", "namespace=team-*", "workspace=w1", "cluster=us-1,workspace=w2",
    "namespace=sentinel,workspace=w1", "cluster=nowhere", "namespace=team-b,cluster=eu-2", "workspace=w9",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    cluster: str
    namespace: str  # empty: of the cluster
    workspace: str = ""  # that of the object


Allowed = Callable[[Place], bool]


def oracle(texts: Iterable[str]) -> Allowed:
    """What scopes allow, written in another way than the code."""
    scopes = [[part.split("=") for part in text.split(",")] for text in texts]

    def allowed(place: Place) -> bool:
        def holds(key: str, pattern: str) -> bool:
            value: str = getattr(place, key)
            return bool(value) and fnmatchcase(value, pattern)

        return any(all(holds(key, pattern) for key, pattern in scope) for scope in scopes)

    return allowed


def places() -> Iterator[Place]:
    """Every namespace, with objects of its own workspace, and in the shared one with objects of two."""
    for cluster in CLUSTERS:
        for namespace, workspace in SPACES.items():
            for each in (workspace,) if workspace else ("w1", "w2"):
                yield Place(cluster, namespace, each)


def a_world(allowed: Allowed) -> World:
    """Only what is allowed is in it."""
    there = [place for place in places() if allowed(place)]
    whole = [name for name in CLUSTERS if allowed(Place(name, ""))]
    spaces = {(name, space) for name in CLUSTERS for space, workspace in SPACES.items()
              if allowed(Place(name, space, workspace))}  # fmt: skip
    names = [
        name for name in CLUSTERS
        if name in whole or any(place.cluster == name for place in there) or any(name == each for each, _ in spaces)
        or any(allowed(Place(name, space)) for space in SPACES)
    ]  # fmt: skip

    def kinds(name: str) -> tuple[KindStatus, ...]:
        rows = sum(place.cluster == name for place in there)
        return tuple(KindStatus(kind=kind, state="failing", error=f"of {rows}", rows=rows) for kind in KINDS)

    view = MemoryView([replace(a_cluster(name, name[:2]), kinds=kinds(name)) for name in names])
    before = MemoryView(view.known, at_s=AT_S - 7200)
    for name, space in spaces:
        labels = {"shoal.dev/workspace": SPACES[space]} if SPACES[space] else {}
        for each in (view, before):
            each.put(name, "namespaces", an_object(space, "", metadata={"labels": labels}))
    for name in whole:
        for each in (view, before):
            each.put(name, "nodes", an_object(f"node-of-{name}", ""))
    moments: list[Moment] = []
    for place in there:
        for kind, obj in objects_of(place):
            view.put(place.cluster, kind, obj)
            if kind in ("pods", "services"):
                before.put(place.cluster, kind, {**obj, "spec": {}})
                key = f"{place.namespace}/{obj['metadata']['name']}"
                for ago_s, data in ((600, obj), (300, None)):
                    moments.append(Moment(
                        cluster=place.cluster, kind=kind, key=key, at_s=AT_S - ago_s,
                        data=None if data is None else orjson.dumps(data), before=orjson.dumps(obj),
                    ))  # fmt: skip
    edges = MemoryEdges({name: answer_of(name, [each for each in there if each.cluster == name]) for name in names})
    fleet = [{"id": id_of(place), "app": f"app-{id_of(place)}", "project": "p", "environment": "e", "revision": 1}
             for place in there]  # fmt: skip
    return World(view, MemoryHistory({AT_S - 86400: before, AT_S - 60: view}, moments), edges, MemoryFleet(fleet))


def id_of(place: Place) -> str:
    return f"{place.namespace}-{place.workspace}"


def objects_of(place: Place) -> Iterator[tuple[str, Obj]]:
    """One object of every namespaced kind, with names and contents that tell where it is from."""
    name, own = f"web-{place.workspace}", {"shoal.dev/workspace": place.workspace}
    labels = {**own, "app": name, "shoal.dev/deployment": id_of(place), "shoal.dev/app": f"a-{id_of(place)}"}
    metadata = {"labels": labels}
    pod = a_pod(name, place.namespace, image=f"reg/{id_of(place)}:1", labels=labels, workload=name, proxy="sidecar")
    made: dict[str, Obj] = {
        "pods": pod,
        "services": a_service(name, place.namespace),
        "endpointslices": a_slice(name, (name, True), namespace=place.namespace),
        "events": an_object(f"{name}.1", place.namespace, reason="BackOff", message=f"of {id_of(place)}",
                            involvedObject={"kind": "Pod", "name": name, "namespace": place.namespace}),
        "virtualservices": an_object(name, place.namespace, spec={"hosts": [name], "http": [{"route": [
            {"destination": {"host": f"nowhere-{id_of(place)}"}}]}]}),
    }  # fmt: skip
    for kind in KINDS.values():
        if kind.namespaced:
            obj = made.get(kind.name) or an_object(name, place.namespace, spec={"host": f"{id_of(place)}.test"})
            labelled = {**obj["metadata"], **metadata, "labels": {**(obj["metadata"].get("labels") or {}), **labels}}
            version = f"{kind.group}/{kind.versions[0]}".lstrip("/")
            yield kind.name, {**obj, "apiVersion": version, "kind": kind.kind, "metadata": labelled}


def answer_of(cluster: str, there: list[Place]) -> Any:
    """An edge that has these places."""

    def answer(request: object) -> Iterable[bytes]:
        match request:
            case PodLogs():
                yield f"log of {cluster}/{request.namespace}/{request.pod}\n".encode()
            case ClusterEvents():
                listed = [obj for place in there for kind, obj in objects_of(place) if kind == "events"]
                yield orjson.dumps([
                    {**each, "lastTimestamp": stamp(len(each["message"]))} for each in listed
                    if request.namespace in ("", each["metadata"]["namespace"])
                    and request.name in ("", each["involvedObject"]["name"])
                ])  # fmt: skip
            case ProxyConfig():
                yield orjson.dumps({"clusters": [id_of(place) for place in there]})
            case ServiceConnections():
                ends = [CallEndpoint(cluster, place.namespace, f"web-{place.workspace}") for place in there]
                ends += [CallEndpoint(cluster, "", "", id_of(place)) for place in there]
                found = [ServiceConnection(source=end, destination=end, requests=1.0) for end in ends]
                yield orjson.dumps(connections_json(found, [f"of {len(there)} places"]))

    return answer


def probes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Paths and parameters: of what is allowed and of what is not, with names that exist nowhere."""
    for at in ("", "90m"):
        yield "clusters", {"at": at}
        for text in (
            "pods", "pods where namespace = 'team-b'", "pods count by cluster, namespace", "clusters", "nodes",
            "namespaces", "events where reason = BackOff", "apps", "routes", "apps where app = 'app-team-b-w2'",
            "pods where app = 'app-team-b-w2'", "services where endpoints > 0 count", "pods where service = 'web-w2'",
            "pods where image = 'reg/team-b-w2:1'", "pods where name = 'web-w2' and namespace = 'team-b'",
            "pods where zone = 'x' or exposed", "clusters where failing", "pods where nonsense = 1",
            "pods where labels['shoal.dev/workspace'] = w2", "deployments where cluster = 'us-1' select name, project",
        ):  # fmt: skip
            yield "query", {"q": text, "at": at}
        yield "query", {"q": "pods", "limit": 1, "at": at}
        for listed in ("services", "workloads", "pods"):
            yield listed, {"at": at}
            yield listed, {"limit": 1, "at": at}
            yield listed, {"cluster": "us-1", "at": at}
            yield listed, {"namespace": "team-b", "at": at}
        for text in ("web-w2", "team-b-w2", "us-1", "node"):
            yield "search", {"text": text, "at": at}
            yield "search", {"text": text, "kind": "events", "at": at}
        yield "mesh/mistakes", {"at": at}
        yield "shards", {"at": at}
        yield "checks/results", {"at": at}
        yield "checks/old", {"at": at}
        yield "diff", {"left": "eu-1", "right": "us-1", "at": at}
    for cluster in ("eu-1", "us-1", "none-1"):
        yield f"clusters/{cluster}", {}
        yield f"edges/{cluster}", {}
        yield "events", {"cluster": cluster}
        yield "graph", {"cluster": cluster}
        yield "mesh/mistakes", {"cluster": cluster}
        yield f"objects/{cluster}/nodes/-/node-of-{cluster}", {}
        for namespace in ("team-b", "sentinel", "none"):
            yield "events", {"cluster": cluster, "namespace": namespace}
            yield f"objects/{cluster}/namespaces/-/{namespace}", {}
            for name in ("web-w1", "web-w2"):
                pod = f"pods/{cluster}/{namespace}/{name}"
                for more in ("", "/logs", "/events", "/proxy-config", "/istio"):
                    yield f"{pod}{more}", {}
                yield f"objects/{cluster}/services/{namespace}/{name}", {}
    for namespace in SPACES:
        yield f"services/{namespace}/web-w2", {}
        yield f"workloads/{namespace}/Deployment/web-w2", {}
        yield "graph", {"namespace": namespace}
    yield from (("edges", {}), ("graph", {}), ("events", {}), ("events", {"limit": 1}), ("kinds", {}), ("checks", {}))
    yield from (("diff", {"from": "90m"}), ("diff", {"from": "90m", "kind": "pods", "limit": 1}))
    yield from (("history", {"from": "1h"}), ("history", {"from": "1h", "limit": 1}))
    yield from (("history", {"key": "team-b/web-w2"}), ("history", {"cluster": "us-1", "kind": "pods"}))
    yield "watch/query", {"q": "pods"}
    for path in ("services", "pods", "mesh/mistakes", "services/team-b/web-w2", "workloads", "checks", "shards"):
        yield f"watch/{path}", {}


def callers(access: Access) -> Authenticate:
    async def authenticate(token: str) -> Caller | None:
        return Caller("t", access=access) if token == "limited" else Caller("all", access=EVERYTHING)

    return authenticate


async def answer_to(api: RestApi[Caller, Caller], path: str, asked: str) -> tuple[int, bytes]:
    stream = Streaming(api, f"{ROOT}/{path}", asked, token="limited")
    watched = path.startswith("watch/")
    await stream.until(lambda: stream.is_complete or (watched and b"\n\n" in stream.body))
    body = stream.body.partition(b"\n\n")[0] if watched else stream.body
    stream.gone.set()
    await stream.task
    return stream.sent[0]["status"], body


async def answers(world: World, access: Access) -> dict[str, tuple[int, bytes]]:
    """Status and body, or the first event of a stream, of every probe."""
    checks = MemoryChecks({"old": SavedCheck(name="old", query="pods where namespace = 'team-b'", expect="some")})
    api, found = an_api(world, callers(access), checks), {}
    for path, params in probes():
        asked = urlencode({name: value for name, value in params.items() if value})
        found[f"{path} {asked}"] = await answer_to(api, path, asked)
    api.end_streams()
    return found


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.lists(st.sampled_from(SCOPES), max_size=3, unique=True))
async def test_no_answer_depends_on_anything_outside_of_the_scopes(texts: list[str]) -> None:
    access = Access.parse(texts)
    whole, part = await answers(a_world(lambda place: True), access), await answers(a_world(oracle(texts)), access)
    assert not [(probe, answer) for probe, answer in whole.items() if answer[0] >= 500]
    different = {probe: (whole[probe], part[probe]) for probe in whole if whole[probe] != part[probe]}
    assert not different, next(iter(different.items()))


def test_the_queries_of_checks_are_not_shown_and_their_results_are_of_what_may_be_read() -> None:
    world, query = a_world(lambda place: True), "pods where namespace in ('team-a', 'team-b')"
    checks = MemoryChecks({"old": SavedCheck(name="old", query=query), "bad": SavedCheck(name="bad", query="pods x")})
    with Client(world, an_api(world, callers(Access.parse(["namespace=team-a"])), checks)) as client:
        assert [each["query"] for each in client(f"{ROOT}/checks", token="limited").json()["items"]] == ["", ""]
        bad, old = client(f"{ROOT}/checks/results", token="limited").json()["items"]
        assert (old["total"], {each["namespace"] for each in old["examples"]}) == (3, {"team-a"})
        assert bad["error"] == "its query is not valid any more" and not bad["ok"]


@pytest.mark.parametrize("text", SCOPES)
def test_what_is_inside_of_a_scope_is_found(text: str) -> None:
    """Otherwise an API that answers nothing would do."""
    allowed = oracle([text])
    world = a_world(lambda place: True)
    with Client(world, an_api(world, callers(Access.parse([text])))) as client:
        found = client(f"{ROOT}/query", token="limited", q="pods select cluster, namespace, name", limit=1000).json()
        assert {(each["cluster"], each["namespace"], each["name"]) for each in found["items"]} == {
            (place.cluster, place.namespace, f"web-{place.workspace}") for place in places() if allowed(place)
        }
        for place in filter(allowed, places()):
            logs = client(f"{ROOT}/pods/{place.cluster}/{place.namespace}/web-{place.workspace}/logs", token="limited")
            assert (logs.status_code, logs.text.startswith("log of")) == (200, True)
        if any(map(allowed, places())):
            assert client(f"{ROOT}/events", token="limited").json()["items"]
            assert client(f"{ROOT}/graph", token="limited").json()["connections"]
            assert client(f"{ROOT}/history", token="limited").json()["items"]


def test_every_path_that_reads_is_tried() -> None:
    world = a_world(lambda place: True)
    with Client(world) as client:
        paths = client("/openapi.json").json()["paths"]
    reads = {path.removeprefix(f"{ROOT}/") for path, methods in paths.items() if "get" in methods and ROOT in path}
    asked = [path for path, _ in probes()]

    def is_like(path: str, template: str) -> bool:
        parts, wanted = path.split("/"), template.split("/")
        return len(parts) == len(wanted) and all(
            part == want or want.startswith("{") for part, want in zip(parts, wanted, strict=True)
        )

    assert not [template for template in reads if not any(is_like(path, template) for path in asked)]


def test_a_token_without_scopes_reads_nothing() -> None:
    world = a_world(lambda place: True)
    with Client(world, an_api(world, callers(NOTHING))) as client:
        assert client(f"{ROOT}/clusters", token="limited").json()["items"] == []
        assert client(f"{ROOT}/query", token="limited", q="pods count").json()["items"] == [{"count": 0}]
        assert client(f"{ROOT}/pods/eu-1/team-a/web-w1/logs", token="limited").status_code == 404


def test_a_limited_administrator_changes_only_what_it_reads_wholly() -> None:
    world = a_world(lambda place: True)
    access = Access.parse(["cluster=eu-1", "cluster=eu-2,namespace=team-a"])
    option = {"set": {"sync.interval_s": "20"}}
    with Client(world, an_api(world, callers(access))) as client:
        for method, path, body, code in (
            ("PATCH", "edges", option, 403), ("PATCH", "edges/eu-1", option, 200), ("PATCH", "edges/eu-2", option, 403),
            ("PATCH", "edges/us-1", option, 404), ("PATCH", "edges/none", option, 404),
            ("DELETE", "clusters/eu-2?revoke=true", None, 403), ("DELETE", "clusters/us-1?revoke=true", None, 404),
            ("DELETE", "clusters/eu-1?revoke=true", None, 200),
            ("POST", "edges/eu-1/token", None, 200), ("POST", "edges/eu-2/token", None, 403),
            ("POST", "edges/us-1/token", None, 403), ("DELETE", "edges/us-1/token", None, 403),
            ("PUT", "checks/mine", {"query": "pods"}, 403), ("DELETE", "checks/old", None, 404),
        ):  # fmt: skip
            assert client(f"{ROOT}/{path}", method=method, token="limited", body=body).status_code == code, path
    assert [each.name for each in world.view.clusters()] == ["eu-2", "us-1"]
