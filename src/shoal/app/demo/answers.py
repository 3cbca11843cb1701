"""The responses of the demo application; pure. The server handles connections, delays and signals."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

TAGS = ("v1", "v2", "v2-errors", "v2-slow")
GREETINGS = {"v1": "Hello from Shoal", "v2": "Hello again from Shoal, second version"}
_SHOWN = (
    "host", "x-request-id", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-shoal-principal",
    "x-shoal-deployment", "x-deployment-id", "traceparent", "user-agent",
)  # fmt: skip
_FAULTS = {"v2-errors": (30.0, 0.0), "v2-slow": (0.0, 0.3)}  # percent of answers that fail, and how late all are
_LONGEST_S = 300.0
_MOST_CHUNKS = 100_000
JSON, TEXT, HTML = "application/json", "text/plain; charset=utf-8", "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class About:
    """This instance."""

    tag: str = "v1"
    app: str = "demo"
    region: str = ""
    instance: str = ""
    deployment: str = ""
    fail_percent: float = 0.0  # of the answers
    delay_s: float = 0.0  # of each answer

    @property
    def greeting(self) -> str:
        return GREETINGS[self.tag.partition("-")[0]]


@dataclass(frozen=True, slots=True)
class DemoRequest:
    method: str
    path: str  # without the query
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """Sent after ``delay_s``; with ``chunks``, as that many pieces with ``pause_s`` between them."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    delay_s: float = 0.0
    chunks: int = 0
    pause_s: float = 0.0


def about_from(tag: str, environ: Mapping[str, str]) -> About:
    """Raise ValueError for an unknown tag."""
    if tag not in TAGS:
        raise ValueError(f"no version {tag!r} of the demo application: use one of {', '.join(TAGS)}")
    percent, delay_s = _FAULTS.get(tag, (0.0, 0.0))
    return About(
        tag=tag,
        app=environ.get("SHOAL_APP", "demo"),
        region=environ.get("SHOAL_REGION", ""),
        instance=environ.get("SHOAL_INSTANCE_ID") or environ.get("HOSTNAME", ""),
        deployment=environ.get("SHOAL_DEPLOYMENT_ID", ""),
        fail_percent=min(_number(environ.get("FAIL_PERCENT"), percent), 100.0),
        delay_s=min(_number(environ.get("DELAY_MS"), delay_s * 1000) / 1000, _LONGEST_S),
    )


def answer(about: About, request: DemoRequest, *, number: int, draining: bool) -> DemoAnswer:
    """To the ``number``-th request of this instance; health is not counted as one and shows no artificial fault."""
    path = request.path
    if path in ("/health", "/healthz", "/readyz"):
        return (
            DemoAnswer(503, _dumps({"ok": False, "draining": True}))
            if draining
            else DemoAnswer(200, _dumps({"ok": True}))
        )
    if path == "/livez":
        return DemoAnswer(200, _dumps({"ok": True}))
    if _fails(about, number):
        return DemoAnswer(500, _dumps({"error": {"code": "demo_error", "message": "this version fails now and then"}}))
    made = _route(about, request)
    return replace(made, delay_s=made.delay_s + about.delay_s) if about.delay_s else made


def _fails(about: About, number: int) -> bool:
    """Spread evenly: of each hundred requests in a row as many fail as the percentage says."""
    return number * about.fail_percent % 100 < about.fail_percent


def _route(about: About, request: DemoRequest) -> DemoAnswer:
    path, query = request.path, request.query
    if path == "/":
        return _home(about, request)
    if path == "/slow":
        delay_s = min(_number(query.get("ms"), 1000.0) / 1000, _LONGEST_S)
        return DemoAnswer(200, _dumps({**_who(about), "slept_s": delay_s}), delay_s=delay_s)
    if path.startswith("/status/"):
        code = path.removeprefix("/status/")
        if not (len(code) == 3 and code.isdigit() and 200 <= int(code) < 600):
            return _fault(400, "bad_request", "a status has three digits, from 200 to 599")
        return DemoAnswer(int(code), b"" if code in ("204", "304") else _dumps({**_who(about), "status": int(code)}))
    if path == "/stream":
        chunks = min(int(_number(query.get("chunks"), 10)), _MOST_CHUNKS)
        return DemoAnswer(
            200, b"", TEXT, chunks=max(chunks, 1), pause_s=min(_number(query.get("ms"), 100) / 1000, 60.0)
        )
    if path == "/echo":
        return DemoAnswer(200, request.body, request.headers.get("content-type", "application/octet-stream"))
    return _fault(404, "not_found", f"the demo application has no {path}")


def _home(about: About, request: DemoRequest) -> DemoAnswer:
    shown = {name: request.headers[name] for name in _SHOWN if name in request.headers}
    content = {**_who(about), "message": about.greeting, "headers": shown}
    if "text/html" not in request.headers.get("accept", ""):
        return DemoAnswer(200, _dumps(content))
    rows = "".join(f"<tr><th>{html.escape(name)}<td>{html.escape(str(value))}" for name, value in _who(about).items())
    page = f"<!doctype html><title>{html.escape(about.app)}</title><h1>{html.escape(about.greeting)}</h1>"
    return DemoAnswer(200, f"{page}<table>{rows}</table>\n".encode(), HTML)


def chunk(about: About, number: int) -> bytes:
    return f"{number} {about.tag} {about.instance}\n".encode()


def _who(about: About) -> dict[str, object]:
    return {
        "app": about.app, "version": about.tag, "region": about.region, "instance": about.instance,
        "deployment": about.deployment,
    }  # fmt: skip


def _fault(status: int, code: str, message: str) -> DemoAnswer:
    return DemoAnswer(status, _dumps({"error": {"code": code, "message": message}}))


def _number(text: str | None, default: float) -> float:
    try:
        value = float(text) if text is not None else default
    except ValueError:
        return default
    return value if 0 <= value < float("inf") else default


def _dumps(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
