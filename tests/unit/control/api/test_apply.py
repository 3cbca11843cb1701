"""Many documents in one request."""

from __future__ import annotations

from pathlib import Path

from api_world import error_of, fields_of, prepared_world

FILE = """
# the order of a file does not matter
apiVersion: shoal.dev/v1
kind: App
metadata: {name: web, project: blog, environment: live}
spec:
  image: blog/web:1
  secrets: [db]
  topology:
  - region: eu
  - region: us
---
apiVersion: shoal.dev/v1
kind: Secret
metadata: {name: db, project: blog, environment: live}
spec: {values: {PASSWORD: hunter22}}
---
---
apiVersion: shoal.dev/v1
kind: Environment
metadata: {name: live, project: blog}
---
apiVersion: shoal.dev/v1
kind: Project
metadata: {name: blog}
"""
PROJECT = {"apiVersion": "shoal.dev/v1", "kind": "Project", "metadata": {"name": "a"}}


async def test_a_file_is_applied_in_the_order_in_which_its_kinds_need_each_other(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        found = await world.ok(world.editor("POST", "/api/v1/apply", FILE))
        kinds = [item["object"]["kind"] for item in found["items"]]
        assert kinds == ["App", "Secret", "Environment", "Project"]
        assert all(item["created"] for item in found["items"])
        assert {effect["region"] for effect in found["items"][0]["effects"]} == {"eu", "us"}
        again = await world.ok(world.editor("POST", "/api/v1/apply", FILE))
        assert not any(item["created"] or item["changed"] for item in again["items"])


async def test_a_dry_run_of_a_file_that_makes_its_own_project_tells_what_it_can(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        found = await world.ok(world.editor("POST", "/api/v1/apply?dryRun=true", FILE))
        assert found["dryRun"] and all(item["created"] for item in found["items"])
        assert "hunter" not in str(found)
        assert {effect["region"] for effect in found["items"][0]["effects"]} == {"eu", "us"}
        assert (await world.viewer("GET", "/api/v1/projects/blog")).status_code == 404


async def test_one_wrong_document_stops_all_and_every_fault_is_named(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        wrong = [PROJECT, {**PROJECT, "spec": {"x": 1}}, {**PROJECT, "kind": "Nothing"}, 3, {**PROJECT, "metadata": {}}]
        answer = await world.editor("POST", "/api/v1/apply", wrong)
        assert error_of(answer) == (422, "Invalid")
        assert fields_of(answer) == [
            "documents[1].spec.x",
            "documents[2]",
            "documents[3]",
            "documents[4].metadata.name",
        ]
        assert (await world.viewer("GET", "/api/v1/projects/a")).status_code == 404
        twice = await world.editor("POST", "/api/v1/apply", [PROJECT, PROJECT])
        assert fields_of(twice) == ["documents[1].metadata.name"]


async def test_a_file_is_applied_whole_or_not_at_all(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        lost = {**PROJECT, "kind": "Environment", "metadata": {"name": "e", "project": "nowhere"}}
        for target in ("/api/v1/apply?dryRun=true", "/api/v1/apply"):
            answer = await world.editor("POST", target, {"items": [lost, PROJECT]})
            assert error_of(answer) == (422, "Invalid"), target
            assert fields_of(answer) == ["documents[0].metadata.project"]
            failed, other = answer.json()["items"]
            assert failed["error"]["code"] == "Invalid" and other["error"]["code"] == "NotApplied"
            assert failed["object"]["metadata"] == {"name": "e", "project": "nowhere"}
        assert (await world.viewer("GET", "/api/v1/projects/a")).status_code == 404
        alone = await world.editor("POST", "/api/v1/apply", lost)
        assert alone.status_code == 422 and alone.json()["error"]["code"] == "Invalid"
        assert alone.json()["items"][0]["error"] == alone.json()["error"]


def a_document(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    metadata = {"name": name, "project": "blog", "environment": "live"}
    return {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}


async def test_every_reference_of_a_file_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.ok(world.editor("POST", "/api/v1/apply", FILE))
        wrong = [
            a_document("Route", "r", {"host": "a.example", "app": "nothing"}),
            a_document("App", "moon", {"image": "i:1", "topology": [{"region": "moon"}]}),
            a_document("App", "good", {"image": "i:1", "topology": [{"region": "eu"}]}),
            a_document("Route", "to-moon", {"host": "b.example", "app": "moon"}),
        ]
        for target in ("/api/v1/apply?dryRun=true", "/api/v1/apply"):
            answer = await world.editor("POST", target, wrong)
            expected = ["documents[0].spec.backends", "documents[1].spec.topology[0].region"]
            assert fields_of(answer) == expected, "what needs a refused document is not refused for that again"
        listed = await world.ok(world.viewer("GET", "/api/v1/apps"))
        assert [each["metadata"]["name"] for each in listed["items"]] == ["web"]


async def test_documents_of_one_file_may_need_each_other_in_any_order(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.ok(world.editor("POST", "/api/v1/apply", FILE))
        limit = {"requestSize": {"maxBytes": 100}, "routes": ["r"]}
        both = [
            a_document("Policy", "limit", limit),
            a_document("Route", "r", {"host": "a.example", "app": "web"}),
        ]
        found = await world.ok(world.editor("POST", "/api/v1/apply", both))
        assert all(item["created"] for item in found["items"])


async def test_two_routes_that_take_the_same_requests_are_refused(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.ok(world.editor("POST", "/api/v1/apply", FILE))
        header = {"name": "x-beta", "exact": "1"}
        route = {"host": "a.example", "app": "web"}
        others = [{**route, "path": "/api"}, {**route, "headers": [header]}]
        good = [a_document("Route", f"r{n}", spec) for n, spec in enumerate([route, *others])]
        await world.ok(world.editor("POST", "/api/v1/apply", good))
        await world.ok(world.editor("POST", "/api/v1/apply", good))
        for spec in (route, *others):
            answer = await world.editor("POST", "/api/v1/apply", a_document("Route", "again", spec))
            assert fields_of(answer) == ["spec.path"] and "has the same host, path and headers" in answer.text
        together = [a_document("Route", name, {"host": "b.example", "app": "web"}) for name in ("x", "y")]
        answer = await world.editor("POST", "/api/v1/apply?dryRun=true", together)
        assert fields_of(answer) == ["documents[1].spec.path"]


async def test_what_may_not_be_done_is_said_for_each_document(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        region = {"apiVersion": "shoal.dev/v1", "kind": "Region", "metadata": {"name": "asia"}}
        answer = await world.editor("POST", "/api/v1/apply", [region, PROJECT])
        assert answer.status_code == 403 and answer.json()["items"][0]["error"]["code"] == "Forbidden"
        assert (await world.viewer("GET", "/api/v1/projects/a")).status_code == 404
        assert (await world.viewer("POST", "/api/v1/apply", PROJECT)).status_code == 403
        many = [{**PROJECT, "metadata": {"name": f"p{number}"}} for number in range(1001)]
        assert error_of(await world.editor("POST", "/api/v1/apply", many)) == (413, "RequestEntityTooLarge")


async def test_what_was_read_can_be_applied_again(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app()
        listed = await world.ok(world.viewer("GET", "/api/v1/apps"))
        again = await world.ok(world.editor("POST", "/api/v1/apply", listed))
        assert again["items"][0]["changed"] == []
