"""A container registry for tests: serves one small image, made from files, over HTTP.

    registry = ImageRegistry(listening_socket, archive({"bin/busybox": program}, {}), ("shoal/busybox",), {})

Images below ``private/`` need the user and password of ``USER``. The only tag is ``TAG``.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import socket
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TAG = "1"
USER = ("shoal", "secret")
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


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


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class ImageRegistry:
    """Serves one image under several names on a listening socket, in threads of this process."""

    def __init__(self, listening: socket.socket, layer: bytes, names: tuple[str, ...], config: dict[str, Any]) -> None:
        packed = gzip.compress(layer, 1, mtime=0)
        image = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
                "history": [{"created_by": "shoal"}],
            }
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": {"mediaType": _CONFIG, "size": len(image), "digest": _digest(image)},
                "layers": [{"mediaType": _LAYER, "size": len(packed), "digest": _digest(packed)}],
            }
        ).encode()
        self.names = names
        self.manifest = manifest
        self.blobs = {_digest(each): each for each in (packed, image)}
        self._server = ThreadingHTTPServer(("", 0), _handler(self), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening
        self._thread = threading.Thread(target=self._server.serve_forever, name="registry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """Status, media type and body for a request."""
        parts = path.strip("/").split("/")
        if parts == ["v2"]:  # clients ask here how to authenticate; those without credentials continue anonymously
            return 200 if authorization else 401, "application/json", b"{}"
        name, kind, reference = "/".join(parts[1:-2]), parts[-2], parts[-1]
        known = base64.b64encode(":".join(USER).encode()).decode()
        if name.startswith("private/") and authorization != f"Basic {known}":
            return 401, "application/json", b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'
        if kind == "manifests" and name in self.names and reference in (TAG, _digest(self.manifest)):
            return 200, _MANIFEST, self.manifest
        if kind == "blobs" and reference in self.blobs:
            return 200, "application/octet-stream", self.blobs[reference]
        return 404, "application/json", b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'


def _handler(registry: ImageRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, kind, body = registry.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="registry"')
            if kind == _MANIFEST:
                self.send_header("Docker-Content-Digest", _digest(body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler
