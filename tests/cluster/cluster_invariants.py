"""What must hold after any request, of any user and with any content.

``Probe.send`` checks the answer to one request: no fault of the server's own, a proper Status for a refusal, and
nothing stored by it. ``Probe.check_stored`` checks an object that was accepted: it can be read in every form, watched,
written back without a change, and removed.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import orjson

from shoal.kube.objects import Obj
from shoal.store import Entry, Key
from shoal.testing.servers import PATCHES, LocalServer, ServerAnswer, take

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Probe:
    """Sends requests to a server and checks what must hold for each."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.accepted = 0
        self.refused = 0
        self._alone = False

    async def send(
        self, method: str, target: str, body: Any = None, content_type: str = "application/json", accept: str = ""
    ) -> ServerAnswer:
        """One request. ``body`` may hold numbers that only Python's own JSON can write."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": content_type, **({"accept": accept} if accept else {})}
        await self.settle()
        before = self.server.store.revision
        answer = await self.server.call(method, target, data, headers)
        said = (method, target, content_type, data[:3000], answer.status, answer.body[:500])
        assert answer.status < 500, said
        if answer.status >= 400:
            self.refused += 1
            assert answer.headers["content-type"] == "application/json", said
            status = answer.json
            assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure"), said
            assert status["code"] == answer.status and status["message"] and status["reason"], said
            assert self.server.store.revision == before, f"refused, but something was stored: {said}"
        else:
            self.accepted += 1
            if "dryRun=All" in target or (isinstance(body, dict) and body.get("dryRun") == ["All"]):
                assert self.server.store.revision == before, f"a dry run has stored something: {said}"
        return answer

    async def settle(self) -> None:
        """Let the server's own work finish, so that what changes after this is the request's doing."""
        if not self._alone:  # these write in their own time
            await self.server.server.quotas.stop()
            await self.server.server.aggregation.stop()
            await self.server.server.handler.aggregator.stop()
            self._alone = True
        await self.server.server.housekeeping.idle.wait()

    async def ok(
        self, method: str, target: str, body: Any = None, content_type: str = "application/json", accept: str = ""
    ) -> ServerAnswer:
        answer = await self.send(method, target, body, content_type, accept)
        assert answer.status < 300, (method, target, body, answer.status, answer.body)
        return answer

    def entry(self, collection: str, name: str) -> Entry | None:
        served, namespace = self._served(collection)
        return self.server.store.get(served.key_of(namespace, name))

    def _served(self, collection: str) -> tuple[Any, str | None]:
        from shoal.apiserver import paths

        target = paths.parse(collection)
        assert target is not None
        served = self.server.server.core.registry.get(target.group, target.version, target.plural)
        assert served is not None, collection
        return served, target.namespace

    async def check_stored(self, collection: str, name: str) -> None:
        target = f"{collection}/{_quoted(name)}"
        obj = (await self.ok("GET", target)).json
        written = (await self.ok("PUT", target, obj)).json  # may add or drop what is empty, once
        assert _content(written) == _content(obj)
        if without_empty(obj) == obj and obj["kind"] != "Service":
            assert written == obj
        obj = written
        revision = obj["metadata"]["resourceVersion"]
        self._check_metadata(obj, name)
        await self._check_forms(collection, name, obj)
        self._check_read_back(collection, name)
        await self._check_watch(collection, obj)
        await self._check_no_changes(target, obj)
        again = (await self.ok("GET", target)).json
        assert again["metadata"]["resourceVersion"] == revision, "something that changes nothing was stored"
        await self._check_protobuf(target, obj)

    def _check_metadata(self, obj: Obj, name: str) -> None:
        metadata = obj["metadata"]
        assert metadata["name"] == name and metadata["uid"] and metadata["creationTimestamp"].endswith("Z")
        assert metadata["resourceVersion"].isdigit()
        assert b"\n" not in orjson.dumps(obj)

    async def _check_forms(self, collection: str, name: str, obj: Obj) -> None:
        target = f"{collection}/{_quoted(name)}"
        named = f"{collection}?fieldSelector=metadata.name%3D{_escaped(name)}"
        whole = (await self.ok("GET", collection)).json
        (item,) = [each for each in whole["items"] if each["metadata"]["name"] == name]
        assert {**item, "kind": obj["kind"], "apiVersion": obj["apiVersion"]} == obj
        assert int(whole["metadata"]["resourceVersion"]) >= int(obj["metadata"]["resourceVersion"])
        assert len((await self.ok("GET", named)).json["items"]) == 1
        for place in (target, named):
            table = (
                await self.ok("GET", place + ("&" if "?" in place else "?") + "includeObject=Object", accept=TABLE)
            ).json
            (row,) = table["rows"]
            assert len(row["cells"]) == len(table["columnDefinitions"])
            assert row["object"]["metadata"] == obj["metadata"]
        partial = (await self.ok("GET", target, accept=PARTIAL)).json
        assert partial["metadata"] == obj["metadata"] and "spec" not in partial
        await self.ok("GET", named, accept=PARTIAL_LIST)
        as_yaml = await self.ok("GET", target, accept="application/yaml")
        from shoal.kube import yamlcodec

        assert yamlcodec.loads(as_yaml.body) == obj, as_yaml.body[:2000]
        for key, value in (obj["metadata"].get("labels") or {}).items():
            found = (await self.ok("GET", f"{collection}?labelSelector={_quoted(f'{key}={value}')}")).json["items"]
            assert name in [each["metadata"]["name"] for each in found]

    def _check_read_back(self, collection: str, name: str) -> None:
        """A server that starts again sees the same object behind the same selectors."""
        entry = self.entry(collection, name)
        assert entry is not None
        found = self.server.server.core.registry.attrs_of(Key(*entry.key), entry.value)
        assert dict(found.labels) == dict(entry.attrs.labels)
        assert dict(found.fields) == dict(entry.attrs.fields)
        assert orjson.loads(entry.value)["metadata"]["resourceVersion"] == str(entry.revision)

    async def _check_watch(self, collection: str, obj: Obj) -> None:
        name, revision = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        named = f"{collection}?watch=1&fieldSelector=metadata.name%3D{_escaped(name)}"
        for target in (named, f"{named}&resourceVersion={revision - 1}"):
            async with self.server.watch(target) as events:
                (event,) = await take(events, 1)
                assert event["type"] in ("ADDED", "MODIFIED") and event["object"] == obj, (event, obj)
        reply = await self.server.transport.stream("GET", named, headers={"accept": TABLE})
        line = await anext(reply.chunks())
        await reply.close()
        assert orjson.loads(line)["object"]["kind"] == "Table"

    async def _check_no_changes(self, target: str, obj: Obj) -> None:
        """Writes that change nothing keep the resourceVersion: controllers rely on it to come to rest."""
        revision = obj["metadata"]["resourceVersion"]
        same: list[tuple[str, Any, str]] = [
            ("PUT", obj, "application/json"),
            ("PATCH", {}, PATCHES["merge"]),
            ("PATCH", [], PATCHES["json"]),
            ("PATCH", [{"op": "test", "path": "/metadata/resourceVersion", "value": revision}], PATCHES["json"]),
        ]
        if not obj["apiVersion"].startswith("shop.example"):
            same.append(("PATCH", {}, PATCHES["strategic"]))
            await self.send("PATCH", f"{target}?dryRun=All", obj, PATCHES["strategic"])
        for method, body, content_type in same:
            answer = await self.ok(method, target, body, content_type)
            assert answer.json["metadata"]["resourceVersion"] == revision, (method, content_type, obj, answer.json)
        nothing = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {"name": obj["metadata"]["name"]}}
        dry = await self.ok("PATCH", f"{target}?fieldManager=probe&dryRun=All", nothing, PATCHES["apply"])
        before, after = dict(obj), dry.json
        for each in (before, after):
            each.pop("metadata")
        assert before == after, "an apply that says nothing has changed something"

    async def _check_protobuf(self, target: str, obj: Obj) -> None:
        from shoal.kube import protobuf

        if obj["apiVersion"].startswith("shop.example") or obj["kind"] == "CustomResourceDefinition":
            return  # the first have no protobuf form, the second may hold more than theirs can
        written = (await self.ok("PUT", target, protobuf.encode(obj), PROTOBUF)).json
        assert _content(written) == _content(obj)
        if written != obj:
            assert without_empty(obj) != obj, "protobuf cannot tell empty messages from absent ones, but all else"

    async def remove(self, collection: str, name: str) -> None:
        """Delete an object whatever keeps it; it must be gone afterwards, for reads, lists and the store."""
        target = f"{collection}/{_quoted(name)}"
        await self.ok("DELETE", target, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        await self.settle()
        found = await self.send("GET", target)
        if found.status == 200 and found.json["kind"] == "Namespace":  # has finalizers of its own sort
            await self.ok("PUT", f"{target}/finalize", {**found.json, "spec": {"finalizers": []}})
            found = await self.send("GET", target)
        if found.status == 200 and found.json["metadata"].get("finalizers"):
            await self.ok("PATCH", target, {"metadata": {"finalizers": None}}, PATCHES["merge"])
            await self.settle()
            found = await self.send("GET", target)
        assert found.status == 404, found.body
        assert self.entry(collection, name) is None


def without_empty(value: Any) -> Any:
    """``value`` without its empty objects and lists: some ways of writing an object cannot tell them from absent, which
    some fields show as null."""
    if isinstance(value, dict):
        kept = {name: child if name == "fieldsV1" else without_empty(child) for name, child in value.items()}
        return {name: child for name, child in kept.items() if child not in ({}, [], None)}
    return [without_empty(child) for child in value] if isinstance(value, list) else value


def _content(obj: Obj) -> Any:
    metadata = {
        name: value
        for name, value in obj["metadata"].items()
        if name not in ("resourceVersion", "generation", "managedFields")
    }
    return without_empty({**obj, "metadata": metadata})


def _escaped(name: str) -> str:
    """A name as the value of a field selector in a query."""
    return _quoted(name.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\="))


def _quoted(text: str) -> str:
    return quote(text, safe="")


__all__ = ["PARTIAL", "PARTIAL_LIST", "TABLE", "Probe"]
