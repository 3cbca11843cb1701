"""Who may do what over the navigator's REST API: every operation for a caller without a token, a viewer, an administrator
and a token without scopes. A new operation that changes something and is not listed here fails. What a token with
scopes sees is in ``test_scoped.py``; which tokens the stream of edges accepts is in
``tests/contract/test_navigator_service.py``."""

from __future__ import annotations

import re

from answers_client import an_api
from answers_world import the_world

from shoal.base.access import EVERYTHING, NOTHING
from shoal.navigator.answers.api import Caller
from shoal.rest.operations import Operation
from shoal.testing.asking import ask

WRITES = (
    "DELETE /api/v1/clusters/{cluster}",
    "PUT /api/v1/checks/{check}",
    "DELETE /api/v1/checks/{check}",
    "PATCH /api/v1/edges",
    "PATCH /api/v1/edges/{cluster}",
    "POST /api/v1/edges/{cluster}/token",
    "DELETE /api/v1/edges/{cluster}/token",
)
_CALLERS = {
    "viewer": Caller("vic", may_write=False, access=EVERYTHING),
    "admin": Caller("ann", access=EVERYTHING),
    "empty": Caller("eve", access=NOTHING),
}


async def _authenticate(token: str) -> Caller | None:
    return _CALLERS.get(token)


async def test_every_operation_is_for_readers_or_for_administrators() -> None:
    api = an_api(the_world(), _authenticate)

    async def status(operation: Operation, token: str = "") -> int:
        path = re.sub(r"\{\w+\}", "nothing", operation.path)
        body = None if operation.method in ("GET", "DELETE") else {}
        return (await ask(api, operation.method, path, token=token, body=body)).status

    for operation in api.operations:
        name = f"{operation.method} {operation.path}"
        writes = name in WRITES
        assert writes or operation.method == "GET", f"{name}: say here who may call it"
        assert writes == (operation.needs == "write"), f"{name} is declared otherwise than it is listed here"
        assert await status(operation) == await status(operation, "unknown") == 401, name
        assert (await status(operation, "viewer") == 403) == writes, name
        assert await status(operation, "admin") not in (401, 403), name
        if not writes:
            assert await status(operation, "empty") not in (401, 403), f"{name}: what is outside does not exist"
    gone = set(WRITES) - {f"{each.method} {each.path}" for each in api.operations}
    assert not gone, f"no such operation any more: {sorted(gone)}"
    for page in api.pages:
        public = page.path in ("/docs", "/openapi.json", "/livez", "/healthz", "/readyz")
        answered = await ask(api, "GET", page.path)
        assert (answered.status != 401) == public, page.path
