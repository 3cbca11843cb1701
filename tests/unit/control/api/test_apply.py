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
        assert "hunter" not in str(found) and "blog" in found["items"][0]["warnings"][0]
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


async def test_one_document_that_fails_leaves_the_others_applied(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        lost = {**PROJECT, "kind": "Environment", "metadata": {"name": "e", "project": "nowhere"}}
        answer = await world.editor("POST", "/api/v1/apply", {"items": [lost, PROJECT]})
        assert answer.status_code == 207
        failed, made = answer.json()["items"]
        assert failed["error"]["code"] == "Invalid" and failed["error"]["details"][0]["field"] == "metadata.project"
        assert failed["object"]["metadata"] == {"name": "e", "project": "nowhere"} and made["created"]
        alone = await world.editor("POST", "/api/v1/apply", lost)
        assert alone.status_code == 422 and alone.json()["error"]["code"] == "Invalid"
        assert alone.json()["items"][0]["error"] == alone.json()["error"]


async def test_what_may_not_be_done_is_said_for_each_document(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        region = {"apiVersion": "shoal.dev/v1", "kind": "Region", "metadata": {"name": "asia"}}
        answer = await world.editor("POST", "/api/v1/apply", [region, PROJECT])
        assert answer.status_code == 207 and answer.json()["items"][0]["error"]["code"] == "Forbidden"
        assert (await world.viewer("POST", "/api/v1/apply", PROJECT)).status_code == 403
        many = [{**PROJECT, "metadata": {"name": f"p{number}"}} for number in range(1001)]
        assert error_of(await world.editor("POST", "/api/v1/apply", many)) == (413, "RequestEntityTooLarge")


async def test_what_was_read_can_be_applied_again(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        await world.put_app()
        listed = await world.ok(world.viewer("GET", "/api/v1/apps"))
        again = await world.ok(world.editor("POST", "/api/v1/apply", listed))
        assert again["items"][0]["changed"] == []
