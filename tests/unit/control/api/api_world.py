"""The API over a database of a test's own: clients with tokens, and an agent that is played by hand."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select

from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.control.api.access import ApiCaller
from shoal.control.api.wiring import make_api
from shoal.control.database import tables
from shoal.control.database.engine import Databases
from shoal.control.database.tokens import ApiTokens, Principal
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import Sealed
from shoal.rest.api import RestApi

ENV = "/api/v1/projects/shop/environments/prod"
URL = "https://control.example:7400"
CA = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"


class PlainSealer:
    """Seals nothing; only for tests."""

    async def seal(self, values: dict[str, str]) -> Sealed:
        return Sealed(b"sealed", b"data key", "master")

    async def rewrap(self, data_key: bytes, master_key: str, public_key: bytes) -> bytes:
        return data_key

    async def wrap(self, key: bytes) -> tuple[bytes, str]:
        return key, "master"

    async def unwrap(self, data_key: bytes, master_key: str) -> bytes:
        return data_key


class Client:
    """Speaks to the API in process, for one token."""

    def __init__(self, api: Any, token: str, peer: str = "10.1.2.3") -> None:
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(api, client=(peer, 1234)), base_url="https://control.example"
        )
        self.token = token

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """``headers`` in Python's spelling: ``If_Match``. Text is sent as YAML."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        if isinstance(body, str):
            sent.setdefault("Content-Type", "application/yaml")
            return await self.http.request(method, path, headers=sent, content=body)
        if isinstance(body, bytes):
            return await self.http.request(method, path, headers=sent, content=body)
        return await self.http.request(method, path, headers=sent, json=body)


class World:
    """The API with the tokens of an administrator, an editor and a viewer."""

    def __init__(self, databases: Databases, clock: Clock) -> None:
        self.databases = databases
        self.clock = clock
        self.tokens = ApiTokens(databases, clock)
        self.metrics = Metrics()
        self.fleet = Fleet(databases, Ids(), PlainSealer())
        self.api: RestApi[Principal, ApiCaller] = make_api(
            self.fleet,
            self.tokens,
            databases,
            clock=clock,
            metrics=self.metrics,
            urls=[URL],
            ca=lambda: CA,
            version="1.2.3",
        )
        self.admin = self.editor = self.viewer = self.nobody = Client(self.api, "")

    async def prepare(self) -> None:
        await self.fleet.ensure_workspace("default")
        self.admin = await self.user("ann", "admin")
        self.editor = await self.user("eve", "editor")
        self.viewer = await self.user("vic", "viewer")
        for name in ("eu", "us"):
            await self.ok(self.admin("PUT", f"/api/v1/regions/{name}", {}))
            await self.ok(self.admin("PUT", f"/api/v1/clusters/{name}1", {"spec": {"region": name}}))
        await self.ok(self.admin("PUT", "/api/v1/projects/shop", {}))
        await self.ok(self.admin("PUT", "/api/v1/projects/shop/environments/prod", {}))

    async def user(self, name: str, role: str, workspace: str = "default") -> Client:
        text, _ = await self.tokens.create(kind="user", name=name, workspace_id=workspace, role=role)
        return Client(self.api, text)

    async def ok(self, answer: Awaitable[httpx.Response]) -> Any:
        found = await answer
        assert found.status_code < 300, (found.status_code, found.text)
        return found.json()

    async def put_app(self, name: str = "web", **spec: Any) -> Any:
        return await self.ok(self.editor("PUT", f"{ENV}/apps/{name}", an_app(**spec)))

    async def rows(self, table: Any, *where: Any) -> list[Any]:
        async with self.databases.fleet.reading() as session:
            return list(await session.scalars(select(table).where(*where)))

    async def join(self, cluster: str, shard: str = "default", state: dict[str, Any] | None = None) -> None:
        row = (await self.rows(tables.Cluster, tables.Cluster.name == cluster))[0]
        async with self.databases.fleet.transaction() as tx:
            tx.session.add(
                tables.Agent(
                    cluster_id=row.id, shard=shard, agent=f"{cluster}-agent", epoch=1, public_key=b"k",
                    joined_at=tx.now, last_heartbeat_at=tx.now, state=state,
                )
            )  # fmt: skip

    async def happen(self, reason: str, workspace: str = "default") -> None:
        async with self.databases.of(workspace).transaction() as tx:
            await tx.number()
            tx.event(
                workspace_id=workspace, kind="App", object_id="app_1", name="shop/prod/web", reason=reason, message="m"
            )


def an_app(**spec: Any) -> dict[str, Any]:
    return {"spec": {"image": "shop/web:1", "topology": [{"region": "eu"}], **spec}}


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of an error, which has the shape that all have."""
    found = answer.json()["error"]
    assert set(found) == {"code", "message", "details", "correlation"}
    assert found["message"] and found["correlation"] == answer.headers["x-correlation-id"]
    assert all(set(detail) == {"field", "message"} for detail in found["details"])
    return answer.status_code, found["code"]


def fields_of(answer: httpx.Response) -> list[str]:
    return [detail["field"] for detail in answer.json()["error"]["details"]]


@asynccontextmanager
async def a_world(
    urls: dict[str, str], clock: Clock | None = None, workspaces: dict[str, str] | None = None
) -> AsyncIterator[World]:
    clock = clock or RealClock()
    databases = await Databases.open(urls, clock=clock, ids=Ids(), workspaces=workspaces)
    try:
        yield World(databases, clock)
    finally:
        await databases.close()


@asynccontextmanager
async def prepared_world(tmp_path: Path, *, clock: Clock | None = None) -> AsyncIterator[World]:
    """A new SQLite database with two regions, a project and an environment."""

    async with asyncio.timeout(120):
        shutil.copy(empty_database(), tmp_path / "fleet.db")
        async with a_world({"main": f"sqlite:///{tmp_path}/fleet.db"}, clock) as world:
            await world.prepare()
            yield world


@cache
def empty_database() -> Path:
    """A database with empty tables; copying it is faster than making them."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-api-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    async def make() -> None:
        async with a_world({"main": f"sqlite:///{folder}/fleet.db"}):
            pass

    # asyncio.run may not be called in a running loop, and the caller's is running
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, make()).result()
    return folder / "fleet.db"
