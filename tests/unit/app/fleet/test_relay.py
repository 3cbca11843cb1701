"""A relay's token file, and its endpoints for other machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.app.fleet.relay import read_token_file
from shoal.errors import ConfigError


def test_a_token_file_holds_the_token_or_is_the_join_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("shoal_relay_x\n")
    assert read_token_file(path) == ("shoal_relay_x", "")
    path.write_text(json.dumps({"token": "t", "ca": "PEM", "url": "https://c"}))
    assert read_token_file(path) == ("t", "PEM")
    for wrong in ("", "two words", "{", "{}"):
        path.write_text(wrong)
        with pytest.raises(ConfigError, match="token_file is"):
            read_token_file(path)


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [("/readyz", "10.1.2.3", 200), ("/status", "10.1.2.3", 403), ("/metrics", "10.1.2.3", 403),
     ("/status", "127.0.0.1", 200), ("/metrics", "::1", 200)],
)  # fmt: skip
async def test_other_machines_may_only_read_the_readiness_of_a_relay(path: str, host: str, status: int) -> None:

    from shoal.app.health import mostly_local
    from shoal.base.asgi import answer

    sent: list[dict[str, object]] = []

    async def inner(_scope: object, _receive: object, send: object) -> None:
        await answer(send, 200, b"{}")  # type: ignore[arg-type]

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "client": (host, 1)}
    await mostly_local(inner)(scope, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == status
