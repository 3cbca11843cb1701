"""Master keys: they wrap the data keys of secrets. One seals, the older ones still open.

A key is known by its id, a digest that is stored beside what it wrapped; the same key has the same id wherever it is
kept, so it can be moved from a file to the environment or into Vault. Keys are given as 32 random bytes in base64,
several of them separated by white space or commas, the one that seals first.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import urandom
from pathlib import Path
from typing import Protocol

from shoal.base.files import create_private, write_private
from shoal.base.ids import RandomBytes
from shoal.base.logs import get_logger
from shoal.errors import ConfigError, ServiceUnavailable, ShoalError
from shoal.sync.sealing import KEY_BYTES, new_key, unwrap_key, wrap_key

_SEPARATORS = re.compile(r"[\s,]+")
_FEWEST_VALUES = 8  # that the 32 bytes of a random key have, but for one key in more than there are atoms
_FIX = "use 32 random bytes in base64, such as `openssl rand -base64 32` prints"
_RETRY_AFTER_S = 2

_log = get_logger("control.secrets")


class KeysAway(ServiceUnavailable):
    """The store of the master keys is unavailable."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"the master keys in {where} are unavailable: {why}", retry_after_s=_RETRY_AFTER_S)


class UnknownMasterKey(ShoalError):
    """It was sealed under a master key that is not here."""

    def __init__(self, master_key: str, where: str) -> None:
        super().__init__(
            f"sealed under the master key {master_key}, which is not in {where}: "
            "add that key after the current one, or apply the secret again with its values"
        )
        self.master_key = master_key


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A data key, and which master key wrapped it."""

    master_key: str
    data_key: bytes = field(repr=False)


class MasterKeys(Protocol):
    """Where master keys are kept."""

    @property
    def where(self) -> str:
        """For people; without secrets."""

    async def check(self) -> None:
        """Raise ``ConfigError`` when this can never work as it is configured, ``KeysAway`` when it does not now."""

    async def current(self) -> str:
        """The id of the key that seals."""

    async def wrap(self, data_key: bytes) -> Wrapped:
        """With the key that seals."""

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        """The data key. Raises ``UnknownMasterKey``, ``CannotOpen`` or ``KeysAway``."""

    async def renew(self) -> str:
        """Make a new key the one that seals; the others stay. Raises ``ConfigError`` where others make the keys."""

    async def close(self) -> None: ...


class MasterKey:
    """One key. Shows its id only."""

    __slots__ = ("_key", "id")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.id = f"mk-{hashlib.sha256(b'shoal master key id' + key).hexdigest()[:32]}"

    def __repr__(self) -> str:
        return f"MasterKey({self.id})"

    def wrap(self, data_key: bytes, random_bytes: RandomBytes) -> Wrapped:
        return Wrapped(self.id, wrap_key(data_key, self._key, self.id, random_bytes=random_bytes))

    def unwrap(self, wrapped: bytes) -> bytes:
        return unwrap_key(wrapped, self._key, self.id)


class MasterKeyRing:
    """Keys in the order of their age, the newest first. Immutable."""

    __slots__ = ("_keys", "current")

    def __init__(self, keys: Iterable[MasterKey]) -> None:
        self._keys = {key.id: key for key in keys}
        self.current = next(iter(self._keys.values()))

    def __repr__(self) -> str:
        return f"Ring({', '.join(self._keys)})"

    def __contains__(self, master_key: str) -> bool:
        return master_key in self._keys

    def unwrap(self, wrapped: Wrapped, where: str) -> bytes:
        key = self._keys.get(wrapped.master_key)
        if key is None:
            raise UnknownMasterKey(wrapped.master_key, where)
        return key.unwrap(wrapped.data_key)


def parse_keys(text: str, where: str) -> MasterKeyRing:
    """The keys in a text. ``where`` says in an error what it is; the text itself is never shown."""
    found = [part for part in _SEPARATORS.split(text) if part]
    if not found:
        raise ConfigError(f"{where} has no master key: {_FIX}")
    return MasterKeyRing([MasterKey(_parsed(part, where)) for part in found])


def _parsed(text: str, where: str) -> bytes:
    try:
        key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{where} holds a master key that is not base64: {_FIX}") from None
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{where} holds a master key of {len(key)} bytes: {_FIX}")
    if len(set(key)) < _FEWEST_VALUES:
        raise ConfigError(f"{where} holds a master key that is not random: {_FIX}")
    return key


class GivenKeys:
    """Keys from the environment: the same until the process ends."""

    def __init__(self, ring: MasterKeyRing, where: str, *, random_bytes: RandomBytes = urandom) -> None:
        self.where = where
        self._ring = ring
        self._random_bytes = random_bytes

    def __repr__(self) -> str:
        return f"GivenKeys({self.where})"

    async def check(self) -> None:
        """They were checked when they were read."""

    async def current(self) -> str:
        return self._ring.current.id

    async def wrap(self, data_key: bytes) -> Wrapped:
        return self._ring.current.wrap(data_key, self._random_bytes)

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        return self._ring.unwrap(wrapped, self.where)

    async def renew(self) -> str:
        raise ConfigError(
            f"{self.where} cannot be changed by Shoal: put a new key before the others, separated by a comma, restart "
            "every control plane, and rotate without making a new key"
        )

    async def close(self) -> None:
        """There is nothing to close."""


class FileKeys:
    """A file that only its owner may read. It is looked at again when it has changed, so that a key that another
    process added is used without a restart; what cannot be read then changes nothing."""

    def __init__(self, path: Path, *, create: bool = False, random_bytes: RandomBytes = urandom) -> None:
        self.where = f"the file {path}"
        self._path = path
        self._random_bytes = random_bytes
        self._seen: tuple[int, ...] = ()
        if create and not path.exists():
            self._create()
        self._ring = self._read()

    def __repr__(self) -> str:
        return f"FileKeys({self._path})"

    async def check(self) -> None:
        """It was checked when it was read."""

    async def current(self) -> str:
        return self._fresh().current.id

    async def wrap(self, data_key: bytes) -> Wrapped:
        return self._fresh().current.wrap(data_key, self._random_bytes)

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        ring = self._ring if wrapped.master_key in self._ring else self._fresh()
        return ring.unwrap(wrapped, self.where)

    async def renew(self) -> str:
        await asyncio.to_thread(self._add)
        return self._fresh().current.id

    async def close(self) -> None:
        """There is nothing to close."""

    def _fresh(self) -> MasterKeyRing:
        try:
            if self._state() != self._seen:
                self._ring = self._read()
                _log.info("master keys were read again", path=str(self._path), master_key=self._ring.current.id)
        except (ConfigError, OSError) as error:
            _log.warning(
                "master keys cannot be read; using the last known ones", path=str(self._path), error=str(error)
            )
        return self._ring

    def _state(self) -> tuple[int, ...]:
        found = self._path.stat()
        return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)

    def _read(self) -> MasterKeyRing:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(
                f"master_key is 'file:{self._path}': {error.strerror}; name a file that holds a key, or make one with "
                f"`(umask 077; openssl rand -base64 32 > {self._path})`"
            ) from None
        with open(descriptor, encoding="ascii", errors="replace") as file:
            found = os.fstat(descriptor)
            if stat.S_IMODE(found.st_mode) & 0o077:
                raise ConfigError(
                    f"master_key is 'file:{self._path}': others may read it (mode {stat.S_IMODE(found.st_mode):04o}); "
                    f"run `chmod 600 {self._path}`"
                )
            self._seen = (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)
            return parse_keys(file.read(), self.where)

    def _create(self) -> None:
        """Of several who do this at the same moment one makes the key, and all of them use it."""
        try:
            created = create_private(self._path, _line(new_key(self._random_bytes)))
        except OSError as error:
            raise self._unwritable(error) from None
        if created:
            _log.info("a master key was created; keep a copy of it in a safe place", path=str(self._path))

    def _add(self) -> None:
        """One at a time: a key that another process adds at the same moment must not be lost."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self._read()  # the existing keys must be valid before they are kept
            known = self._path.read_bytes()
            write_private(self._path, _line(new_key(self._random_bytes)) + known)
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            os.close(folder)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"master_key is 'file:{self._path}': {error.strerror}; choose a directory that can be written"
        )


class CombinedKeys:
    """Several places: the first one's keys seal, all of them open."""

    def __init__(self, places: Sequence[MasterKeys]) -> None:
        self.where = ", ".join(place.where for place in places)
        self._places = tuple(places)

    def __repr__(self) -> str:
        return f"CombinedKeys({self.where})"

    async def check(self) -> None:
        for place in self._places:
            await place.check()

    async def current(self) -> str:
        return await self._places[0].current()

    async def wrap(self, data_key: bytes) -> Wrapped:
        return await self._places[0].wrap(data_key)

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        away: ServiceUnavailable | None = None
        for place in self._places:
            try:
                return await place.unwrap(wrapped)
            except UnknownMasterKey:
                continue
            except ServiceUnavailable as error:
                away = error  # it may know the key, another may too
        raise away or UnknownMasterKey(wrapped.master_key, self.where)

    async def renew(self) -> str:
        return await self._places[0].renew()

    async def close(self) -> None:
        for place in self._places:
            await place.close()


def _line(key: bytes) -> bytes:
    return base64.b64encode(key) + b"\n"
