"""Record what writers, readers and watchers of several servers on one store were told, and find contradictions.

    recorder = Recorder()
    recorder.acknowledged("cm-1", revision, token)         # the server acknowledged a write
    session = recorder.session("watcher 1", list_revision, {"cm-1": (revision, token)})
    session.event("MODIFIED", "cm-1", revision, token); session.progress(bookmark_revision)
    recorder.read("server 2", floor, revision)              # a list at a revision; floor was acknowledged when it began
    assert recorder.problems() == []

Every write carries a unique token, so that no two states look alike. A write with an unknown outcome (the connection
broke) is not recorded: it may appear once, or never.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

State = tuple[int, str]  # revision, token


@dataclass(slots=True)
class WatchSession:
    """A list and the events after it, over any number of connections to any of the servers."""

    name: str
    start: int
    initial: Mapping[str, State]
    events: list[tuple[str, str, int, str]] = field(default_factory=list)  # type, key, revision, token
    seen_through: int = 0

    def event(self, kind: str, key: str, revision: int, token: str) -> None:
        self.events.append((kind, key, revision, token))
        self.progress(revision)

    def progress(self, revision: int) -> None:
        """The server has sent all events up to ``revision``: that of a bookmark or of the last event."""
        self.seen_through = max(self.seen_through, revision)

    @property
    def last(self) -> int:
        """The revision from which a new connection continues."""
        return max(self.start, self.seen_through)


@dataclass(frozen=True, slots=True)
class _Read:
    name: str
    floor: int
    revision: int


class Recorder:
    def __init__(self) -> None:
        self._acknowledged: dict[int, tuple[str, str]] = {}  # revision -> key, token
        self._removed: dict[str, int] = {}  # key -> the last revision it had before its deletion
        self._sessions: list[WatchSession] = []
        self._reads: list[_Read] = []
        self._problems: list[str] = []
        self.chapter = 0
        self.newest = 0  # the newest acknowledged revision, which every later read must include

    def acknowledged(self, key: str, revision: int, token: str) -> None:
        known = self._acknowledged.setdefault(revision, (key, token))
        if known != (key, token):
            self._problems.append(f"revision {revision} was given to both {known} and {(key, token)}")
        self.newest = max(self.newest, revision)

    def removed(self, key: str, revision: int) -> None:
        """The server acknowledged the deletion of an object that was last written at this revision."""
        self._removed[key] = max(revision, self._removed.get(key, 0))

    def turn_back(self, revision: int) -> list[str]:
        """The store was restored to this revision: later writes are gone, and earlier watches must end. Returns the
        problems up to now; a new chapter begins."""
        found = self.problems()
        self._acknowledged = {r: write for r, write in self._acknowledged.items() if r <= revision}
        self._removed = {key: r for key, r in self._removed.items() if r <= revision}
        self._sessions, self._reads, self._problems = [], [], []
        self.newest = min(self.newest, revision)
        self.chapter += 1
        return found

    def session(self, name: str, start: int, initial: Mapping[str, State]) -> WatchSession:
        made = WatchSession(name, start, dict(initial))
        self._sessions.append(made)
        return made

    def read(self, name: str, floor: int, revision: int) -> None:
        """A read without a resourceVersion returned ``revision``; ``floor`` was acknowledged when it began."""
        self._reads.append(_Read(name, floor, revision))

    @property
    def events(self) -> int:
        return sum(len(session.events) for session in self._sessions)

    @property
    def writes(self) -> int:
        return len(self._acknowledged)

    def problems(self, final: Mapping[str, Mapping[str, State]] | None = None) -> list[str]:
        """All contradictions; ``final`` is what each server lists after the last write."""
        found = list(self._problems)
        truth = self._truth(found)
        for session in self._sessions:
            found += _wrong_order(session)
            found += _missing(session, truth)
        for read in self._reads:
            if read.revision < read.floor:
                found.append(f"{read.name}: a read shows revision {read.revision}, but {read.floor} was acknowledged")
        if final:
            found += _different(final)
            found += self._lost(final, truth)
        return found

    def _truth(self, found: list[str]) -> dict[int, tuple[str, str]]:
        """The write at each revision, as far as a client was told of it."""
        truth = dict(self._acknowledged)
        for session in self._sessions:
            for kind, key, revision, token in session.events:
                what = (key, "" if kind == "DELETED" else token)
                known = truth.setdefault(revision, what)
                if known != what:
                    found.append(f"{session.name}: revision {revision} is {what} here and {known} elsewhere")
        return truth

    def _lost(self, final: Mapping[str, Mapping[str, State]], truth: Mapping[int, tuple[str, str]]) -> list[str]:
        last: dict[str, State] = {}
        for revision in sorted(truth):
            key, token = truth[revision]
            last[key] = (revision, token)
        found = []
        for name, state in final.items():
            for key, (revision, token) in last.items():
                shown, deleted = state.get(key), self._removed.get(key, 0)
                if shown is not None and shown[0] <= deleted:
                    found.append(f"{name}: {key} ends as {shown}, but was deleted after {deleted}")
                elif token and (shown is None or shown[0] < revision) and deleted < revision:
                    found.append(f"{name}: {key} ends as {shown}, but was written at {revision}")
                elif shown is not None and shown[0] == revision and shown[1] != token:
                    found.append(f"{name}: {key} at {revision} is {shown[1]}, not {token}")
        return found


def _wrong_order(session: WatchSession) -> list[str]:
    """Events whose revision does not rise, or that do not fit the state after the events before them."""
    found: list[str] = []
    state = dict(session.initial)
    newest = session.start
    for kind, key, revision, token in session.events:
        where = f"{session.name}: {kind} {key} at {revision}"
        if revision <= newest:
            found.append(f"{where} came after {newest}")
        newest = max(newest, revision)
        if kind == "ADDED" and key in state:
            found.append(f"{where} although it was there since {state[key][0]}")
        if kind != "ADDED" and key not in state:
            found.append(f"{where} although it was not there")
        if kind == "DELETED":
            state.pop(key, None)
        else:
            state[key] = (revision, token)
    return found


def _missing(session: WatchSession, truth: Mapping[int, tuple[str, str]]) -> list[str]:
    seen = {revision for _, _, revision, _ in session.events}
    return [
        f"{session.name}: nothing came for {key} at {revision} (watched from {session.start} to {session.seen_through})"
        for revision, (key, _) in truth.items()
        if session.start < revision <= session.seen_through and revision not in seen
    ]


def _different(final: Mapping[str, Mapping[str, State]]) -> list[str]:
    names = list(final)
    return [f"{names[0]} and {name} end differently" for name in names[1:] if final[name] != final[names[0]]]
