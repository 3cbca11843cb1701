"""Backends for the contract suites: each suite runs once per implementation of its seam."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.store import Attrs, Key, LogStore, Put, open_store

HEAD = b'{"metadata":{"resourceVersion":"'


def attrs_of(key: Key, value: bytes) -> Attrs:
    """Attributes from the value alone, so that they survive a restart."""
    body = json.loads(value)
    return Attrs(labels=body["labels"], indexed=tuple(body["indexed"]), fence=body["fence"])


@dataclass(frozen=True)
class StoreBackend:
    """How a test opens stores of one kind; opening the same backend again means the same data, where it is durable."""

    name: str
    url: str
    durable: bool

    def open(self, **options: Any) -> LogStore:
        return open_store(self.url, attrs_of=attrs_of, **options)

    def run(self, test: Callable[[LogStore], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            store = self.open(**options)
            await store.start()
            try:
                await test(store)
            finally:
                await store.stop()

        asyncio.run(asyncio.wait_for(main(), 60))

    @staticmethod
    def put(
        name: str,
        *,
        namespace: str = "default",
        resource: str = "pods",
        labels: Mapping[str, str] | None = None,
        indexed: Iterable[str] = (),
        fence: str = "",
        spec: str = "",
    ) -> Put:
        body = {"labels": dict(labels or {}), "indexed": list(indexed), "fence": fence, "spec": spec}
        value = HEAD + b'"},' + json.dumps(body).encode()[1:]
        key = Key(resource, namespace, name)
        return Put(key, value, len(HEAD), attrs_of(key, value))


def _store_backend(name: str, folder: Path) -> StoreBackend:
    if name == "memory":
        return StoreBackend(name, "memory://", durable=False)
    return StoreBackend(name, f"sqlite:///{folder}/store.db", durable=True)


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Every kind of store."""
    return _store_backend(request.param, tmp_path)


@pytest.fixture(params=["sqlite"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Every kind of store that keeps its data in a file."""
    return _store_backend(request.param, tmp_path)
