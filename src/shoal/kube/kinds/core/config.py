"""ConfigMaps, Secrets and ServiceAccounts."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Final

from shoal.errors import FieldError, forbidden, invalid, required, too_long
from shoal.kube.kinds.checks import IMMUTABLE, Errors, check_syntax, size_bytes
from shoal.kube.names import is_config_map_key
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

MAX_DATA_BYTES: Final = 1024 * 1024
SERVICE_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
_FROZEN = "field is immutable when `immutable` is set"
_NOTHING: Mapping[str, str] = {}
_DOCKER_KEYS = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


def _check_keys(data: Mapping[str, str], path: str, errors: Errors) -> None:
    for key in data:
        check_syntax(key, is_config_map_key, f"{path}[{key}]", errors)


def _decoded_size(text: str) -> int:
    """The size of the data in a base64 text, without decoding it."""
    return len(text) * 3 // 4 - text[-2:].count("=")


def _check_frozen(new: Obj, old: Obj, fields: tuple[str, ...], errors: Errors) -> None:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        errors.append(forbidden("immutable", _FROZEN))
    for field in fields:
        if (new.get(field) or _NOTHING) != (old.get(field) or _NOTHING):
            errors.append(forbidden(field, _FROZEN))


# --- ConfigMap


def _validate_config_map(config_map: Obj) -> list[FieldError]:
    errors: Errors = []
    data, binary = config_map.get("data") or _NOTHING, config_map.get("binaryData") or _NOTHING
    _check_keys(data, "data", errors)
    for key in data:
        if key in binary:
            errors.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    _check_keys(binary, "binaryData", errors)
    total = sum(map(size_bytes, data.values())) + sum(map(_decoded_size, binary.values()))
    if total > MAX_DATA_BYTES:
        errors.append(too_long("[]", MAX_DATA_BYTES))  # the path of the whole object
    return errors


def _validate_config_map_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_frozen(new, old, ("data", "binaryData"), errors)
    return errors + _validate_config_map(new)


# --- Secret


def _default_secret(secret: Obj) -> None:
    texts = secret.pop("stringData", None)
    if texts:
        data = dict(secret.get("data") or _NOTHING)
        for key, text in texts.items():
            data[key] = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")
        secret["data"] = data
    if not secret.get("type"):
        secret["type"] = "Opaque"


def _validate_secret(secret: Obj) -> list[FieldError]:
    errors: Errors = []
    data = secret.get("data") or _NOTHING
    _check_keys(data, "data", errors)
    if sum(map(_decoded_size, data.values())) > MAX_DATA_BYTES:
        errors.append(too_long("data", MAX_DATA_BYTES))
    kind = secret.get("type")
    if kind != "Opaque":
        _check_typed(kind, data, secret, errors)
    return errors


def _check_typed(kind: str | None, data: Mapping[str, str], secret: Obj, errors: Errors) -> None:
    """Secrets of a standard type must have the keys of that type."""
    if kind == "kubernetes.io/service-account-token":
        annotations = (secret.get("metadata") or {}).get("annotations") or _NOTHING
        if not annotations.get(SERVICE_ACCOUNT_NAME):
            errors.append(required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]"))
    elif kind in _DOCKER_KEYS:
        _check_docker_config(data, _DOCKER_KEYS[kind], errors)
    elif kind == "kubernetes.io/basic-auth":
        if "username" not in data and "password" not in data:
            errors += [required("data[username]"), required("data[password]")]
    elif kind == "kubernetes.io/ssh-auth":
        if not data.get("ssh-privatekey"):
            errors.append(required("data[ssh-privatekey]"))
    elif kind == "kubernetes.io/tls":
        for key in ("tls.crt", "tls.key"):
            if key not in data:
                errors.append(required(f"data[{key}]"))


def _check_docker_config(data: Mapping[str, str], key: str, errors: Errors) -> None:
    if key not in data:
        errors.append(required(f"data[{key}]"))
        return
    try:
        config = json.loads(base64.b64decode(data[key]))
        fault = "" if config is None or isinstance(config, dict) else "json: cannot unmarshal into an object"
    except (ValueError, binascii.Error, RecursionError) as error:
        fault = str(error)
    if fault:
        errors.append(invalid(f"data[{key}]", "<secret contents redacted>", fault))


def _validate_secret_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    if new.get("type") != old.get("type"):
        errors.append(invalid("type", new.get("type"), IMMUTABLE))
    _check_frozen(new, old, ("data",), errors)
    return errors + _validate_secret(new)


def _secret_type(secret: Obj) -> str:
    return secret.get("type") or ""


# --- ServiceAccount


def _clean_references(account: Obj) -> None:
    """Keep only the names of the secrets of a service account."""
    if account.get("secrets"):
        account["secrets"] = [{"name": secret["name"]} if "name" in secret else {} for secret in account["secrets"]]


def _clean_references_on_update(new: Obj, old: Obj) -> None:
    _clean_references(new)


def _account_warnings(account: Obj) -> list[str]:
    if _MOUNTABLE in ((account.get("metadata") or {}).get("annotations") or _NOTHING):
        return [
            f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access "
            "to mounted secrets"
        ]
    return []


CONFIG_MAP = KindRules(validate_create=_validate_config_map, validate_update=_validate_config_map_update)
SECRET = KindRules(
    default=_default_secret,
    validate_create=_validate_secret,
    validate_update=_validate_secret_update,
    selectable={"type": _secret_type},
)
SERVICE_ACCOUNT = KindRules(
    prepare_create=_clean_references,
    prepare_update=_clean_references_on_update,
    warnings=_account_warnings,
)
