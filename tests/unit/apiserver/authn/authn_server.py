"""An API server with keys and an authority of its own, and requests to it as any user."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from shoal.apiserver.authn.credential import Credential
from shoal.apiserver.authn.service import Authority
from shoal.apiserver.context import ServerConfig
from shoal.apiserver.http import Request, Response
from shoal.apiserver.registry import Registry
from shoal.apiserver.server import ApiServer
from shoal.apiserver.user import User
from shoal.app.pki import Pki, service_account_keys
from shoal.base.clock import Clock, RealClock
from shoal.base.ids import Ids, token_digest
from shoal.store import open_store

ADMIN = "admin-token-of-the-tests"
ISSUER = ServerConfig().issuer
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class Asked:
    """An answer."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers}
        self.body = response.body if isinstance(response.body, bytes) else b"".join(response.body)

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    def ok(self) -> Any:
        assert self.status < 300, f"{self.status}: {self.body!r}"
        return self.json

    def refused(self, code: int) -> str:
        assert self.status == code, f"{self.status}: {self.body!r}"
        message: str = self.json["message"]
        return message


class AuthnServer:
    """The server, its keys, and shorthands for requests."""

    def __init__(self, server: ApiServer, pki: Pki, folder: Path) -> None:
        self.server, self.pki, self.folder = server, pki, folder

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = ADMIN,
        certificate: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Asked:
        sent = {b"content-type": b"application/json"}
        if token is not None:
            sent[b"authorization"] = f"Bearer {token}".encode()
        sent |= {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
        request = Request(method, path.encode(), sent, b"" if body is None else orjson.dumps(body))
        request.peer_certificate = certificate
        answer = await self.server.handler.handle(request)
        assert isinstance(answer, Response)
        return Asked(answer)

    async def who(self, **options: Any) -> Any:
        """The user that the server takes the asker for."""
        return (await self.ask("POST", WHO_AM_I, {}, **options)).ok()["status"]["userInfo"]

    async def create(self, path: str, body: Any, **options: Any) -> Any:
        return (await self.ask("POST", path, body, **options)).ok()

    async def account(self, name: str = "robot", namespace: str = "default") -> Any:
        return await self.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})

    async def pod(self, name: str = "p", account: str = "robot", **spec: Any) -> Any:
        full = {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}], **spec}
        return await self.create("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": full})

    async def token(self, account: str = "robot", **spec: Any) -> str:
        found: str = (await self.request_token(account, **spec)).ok()["status"]["token"]
        return found

    async def request_token(self, account: str = "robot", metadata: Any = None, **spec: Any) -> Asked:
        body = {"metadata": metadata or {}, "spec": spec}
        return await self.ask("POST", f"/api/v1/namespaces/default/serviceaccounts/{account}/token", body)

    async def review(self, token: str, **spec: Any) -> Any:
        return (await self.ask("POST", TOKEN_REVIEWS, {"spec": {"token": token, **spec}})).ok()["status"]

    async def allow(self, user: str, *rules: Mapping[str, Any]) -> None:
        """Give a user a cluster role with these rules."""
        root = "/apis/rbac.authorization.k8s.io/v1"
        name = user.replace(":", "-")
        await self.create(f"{root}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        await self.create(f"{root}/clusterrolebindings", binding)


@asynccontextmanager
async def authn_server(
    *,
    clock: Clock | None = None,
    tokens: Mapping[str, User | Credential] | None = None,
    config: ServerConfig | None = None,
) -> AsyncIterator[AuthnServer]:
    """``tokens`` are the static ones beside the administrator's, not yet digested."""
    clock = clock or RealClock()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pki = Pki(folder, now=datetime.now(UTC))
        authority = pki.ensure_ca()
        pki.ensure_service_account_key()
        registry = Registry()
        store = open_store("memory://", attrs_of=registry.attrs_of)
        await store.start()
        admin = User("admin", ("system:masters", "system:authenticated"))
        known: dict[str, User | Credential] = {ADMIN: admin, **(tokens or {})}
        keys = service_account_keys(folder)
        server = ApiServer(
            store,
            registry,
            clock=clock,
            ids=Ids(),
            config=config or ServerConfig(ca_certificate="the authority"),
            tokens={token_digest(token): user for token, user in known.items()},
            signing_key=keys.signing,
            verification_keys=keys.older,
            authority=Authority(authority.cert.read_bytes(), authority.key.read_bytes()),
        )
        try:
            await server.start()
            yield AuthnServer(server, pki, folder)
        finally:
            await server.stop()
            await store.stop()


@asynccontextmanager
async def bounded_server(**options: Any) -> AsyncIterator[AuthnServer]:
    async with asyncio.timeout(30), authn_server(**options) as server:
        yield server


def parts(token: str) -> tuple[Any, Any]:
    """Header and claims of a JWT."""
    header, claims, _ = token.split(".")
    return tuple(orjson.loads(base64.urlsafe_b64decode(part + "==")) for part in (header, claims))
