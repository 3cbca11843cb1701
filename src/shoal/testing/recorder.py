"""Record what writers, readers and watchers of several servers on one store were told, and find contradictions.

    recorder = Recorder()
    recorder.acknowledged("cm-1", revision, token)         # the server acknowledged a write
    session = recorder.session("watcher 1", list_revision, {"cm-1": (revision, token)})
    session.event("MODIFIED", "cm-1", revision, token); session.progress(bookmark_revision)
    recorder.read("server 2", floor, revision)              # a list at a revision; floor was acknowledged when it began
    recorder.listed("server 2", revision, {"cm-1": (revision, token)})      # what it held
    recorder.swapped("cm-1", expected, revision, token, begun_s, ended_s)   # a write that named the revision it changes
    assert recorder.problems() == []

Every write carries a unique token, so that no two states look alike. A write with an unknown outcome (the connection
broke) is not recorded: it may appear once, or never.

The store numbers all writes in one order, so linearizability is checked without a search: the numbers must agree with
real time, each compare-and-swap must follow directly on the revision it named, and a list must be the state at its
revision. What a client was not told of, watchers have seen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shoal.testing.tally import TALLY

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


@dataclass(frozen=True, slots=True)
class _Swap:
    key: str
    expected: int
    revision: int
    begun_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class _List:
    name: str
    revision: int
    state: Mapping[str, State]


class Recorder:
    def __init__(self) -> None:
        self._acknowledged: dict[int, tuple[str, str]] = {}  # revision -> key, token
        self._removed: dict[str, int] = {}  # key -> the last revision it had before its deletion
        self._sessions: list[WatchSession] = []
        self._reads: list[_Read] = []
        self._swaps: list[_Swap] = []
        self._lists: list[_List] = []
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
        self._sessions, self._reads, self._swaps, self._lists, self._problems = [], [], [], [], []
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

    def listed(self, name: str, revision: int, state: Mapping[str, State]) -> None:
        """A list at ``revision`` held these objects, and no other of those that are recorded."""
        self._lists.append(_List(name, revision, dict(state)))

    def swapped(self, key: str, expected: int, revision: int, token: str, begun_s: float, ended_s: float) -> None:
        """The server acknowledged a write that was allowed only if the object was still at revision ``expected``."""
        self.acknowledged(key, revision, token)
        self._swaps.append(_Swap(key, expected, revision, begun_s, ended_s))

    @property
    def operations(self) -> int:
        """How much was recorded: writes, events, reads and lists."""
        return self.writes + self.events + len(self._reads) + len(self._lists)

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
        found += _not_linear(self._swaps, truth)
        found += _wrong_lists(self._lists, truth, self._sessions)
        if final:
            found += _different(final)
            found += self._lost(final, truth)
        TALLY.checked += self.operations
        TALLY.violations += len(found)
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


def _not_linear(swaps: Sequence[_Swap], truth: Mapping[int, tuple[str, str]]) -> list[str]:
    """Swaps whose revisions contradict real time, or that did not follow on the revision they named."""
    found: list[str] = []
    history: dict[str, list[int]] = {}
    for revision in sorted(truth):
        history.setdefault(truth[revision][0], []).append(revision)
    for swap in swaps:
        before = history[swap.key]
        at = bisect_left(before, swap.revision)
        previous = before[at - 1] if at else 0
        if previous > swap.expected:
            found.append(f"{swap.key}: {swap.revision} was to follow on {swap.expected}, but {previous} came between")
    newest, ended = 0, sorted(swaps, key=lambda swap: swap.ended_s)
    place = 0
    for swap in sorted(swaps, key=lambda each: each.begun_s):
        while place < len(ended) and ended[place].ended_s < swap.begun_s:
            newest = max(newest, ended[place].revision)
            place += 1
        if swap.revision < newest:
            found.append(f"{swap.key}: {swap.revision} was written after {newest} had been acknowledged")
    return found


def _wrong_lists(
    lists: Sequence[_List], truth: Mapping[int, tuple[str, str]], sessions: Sequence[WatchSession]
) -> list[str]:
    """Lists that are not the state at their revision. The state is known while a session watches."""
    found: list[str] = []
    revisions = sorted(truth)
    left = sorted(lists, key=lambda each: each.revision)
    for session in sorted(sessions, key=lambda each: each.start):
        state = dict(session.initial)
        place = bisect_left(revisions, session.start + 1)
        unseen: list[_List] = []
        for each in left:
            if not session.start <= each.revision <= session.seen_through:
                unseen.append(each)
                continue
            while place < len(revisions) and revisions[place] <= each.revision:
                key, token = truth[revisions[place]]
                if token:
                    state[key] = (revisions[place], token)
                else:
                    state.pop(key, None)
                place += 1
            if each.state != state:
                wrong = sorted(key for key in {*each.state, *state} if each.state.get(key) != state.get(key))
                found.append(f"{each.name}: the list at {each.revision} is not the state then: {', '.join(wrong[:5])}")
        left = unseen
    return found


def _different(final: Mapping[str, Mapping[str, State]]) -> list[str]:
    names = list(final)
    return [f"{names[0]} and {name} end differently" for name in names[1:] if final[name] != final[names[0]]]
