"""What the golden tests share: the commands of the catalog, golden files, and servers that answer as recorded.

pytest tests/unit/cli/test_cli_help.py --update-golden                       # write the help anew
pytest tests/unit/cli/test_cli_outputs.py --update-golden                    # write the outputs anew
pytest tests/unit/cli/test_cli_outputs.py --record-answers DIR -k 'events'   # ask the fleet of `shoal up --dir DIR`
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from shoal.app.main import COMMANDS
from shoal.cli.contexts import Context
from shoal.cli.rest import RequestRefused, Rest

GOLDEN = Path(__file__).parent / "golden"


def every_command() -> Iterator[tuple[str, Any]]:
    """Each command and group with its words, in the order of the catalog, but for those that have another name now."""
    for command in COMMANDS:
        module, _, attribute = command.target.partition(":")
        yield from _below(command.name, typer.main.get_command(getattr(import_module(module), attribute)))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from _below(f"{words} {name}", inner)


def compare(path: Path, text: str, config: pytest.Config) -> None:
    """Fails if a golden file says otherwise; with the option, writes it."""
    if config.getoption("--update-golden") or config.getoption("--record-answers"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    known = path.read_text() if path.exists() else ""
    assert text == known, f"{path.name} is not what it was; --update-golden writes it anew"


@dataclass
class Recording:
    """The answers of one command's servers, by server and request; ``asked`` are the requests of this run."""

    path: Path
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    answers: dict[str, Any] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> Recording:
        if not path.exists():
            return cls(path)
        known = json.loads(path.read_text())
        return cls(path, datetime.fromisoformat(known["at"]), known["answers"])

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        known = {name: self.answers[name] for name in sorted(self.asked)}
        text = json.dumps({"at": self.at.isoformat(), "answers": known}, indent=1, ensure_ascii=False)
        self.path.write_text(f"{text}\n")


class RecordedServer:
    """Answers requests of one server as recorded; with a context, asks it what is not known."""

    def __init__(self, name: str, recording: Recording, source: Context | None = None) -> None:
        server = self
        self._name, self._recording, self._source = name, recording, source

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, found = server._answer(f"{self.command} {self.path}", body)
                data = found.encode() if isinstance(found, str) else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name=f"recorded {name}")

    def __enter__(self) -> RecordedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, request: str, body: bytes) -> tuple[int, Any]:
        key = f"{self._name} {request}"
        if key not in self._recording.answers:
            if self._source is None:
                return 501, {"error": {"code": "NotRecorded", "message": f"{key} is not recorded", "details": []}}
            self._recording.answers[key] = _without_machine(_asked(self._source, request, body))
        self._recording.asked.add(key)
        found = self._recording.answers[key]
        return found["status"], found["body"]


def _without_machine(answer: dict[str, Any]) -> dict[str, Any]:
    """Without the name of the machine that it was recorded on."""
    agent = rf"{re.escape(socket.gethostname())}_[0-9a-f-]{{36}}_"
    found: dict[str, Any] = json.loads(re.sub(agent, "laptop_", json.dumps(answer)))
    return found


def _without_most(document: Any) -> dict[str, Any]:
    """Of the OpenAPI document, what the recorded command looks at."""
    schemas = document["components"]["schemas"]
    names = ("App", "AppSpec", "RolloutFields", "RolloutWindow")
    return {"components": {"schemas": {name: schemas[name] for name in names}}}


def _asked(source: Context, request: str, body: bytes) -> dict[str, Any]:
    method, _, target = request.partition(" ")
    rest = Rest(source)
    try:
        reply = rest.request(method, target, body or None)
        return {"status": reply.status, "body": _without_most(reply.body) if "openapi" in target else reply.body}
    except RequestRefused as refused:
        return {"status": refused.status, "body": refused.body}
    finally:
        rest.close()
