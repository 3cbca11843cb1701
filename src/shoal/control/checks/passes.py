"""One pass over all databases: what is due there, a fair share of it, done at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

from shoal.base.logs import get_logger
from shoal.base.tasks import outcomes
from shoal.control.database.engine import Database, Databases
from shoal.errors import ServiceUnavailable

AT_ONCE = 32  # calls of one pass
OF_ONE_WORKSPACE = 8  # of them: one whose hosts do not answer must not hold up the others

T = TypeVar("T")

_log = get_logger("control.checks")


async def of_databases(databases: Databases, read: Callable[[Database], Awaitable[Sequence[T]]], what: str) -> list[T]:
    """What is read of every database that can be reached: one that is away holds up the others no longer than that."""
    found: list[T] = []
    for database in databases.all:
        try:
            found += await read(database)
        except ServiceUnavailable as error:
            _log.warning("a database is away; what is due there waits", what=what, reason=str(error))
    return found


def fair_share(items: Iterable[T], owner_of: Callable[[T], str], most: int, of_one: int) -> list[T]:
    """At most ``most`` of the items, at most ``of_one`` of each owner; owners take turns."""
    counts: Counter[str] = Counter()
    turns: list[list[T]] = [[] for _ in range(of_one)]
    for item in items:
        turn = counts[owner_of(item)]
        counts[owner_of(item)] += 1
        if turn < of_one:
            turns[turn].append(item)
    return list(chain(*turns))[:most]


async def count_done(*parts: Coroutine[Any, Any, bool], name: str) -> int:
    """Do all beside each other; returns how many said True. What could not be written is due again later; any other
    error is raised once all have ended."""
    done = await outcomes(*parts, name=name)
    for each in done:
        if isinstance(each, ServiceUnavailable):
            _log.warning("a database is away; a result could not be stored", reason=str(each))
        elif isinstance(each, BaseException):
            raise each
    return sum(each is True for each in done)
