"""Rounds of attack on the objects of one kind: broken creates, broken changes, and a look at what is stored each time."""

from __future__ import annotations

from random import Random
from typing import Any

import yaml
from cluster_invariants import PROTOBUF, Probe
from cluster_objects import BACKUPS, Breaker, collection, example, type_of

from shoal.kube import protobuf
from shoal.kube.objects import Obj
from shoal.kube.resources import Resource
from shoal.kube.schema import Type
from shoal.testing.servers import PATCHES, local_server
from shoal.testing.tally import TALLY

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUERIES = ("", "", "", "dryRun=All", "fieldValidation=Strict", "fieldValidation=Ignore", "fieldManager=m")


async def create(probe: Probe, breaker: Breaker, where: str, obj: Obj, query: str) -> str | None:
    """Post an object as one of the codecs writes it; its name when it was stored."""
    target = f"{where}?{query}" if query else where
    form = breaker.random.randrange(4)
    try:
        if form == 0:
            answer = await probe.send("POST", target, yaml.safe_dump(obj).encode(), "application/yaml")
        elif form == 1:
            answer = await probe.send("POST", target, protobuf.encode(obj), PROTOBUF)
        else:
            answer = await probe.send("POST", target, obj)
    except (ValueError, yaml.YAMLError):  # not every broken object can be written in every codec
        answer = await probe.send("POST", target, obj)
    if answer.status >= 300 or "dryRun" in query:
        return None
    name: str = answer.json["metadata"]["name"]
    return name


def patch_bodies(breaker: Breaker, obj: Obj, broken: Obj) -> list[tuple[Any, str]]:
    """The change from ``obj`` to ``broken`` and worse, as patches."""
    random = breaker.random
    part = {name: broken[name] for name in broken if name not in ("metadata", "kind", "apiVersion")}
    paths = [
        "/" + "/".join(p) for p in (("metadata", "labels"), ("spec",), ("data",), ("metadata", "name"), ("a",), ())
    ]
    ops: list[Any] = [
        {
            "op": random.choice(("add", "replace", "test", "remove")),
            "path": random.choice(paths),
            "value": breaker.anything(),
        }
        for _ in range(random.randrange(1, 4))
    ]
    copies = [{"op": "copy", "from": "/metadata", "path": "/metadata/annotations"}] * 12
    return [
        (part, PATCHES["merge"]),
        (part, PATCHES["strategic"]),
        ({"spec": breaker.anything()}, PATCHES["merge"]),
        (
            {"spec": {"$patch": random.choice(("delete", "replace", "x")), "a": breaker.anything()}},
            PATCHES["strategic"],
        ),
        (breaker.anything(), PATCHES["strategic"]),
        (ops, PATCHES["json"]),
        (copies, PATCHES["json"]),
        (breaker.anything(), PATCHES["json"]),
        (broken, PATCHES["apply"]),
    ]


async def attack(
    probe: Probe, breaker: Breaker, where: str, valid: Obj, kind: Type, subresources: tuple[str, ...]
) -> None:
    """One round: a broken create, then broken changes of a good object, each followed by a look at what is stored."""
    random = breaker.random
    name = await create(probe, breaker, where, breaker.broken(valid, kind), random.choice(QUERIES))
    if name is not None:
        await probe.check_stored(where, name)
        await probe.remove(where, name)
    if (await probe.send("GET", f"{where}/{valid['metadata']['name']}")).status == 404:
        await probe.ok("POST", where, valid)
    target = f"{where}/{valid['metadata']['name']}"
    stored = (await probe.ok("GET", target)).json
    broken = breaker.broken(stored, kind)
    requests: list[tuple[str, str, Any, str]] = [("PUT", target, broken, "application/json")]
    for body, content_type in random.sample(patch_bodies(breaker, stored, broken), 3):
        manager = (
            f"?fieldManager=m&force={random.choice(('true', 'false'))}" if content_type == PATCHES["apply"] else ""
        )
        requests.append(("PATCH", target + manager, body, content_type))
    for subresource in subresources:
        body = breaker.broken(
            {**stored, "status": breaker.value_of(kind.fields["status"].type, 0)}
            if "status" in kind.fields
            else stored,
            kind,
        )
        requests.append((random.choice(("PUT", "POST")), f"{target}/{subresource}", body, "application/json"))
        requests.append(
            (
                "PATCH",
                f"{target}/{subresource}",
                {"spec": breaker.anything(), "status": body.get("status")},
                PATCHES["merge"],
            )
        )
    options = breaker.broken(
        {"gracePeriodSeconds": 1, "preconditions": {"uid": "x"}, "propagationPolicy": "Background"}, None
    )
    requests.append(("DELETE", target, {**options, "dryRun": ["All"]}, "application/json"))
    for method, url, body, content_type in requests:
        answer = await probe.send(method, url, body, content_type)
        if method != "DELETE" and answer.status < 300 and random.random() < 0.3:
            if (await probe.send("GET", target)).status == 404:
                await probe.ok("POST", where, valid)
            await probe.check_stored(where, valid["metadata"]["name"])


async def run(
    where: str, valid: Obj, kind: Type, subresources: tuple[str, ...], *, rounds: int, seed: int,
    before: tuple[tuple[str, Obj], ...] = (),
) -> None:  # fmt: skip
    """``rounds`` attacks on a server of their own; the same ones for the same seed."""

    async with local_server() as server:
        probe = Probe(server)
        for target, obj in before:
            await probe.ok("POST", target, obj)
        for round_ in range(rounds):
            breaker = Breaker(Random(f"{seed}/{where}/{round_}"))
            try:
                await attack(probe, breaker, where, valid, kind, subresources)
            except AssertionError as error:
                error.add_note(f"in round {round_} of seed {seed}")
                raise
        name = valid["metadata"]["name"]
        if (await probe.send("GET", f"{where}/{name}")).status == 200:
            await probe.check_stored(where, name)
            await probe.remove(where, name)
        TALLY.checked += probe.accepted + probe.refused
        assert probe.accepted > rounds and probe.refused > 1


async def attack_kind(resource: Resource, *, rounds: int, seed: int) -> None:
    skipped = {"log", "exec", "attach", "portforward", "proxy"}
    if resource.kind in ("CustomResourceDefinition", "Node"):
        skipped.add("status")  # can be set to what no later write of the object itself may have
    subresources = tuple(s.name for s in resource.subresources if s.name not in skipped)
    valid = example(resource.api_version, resource.kind)
    await run(collection(resource), valid, type_of(resource), subresources, rounds=rounds, seed=seed)


async def attack_custom_kind(*, rounds: int, seed: int) -> None:
    from shoal.kube.crd import serving

    definition, valid = (
        example("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        example("shop.example/v1", "Backup"),
    )
    (version,) = serving.serve(definition)
    subresources, before = ("status", "scale"), ((CRDS, definition),)
    await run(BACKUPS, valid, version.structural.type, subresources, rounds=rounds, seed=seed, before=before)
