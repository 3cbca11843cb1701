"""Which master keys a control plane uses, from one setting.

    (nothing)                                the variable SHOAL_MASTER_KEY; without it DIR/master.key, made when missing
    file:PATH                                a file of mode 0600
    env:NAME                                 a variable of the environment
    vault:https://HOST:8200/transit/NAME     a key of Vault's transit engine
    vault:https://HOST:8200/kv/PATH          a secret of Vault's KV engine, version 2, in the field ``key``
                                             (?mount=MOUNT where the engine is mounted elsewhere, ?field=NAME)

Several are separated by commas: the first one's keys seal, all of them open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from shoal.base.clock import Clock, RealClock
from shoal.base.logs import get_logger
from shoal.control.secrets.masters import CombinedKeys, FileKeys, GivenKeys, KeysAway, MasterKeys, parse_keys
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.control.secrets.vault import LOOPBACK, KvKeys, TransitKeys, Vault, VaultConfig
from shoal.errors import ConfigError

DEFAULT_VARIABLE = "SHOAL_MASTER_KEY"
DEFAULT_FILE = "master.key"

_FIX = "use file:PATH, env:NAME, vault:https://HOST:8200/transit/NAME or vault:https://HOST:8200/kv/PATH"
_PART = re.compile(r",(?=(?:file|env|vault):)")
_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")

_log = get_logger("control.secrets")


async def open_sealer(
    spec: str, folder: Path, environ: Mapping[str, str] = os.environ, *, clock: Clock | None = None
) -> EnvelopeSealer:
    """A sealer with the master keys that ``spec`` names. Raises ``ConfigError`` for what can never work; keys that are
    only away now are waited for by those who need them."""
    clock = clock or RealClock()
    masters = master_keys(spec, folder, environ, clock=clock)
    try:
        await masters.check()
    except KeysAway as error:
        _log.warning("secrets cannot be sealed or sent now", error=str(error))
    except BaseException:
        await masters.close()
        raise
    return EnvelopeSealer(masters, clock=clock)


def master_keys(spec: str, folder: Path, environ: Mapping[str, str], *, clock: Clock) -> MasterKeys:
    if not spec:
        if environ.get(DEFAULT_VARIABLE):
            return _given(DEFAULT_VARIABLE, environ)
        return FileKeys(folder / DEFAULT_FILE, create=True)
    places = [_place(part, folder, environ, clock) for part in _PART.split(spec)]
    return places[0] if len(places) == 1 else CombinedKeys(places)


def _place(spec: str, folder: Path, environ: Mapping[str, str], clock: Clock) -> MasterKeys:
    scheme, _, rest = spec.partition(":")
    if scheme == "file" and rest:
        return FileKeys(folder / Path(rest).expanduser())
    if scheme == "env" and rest:
        return _given(rest, environ)
    if scheme == "vault" and rest:
        return _vault(rest, environ, clock)
    # The value may be the key itself, so an invalid value is not shown.
    shown = f"{scheme}:…" if scheme in ("file", "env", "vault") else "something else"
    raise ConfigError(f"master_key is {shown}: {_FIX}")


def _given(variable: str, environ: Mapping[str, str]) -> GivenKeys:
    if variable not in environ:
        raise ConfigError(
            f"master_key is 'env:{variable}': the variable is not set; set it to 32 random bytes in base64"
        )
    where = f"the variable {variable}"
    return GivenKeys(parse_keys(environ[variable], where), where)


def _vault(url: str, environ: Mapping[str, str], clock: Clock) -> MasterKeys:
    parts = urlsplit(url)
    shown = f"vault:{parts.scheme}://{parts.hostname}{parts.path}"
    if parts.username or parts.password:
        raise ConfigError(f"master_key is {shown!r} with a user: put the token into VAULT_TOKEN, not into the address")
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise ConfigError(f"master_key is {shown!r}: {_FIX}")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ConfigError(f"master_key is {shown!r}: keys and tokens would be sent unencrypted; use https")
    engine, _, name = parts.path.strip("/").partition("/")
    options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    mount = options.pop("mount", engine)
    key_field = options.pop("field", "key")
    if engine not in ("transit", "kv") or not _NAME.fullmatch(name) or not _NAME.fullmatch(mount) or options:
        raise ConfigError(f"master_key is {shown!r}: {_FIX}, with ?mount=MOUNT where the engine is mounted elsewhere")
    if engine == "transit" and "/" in name:
        raise ConfigError(f"master_key is {shown!r}: the name of a transit key has no slash; use ?mount=MOUNT")
    vault = Vault(VaultConfig.from_environ(f"{parts.scheme}://{parts.netloc}", environ), clock=clock)
    if engine == "transit":
        return TransitKeys(vault, name, mount=mount)
    return KvKeys(vault, name, clock=clock, mount=mount, key_field=key_field)
