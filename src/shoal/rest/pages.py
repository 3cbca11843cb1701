"""Pages that an API brings along: its description, and the page that shows it. Nothing is loaded from elsewhere."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from shoal.rest.answers import RestAnswer, json_answer
from shoal.rest.operations import RestPage, always_public
from shoal.rest.request import RestRequest

HTML = "text/html; charset=utf-8"


def described_by(document: Callable[[], dict[str, Any]]) -> list[RestPage]:
    """``/openapi.json`` with this document, and ``/docs`` that shows it in a browser. The document is made when it is
    asked for first, in a thread: it takes long, and memory that most servers never need."""
    shown = file_answer(Path(__file__).with_name("docs.html"))
    described: list[RestAnswer] = []

    async def openapi(request: RestRequest) -> RestAnswer:
        if not described:
            described.append(await asyncio.to_thread(lambda: json_answer(document())))
        return described[0]

    async def docs(request: RestRequest) -> RestAnswer:
        return shown

    return [
        RestPage(path="/openapi.json", handler=openapi, public=always_public),
        RestPage(path="/docs", handler=docs, public=always_public),
    ]


@cache
def file_answer(path: Path) -> RestAnswer:
    """An HTML file, with a policy that lets its own scripts and styles run and nothing else."""
    text = path.read_text()
    digests = {
        tag: " ".join(f"'sha256-{_digest(found)}'" for found in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL))
        for tag in ("script", "style")
    }
    policy = (
        f"default-src 'none'; script-src {digests['script']}; style-src {digests['style']}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return RestAnswer(text.encode(), headers={"Content-Security-Policy": policy}, media=HTML)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
