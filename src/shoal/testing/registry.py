"""A container registry for tests: serves images over HTTP, and misbehaves as told.

    registry = ImageRegistry(listening_socket, archive({"bin/busybox": program}, {}), ("shoal/busybox",), {})
    registry.faults.cut = {digest: 1000}     # the next answer with that blob ends early

Images below ``private/`` need the user and password of ``USER``. The only tag is ``TAG``. With ``tokens`` every request
needs a token, which the registry gives out itself, for the names that the user may read.
"""

from __future__ import annotations

import base64
import io
import json
import re
import socket
import tarfile
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shoal.testing.images import INDEX, MANIFEST, BuiltImage, digest, index_of

TAG = "1"
USER = ("shoal", "secret")
_RANGE = re.compile(r"bytes=(\d+)-")
_STALL_S = 30.0


def archive(files: dict[str, bytes], links: dict[str, str], folders: tuple[str, ...] = ()) -> bytes:
    """A tar of programs (all executable), symbolic links and folders."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as tar:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for name, leads_to in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, leads_to
            tar.addfile(entry)
    return found.getvalue()


@dataclass(slots=True)
class Faults:
    """What goes wrong. Each of ``cut``, ``stall`` and ``fail`` happens as often as it says."""

    cut: dict[str, list[int]] = field(default_factory=dict)  # by digest: bytes after which answers end
    stall: dict[str, int] = field(default_factory=dict)  # by digest: answers that stop after their first bytes
    fail: list[int] = field(default_factory=list)  # statuses of the next answers
    lies: dict[str, bytes] = field(default_factory=dict)  # by digest: other content
    no_ranges: bool = False


class ImageRegistry:
    """Serves images under several names on a listening socket, in threads of this process. Of several images each is
    for a platform of its own."""

    def __init__(
        self,
        listening: socket.socket,
        layer: bytes | tuple[BuiltImage, ...],
        names: tuple[str, ...],
        config: dict[str, Any],
        *,
        tokens: bool = False,
    ) -> None:
        self.host = f"127.0.0.1:{listening.getsockname()[1]}"
        self.images = layer if isinstance(layer, tuple) else (BuiltImage((layer,), config, "amd64"),)
        self.names = names
        self.tokens = tokens
        self.faults = Faults()
        self.asked: list[tuple[str, str, str]] = []  # path, range and kind of authorization of each request
        self._stopped = threading.Event()
        self._server = ThreadingHTTPServer(("", 0), _handler(self), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="registry", daemon=True)
        self._thread.start()

    @property
    def manifest(self) -> bytes:
        """What the tag names."""
        return self.images[0].manifest if len(self.images) == 1 else index_of(self.images)

    @property
    def blobs(self) -> dict[str, bytes]:
        return {name: content for each in self.images for name, content in each.blobs.items()}

    def close(self) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def stall(self) -> None:
        self._stopped.wait(_STALL_S)

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """Status, media type and body for a request."""
        place = urlsplit(path)
        parts = place.path.strip("/").split("/")
        if self.faults.fail:
            return self.faults.fail.pop(0), "application/json", b"{}"
        known = f"Basic {base64.b64encode(':'.join(USER).encode()).decode()}"
        if parts == ["token"]:
            name = parse_qs(place.query)["scope"][0].split(":")[1]
            if name.startswith("private/") and authorization != known:
                return 401, "application/json", b"{}"
            return 200, "application/json", json.dumps({"token": f"for-{name}"}).encode()
        if parts == ["v2"]:  # clients ask here how to authenticate; those without credentials continue anonymously
            return 200 if authorization else 401, "application/json", b"{}"
        name, kind, reference = "/".join(parts[1:-2]), parts[-2], parts[-1]
        wanted = f"Bearer for-{name}" if self.tokens else known if name.startswith("private/") else authorization
        if authorization != wanted:
            return 401, "application/json", b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'
        if kind == "manifests" and name in self.names:
            if reference in (TAG, digest(self.manifest)):
                return 200, INDEX if len(self.images) > 1 else MANIFEST, self.manifest
            for each in self.images:
                if reference == digest(each.manifest):
                    return 200, MANIFEST, self.faults.lies.get(reference, each.manifest)
        if kind == "blobs" and reference in self.blobs:
            return 200, "application/octet-stream", self.faults.lies.get(reference, self.blobs[reference])
        return 404, "application/json", b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'


def _handler(registry: ImageRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            authorization = self.headers.get("Authorization", "")
            status, kind, body = registry.answer(self.path, authorization)
            registry.asked.append((self.path, self.headers.get("Range", ""), authorization.partition(" ")[0]))
            whole, begins = len(body), _RANGE.fullmatch(self.headers.get("Range", ""))
            if status == 200 and begins and not registry.faults.no_ranges:
                status, body = 206, body[int(begins[1]) :]
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            if status == 206:
                self.send_header("Content-Range", f"bytes {whole - len(body)}-{whole - 1}/{whole}")
            if status == 401:
                realm = f'Bearer realm="http://{registry.host}/token",service="tests"'
                self.send_header("WWW-Authenticate", realm if registry.tokens else 'Basic realm="registry"')
            if kind == MANIFEST:
                self.send_header("Docker-Content-Digest", digest(body))
            self.end_headers()
            if self.command == "GET":
                self._send(self.path.rpartition("/")[2], body)

        do_HEAD = do_GET

        def _send(self, name: str, body: bytes) -> None:
            faults = registry.faults
            if faults.cut.get(name):
                self.wfile.write(body[: faults.cut[name].pop(0)])
                self.close_connection = True
            elif faults.stall.get(name):
                faults.stall[name] -= 1
                self.wfile.write(body[:10])
                self.wfile.flush()
                registry.stall()
                self.close_connection = True
            else:
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler
