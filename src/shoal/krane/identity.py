"""The agent's directory: its key pair, created once, and the fleet it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import orjson

from shoal.base.files import own_private_dir, write_private
from shoal.base.logs import get_logger
from shoal.errors import ConfigError
from shoal.sync.primitives import primitives
from shoal.sync.sealing import new_key

log = get_logger("krane.identity")

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class KeyPair:
    """X25519, 32 bytes each. Others wrap keys for the public one."""

    private: bytes
    public: bytes


class Home:
    """The directory. Created readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        try:
            own_private_dir(self.path)
        except OSError as error:
            raise ConfigError(f"dir is {str(self.path)!r}: {error.strerror}") from None

    def key_pair(self) -> KeyPair:
        """The pair of this agent; a new one when there is none or it cannot be read."""
        path = self.path / "agent.key"
        try:
            content = orjson.loads(path.read_bytes())
            pair = KeyPair(bytes.fromhex(content["private"]), bytes.fromhex(content["public"]))
            if len(pair.private) == len(pair.public) == _KEY_BYTES:
                return pair
            log.warning("the agent's key has a wrong length; creating a new one", path=str(path))
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError) as error:
            log.warning("the agent's key cannot be read; creating a new one", path=str(path), reason=str(error))
        fresh = _generate()
        write_private(path, orjson.dumps({"private": fresh.private.hex(), "public": fresh.public.hex()}))
        return fresh

    @property
    def fleet(self) -> str:
        """The fleet the control plane named when this agent joined last; empty before the first time."""
        try:
            return (self.path / "fleet").read_text().strip()
        except (OSError, ValueError):
            return ""

    @fleet.setter
    def fleet(self, name: str) -> None:
        write_private(self.path / "fleet", f"{name}\n".encode())


def _generate() -> KeyPair:
    private = new_key()  # any 32 bytes are one
    return KeyPair(private, primitives().public(private))
