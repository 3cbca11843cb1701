"""The files of the page, as the build of ``web/`` left them.

What is below ``assets/`` has a hash in its name and is kept by browsers for good; everything else is asked for again
with its ETag. ``NAME.br`` and ``NAME.gz`` beside a file are sent to browsers that take them; texts without them are
compressed here, once. Nothing is loaded from elsewhere, and no script or style of another origin runs.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.rest.answers import RestAnswer
from shoal.rest.request import RestRequest

BUILT = Path(__file__).with_name("static")
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
        "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
_COMPRESSED = frozenset({".html", ".js", ".mjs", ".css", ".json", ".webmanifest", ".svg", ".txt", ".wasm"})
_ENCODINGS = ((".br", "br"), (".gz", "gzip"))
_is_name = re.compile(r"(assets/)?[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}").fullmatch
_FOR_GOOD = "public, max-age=31536000, immutable"
_MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Shoal</title>
<h1>The page is not built</h1>
<p>This copy of Shoal has no files of the page. Everything else of it works.</p>
<p>In a checkout, <code>make setup</code> builds them where the registry of npm can be reached; wheels and images have
them. Then load this address again. The REST API is described at <a href="/docs">/docs</a>.</p>
</html>
"""


@dataclass(frozen=True, slots=True)
class _File:
    bodies: Mapping[str, bytes]  # by encoding; "" is the file itself
    etag: str
    media: str
    changed_ns: int


class PageFiles:
    """Reads each file once, and again when it has changed: the build may run meanwhile."""

    def __init__(self, folder: Path = BUILT) -> None:
        self._folder = folder
        self._read: dict[str, _File] = {}

    def answer(self, request: RestRequest, path: str) -> RestAnswer:
        """What there is at a path below ``/ui/``. Paths without a dot are views of the page, which sorts them out."""
        is_view = "." not in path.rpartition("/")[2]
        name = "index.html" if is_view else path
        found = self._file(name) if _is_name(name) else None
        if found is None:
            if is_view:
                return RestAnswer(_MISSING.encode(), 503, _headers(**{"Cache-Control": "no-store"}), _MEDIA[".html"])
            return RestAnswer(b"not found\n", 404, _headers(**{"Cache-Control": "no-store"}), _MEDIA[".txt"])
        kept = _FOR_GOOD if name.startswith("assets/") else "no-cache"
        encoding = _encoding(request.header("accept-encoding") or "", found.bodies)
        etag = f'"{found.etag}{f"-{encoding}" if encoding else ""}"'
        headers = _headers(**{"Cache-Control": kept, "ETag": etag, "Vary": "Accept-Encoding"})
        if etag in (request.header("if-none-match") or ""):
            return RestAnswer(b"", 304, headers, found.media)
        if encoding:
            headers["Content-Encoding"] = encoding
        return RestAnswer(found.bodies[encoding], headers=headers, media=found.media)

    def _file(self, name: str) -> _File | None:
        path = self._folder / name
        try:
            changed_ns = path.stat().st_mtime_ns
            kept = self._read.get(name)
            if kept is None or kept.changed_ns != changed_ns:
                kept = self._read[name] = _load(path, changed_ns)
            return kept
        except OSError:
            self._read.pop(name, None)
            return None


def _load(path: Path, changed_ns: int) -> _File:
    body = path.read_bytes()
    bodies = {"": body}
    for suffix, encoding in _ENCODINGS:
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_mtime_ns >= changed_ns:
            bodies[encoding] = beside.read_bytes()
    if path.suffix in _COMPRESSED and "gzip" not in bodies and len(body) > 512:
        bodies["gzip"] = gzip.compress(body, 9, mtime=0)
    digest = hashlib.sha256(body).hexdigest()[:32]
    return _File(bodies, digest, _MEDIA.get(path.suffix, "application/octet-stream"), changed_ns)


def _encoding(accepted: str, bodies: Mapping[str, bytes]) -> str:
    """The shortest form that the browser takes."""
    taken = {part.partition(";")[0].strip() for part in accepted.lower().split(",") if "q=0" not in part.split(";")}
    return next((encoding for _, encoding in _ENCODINGS if encoding in bodies and encoding in taken), "")


def _headers(**more: str) -> dict[str, str]:
    return {**SECURITY_HEADERS, **more}
