"""Reload of credentials while a cluster runs: checks the files twice a second and applies changes.

An invalid file is logged and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path

from shoal.apiserver.authn.credential import AUTHENTICATED, Credential
from shoal.apiserver.authn.service import Authentication
from shoal.apiserver.user import User
from shoal.app.config import ClusterConfig
from shoal.app.credentials import StaticToken, read_tokens
from shoal.app.pki import service_account_keys
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.errors import ConfigError

_EVERY_S = 0.5

Stamp = tuple[int, int, int]


def as_credentials(tokens: Mapping[str, StaticToken]) -> dict[str, Credential]:
    """Static tokens as the API server takes them."""
    return {
        digest: Credential(
            User(token.user, (*token.groups, AUTHENTICATED), token.uid),
            inf if token.expires_at is None else token.expires_at.timestamp(),
        )
        for digest, token in tokens.items()
    }


async def follow_credentials(config: ClusterConfig, authentication: Authentication, clock: Clock) -> None:
    """Apply each change of the static tokens and of the keys of service-account tokens, until cancelled."""
    log = get_logger("credentials")

    def load_tokens() -> None:
        authentication.authenticator.replace_tokens(as_credentials(read_tokens(config.tokens_path)))

    def load_keys() -> None:
        keys = service_account_keys(config.pki_dir)
        authentication.replace_keys(keys.signing, keys.older)

    watched: tuple[tuple[str, tuple[Path, ...], Callable[[], None]], ...] = (
        ("static tokens", (config.tokens_path,), load_tokens),
        ("keys of service accounts", (config.pki_dir, config.pki_dir / "sa.key"), load_keys),
    )
    # Nothing is known of the time between the start's reading and now: all of it is read once more.
    seen: dict[str, list[Stamp | None]] = {}
    while True:
        for what, paths, load in watched:
            stamps = [_stamp(path) for path in paths]
            if seen.get(what) == stamps:
                continue
            try:
                load()
            except (ConfigError, OSError, ValueError) as error:
                log.error("credentials not reloaded", what=what, reason=str(error))
            else:
                if what in seen:
                    log.info("credentials reloaded", what=what)
            seen[what] = stamps
        await clock.sleep(_EVERY_S)


def _stamp(path: Path) -> Stamp | None:
    """Changes when the file is replaced or written, or when a file of the directory is."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
