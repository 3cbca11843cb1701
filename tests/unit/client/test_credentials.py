"""Credentials that change: token files are read again, plugins run when they must and not more often."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import orjson
import pytest

from shoal.base.clock import FakeClock
from shoal.client.config import AccessConfig, ExecPlugin
from shoal.client.credentials import Credentials, Identity, RereadCredentials, credentials_of, tls_context
from shoal.errors import ConfigError, Unauthorized


def source(clock: FakeClock, **fields: object) -> Credentials:
    return credentials_of(AccessConfig(url="https://a", **fields), clock=clock)  # type: ignore[arg-type]


async def header(credentials: Credentials) -> str:
    return (await credentials.identity()).authorization


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")

    credentials = source(clock, token_file=str(path))
    assert await header(credentials) == "Bearer one"
    (tmp_path / "next").write_text("two")
    os.replace(tmp_path / "next", path)
    assert await header(credentials) == "Bearer one"  # not looked at with every request
    await clock.advance(1)
    assert await header(credentials) == "Bearer two"
    path.unlink()
    await clock.advance(1)
    assert await header(credentials) == "Bearer two"  # being replaced: the last one still holds


async def test_a_refused_token_file_is_looked_at_at_once(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "token"
    path.write_text("one")

    credentials = source(clock, token_file=str(path))
    first = await credentials.identity()
    credentials.renew(first)
    assert await credentials.identity() == first
    path.write_text("two!")
    credentials.renew(first)
    assert await header(credentials) == "Bearer two!"


async def test_names_and_passwords_are_sent_as_basic(clock: FakeClock) -> None:
    assert await header(source(clock, username="u", password="p")) == "Basic dTpw"


def plugin(folder: Path, script: str, **fields: object) -> ExecPlugin:
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\necho run >> {folder}/runs\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return ExecPlugin(command="./plugin", directory=str(folder), **fields)  # type: ignore[arg-type]


def printed(**status: str) -> str:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"echo '{orjson.dumps(answer).decode()}'"


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


async def test_a_plugin_runs_again_only_when_its_credential_ends(tmp_path: Path, clock: FakeClock) -> None:
    script = printed(token="t", expirationTimestamp="2024-01-01T00:10:00Z")

    credentials = source(clock, exec_plugin=plugin(tmp_path, script))
    assert await asyncio.gather(*(header(credentials) for _ in range(5))) == ["Bearer t"] * 5
    assert runs(tmp_path) == 1
    await clock.advance(585)
    await header(credentials)
    assert runs(tmp_path) == 1
    await clock.advance(10)
    await header(credentials)
    assert runs(tmp_path) == 2


async def test_a_plugin_whose_credential_is_refused_runs_again_but_not_with_every_request(
    tmp_path: Path, clock: FakeClock
) -> None:
    credentials = source(clock, exec_plugin=plugin(tmp_path, printed(token="t")))
    refused = await credentials.identity()
    for _ in range(3):  # the plugin has nothing else
        credentials.renew(refused)
        await header(credentials)
    assert runs(tmp_path) == 2
    await clock.advance(5)
    credentials.renew(refused)
    await header(credentials)
    assert runs(tmp_path) == 3
    credentials.renew(Identity("Bearer older"))  # a request that was sent before the renewal
    await header(credentials)
    assert runs(tmp_path) == 3


async def test_a_configuration_is_read_again_when_it_is_refused_and_on_demand(clock: FakeClock) -> None:
    config = AccessConfig(url="https://a", token="one")
    found: list[AccessConfig | ConfigError] = [config]

    def read() -> AccessConfig:
        if isinstance(found[-1], ConfigError):
            raise found[-1]
        return found[-1]

    credentials = RereadCredentials(config, read, clock=clock)
    refused = await credentials.identity()
    credentials.renew(refused)
    assert await header(credentials) == "Bearer one"
    found.append(AccessConfig(url="https://a", token="two"))
    credentials.renew(refused)
    assert await header(credentials) == "Bearer one", "a file is not read with every request"
    await clock.advance(5)
    credentials.renew(refused)
    assert await header(credentials) == "Bearer two"
    found.append(ConfigError("users[0].token is missing"))
    credentials.reread()
    assert await header(credentials) == "Bearer two", "a file that cannot be read changes nothing"
    found.append(AccessConfig(url="https://a", client_cert_pem="c", client_key_pem="k"))
    credentials.reread()
    assert await credentials.identity() == Identity(certificate="c", key="k")


async def test_a_plugin_is_told_about_the_cluster_and_gets_its_environment(tmp_path: Path, clock: FakeClock) -> None:
    script = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo "$EXTRA" > {tmp_path}/extra; ' + printed(token="t")
    about = plugin(tmp_path, script, env={"EXTRA": "more"}, cluster_info={"server": "https://a"})
    await header(source(clock, exec_plugin=about))
    info = orjson.loads((tmp_path / "info").read_bytes())
    assert info["kind"] == "ExecCredential"
    assert info["spec"]["cluster"] == {"server": "https://a"}
    assert (tmp_path / "extra").read_text() == "more\n"


async def test_a_plugin_can_give_a_certificate(tmp_path: Path, clock: FakeClock) -> None:
    about = plugin(tmp_path, printed(clientCertificateData="c", clientKeyData="k"))
    found = await source(clock, exec_plugin=about).identity()
    assert (found.authorization, found.certificate, found.key) == ("", "c", "k")


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("exit 3", "failed with exit code 3"),
        ("echo nonsense", "printed no usable credential"),
        (printed(), "neither a token nor a certificate"),
        (printed(clientKeyData="k", token="t"), "set together"),
        (printed(token="t").replace("/v1", "/v2"), "not of client.authentication.k8s.io/v1"),
    ],
)
async def test_a_plugin_that_fails_is_named(tmp_path: Path, clock: FakeClock, script: str, fault: str) -> None:
    with pytest.raises(Unauthorized, match=fault) as raised:
        await header(source(clock, exec_plugin=plugin(tmp_path, script)))
    assert "./plugin" in str(raised.value)


async def test_a_plugin_that_is_not_installed_comes_with_its_hint(clock: FakeClock) -> None:
    about = ExecPlugin(command="no-such-plugin", install_hint="Install it from the vendor.")
    with pytest.raises(ConfigError, match=r"no-such-plugin cannot be run.*Install it from the vendor"):
        await header(source(clock, exec_plugin=about))


def test_certificates_that_are_no_pem_are_config_errors() -> None:
    config = AccessConfig(url="https://a", ca_pem="nonsense")
    with pytest.raises(ConfigError, match="certificate-authority of https://a"):
        tls_context(config, Identity())
    with pytest.raises(ConfigError, match="client-certificate for https://a"):
        tls_context(AccessConfig(url="https://a"), Identity(certificate="x", key="y"))
