"""How the server identifies itself and its users to aggregated API servers."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.front_proxy import FrontProxyConfig, authentication_data, user_headers
from shoal.apiserver.user import User
from shoal.errors import ConfigError
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
ROLE = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/extension-apiserver-authentication-reader"
ONE, TWO = (f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n" for body in ("one", "two"))


@pytest.fixture
def proxy(tmp_path: Path) -> FrontProxyConfig:
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(TWO)
    return FrontProxyConfig(ca=tmp_path / "ca", certificate=tmp_path / "crt", key=tmp_path / "key")


async def test_the_config_map_tells_aggregated_servers_what_to_trust(proxy: FrontProxyConfig) -> None:
    async with local_server(config=ServerConfig(ca_certificate=ONE, front_proxy=proxy)) as server:
        assert (await server.get(MAP))["data"] == {
            "client-ca-file": ONE,
            "requestheader-client-ca-file": TWO,
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        rule = (await server.get(ROLE))["rules"][0]
        assert rule["resourceNames"] == ["extension-apiserver-authentication"]
        assert rule["resources"] == ["configmaps"]


async def test_a_config_map_that_was_deleted_or_changed_is_restored(proxy: FrontProxyConfig) -> None:
    async with local_server(config=ServerConfig(ca_certificate=ONE, front_proxy=proxy)) as server:
        before = (await server.get(MAP))["data"]
        await server.delete(MAP)

        async def restored() -> bool:
            answer = await server.call("GET", MAP)
            return answer.status == 200 and answer.json["data"] == before

        await eventually(restored)
        await server.patch(MAP, {"data": {"client-ca-file": None, "requestheader-username-headers": "[]"}})
        await eventually(restored)


async def test_without_a_front_proxy_only_the_client_authority_is_published() -> None:
    async with local_server(config=ServerConfig(ca_certificate=ONE)) as server:
        assert (await server.get(MAP))["data"] == {"client-ca-file": ONE}


def test_certificates_of_other_servers_of_the_cluster_stay(proxy: FrontProxyConfig) -> None:
    data = authentication_data(TWO, proxy, {"client-ca-file": ONE + TWO, "requestheader-client-ca-file": ONE})
    assert data["client-ca-file"] == ONE + TWO
    assert data["requestheader-client-ca-file"] == ONE + TWO


def test_the_files_of_the_front_proxy_belong_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="front_proxy: set all"):
        FrontProxyConfig(ca=tmp_path)


def test_headers_name_the_user_with_groups_and_extra_values() -> None:
    user = User("jane", ("dev", "system:authenticated"), "u1", (("example.org/role %", ("a", "b")),))
    assert list(user_headers(user)) == [
        (b"X-Remote-User", b"jane"),
        (b"X-Remote-Uid", b"u1"),
        (b"X-Remote-Group", b"dev"),
        (b"X-Remote-Group", b"system:authenticated"),
        (b"X-Remote-Extra-example.org%2Frole%20%25", b"a"),
        (b"X-Remote-Extra-example.org%2Frole%20%25", b"b"),
    ]


@given(st.text(), st.lists(st.text()), st.text(), st.text())
def test_no_name_can_add_a_header(name: str, groups: list[str], key: str, value: str) -> None:
    for header, content in user_headers(User(name, tuple(groups), "", ((key, (value,)),))):
        assert not set(header + content) & set(b"\r\n\0")
        assert b":" not in header and b" " not in header


def test_json_values_are_lists_as_extension_servers_read_them(proxy: FrontProxyConfig) -> None:
    data = authentication_data("", proxy, {})
    assert all(isinstance(orjson.loads(text), list) for name, text in data.items() if not name.endswith("file"))
