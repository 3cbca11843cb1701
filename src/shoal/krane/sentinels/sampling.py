"""When sentinels took their counters, as it is reported, and which entries the control plane has got.

A sentinel writes its entry anew every 15 s although it counted nothing. Were each of them reported, a thousand agents
with one unused sentinel each would send 67 reports a second. So the time of an unchanged entry is reported every
``REFRESH_S`` only, which makes 17; from the others it can still be told that the sentinel counts and has nothing to
count. While a rollout is judged by an entry, its time is always reported.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import NamedTuple

import orjson

from shoal.kube.objects import Obj

REFRESH_S = 60.0


class _Told(NamedTuple):
    print: bytes  # of the entry without its time
    at: float


class Samplings:
    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}  # by pod
        self._delivered: dict[str, float] = {}  # the times that the control plane has, by pod

    def stamped(self, pod: str, entry: Obj, *, judged: bool) -> Obj:
        """The entry with the time to report; with the one of before while nothing was counted since."""
        at = entry.get("at")
        if not isinstance(at, int | float):
            return entry
        print_ = _print(entry)
        told = self._told.get(pod)
        if told is None or told.print != print_ or judged or not 0 <= at - told.at < REFRESH_S:
            self._told[pod] = told = _Told(print_, at)
        return {**entry, "at": told.at}

    def delivered(self, stats: bytes) -> None:
        """The control plane has got a report with these entries."""
        if stats:
            self._delivered |= {pod: entry.get("at", 0.0) for pod, entry in orjson.loads(stats)["gateways"].items()}

    def has(self, pod: str, text: str) -> bool:
        """Whether the control plane has got an entry as it is now; also True for one that cannot be reported."""
        try:
            entry = orjson.loads(text)
        except orjson.JSONDecodeError:
            return True
        if not isinstance(entry, dict) or not isinstance(entry.get("at"), int | float) or "deployments" not in entry:
            return True
        told = self._told.get(pod)
        return told is not None and told.print == _print(entry) and self._delivered.get(pod) == told.at

    def keep(self, pods: Collection[str]) -> None:
        """Forget the other pods."""
        self._told = {pod: told for pod, told in self._told.items() if pod in pods}
        self._delivered = {pod: at for pod, at in self._delivered.items() if pod in pods}


def _print(entry: Obj) -> bytes:
    rest = {name: value for name, value in entry.items() if name != "at"}
    return blake2b(orjson.dumps(rest, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
