"""/statusz and /flagz: as text, and as the kinds of config.k8s.io."""

from __future__ import annotations

import pytest

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.zpages import flagz, statusz
from shoal.errors import NotAcceptable
from shoal.testing.servers import local_server

STATUSZ = "application/json;as=Statusz;v=v1beta1;g=config.k8s.io"
FLAGZ = "application/yaml;v=v1alpha1;g=config.k8s.io;as=Flagz"


async def test_statusz_is_text_unless_the_kind_is_asked_for() -> None:
    async with local_server() as server:
        text = await server.call("GET", "/statusz")
        assert text.headers["content-type"].startswith("text/plain")
        for line in (
            "apiserver statusz",
            "\nStarted: 20",
            "\nUp: 0 hr 00 min",
            "\nBinary version: 1.",
            "\nPaths: /flagz",
        ):
            assert line in text.body.decode()
        found = await server.get("/statusz", accept=STATUSZ)
        assert (found["kind"], found["apiVersion"]) == ("Statusz", "config.k8s.io/v1beta1")
        assert found["uptimeSeconds"] >= 0 and "/metrics" in found["paths"] and "/apis" not in found["paths"]
        assert {"/statusz", "/flagz"} <= set((await server.get("/"))["paths"])


async def test_flagz_has_the_settings_and_no_content_of_certificates() -> None:
    async with local_server() as server:
        text = (await server.call("GET", "/flagz", headers={"accept": "text/plain"})).body.decode()
        assert "service-cidr=" in text and "flow.max-requests-in-flight=" in text
        answer = await server.call("GET", "/flagz", headers={"accept": FLAGZ})
        assert b"kind: Flagz" in answer.body and "deprecated" in answer.headers["warning"]
    secret = flagz("", ServerConfig(ca_certificate="-----BEGIN"))
    assert b"BEGIN" not in bytes(secret.body) and b"ca-certificate=CLASSIFIED\n" in bytes(secret.body)


@pytest.mark.parametrize(
    "accept",
    ["application/json", "application/json;as=Statusz;v=v2;g=config.k8s.io", "text/plain;as=Statusz", "image/png"],
)
def test_other_forms_are_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        statusz(accept, started_s=0.0, now_s=1.0, paths=[])
