"""ConfigMaps, Secrets, ServiceAccounts."""

from __future__ import annotations

import base64

import pytest

from shoal.kube.kinds.core.config import CONFIG_MAP, MAX_DATA_BYTES, SECRET, SERVICE_ACCOUNT
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def faults(rules: KindRules, obj: Obj) -> list[str]:
    rules.default(obj)
    rules.prepare_create(obj)
    return [str(error) for error in rules.validate_create(obj)]


def update(rules: KindRules, old: Obj, new: Obj) -> list[str]:
    for obj in (old, new):
        rules.default(obj)
    rules.prepare_update(new, old)
    return [str(error) for error in rules.validate_update(new, old)]


KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


@pytest.mark.parametrize(
    ("config_map", "expected"),
    [
        ({}, []),
        ({"data": {"a.b-C_1": "x"}, "binaryData": {"b": b64("x")}}, []),
        ({"data": {"a b": ""}}, [f'data[a b]: Invalid value: "a b": {KEY}']),
        ({"data": {"..": ""}}, ["data[..]: Invalid value: \"..\": must not be '..'"]),
        ({"data": {"a": ""}, "binaryData": {"a": ""}}, ['data[a]: Invalid value: "a": duplicate of key present in binaryData']),
        ({"data": {"a": "x" * MAX_DATA_BYTES}}, []),
        ({"data": {"a": "x" * MAX_DATA_BYTES, "b": "y"}}, ["[]: Too long: may not be more than 1048576 bytes"]),
        ({"binaryData": {"a": b64("x" * (MAX_DATA_BYTES + 1))}}, ["[]: Too long: may not be more than 1048576 bytes"]),
    ],
)  # fmt: skip
def test_config_maps(config_map: Obj, expected: list[str]) -> None:
    assert faults(CONFIG_MAP, config_map) == expected


def test_immutable_config_maps_stay_as_they_are() -> None:
    old: Obj = {"data": {"a": "1"}, "immutable": True}
    frozen = "field is immutable when `immutable` is set"
    assert update(CONFIG_MAP, old, {"data": {"a": "1"}, "immutable": True, "binaryData": {}}) == []
    assert update(CONFIG_MAP, old, {"data": {"a": "2"}}) == [
        f"immutable: Forbidden: {frozen}",
        f"data: Forbidden: {frozen}",
    ]
    assert update(CONFIG_MAP, {"data": {"a": "1"}}, {"data": {"a": "2"}, "immutable": True}) == []


def test_string_data_is_folded_into_data_and_never_kept() -> None:
    secret: Obj = {"data": {"a": b64("1"), "b": b64("2")}, "stringData": {"b": "3", "c": "ü"}}
    SECRET.default(secret)
    assert secret == {"data": {"a": b64("1"), "b": b64("3"), "c": b64("ü")}, "type": "Opaque"}


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("Opaque", {"a": "eA=="}, []),
        ("example.com/mine", {}, []),
        ("kubernetes.io/tls", {"tls.crt": "", "tls.key": ""}, []),
        ("kubernetes.io/tls", {}, ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
        ("kubernetes.io/basic-auth", {"username": ""}, []),
        ("kubernetes.io/basic-auth", {}, ["data[username]: Required value", "data[password]: Required value"]),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": ""}, ["data[ssh-privatekey]: Required value"]),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": b64("{}")}, []),
        ("kubernetes.io/dockerconfigjson", {}, ["data[.dockerconfigjson]: Required value"]),
        ("kubernetes.io/dockercfg", {}, ["data[.dockercfg]: Required value"]),
        ("kubernetes.io/service-account-token", {}, [
            "metadata.annotations[kubernetes.io/service-account.name]: Required value"]),
        ("Opaque", {"a/b": ""}, [f'data[a/b]: Invalid value: "a/b": {KEY}']),
        ("Opaque", {"a": b64("x" * (MAX_DATA_BYTES + 1))}, ["data: Too long: may not be more than 1048576 bytes"]),
    ],
)  # fmt: skip
def test_secrets(kind: str, data: Obj, expected: list[str]) -> None:
    assert faults(SECRET, {"type": kind, "data": data}) == expected


def test_a_docker_config_must_be_json_and_is_not_shown() -> None:
    found = faults(SECRET, {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": b64("oops")}})
    assert len(found) == 1
    assert found[0].startswith('data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": ')
    assert "oops" not in found[0]


def test_the_type_of_a_secret_is_for_life() -> None:
    old: Obj = {"type": "kubernetes.io/basic-auth", "data": {"username": ""}}
    assert update(SECRET, old, {"data": {"username": ""}}) == ['type: Invalid value: "Opaque": field is immutable']
    assert SECRET.selectable["type"](old) == "kubernetes.io/basic-auth"


def test_immutable_secrets_stay_as_they_are() -> None:
    frozen = "field is immutable when `immutable` is set"
    assert update(
        SECRET, {"data": {"a": "eA=="}, "immutable": True}, {"stringData": {"a": "y"}, "immutable": True}
    ) == [f"data: Forbidden: {frozen}"]
    assert (
        update(SECRET, {"data": {"a": "eA=="}, "immutable": True}, {"stringData": {"a": "x"}, "immutable": True}) == []
    )


def test_a_service_account_keeps_only_the_names_of_its_secrets() -> None:
    account: Obj = {"secrets": [{"name": "a", "namespace": "x", "uid": "1"}, {}]}
    assert faults(SERVICE_ACCOUNT, account) == []
    assert account["secrets"] == [{"name": "a"}, {}]
