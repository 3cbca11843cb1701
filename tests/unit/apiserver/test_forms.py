"""Lists in other forms: the same objects as the plain list has, made in slices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from shoal.apiserver.forms import SLICE
from shoal.testing.servers import LocalServer, local_server

PATH = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
FORMS = (TABLE, METADATA, "application/yaml", TABLE.replace("json", "yaml"), METADATA.replace("json", "yaml"))


async def filled(server: LocalServer, count: int) -> None:
    for number in range(count):
        labels = {"at": f'quote " and \u00fc {number}'[-2:].strip()}
        await server.post(PATH, {"metadata": {"name": f"c{number:04d}", "labels": labels}, "data": {"k": "v" * 50}})


async def listed(server: LocalServer, form: str, path: str = PATH) -> Any:
    answer = await server.call("GET", path, headers={"Accept": form})
    assert answer.status == 200
    return yaml.safe_load(answer.body) if "yaml" in form else answer.json


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_list_in_another_form_has_what_the_plain_list_has(count: int) -> None:
    async with local_server() as server:
        await filled(server, count)
        plain = await listed(server, "application/json")
        whole = await listed(server, "application/yaml")
        assert plain["items"] == [
            {key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for each in whole["items"]
        ]
        for form in (METADATA, METADATA.replace("json", "yaml")):
            found = await listed(server, form)
            assert (found["kind"], found["metadata"]) == ("PartialObjectMetadataList", plain["metadata"])
            assert [each["metadata"] for each in found["items"]] == [each["metadata"] for each in plain["items"]]
            assert all(set(each) == {"kind", "apiVersion", "metadata"} for each in found["items"])
        for form in (TABLE, TABLE.replace("json", "yaml")):
            found = await listed(server, form)
            assert (found["kind"], found["metadata"]) == ("Table", plain["metadata"])
            assert [row["cells"][0] for row in found["rows"]] == [each["metadata"]["name"] for each in plain["items"]]


@pytest.mark.parametrize("form", FORMS)
async def test_other_requests_go_on_while_a_long_list_is_made(form: str) -> None:
    async with local_server() as server:
        await filled(server, 4 * SLICE)

        async def turns(path: str) -> int:
            """How often the event loop came to other work before the answer."""
            asked, count = asyncio.ensure_future(listed(server, form, path)), 0
            while not asked.done():
                await asyncio.sleep(0)
                count += 1
            await asked
            return count

        assert await turns(PATH) >= await turns(f"{PATH}?limit=1") + 3
