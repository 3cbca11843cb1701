"""Where access comes from: kubeconfig files, a pod's own files; faults name the file and the field."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest

from shoal.client.config import AccessConfig, explicit, in_cluster, load
from shoal.errors import ConfigError

PEM = "-----BEGIN CERTIFICATE-----\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def document(cluster: dict[str, Any], user: dict[str, Any], name: str = "one", **context: str) -> dict[str, Any]:
    return {
        "clusters": [{"name": name, "cluster": {"server": "https://one:6443", **cluster}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
        "current-context": name,
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_bytes(orjson.dumps(content))
    return path


def test_inline_data_and_files_relative_to_the_kubeconfig_are_read(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(PEM)
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "inside"}
    user = {"client-certificate-data": encoded("cert"), "client-key-data": encoded("key")}
    found = load(write(tmp_path / "config", document(cluster, user, namespace="team")))
    assert found == AccessConfig(
        url="https://one:6443", ca_pem=PEM, tls_server_name="inside", client_cert_pem="cert", client_key_pem="key",
        namespace="team",
    )  # fmt: skip


def test_yaml_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "current-context: c\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters:\n- name: k\n  cluster:\n    server: https://k\n    insecure-skip-tls-verify: true\n"
        "users:\n- name: u\n  user: {token: secret}\n"
    )
    assert load(path) == AccessConfig(url="https://k", insecure=True, token="secret")


def test_of_several_files_the_first_value_counts(tmp_path: Path) -> None:
    first = {"current-context": "two", "users": [{"name": "two", "user": {"token": "first"}}]}
    write(tmp_path / "a", first)
    write(tmp_path / "b", document({"server": "https://two"}, {"token": "second"}, name="two"))
    env = {"KUBECONFIG": f"{tmp_path}/a:{tmp_path}/missing:{tmp_path}/b"}
    found = load(env=env)
    assert (found.url, found.token) == ("https://two", "first")


def test_a_context_can_be_named(tmp_path: Path) -> None:
    content = document({}, {}, name="one")
    other = document({"server": "https://two"}, {}, name="two")
    content["clusters"] += other["clusters"]
    content["contexts"] += other["contexts"]
    content["users"] += other["users"]
    path = write(tmp_path / "config", content)
    assert load(path).url == "https://one:6443"
    assert load(path, context="two").url == "https://two"
    with pytest.raises(ConfigError, match=r"context names context 'three', which does not exist .known: one, two"):
        load(path, context="three")


@pytest.mark.parametrize(
    ("cluster", "user", "fault"),
    [
        ({"server": ""}, {}, 'clusters["one"].cluster.server is missing'),
        ({"server": "one:6443"}, {}, "server is 'one:6443'"),
        ({"proxy-url": "socks5://u:secret@p"}, {}, "proxy-url is socks5://…: only http:// is supported"),
        ({"certificate-authority-data": "%"}, {}, 'clusters["one"].cluster.certificate-authority-data is not base64'),
        ({"certificate-authority": "nowhere"}, {}, 'clusters["one"].cluster.certificate-authority cannot be read'),
        ({"insecure-skip-tls-verify": "yes"}, {}, "insecure-skip-tls-verify is 'yes': use true or false"),
        ({}, {"client-certificate-data": encoded("c")}, "client-key is missing"),
        ({}, {"auth-provider": {"name": "gcp"}}, 'users["one"].user.auth-provider is not supported'),
        ({}, {"token": 5}, 'users["one"].user.token is int: use a string'),
        ({}, {"token": "t", "username": "u"}, "both a token and a username"),
        ({}, {"exec": {"command": "x", "apiVersion": "v1"}}, "users[\"one\"].user.exec.apiVersion is 'v1'"),
        ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, "exec.command is missing"),
        ({}, {"as-groups": ["g"]}, 'users["one"].user.as is missing'),
    ],
)
def test_faults_name_the_file_and_the_field(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], fault: str
) -> None:
    path = write(tmp_path / "config", document(cluster, user))
    with pytest.raises(ConfigError) as raised:
        load(path)
    assert str(path) in str(raised.value)
    assert fault in str(raised.value)


def test_a_plugin_is_told_about_the_cluster_only_if_it_wants_to_know(tmp_path: Path) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster = {"certificate-authority-data": encoded(PEM), "tls-server-name": "inside", "extensions": [extension]}
    about = {"command": "c", "args": ["a"], "env": [{"name": "N", "value": "V"}]}
    about["apiVersion"] = "client.authentication.k8s.io/v1beta1"
    plain = load(write(tmp_path / "config", document(cluster, {"exec": about}))).exec_plugin
    assert plain is not None and plain.cluster_info is None
    assert (plain.args, plain.env, plain.api_version) == (("a",), {"N": "V"}, about["apiVersion"])
    told = load(
        write(tmp_path / "config", document(cluster, {"exec": {**about, "provideClusterInfo": True}}))
    ).exec_plugin
    assert told is not None and told.cluster_info == {
        "server": "https://one:6443",
        "tls-server-name": "inside",
        "certificate-authority-data": encoded(PEM),
        "config": {"audience": "x"},
    }


def test_files_that_are_no_kubeconfig_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    for content in ("[]", "a: [", "clusters: {}", "users: [3]"):
        path.write_text(content)
        with pytest.raises(ConfigError, match=str(path)):
            load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no kubeconfig"):
        load(env={"KUBECONFIG": str(tmp_path / "nowhere")})


def test_impersonation_becomes_headers_that_may_repeat(tmp_path: Path) -> None:
    user = {"as": "jane", "as-groups": ["a", "b"], "as-user-extra": {"team": ["x"]}}
    assert load(write(tmp_path / "config", document({}, user))).headers == (
        ("impersonate-user", "jane"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-extra-team", "x"),
    )


def test_a_pod_finds_its_own_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text(PEM)
    (tmp_path / "namespace").write_text("team\n")
    env = {
        "SHOAL_SERVICEACCOUNT_DIR": str(tmp_path),
        "KUBERNETES_SERVICE_HOST": "fd00::1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HOME": str(tmp_path / "no-home"),
    }
    expected = AccessConfig(
        url="https://[fd00::1]:443", ca_pem=PEM, token_file=str(tmp_path / "token"), namespace="team", direct=True
    )
    assert in_cluster(env) == expected
    assert load(env=env) == expected
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match="token cannot be read from"):
        in_cluster(env)
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster({})


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    config = AccessConfig(url="https://a", token="hush", client_cert_pem="c", client_key_pem="hush")
    assert "hush" not in repr(config)


def test_an_explicit_server_needs_only_its_url(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(PEM)
    found = explicit("https://a:1", token="t", ca_file=str(tmp_path / "ca.crt"))
    assert (found.url, found.token, found.ca_pem) == ("https://a:1", "t", PEM)
