"""Types of the settings that ``EdgeMachine`` reads. Pure; ``shoal.navigator.edge.config`` defines and checks them."""

from __future__ import annotations

from typing import Protocol


class SyncSettings(Protocol):
    """How often the manager is sent the digests."""

    @property
    def interval_s(self) -> float: ...

    @property
    def min_interval_s(self) -> float: ...

    @property
    def max_interval_s(self) -> float: ...

    @property
    def busy_changes(self) -> int: ...


class KeepAliveSettings(Protocol):
    """When a connection needs a keep-alive, and when it counts as dead."""

    @property
    def keep_alive_s(self) -> float: ...

    @property
    def keep_alive_timeout_s(self) -> float: ...

    @property
    def request_timeout_s(self) -> float: ...


class ConnectionSettings(KeepAliveSettings, Protocol):
    """The limits of a connection."""

    @property
    def send_queue(self) -> int: ...

    @property
    def max_message_bytes(self) -> int: ...
