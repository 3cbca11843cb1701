"""The objects of one kind, read by one watch or by one per namespace.

Readers see one set of objects and one stream of changes, whatever the number of watches. When the watched namespaces
change, objects of namespaces that stay wanted are kept until the new watch has read them: they do not disappear in
between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.errors import Forbidden
from shoal.kube.objects import Obj
from shoal.navigator.edge.kind_rows import FAILING, FORBIDDEN, SYNCED, WAITING
from shoal.navigator.edge.scopes import WatchScope
from shoal.reconcile.cache import Cache, Change, ChangeType, Handler
from shoal.reconcile.keys import ObjectKey

_WORST_FIRST = (FAILING, FORBIDDEN, WAITING, SYNCED)


class ScopeObjects:
    """The objects of one watch, and the outcome of its last request."""

    def __init__(self, scope: WatchScope, on_change: Handler) -> None:
        self.scope = scope
        self.cache = Cache(transform=lambda obj: obj)
        self.state = WAITING
        self.error = ""
        self.failures = 0  # in a row
        self.given_up = asyncio.Event()
        self.cache.add_handler(on_change)

    def begin(self) -> None:
        """It is read anew; what was read before stays until then."""
        self.cache.synced.clear()
        self.state, self.error, self.failures = WAITING, "", 0
        self.given_up.clear()

    def answered(self, error: Exception | None, *, most_failures: int = 0) -> None:
        """``given_up`` is set after more than ``most_failures`` in a row; 0: never."""
        if error is None:
            self.state, self.error, self.failures = (SYNCED if self.cache.synced.is_set() else WAITING), "", 0
            return
        self.failures += 1
        place = f"namespace {self.scope.namespace}: " if self.scope.namespace else ""
        refused = isinstance(error, Forbidden)
        self.state, self.error = FORBIDDEN if refused else FAILING, f"{place}{error}"
        if most_failures and self.failures > most_failures:
            self.error += f" (given up after {self.failures} attempts, until the settings change)"
            self.given_up.set()


class KindObjects:
    """``synced`` is set once every watch has read its objects, or was refused them while another was not."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.scopes: dict[WatchScope, ScopeObjects] = {}
        self._kept: dict[ObjectKey, Obj] = {}  # of watches that were replaced
        self._handlers: list[Handler] = []

    # reading

    def get(self, key: ObjectKey) -> Obj | None:
        for held in self.scopes.values():
            if held.scope.covers(key) and (found := held.cache.get(key)) is not None:
                return found
        return self._kept.get(key)

    def keys(self) -> set[ObjectKey]:
        return {key for held in self.scopes.values() for key in held.cache.keys()} | set(self._kept)

    def add_handler(self, handler: Handler) -> None:
        """Call ``handler`` for each existing object now, and for each later change."""
        self._handlers.append(handler)
        for key in self.keys():
            handler(Change(type=ChangeType.ADDED, key=key, new=self.get(key)))

    def remove_handler(self, handler: Handler) -> None:
        self._handlers.remove(handler)

    # watches

    def add(self, scope: WatchScope) -> ScopeObjects:
        made = self.scopes[scope] = ScopeObjects(scope, self._changed)
        return made

    def drop(self, scope: WatchScope, wanted: Callable[[ObjectKey], bool]) -> None:
        """End a watch. Its objects go, but for those that a watch which has just begun will read."""
        held = self.scopes.pop(scope)
        for key in held.cache.keys():
            obj = held.cache.get(key)
            assert obj is not None
            if wanted(key) and not self._is_read(key):
                self._kept[key] = obj
            else:
                self._gone(key, obj)
        for key in [key for key in self._kept if not wanted(key)]:
            self._gone(key, self._kept.pop(key))

    def settle(self) -> None:
        """After a watch has read its objects: what it has not found is gone."""
        for key in [key for key in self._kept if self._is_read(key)]:
            self._gone(key, self._kept.pop(key))
        states = {held.state for held in self.scopes.values()}
        if not {WAITING, FAILING} & states and states != {FORBIDDEN}:
            self.synced.set()

    def clear(self) -> None:
        """The cluster does not serve the kind any more."""
        for held in self.scopes.values():
            held.cache.replace((), "")
        for key in list(self._kept):
            self._gone(key, self._kept.pop(key))

    def state(self) -> tuple[str, str]:
        """The worst state of a watch, and its error. Without namespaces to watch everything has been read."""
        if not self.scopes:
            return SYNCED, ""
        worst = min(self.scopes.values(), key=lambda held: _WORST_FIRST.index(held.state))
        return worst.state, worst.error

    def _is_read(self, key: ObjectKey) -> bool:
        return any(held.scope.covers(key) and held.cache.synced.is_set() for held in self.scopes.values())

    def _gone(self, key: ObjectKey, last: Obj) -> None:
        if self.get(key) is None:
            self._tell(Change(type=ChangeType.DELETED, key=key, old=last))

    def _changed(self, change: Change) -> None:
        if change.type is ChangeType.DELETED and self.get(change.key) is not None:
            return  # another watch has it
        if change.type is not ChangeType.DELETED:
            self._kept.pop(change.key, None)
        self._tell(change)

    def _tell(self, change: Change) -> None:
        for handler in tuple(self._handlers):
            handler(change)
