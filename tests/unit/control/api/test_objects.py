"""The kinds as paths: reading, writing, versions, keys of clients, bad input."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_world import ENV, an_app, error_of, fields_of, prepared_world

from shoal.control.database import tables

APP = f"{ENV}/apps/web"


async def test_an_object_goes_in_by_put_and_comes_out_by_get_list_and_delete(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        made = await world.editor("PUT", APP, an_app(env={"A": "1"}))
        body = made.json()
        assert made.status_code == 201 and body["created"] and body["warnings"] == []
        assert body["effects"][0]["region"] == "eu" and body["effects"][0]["cluster"] == "eu1"
        got = await world.viewer("GET", APP)
        assert got.json()["spec"]["env"] == {"A": "1"} and got.headers["etag"] == made.headers["etag"]
        again = await world.editor("PUT", APP, an_app(env={"A": "2"}))
        assert again.status_code == 200 and not again.json()["created"]
        assert again.json()["changed"] == [{"path": "spec.env.A", "before": "1", "after": "2"}]
        same = await world.ok(world.editor("PUT", APP, an_app(env={"A": "2"})))
        assert same["changed"] == [] and same["effects"] == []
        listed = await world.ok(world.viewer("GET", f"{ENV}/apps"))
        assert [item["metadata"]["name"] for item in listed["items"]] == ["web"] and listed["continue"] == ""
        gone = await world.ok(world.editor("DELETE", APP))
        assert gone["object"]["metadata"]["name"] == "web" and gone["effects"][0]["action"] == "delete"
        assert error_of(await world.viewer("GET", APP)) == (404, "NotFound")


async def test_every_kind_has_its_paths(tmp_path: Path) -> None:
    specs: dict[str, tuple[str, dict[str, Any]]] = {
        "secrets": (ENV, {"values": {"PASSWORD": "hunter22"}}),
        "credentials": (ENV, {"values": {"Authorization": "hunter22"}}),
        "apps": (ENV, an_app(secrets=["x"])["spec"]),
        "policies": (ENV, {"rateLimit": {"limit": 5}}),
        "routes": (ENV, {"host": "shop.example.com", "app": "x"}),
        "apikeys": (ENV, {"identity": "bob"}),
        "sentinels": (ENV, {"region": "eu"}),
        "projects": ("/api/v1", {"description": "d"}),
        "regions": ("/api/v1", {}),
        "clusters": ("/api/v1", {"region": "eu"}),
        "environments": ("/api/v1/projects/shop", {}),
    }

    async with prepared_world(tmp_path) as world:
        for plural, (where, spec) in specs.items():
            path = f"{where}/{plural}"
            made = await world.admin("POST", path, {"metadata": {"name": "x"}, "spec": spec})
            assert made.status_code == 201, (plural, made.text)
            for tail in ("", "/status", "/history", "/events"):
                assert (await world.viewer("GET", f"{path}/x{tail}")).status_code == 200, (plural, tail)
            listed = await world.ok(world.viewer("GET", f"{path}?limit=1"))
            assert len(listed["items"]) == 1
            assert (await world.viewer("GET", f"/api/v1/{plural}")).status_code == 200
            patched = await world.admin("PATCH", f"{path}/x", {"metadata": {"labels": {"a": "b"}}})
            assert patched.status_code == 200 and patched.json()["object"]["metadata"]["labels"] == {"a": "b"}, plural
        for plural, (where, _) in reversed(specs.items()):
            if plural not in ("secrets",):
                answer = await world.admin("DELETE", f"{where}/{plural}/x")
                assert answer.status_code == 200, (plural, answer.text)


@pytest.mark.parametrize(
    ("plural", "kind", "names"), [("secrets", "Secret", "variables"), ("credentials", "Credential", "headers")]
)
async def test_values_that_are_sealed_never_come_out(tmp_path: Path, plural: str, kind: str, names: str) -> None:
    async with prepared_world(tmp_path) as world:
        path = f"{ENV}/{plural}/db"
        texts = []
        for request in (
            world.editor("PUT", path, {"spec": {"values": {"PASSWORD": "hunter22"}}}, Idempotency_Key="k"),
            world.editor("POST", f"{ENV}/{plural}", {"metadata": {"name": "two"}, "spec": {"values": {"P": "hunter22"}}},
                         Idempotency_Key="k"),
            world.editor("PATCH", path, {"spec": {"values": {"TOKEN": "hunter23"}}}),
            world.editor("PUT", path, {"spec": {"values": {"TOKEN": ["hunter24"]}}}),
            world.editor("PUT", path, {"spec": {"stringData": {"TOKEN": "hunter25"}}}),
            world.editor("POST", "/api/v1/apply?dryRun=true",
                         [{"apiVersion": "shoal.dev/v1", "kind": "Project", "metadata": {"name": "late"}},
                          {"apiVersion": "shoal.dev/v1", "kind": "Environment",
                           "metadata": {"name": "e", "project": "late"}},
                          {"apiVersion": "shoal.dev/v1", "kind": kind,
                           "metadata": {"name": "s", "project": "late", "environment": "e"},
                           "spec": {"values": {"A": "hunter26"}}}]),
            world.viewer("GET", path),
            world.viewer("GET", f"{path}/history"),
            world.viewer("GET", "/api/v1/audit"),
            world.viewer("GET", "/api/v1/events"),
        ):  # fmt: skip
            texts.append((await request).text)
        assert not [text for text in texts if "hunter" in text]
        shown = await world.ok(world.viewer("GET", path))
        assert shown["spec"] == {names: ["TOKEN"]}
        for table in (tables.Audit, tables.Idempotency, tables.Event):
            rows = await world.rows(table)
            assert rows or table is tables.Event
            assert "hunter" not in repr([vars(row) for row in rows])


async def test_what_differs_from_the_version_seen_is_412_by_header_and_409_by_document(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        first = await world.editor("PUT", APP, an_app(env={"A": "1"}), If_None_Match="*")
        assert first.status_code == 201
        assert error_of(await world.editor("PUT", APP, an_app(), If_None_Match="*")) == (412, "PreconditionFailed")
        old = first.headers["etag"]
        seen = first.json()["object"]
        second = await world.editor("PUT", APP, an_app(env={"A": "2"}), If_Match=f'"1", {old}')
        assert second.status_code == 200
        for method, body in (("PUT", an_app()), ("PATCH", {"spec": {"port": 1}}), ("DELETE", None)):
            assert error_of(await world.editor(method, APP, body, If_Match=old)) == (412, "PreconditionFailed")
            assert error_of(await world.editor(method, APP, body, If_Match=f"W/{second.headers['etag']}"))[0] == 412
            assert error_of(await world.editor(method, APP, body, If_Match="17")) == (400, "BadRequest")
        assert error_of(await world.editor("PUT", APP, seen)) == (409, "Conflict")
        fresh = await world.ok(world.viewer("GET", APP))
        assert (await world.editor("PUT", APP, fresh)).status_code == 200
        assert (await world.editor("PUT", APP, an_app(env={"A": "3"}), If_Match="*")).status_code == 200
        missing = await world.editor("PUT", f"{ENV}/apps/other", an_app(), If_Match="*")
        assert error_of(missing) == (412, "PreconditionFailed")
        assert (await world.editor("PUT", APP, an_app())).status_code == 200
        newest = (await world.viewer("GET", APP)).headers["etag"]
        assert (await world.editor("DELETE", APP, If_Match=newest)).status_code == 200


async def test_a_conflict_that_is_not_about_the_version_stays_409_under_if_match(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        tag = (await world.viewer("GET", "/api/v1/projects/shop")).headers["etag"]
        assert error_of(await world.admin("DELETE", "/api/v1/projects/shop", If_Match=tag)) == (409, "Conflict")
        gone = await world.ok(world.admin("DELETE", "/api/v1/projects/shop?cascade=true", If_Match=tag))
        assert gone["also"][0]["kind"] == "Environment"


async def test_only_an_app_can_be_released(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app()
        refused = await world.admin("DELETE", f"{ENV}?release=true&cascade=true")
        assert error_of(refused)[0] == 422
        assert "release" in refused.text
        tried = await world.ok(world.editor("DELETE", f"{APP}?release=true&dryRun=true"))
        assert {each["action"] for each in tried["effects"]} == {"release"}
        assert (await world.viewer("GET", APP)).status_code == 200


async def test_many_writers_with_if_match_lose_no_change(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app(env={"N": "0"})

        async def add(_: int) -> None:
            while True:
                got = await world.viewer("GET", APP)
                number = int(got.json()["spec"]["env"]["N"]) + 1
                answer = await world.editor("PUT", APP, an_app(env={"N": str(number)}), If_Match=got.headers["etag"])
                if answer.status_code == 200:
                    return
                assert answer.status_code == 412

        await asyncio.gather(*map(add, range(8)))
        assert (await world.ok(world.viewer("GET", APP)))["spec"]["env"] == {"N": "8"}


async def test_patches_of_different_fields_at_the_same_time_all_arrive(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app()
        answers = await asyncio.gather(
            *(world.editor("PATCH", APP, {"metadata": {"labels": {f"l{n}": "x"}}}) for n in range(4))
        )
        assert {answer.status_code for answer in answers} == {200}
        labels = (await world.ok(world.viewer("GET", APP)))["metadata"]["labels"]
        assert labels == {f"l{n}": "x" for n in range(4)}
        cleared = await world.ok(world.editor("PATCH", APP, "metadata: {labels: {l0: null}}\nspec: {port: 81}"))
        assert cleared["object"]["spec"]["port"] == 81 and "l0" not in cleared["object"]["metadata"]["labels"]
        for body, field in (
            ({"status": {}}, "status"),
            ({"metadata": {"name": "b"}}, "metadata.name"),
            ({"spec": None}, "spec"),
            ({"kind": "Route"}, "kind"),
            ({"spec": {"prot": 1}}, "spec.prot"),
        ):
            answer = await world.editor("PATCH", APP, body)
            assert error_of(answer) == (422, "Invalid") and fields_of(answer) == [field]


async def test_the_same_key_and_request_is_done_once_and_answered_alike(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        body = {"metadata": {"name": "web"}, **an_app()}
        first = await world.editor("POST", f"{ENV}/apps", body, Idempotency_Key="k1")
        again = await world.editor("POST", f"{ENV}/apps", body, Idempotency_Key="k1")
        assert (first.status_code, first.json()) == (again.status_code, again.json()) == (201, first.json())
        assert again.headers["etag"] == first.headers["etag"]
        assert again.headers["idempotency-replayed"] == "true" and "idempotency-replayed" not in first.headers
        other = await world.editor("POST", f"{ENV}/apps", {**body, "spec": {}}, Idempotency_Key="k1")
        assert error_of(other) == (422, "IdempotencyKeyReused")
        assert error_of(await world.editor("POST", f"{ENV}/apps", body)) == (409, "AlreadyExists")
        assert error_of(await world.editor("POST", f"{ENV}/apps", body, Idempotency_Key="k2")) == (409, "AlreadyExists")
        assert len(await world.rows(tables.Deployment)) == 1
        assert error_of(await world.editor("POST", f"{ENV}/apps", body, Idempotency_Key="a b"))[0] == 400


@pytest.mark.parametrize("plural", ["secrets", "credentials"])
async def test_the_stored_digest_of_a_request_with_a_secret_needs_a_key_that_is_not_stored(
    tmp_path: Path, plural: str
) -> None:
    async with prepared_world(tmp_path) as world:
        body = {"metadata": {"name": "db"}, "spec": {"values": {"PASSWORD": "hunter2"}}}
        for _ in range(2):
            assert (await world.editor("POST", f"{ENV}/{plural}", body, Idempotency_Key="k")).status_code == 201
        (row,) = await world.rows(tables.Idempotency)
        text = orjson.dumps(["POST", f"{ENV}/{plural}", body], option=orjson.OPT_SORT_KEYS)
        guessed = hmac.new(world.databases.fleet.signing_key, text, hashlib.sha256).hexdigest()
        assert len(row.request) == len(guessed) and row.request != guessed


async def test_the_same_key_sent_many_times_at_once_creates_one_object(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        body = {"metadata": {"name": "web"}, **an_app()}
        answers = await asyncio.gather(
            *(world.editor("POST", f"{ENV}/apps", body, Idempotency_Key="k") for _ in range(6))
        )
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["object"]["metadata"]["id"] for answer in answers}) == 1


async def test_a_key_that_is_shown_once_is_not_kept_for_the_second_answer(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        body = {"metadata": {"name": "k"}, "spec": {}}
        first = await world.ok(world.editor("POST", f"{ENV}/apikeys", body, Idempotency_Key="k"))
        key = first["object"]["status"]["key"]
        again = await world.editor("POST", f"{ENV}/apikeys", body, Idempotency_Key="k")
        assert key not in again.text and "rotate" in again.json()["warnings"][0]
        assert key not in (await world.viewer("GET", f"{ENV}/apikeys/k")).text
        rotated = await world.ok(world.editor("POST", f"{ENV}/apikeys/k/rotate"))
        assert rotated["object"]["status"]["key"] != key


async def test_a_dry_run_tells_what_would_change_where_and_changes_nothing(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        tried = await world.editor("PUT", f"{APP}?dryRun=true", an_app())
        assert tried.status_code == 200 and tried.json()["created"] and tried.json()["dryRun"]
        assert tried.json()["effects"][0]["cluster"] == "eu1"
        assert (await world.viewer("GET", APP)).status_code == 404
        await world.put_app()
        tried = await world.editor("DELETE", f"{APP}?dryRun=true")
        assert tried.json()["effects"][0]["action"] == "delete"
        assert (await world.viewer("GET", APP)).status_code == 200
        for wrong in ("dryrun=true", "dryRun=yes", "dryRun=true&dryRun=false"):
            answer = await world.editor("DELETE", f"{APP}?{wrong}")
            assert error_of(answer) == (422, "Invalid") and fields_of(answer)[0].startswith("query.dry")
        assert (await world.viewer("GET", APP)).status_code == 200


async def test_lists_come_in_pages_and_by_label(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        for number in range(5):
            labels = {"parity": "odd" if number % 2 else "even"}
            await world.ok(world.admin("PUT", f"/api/v1/projects/p{number}", {"metadata": {"labels": labels}}))
        names, position = [], ""
        while True:
            page = await world.ok(world.viewer("GET", f"/api/v1/projects?limit=2&continue={position}"))
            names += [item["metadata"]["name"] for item in page["items"]]
            position = page["continue"]
            if not position:
                break
        assert names == ["p0", "p1", "p2", "p3", "p4", "shop"]
        odd = await world.ok(world.viewer("GET", "/api/v1/projects?labels=parity%3Dodd"))
        assert [item["metadata"]["name"] for item in odd["items"]] == ["p1", "p3"]
        for wrong in ("limit=0", "limit=501", "limit=x", "continue=%00", "colour=red"):
            assert error_of(await world.viewer("GET", f"/api/v1/projects?{wrong}")) == (422, "Invalid"), wrong
        for wrong in ("labels=%3D%3D", "continue=nonsense"):
            assert error_of(await world.viewer("GET", f"/api/v1/projects?{wrong}")) == (400, "BadRequest"), wrong


async def test_bad_bodies_are_refused_with_what_is_wrong(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        for body, media, expected in (
            (b"", "application/json", (400, "BadRequest")),
            (b"{", "application/json", (400, "BadRequest")),
            (b"[]", "application/json", (400, "BadRequest")),
            (b"3", "application/json", (400, "BadRequest")),
            (b'{"spec":{},"spec":{}}', "application/json", (400, "BadRequest")),
            (b'{"metadata":{"annotations":{"a":"\\u0000"}}}', "application/json", (400, "BadRequest")),
            (b'{"spec":{"port":1e999}}', "application/json", (400, "BadRequest")),
            (b"[" * 100_000, "application/json", (400, "BadRequest")),
            (b"a: [", "application/yaml", (400, "BadRequest")),
            (b"a: 1\na: 2", "application/yaml", (400, "BadRequest")),
            (b"# nothing", "application/yaml", (400, "BadRequest")),
            (b"{}\n---\n{}", "application/yaml", (400, "BadRequest")),
            (b"\xff\xfe\x00", "application/yaml", (400, "BadRequest")),
            (b"a=b", "application/x-www-form-urlencoded", (415, "UnsupportedMediaType")),
            (b" " * (1024 * 1024 + 1), "application/json", (413, "RequestEntityTooLarge")),
            (b'{"spec": 3}', "application/json", (422, "Invalid")),
            (b'{"metadata": 3}', "application/json", (422, "Invalid")),
        ):
            answer = await world.editor("PUT", APP, body, Content_Type=media)
            assert error_of(answer) == expected, (body[:40], answer.text[:300])


async def test_a_body_without_a_declared_length_is_cut_off_at_the_limit(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        parts = 0

        async def endless() -> Any:
            nonlocal parts
            while True:
                parts += 1
                yield b" " * 65536

        headers = {"Authorization": f"Bearer {world.editor.token}", "Content-Type": "application/json"}
        answer = await world.editor.http.request("PUT", APP, headers=headers, content=endless())
        assert error_of(answer) == (413, "RequestEntityTooLarge") and parts <= 20


async def test_fields_that_nobody_knows_and_values_that_cannot_be_come_back_with_their_paths(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        spec = {"image": "shop/web:1", "prot": 80, "topology": [{"region": "eu"}, {"region": "mars", "replicas": -1}]}
        answer = await world.editor("PUT", APP, {"spec": spec, "extra": 1})
        assert error_of(answer) == (422, "Invalid")
        assert set(fields_of(answer)) == {"extra", "spec.prot", "spec.topology[1].replicas"}
        spec = {"image": "shop/web:1", "topology": [{"region": "eu"}, {"region": "mars"}]}
        answer = await world.editor("PUT", APP, {"spec": spec})
        assert error_of(answer) == (422, "Invalid") and fields_of(answer) == ["spec.topology[1].region"]
        answer = await world.editor("PUT", APP, {"metadata": {"name": "other", "environment": "dev"}, "kind": "Route"})
        assert fields_of(answer) == ["kind", "metadata.environment", "metadata.name"]


async def test_names_that_cannot_be_are_not_found_and_never_reach_the_database(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        for name in ("%00", "A", "a" * 41, "%F0%9F%98%80", "a%2Fb", "%ED%A0%80"):
            answer = await world.viewer("GET", f"{ENV}/apps/{name}")
            assert error_of(answer) == (404, "NotFound"), name
            assert (await world.viewer("GET", f"/api/v1/projects/{name}/environments")).status_code == 404
        assert error_of(await world.viewer("GET", "/api/v1/projects/none/environments/none/apps")) == (404, "NotFound")
        assert error_of(await world.viewer("POST", APP)) == (405, "MethodNotAllowed")
        assert (await world.viewer("POST", APP)).headers["allow"] == "DELETE, GET, PATCH, PUT"


async def test_apps_can_be_scaled_stopped_started_moved_and_explained(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.ok(world.admin("PUT", "/api/v1/clusters/eu2", {"spec": {"region": "eu"}}))
        topology = [{"region": "eu"}, {"region": "us", "replicas": 2}]
        await world.put_app(topology=topology)
        scaled = await world.ok(world.editor("POST", f"{APP}/scale", {"replicas": 5, "region": "eu"}))
        assert [row.get("replicas") for row in scaled["object"]["spec"]["topology"]] == [5, 2]
        scaled = await world.ok(world.editor("POST", f"{APP}/scale", {"replicas": 3}))
        assert [row["replicas"] for row in scaled["object"]["spec"]["topology"]] == [3, 3]
        tried = await world.ok(world.editor("POST", f"{APP}/stop?dryRun=true"))
        assert tried["dryRun"] and tried["changed"]
        stopped = await world.ok(world.editor("POST", f"{APP}/stop"))
        assert stopped["object"]["spec"]["desired"] == "stopped" and len(stopped["effects"]) == 2
        assert (await world.ok(world.editor("POST", f"{APP}/start")))["object"]["spec"]["desired"] == "running"
        for body, field in (
            ({}, "replicas"),
            ({"replicas": 1, "region": "mars"}, "region"),
            ({"replicas": "1"}, "replicas"),
        ):
            assert fields_of(await world.editor("POST", f"{APP}/scale", body)) == [field]
        status = await world.ok(world.viewer("GET", f"{APP}/status"))
        cluster = next(row["cluster"] for row in status["regions"] if row["region"] == "eu")
        target = "eu2" if cluster == "eu1" else "eu1"
        moved = await world.ok(world.editor("POST", f"{APP}/move", {"region": "eu", "cluster": target}))
        assert moved["effects"][0]["cluster"] == target
        assert fields_of(await world.editor("POST", f"{APP}/move", {})) == ["region", "cluster"]
        assert (await world.ok(world.viewer("GET", f"{APP}/explain")))["lines"]
        assert (await world.ok(world.viewer("GET", f"{APP}/deployments")))["items"][0]["revision"] == 1
        assert (await world.ok(world.viewer("GET", f"{APP}/instances")))["items"] == []
        actions = [item["action"] for item in (await world.ok(world.viewer("GET", f"{APP}/history")))["items"]]
        assert actions[0] == "move" and actions[-1] == "create"


async def test_a_restart_is_a_new_revision_that_a_later_file_does_not_repeat_and_a_rollback_takes_back(
    tmp_path: Path,
) -> None:
    async with prepared_world(tmp_path) as world:

        async def templates() -> list[tuple[int, int]]:
            found = (await world.ok(world.viewer("GET", f"{APP}/deployments")))["items"]
            return [(each["revision"], each["template"].get("restarts", 0)) for each in found]

        await world.put_app()
        tried = await world.ok(world.editor("POST", f"{APP}/restart?dryRun=true"))
        assert tried["dryRun"] and tried["effects"] and await templates() == [(1, 0)]
        restarted = await world.ok(world.editor("POST", f"{APP}/restart"))
        assert restarted["object"]["spec"]["restarts"] == 1 and restarted["effects"]
        assert await templates() == [(2, 1), (1, 0)]
        again = await world.put_app()
        assert "restarts" not in again["object"]["spec"] and await templates() == [(2, 1), (1, 0)]
        await world.ok(world.editor("POST", f"{APP}/restart"))
        assert await templates() == [(3, 2), (2, 1), (1, 0)]
        await world.put_app(env={"A": "b"})
        assert (await templates())[0] == (4, 2), "another revision does not forget the restart"
        back = await world.ok(world.editor("POST", f"{APP}/rollback", {"to": 1}))
        assert "restarts" not in back["object"]["spec"] and (await templates())[0] == (5, 0)


async def test_scaling_an_autoscaled_app_changes_its_bounds_or_says_that_it_has_no_effect(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app(topology=[{"region": "eu", "autoscaling": {"min": 2, "max": 6}}, {"region": "us"}])
        refused = await world.editor("POST", f"{APP}/scale", {"replicas": 5, "region": "eu"})
        assert fields_of(refused) == ["replicas"]
        assert "has no effect: autoscaled in eu between 2 and 6; use min and max" in refused.text
        part = await world.ok(world.editor("POST", f"{APP}/scale", {"replicas": 5}))
        assert [row.get("replicas") for row in part["object"]["spec"]["topology"]] == [None, 5]
        assert part["warnings"] == ["autoscaled in eu: replicas has no effect there; use min and max"]
        bounds = await world.ok(world.editor("POST", f"{APP}/scale", {"min": 3, "max": 9, "region": "eu"}))
        assert bounds["object"]["spec"]["topology"][0]["autoscaling"] == {"min": 3, "max": 9}
        refused = await world.editor("POST", f"{APP}/scale", {"min": 3, "region": "us"})
        assert fields_of(refused) == ["min"]
        refused = await world.editor("POST", f"{APP}/scale", {"min": 30, "region": "eu"})
        assert fields_of(refused) == ["spec.topology[0].autoscaling.max"]


async def test_an_app_goes_back_to_an_earlier_revision(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app(
            image="shop/web:1", env={"A": "1"}, topology=[{"region": "eu", "overrides": {"image": "x"}}]
        )
        nothing = await world.editor("POST", f"{APP}/rollback", {})
        assert fields_of(nothing) == ["to"] and "no earlier revision" in nothing.text
        await world.put_app(image="shop/web:2", topology=[{"region": "eu", "replicas": 4}])
        tried = await world.ok(world.editor("POST", f"{APP}/rollback?dryRun=true", {"to": 1}))
        assert tried["dryRun"] and tried["changed"]
        back = await world.ok(world.editor("POST", f"{APP}/rollback", {"to": 1}))
        spec = back["object"]["spec"]
        assert (spec["image"], spec["env"]) == ("shop/web:1", {"A": "1"})
        assert spec["topology"] == [{"region": "eu", "replicas": 4, "overrides": {"image": "x"}}]
        assert back["object"]["status"]["revision"] == 3
        unknown = await world.editor("POST", f"{APP}/rollback", {"to": 9})
        assert fields_of(unknown) == ["to"] and "existing: 3, 2, 1" in unknown.text
        assert (await world.viewer("POST", f"{APP}/rollback", {"to": 1})).status_code == 403


async def test_a_gateway_can_be_forgotten(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        assert error_of(await world.admin("POST", f"{ENV}/sentinels/none/forget")) == (404, "NotFound")
        await world.ok(world.admin("PUT", f"{ENV}/sentinels/eu", {"spec": {"region": "eu"}}))
        assert await world.ok(world.editor("POST", f"{ENV}/sentinels/eu/forget")) == {"pods": []}
        assert (await world.viewer("POST", f"{ENV}/sentinels/eu/forget")).status_code == 403


async def test_agents_and_their_held_deletions(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        state = {"deployments": {"cursor": "c", "breaker": "closed", "brake": {"held": True, "reason": "6 deletions"}}}
        await world.join("eu1", state=state)
        agents = (await world.ok(world.viewer("GET", "/api/v1/agents")))["items"]
        assert agents[0]["cluster"] == "eu1" and agents[0]["held"] == ["deployments"]
        confirmed = await world.ok(world.admin("POST", "/api/v1/agents/eu1/default/confirm-deletes"))
        assert confirmed == {"cluster": "eu1", "shards": ["default"]}
        assert (await world.admin("POST", "/api/v1/agents/eu1/other/confirm-deletes")).status_code == 404
        assert (await world.admin("POST", "/api/v1/agents/xx/default/confirm-deletes")).status_code == 404
        overview = await world.ok(world.viewer("GET", "/api/v1/status"))
        assert overview["apps"] == [] and overview["agents"][0]["cluster"] == "eu1"


async def test_the_audit_comes_in_pages_newest_first(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app()
        await world.put_app(env={"A": "1"})
        seen, position = [], ""
        while True:
            page = await world.ok(world.viewer("GET", f"/api/v1/audit?limit=1&continue={position}"))
            seen += [(item["actor"], item["action"], item["kind"]) for item in page["items"]]
            position = page["continue"]
            if not position:
                break
        assert seen[:2] == [("eve", "update", "App"), ("eve", "create", "App")] and len(seen) >= 4
        assert error_of(await world.viewer("GET", "/api/v1/audit?continue=x")) == (422, "Invalid")


async def test_the_first_path_tells_the_kinds_and_who_asks(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        found = await world.ok(world.viewer("GET", "/api/v1"))
        assert found["you"]["name"] == "vic" and found["you"]["role"] == "viewer" and found["version"] == "1.2.3"
        assert {"kind": "App", "plural": "apps", "scope": "environment", "order": 6} in found["kinds"]
        assert orjson.dumps(found)
