"""Counts how many functions of ours carry one change: from the apply of an app to Kubernetes, and its report back.

    PYTHONPATH=src python scripts/change_path.py [--list]

A control plane, an agent and an API server run in this process, with real connections between the first two. An app
that runs is applied with another image; then its Deployment is given a status, as a cluster's controllers would do.

How it is counted. Ids made for the change, and its image, contain a word that is nowhere else. A function *has the
change* when it is entered with that word in an argument: a text, bytes, a message, a row, or data made of these. The
change is *handed over* where it leaves the running code: a statement writes it to the database, bytes are written to a
connection, another task or callback is woken, the API server is told to write. A function counts, once, when it was
entered after the change began and is on the stack of a hand-over, and it or a function it called has the change. So
what only waits for changes and what only looks at one (a check, a rendering, a format) does not count; what hands it
through does. Down ends when the Deployment is written to the API server; what the agent sees of its writes before that
belongs to the way back. Back begins when the Deployment's status has changed there and ends when the report is in the
database. Counted are the packages base, client, control, krane, reconcile and sync; the API server is not ours to count
here, nor is generated code.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import enum
import inspect
import json
import opcode
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

from shoal.apiserver.inprocess import InProcessTransport
from shoal.app.fleet.agent import make_agent
from shoal.base import logs
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.client import Client, builtin
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import Actor
from shoal.krane.config import KraneConfig
from shoal.testing.fleet import PlainSealer, control_plane
from shoal.testing.servers import local_server

WORD = "xprobex"
COUNTED = ("base", "client", "control", "krane", "reconcile", "sync")
FLEET = ("control/", "krane/", "sync/")
_RESUME = opcode.opmap["RESUME"]
_DEPTH = 5
_WRITES = ("INSERT", "UPDATE", "DELETE")
_HANDS_OVER = {
    "Event.set", "BaseEventLoop.call_soon", "TaskGroup.create_task", "Watched.write",
    "_SelectorSocketTransport.write", "_SSLProtocolTransport.write",
}  # fmt: skip
_C_HANDS_OVER = {"set_result", "set_exception"}


class MarkedIds(Ids):
    """Ids that can be told from all others."""

    marked = False

    def new_suffix(self, length: int = 6) -> str:
        made = super().new_suffix(length)
        return (WORD + made)[:length] if self.marked else made


class Trace:
    """``with trace:`` records; ``end`` may be called from inside, at the moment that ends it."""

    def __init__(self, source: Path, without: tuple[str, ...] = ()) -> None:
        self._source = str(source)
        self._without = without  # packages whose hand-overs belong to the other direction
        self._codes: dict[CodeType, str | None] = {}  # our functions, by their file; None for those of others
        self._entered: dict[int, FrameType] = {}  # since it began; kept, so that ids stay theirs
        self._having: set[int] = set()
        self.carriers: dict[CodeType, None] = {}  # in the order in which they first handed it over
        self.on = False

    def __enter__(self) -> None:
        self.on = True
        sys.setprofile(self._event)

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        self.on = False
        sys.setprofile(None)
        self._entered.clear()
        self._having.clear()

    def listed(self) -> list[tuple[str, list[str]]]:
        """Files in the order of the change, and their functions."""
        files: dict[str, list[str]] = {}
        for code in self.carriers:
            files.setdefault(str(self._codes[code]), []).append(code.co_qualname)
        return list(files.items())

    def _event(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call":
            name = getattr(argument, "__name__", "")
            if name in _C_HANDS_OVER or (name == "execute" and self._writes(frame)):
                self._handed_over(frame)
        elif event == "call" and self._is_ours(frame.f_code):
            self._enter(frame)
        elif event == "call" and frame.f_code.co_qualname in _HANDS_OVER:
            self._handed_over(frame)

    def _enter(self, frame: FrameType) -> None:
        code = frame.f_code
        if code.co_code[frame.f_lasti] == _RESUME and code.co_code[frame.f_lasti + 1] != 0:
            return  # it goes on after waiting
        self._entered[id(frame)] = frame
        if any(_says(value, _DEPTH) for value in self._arguments(frame)):
            self._having.add(id(frame))

    def _writes(self, frame: FrameType) -> bool:
        """Whether it executes a statement that writes; ``frame`` has the statement as an argument."""
        values = [getattr(value, "text", value) for value in self._arguments(frame)]
        return any(isinstance(value, str) and value.startswith(_WRITES) for value in values)

    def _handed_over(self, frame: FrameType | None) -> None:
        having, found = False, list[CodeType]()
        while frame is not None:
            having = having or id(frame) in self._having
            if having and id(frame) in self._entered and not frame.f_code.co_name.startswith("<"):
                found.append(frame.f_code)
            frame = frame.f_back
        if not any(str(self._codes[code]).startswith(self._without) for code in found):
            self.carriers.update(dict.fromkeys(found))

    def _is_ours(self, code: CodeType) -> bool:
        if code not in self._codes:
            path = code.co_filename
            parts = Path(path).relative_to(self._source).parts if path.startswith(self._source) else ()
            self._codes[code] = "/".join(parts) if parts and parts[0] in COUNTED else None
        return self._codes[code] is not None

    def _arguments(self, frame: FrameType) -> list[Any]:
        code = frame.f_code
        flags = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags]
        found = frame.f_locals
        return [found.get(name) for name in names if name not in ("self", "cls")]


def _says(value: Any, depth: int) -> bool:
    """Whether data contains the word. What is not data (a connection, a cache, a session) is not looked into."""
    if isinstance(value, str):
        return WORD in value
    if isinstance(value, bytes | bytearray):
        return WORD.encode() in value
    if depth == 0 or value is None or isinstance(value, int | float | enum.Enum | type):
        return False
    if isinstance(value, dict):
        return any(_says(key, depth - 1) or _says(one, depth - 1) for key, one in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_says(one, depth - 1) for one in value)
    if hasattr(value, "to_binary"):
        return WORD.encode() in value.to_binary()
    if hasattr(value, "__table__"):
        return any(_says(one, depth - 1) for name, one in vars(value).items() if not name.startswith("_"))
    if dataclasses.is_dataclass(value) and _is_data(value):
        fields = dataclasses.fields(value)
        return any(_says(getattr(value, field.name, None), depth - 1) for field in fields)
    return False


def _is_data(value: Any) -> bool:
    return all(
        one is None
        or isinstance(one, str | bytes | int | float | enum.Enum | dict | list | tuple | set | frozenset | type)
        or callable(one)
        or hasattr(one, "to_binary")
        or hasattr(one, "__table__")
        or (dataclasses.is_dataclass(one) and _is_data(one))
        for one in (getattr(value, field.name, None) for field in dataclasses.fields(value))
    )


class Watched(InProcessTransport):
    """Tells when a Deployment with the word in its name is written."""

    written: Callable[[], None] = staticmethod(lambda: None)

    async def request(self, method: str, target: str, **rest: Any) -> Any:
        if method == "GET":
            return await self.read(method, target, **rest)
        reply = await self.write(method, target, **rest)
        if method == "PATCH" and "/deployments/" in target and WORD.encode() in rest.get("body", b""):
            self.written()
        return reply

    async def read(self, method: str, target: str, **rest: Any) -> Any:
        return await super().request(method, target, **rest)

    async def write(self, method: str, target: str, **rest: Any) -> Any:
        return await super().request(method, target, **rest)


async def until(check: Callable[[], Any]) -> Any:
    async with asyncio.timeout(60):
        while not (found := check()):  # noqa: ASYNC110 - what it waits for is a row that somebody else writes
            await asyncio.sleep(0.01)
    return found


def document(kind: str, name: str, spec: dict[str, Any], **metadata: str) -> dict[str, Any]:
    return {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def an_app(image: str) -> dict[str, Any]:
    spec = {"image": image, "port": 8080, "topology": [{"region": "eu", "replicas": 1}]}
    return document("App", "web", spec, project="shop", environment="live")


async def measure() -> tuple[Trace, Trace]:
    source = Path(sys.modules["shoal"].__path__[0])
    down, back = Trace(source, without=("reconcile/",)), Trace(source)
    with tempfile.TemporaryDirectory(prefix="shoal-path-") as folder:
        async with control_plane(Path(folder)) as control, local_server() as server:
            ids, who = MarkedIds(), Actor("default", "ann", "admin")
            fleet = Fleet(control.databases, control.clock, ids, PlainSealer())
            await fleet.ensure_cluster(who, "eu", "c1", "default")
            await fleet.apply(who, document("Project", "shop", {}))
            await fleet.apply(who, document("Environment", "live", {}, project="shop"))
            join = Path(folder) / "join.json"
            token = await control.agent_token("c1", "eu", "default")
            about = {"url": control.url, "token": token, "ca": control.ca.decode(), "cluster": "c1", "region": "eu"}
            join.write_text(json.dumps(about))
            transport = Watched(server.server.handler, "", user_agent="krane")
            transport.__dict__.update(server.transport.__dict__)
            client, admin = Client(transport, clock=RealClock()), Client(server.transport, clock=RealClock())
            around = SimpleNamespace(clock=RealClock(), ids=Ids(), random=random.Random(7), metrics=Metrics())
            config = KraneConfig(join=join, dir=Path(folder) / "krane", elect=False)
            agent, connection = await make_agent(config, client, client, around)  # type: ignore[arg-type]
            running = asyncio.create_task(agent.run(), name="agent")
            database = sqlite3.connect(Path(folder) / "control.db")
            try:
                await until(lambda: all(agent.readyz()[1].get(each) == "ok" for each in ("deployments", "sentinels")))
                await fleet.apply(who, an_app("shop/web:1"))
                await until(lambda: _rows(database, "applied_number = number AND fingerprint <> 0"))
                await asyncio.sleep(1.0)  # what follows from the first apply is over
                written = asyncio.Event()
                transport.written = lambda: (down.end(), written.set())  # type: ignore[method-assign]
                ids.marked = True
                with down:
                    await fleet.apply(who, an_app(f"shop/web:{WORD}"))
                    await asyncio.wait_for(written.wait(), 60)
                new = f"key LIKE '%{WORD}%'"
                await until(lambda: _rows(database, f"{new} AND applied_number = number AND fingerprint <> 0"))
                await asyncio.sleep(1.0)
                await _become_available(admin, back)
                await until(lambda: _rows(database, f"{new} AND json_extract(observed, '$.available') = 1"))
                back.end()
            finally:
                database.close()
                await cancel_all(running)
                await connection.close()
    return down, back


async def _become_available(admin: Client, back: Trace) -> None:
    deployments = admin.of(builtin("deployments", "apps"))
    found = [one for one in (await deployments.list()).items if WORD in json.dumps(one["metadata"]["labels"])]
    about = found[0]["metadata"]
    status = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1}
    back.__enter__()
    await deployments.patch(about["name"], {"status": status}, about["namespace"], subresource="status")


def _rows(database: sqlite3.Connection, which: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM desired WHERE kind = 'deployment' AND {which}").fetchone()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="count the functions that carry one change")
    parser.add_argument("--list", action="store_true", help="name every function, file by file")
    shown = parser.parse_args().list
    logs.configure(level="error")
    traces = dict(zip(("down", "back"), asyncio.run(measure()), strict=True))
    for name, trace in traces.items():
        if shown:
            print(f"{name}:")
            for file, functions in trace.listed():
                print(f"  {file}: {', '.join(functions)}")
    for name, trace in traces.items():
        own = sum(len(functions) for file, functions in trace.listed() if file.startswith(FLEET))
        print(f"{name}: {len(trace.carriers)} functions, {own} of them of the fleet's own packages")


if __name__ == "__main__":
    main()
