"""Seals the values of secrets, and wraps their data keys for the agents that need them.

Values pass through when they are sealed and when the control plane sends a credential, and are not kept. Unwrapped data
keys are cached for a minute, up to a limit, so that a secret that a thousand agents need is unwrapped once. They are
dropped after that minute even if no request comes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from os import urandom

from shoal.base.clock import Clock, Timer
from shoal.base.ids import RandomBytes
from shoal.control.domain.model import Sealed
from shoal.control.secrets.masters import MasterKeys, UnknownMasterKey, Wrapped
from shoal.sync.sealing import CannotOpen, new_key, open_values, seal_values, wrap_for

KEEP_S = 60.0
KEEP_COUNT = 1000


class EnvelopeSealer:
    """Is a ``shoal.control.domain.model.KeySealer``."""

    def __init__(
        self,
        masters: MasterKeys,
        *,
        clock: Clock,
        random_bytes: RandomBytes = urandom,
        keep_s: float = KEEP_S,
        keep_count: int = KEEP_COUNT,
    ) -> None:
        self.masters = masters
        self._random_bytes = random_bytes
        self._known = _DataKeys(clock, keep_s, keep_count)

    def __repr__(self) -> str:
        return f"EnvelopeSealer({self.masters.where})"

    async def seal(self, values: dict[str, str]) -> Sealed:
        """Encrypt the values with a new data key, and that with the master key that seals."""
        data_key = new_key(self._random_bytes)
        ciphertext = seal_values(values, data_key, random_bytes=self._random_bytes)
        wrapped = await self.masters.wrap(data_key)
        return Sealed(ciphertext, wrapped.data_key, wrapped.master_key)

    async def rewrap(self, data_key: bytes, master_key: str, public_key: bytes) -> bytes:
        """The data key wrapped for the agent that holds the private half of ``public_key``."""
        return wrap_for(
            await self._unwrapped(Wrapped(master_key, data_key)), public_key, random_bytes=self._random_bytes
        )

    async def open(self, sealed: Sealed) -> dict[str, str]:
        """The values, for what the control plane does itself. Raises ``CannotOpen``."""
        try:
            data_key = await self._unwrapped(Wrapped(sealed.master_key, sealed.data_key))
        except UnknownMasterKey as error:
            raise CannotOpen(str(error)) from error
        return open_values(sealed.ciphertext, data_key)

    async def wrap(self, key: bytes) -> tuple[bytes, str]:
        """A key of the control plane itself under the master key that seals."""
        wrapped = await self.masters.wrap(key)
        return wrapped.data_key, wrapped.master_key

    async def unwrap(self, data_key: bytes, master_key: str) -> bytes:
        try:
            return await self.masters.unwrap(Wrapped(master_key, data_key))
        except UnknownMasterKey as error:
            raise CannotOpen(str(error)) from error

    async def reseal(self, wrapped: Wrapped) -> Wrapped:
        """The same data key under the master key that seals now: what it encrypts stays as it is."""
        return await self.masters.wrap(await self.masters.unwrap(wrapped))

    async def close(self) -> None:
        self._known.clear()
        await self.masters.close()

    async def _unwrapped(self, wrapped: Wrapped) -> bytes:
        found = self._known.get(wrapped)
        if found is None:
            found = await self.masters.unwrap(wrapped)
            self._known.put(wrapped, found)
        return found


class _DataKeys:
    """Unwrapped data keys, each until its time is up."""

    def __init__(self, clock: Clock, keep_s: float, keep_count: int) -> None:
        self._clock = clock
        self._keep_s = keep_s
        self._keep_count = keep_count
        self._keys: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()  # the oldest first
        self._timer: Timer | None = None  # set exactly while there are keys

    def __repr__(self) -> str:
        return f"_DataKeys({len(self._keys)})"

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, wrapped: Wrapped) -> bytes | None:
        found = self._keys.get(_name(wrapped))
        return found[1] if found is not None and found[0] > self._clock.monotonic() else None

    def put(self, wrapped: Wrapped, data_key: bytes) -> None:
        name = _name(wrapped)
        self._keys.pop(name, None)
        self._keys[name] = (self._clock.monotonic() + self._keep_s, data_key)
        if len(self._keys) > self._keep_count:
            self._keys.popitem(last=False)
        if self._timer is None:
            self._timer = self._clock.call_later(self._keep_s, self._forget)

    def clear(self) -> None:
        self._keys.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget(self) -> None:
        now = self._clock.monotonic()
        while self._keys and next(iter(self._keys.values()))[0] <= now:
            self._keys.popitem(last=False)
        self._timer = None
        if self._keys:
            due = next(iter(self._keys.values()))[0]
            self._timer = self._clock.call_later(due - now, self._forget)


def _name(wrapped: Wrapped) -> bytes:
    return hashlib.sha256(wrapped.master_key.encode() + b"\0" + wrapped.data_key).digest()
