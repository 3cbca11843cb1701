"""A test double of HashiCorp Vault, written from its HTTP API documentation.

It has the transit engine's encrypt, decrypt and rotate of an existing key, the KV engine's (version 2) reading of a
secret's versions, and the health endpoint. Status codes, answers and errors follow the documentation.

    with VaultDouble() as vault:
        vault.make_key("shoal")
        vault.put("shoal/master", key="…")
        sealer = await open_sealer(f"vault:{vault.address}/transit/shoal", folder, {"VAULT_TOKEN": vault.token})
"""

from __future__ import annotations

import base64
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Answer = tuple[int, dict[str, Any]]
_PATIENCE_S = 10.0


class VaultDouble:
    """Runs in threads of this process. Public attributes may be changed at any time."""

    def __init__(self, *, transit: str = "transit", kv: str = "kv") -> None:
        self.token = "hvs.double"
        self.sealed = False
        self.standby = False
        self.denied: set[str] = set()  # prefixes of paths that the token may not use, such as "transit/keys"
        self.failing = 0  # status code of every answer; 0: none
        self.requests: list[tuple[str, str, dict[str, str]]] = []  # method, path and headers
        self._answering = threading.Event()
        self._answering.set()
        self._transit, self._kv = transit, kv
        self._keys: dict[str, list[bytes]] = {}
        self._secrets: dict[str, list[dict[str, str] | None]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="vault", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answering.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def hang(self) -> None:
        """Accept requests and do not answer them until ``resume``."""
        self._answering.clear()

    def resume(self) -> None:
        self._answering.set()

    def make_key(self, name: str) -> None:
        self._keys[name] = [os.urandom(32)]

    def rotate_key(self, name: str) -> None:
        self._keys[name].append(os.urandom(32))

    def put(self, path: str, **fields: str) -> None:
        """Write a new version of a secret."""
        self._secrets.setdefault(path, []).append(fields)

    def delete_version(self, path: str, version: int) -> None:
        self._secrets[path][version - 1] = None

    def answer(self, method: str, target: str, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        parts = urlsplit(target)
        path = parts.path.removeprefix("/v1/")
        self.requests.append((method, path, headers))
        self._answering.wait(_PATIENCE_S)
        if self.failing:
            return _errors(self.failing, "the double was told to fail")
        if path == "sys/health":
            return (503 if self.sealed else 429 if self.standby else 200), {"sealed": self.sealed}
        if self.sealed:
            return _errors(503, "Vault is sealed")
        if headers.get("x-vault-token") != self.token or any(path.startswith(start) for start in self.denied):
            return _errors(403, "permission denied")
        if path.startswith(f"{self._transit}/"):
            return self._transit_answer(method, path.removeprefix(f"{self._transit}/"), body)
        if method == "GET" and path.startswith(f"{self._kv}/data/"):
            asked = parse_qs(parts.query).get("version", ["0"])[0]
            return self._kv_answer(path.removeprefix(f"{self._kv}/data/"), int(asked))
        return _errors(404, f"no handler for route {path!r}. route entry not found.")

    def _transit_answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        verb, _, name = path.partition("/")
        if verb == "keys" and name.endswith("/rotate") and name.removesuffix("/rotate") in self._keys:
            self.rotate_key(name.removesuffix("/rotate"))
            return 200, {"data": {"latest_version": len(self._keys[name.removesuffix("/rotate")])}}
        versions = self._keys.get(name)
        if method not in ("POST", "PUT") or verb not in ("encrypt", "decrypt") or versions is None:
            return _errors(400, "encryption key not found")
        if verb == "encrypt":
            nonce = os.urandom(12)
            text = nonce + AESGCM(versions[-1]).encrypt(nonce, base64.b64decode(body["plaintext"], validate=True), None)
            shown = f"vault:v{len(versions)}:{base64.b64encode(text).decode()}"
            return 200, {"data": {"ciphertext": shown, "key_version": len(versions)}}
        return _decrypted(versions, body["ciphertext"])

    def _kv_answer(self, path: str, version: int) -> Answer:
        versions = self._secrets.get(path, [])
        number = version or len(versions)
        if not 1 <= number <= len(versions):
            return _errors(404)
        fields = versions[number - 1]
        metadata = {
            "created_time": "2024-01-01T00:00:00Z", "custom_metadata": None, "destroyed": False, "version": number,
            "deletion_time": "" if fields is not None else "2024-01-02T00:00:00Z",
        }  # fmt: skip
        return 200 if fields is not None else 404, {"data": {"data": fields, "metadata": metadata}}


def _decrypted(versions: list[bytes], ciphertext: str) -> Answer:
    head, _, encoded = ciphertext.rpartition(":")
    version = head.removeprefix("vault:v")
    if not version.isdigit() or not 1 <= int(version) <= len(versions):
        return _errors(400, "invalid ciphertext: no prefix" if not version.isdigit() else "invalid key version")
    try:
        text = base64.b64decode(encoded, validate=True)
        plain = AESGCM(versions[int(version) - 1]).decrypt(text[:12], text[12:], None)
    except (InvalidTag, ValueError):
        return _errors(400, "cipher: message authentication failed")
    return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}


def _errors(code: int, *messages: str) -> Answer:
    return code, {"errors": list(messages)}


def _handler(double: VaultDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            code, found = double.answer(self.command, self.path, headers, json.loads(body) if body else {})
            content = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_HEAD = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    return Handler
