"""Regular expressions with bounded running time, for the operator ``~``. Pure.

Python's engine backtracks, and a pattern such as ``(a+)+b`` can keep it busy for years while all other requests wait.
So patterns are parsed here first. A pattern with at most one open repetition, and no alternatives inside a repetition,
goes to Python's engine, which is fast and takes at most quadratic time for it. All others go to an automaton that reads
each character once. It has a budget for the states that it remembers, and one for the work of making them: a pattern
that exceeds it is refused. Features that the automaton lacks (references to groups, lookaround) are refused too.
"""

from __future__ import annotations

import re
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shoal.errors import BadRequest

MAX_LENGTH = 512
MAX_STEPS = 2000  # of the automaton's program
_MAX_HELD = 100_000  # steps and transitions of remembered states, about 10 MB; beyond it they are made anew
_MAX_WORK = 2_000_000  # steps that are visited to make states, for all texts of a query: about half a second
_MAX_DEPTH = 50
_MAX_REPEATS = 1000
_FEW = 8  # how many small repetitions may double the work of Python's engine

Ranges = tuple[tuple[int, int], ...]
"""Characters from the first to the last, both included; in order, without overlaps."""

_CLASSES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
_LAST = 0x110000
_WIDE_RANGE = re.compile(r"-(?:[^\x00-\x7f]|\\[uUxN0-9])")  # Python's compiler takes milliseconds for each
_MAX_WIDE = 8
_CASE = ord("a") - ord("A")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


class PatternError(ValueError):
    """``position`` is that in the pattern."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class PatternTooExpensive(BadRequest):
    """The search took more work than a query may."""

    def __init__(self) -> None:
        super().__init__("a pattern takes too long to search for: use fewer repetitions in it, or a plain text")


@dataclass(frozen=True, slots=True)
class Chars:
    """One character: of the ranges, or with ``negated`` of none of them."""

    ranges: Ranges
    negated: bool = False

    def has(self, char: str) -> bool:
        at = bisect_right(self.ranges, (ord(char), _LAST)) - 1
        return (at >= 0 and ord(char) <= self.ranges[at][1]) is not self.negated


@dataclass(frozen=True, slots=True)
class Transition:
    """The beginning (``^``) or the end (``$``) of the text."""

    end: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    inner: Node
    least: int
    most: int | None


Node = Chars | Transition | Sequence | Either | Repeat
Search = Callable[[str], object]


def parse_pattern(pattern: str) -> Node:
    """``PatternError`` for an invalid or unsupported pattern."""
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"it has {len(pattern)} characters: use at most {MAX_LENGTH}", MAX_LENGTH)
    wide = [found.start() for found in _WIDE_RANGE.finditer(pattern)]
    if len(wide) > _MAX_WIDE:
        raise PatternError(f"more than {_MAX_WIDE} ranges with other characters than ASCII", wide[_MAX_WIDE])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what a bracket in brackets may mean one day
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        position = getattr(error, "pos", None) or 0
        raise PatternError(str(getattr(error, "msg", error)), position) from None
    node = _Reader(pattern).read()
    if _size(node) > MAX_STEPS:
        raise PatternError("it repeats too much: use smaller numbers in {}", 0)
    return node


def searcher(pattern: str) -> Search:
    """A function that returns whether a text contains the pattern."""
    node = parse_pattern(pattern)
    if is_simple(node):
        return re.compile(_source(node)).search
    return Automaton(node).search


def is_simple(node: Node) -> bool:
    """Whether Python's engine is safe for this pattern."""
    wide, small, nested = _repeats(node)
    return wide <= 1 and small <= _FEW and not nested


def _repeats(node: Node) -> tuple[int, int, bool]:
    """How many repetitions leave much open, how many little, and whether one holds anything with a choice."""
    match node:
        case Chars() | Transition():
            return 0, 0, False
        case Sequence(parts) | Either(parts):
            found = [_repeats(part) for part in parts]
            return sum(each[0] for each in found), sum(each[1] for each in found), any(each[2] for each in found)
        case Repeat(inner, least, most):
            wide, small, nested = _repeats(inner)
            nested = nested or (most != 1 and _has_choice(inner))
            open_ = most is None or most - least > _FEW
            if open_:
                return wide + 1, small, nested
            return wide, small + (most or 0) - least, nested


def _has_choice(node: Node) -> bool:
    match node:
        case Chars() | Transition():
            return False
        case Either():
            return True
        case Sequence(parts):
            return any(_has_choice(part) for part in parts)
        case Repeat(inner, least, most):
            return least != most or _has_choice(inner)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._folds = False

    def read(self) -> Node:
        if self._pattern.startswith("(?i)"):
            self._folds = True
            self._at = 4
        node = self._either()
        if self._at < len(self._pattern):
            raise PatternError("a closing parenthesis without an opening one", self._at)
        return node

    def _either(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError(f"more than {_MAX_DEPTH} levels of parentheses", self._at)
        parts = [self._sequence()]
        while self._next == "|":
            self._at += 1
            parts.append(self._sequence())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._next and self._next not in "|)":
            parts.append(self._repeated(self._one()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        if self._next == "?":  # which of the matches is found first does not matter here
            self._at += 1
        elif self._next == "+":
            raise PatternError("possessive repetition is not supported", self._at)
        return Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        char = self._next
        if char in ("*", "+", "?"):
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        matched = re.compile(r"\{(\d*)(,?)(\d*)\}", re.ASCII).match(self._pattern, self._at)
        if matched is None or not (matched[1] or matched[3]):
            return None
        start, self._at = self._at, matched.end()
        least = int(matched[1] or 0)
        most = least if not matched[2] else int(matched[3]) if matched[3] else None
        if max(least, most or 0) > _MAX_REPEATS:
            raise PatternError(f"use at most {_MAX_REPEATS} repetitions", start)
        return least, most

    def _one(self) -> Node:
        start, char = self._at, self._next
        self._at += 1
        if char == ".":
            return Chars(_only("\n"), negated=True)
        if char in "^$":
            return Transition(char == "$")
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape(in_class=False)
        if char == "(":
            if self._pattern.startswith("?:", self._at):
                self._at += 2
            elif self._next == "?":
                raise PatternError("only the groups (?:...) are supported, and (?i) at the beginning", start)
            inner = self._either()
            if self._next != ")":
                raise PatternError("an opening parenthesis without a closing one", start)
            self._at += 1
            return inner
        return self._folded(_only(char))

    def _escape(self, *, in_class: bool) -> Chars | Transition:
        start, char = self._at - 1, self._next
        self._at += 1
        if char.lower() in _CLASSES:
            return Chars(_CLASSES[char.lower()], negated=char.isupper())
        if char in _CONTROL:
            return Chars(_only(_CONTROL[char]))
        if char in "AZ" and not in_class:
            return Transition(char == "Z")
        if char.isalnum():
            raise PatternError(f"\\{char} is not supported", start)
        return self._folded(_only(char))

    def _class(self) -> Chars:
        negated = self._next == "^"
        self._at += negated
        found: list[tuple[int, int]] = []
        first = True
        while first or self._next != "]":
            first = False
            found += self._range()
        self._at += 1
        return Chars(self._folded(_joined(found)).ranges, negated)

    def _range(self) -> Ranges:
        start = self._at
        low = self._member()
        if self._next != "-" or self._pattern[self._at + 1 : self._at + 2] in ("", "]") or not _is_one(low):
            return low
        self._at += 1
        high = self._member()
        if not _is_one(high):
            raise PatternError("a range needs two characters", start)
        return ((low[0][0], high[0][0]),)

    def _member(self) -> Ranges:
        start, char = self._at, self._next
        self._at += 1
        if char != "\\":
            return _only(char)
        found = self._escape(in_class=True)
        if isinstance(found, Transition) or found.negated:
            raise PatternError("that has no meaning inside brackets", start)
        return found.ranges

    def _folded(self, ranges: Ranges) -> Chars:
        if not self._folds:
            return Chars(ranges)
        upper = [(max(low, 65) + _CASE, min(high, 90) + _CASE) for low, high in ranges if low <= 90 and high >= 65]
        lower = [(max(low, 97) - _CASE, min(high, 122) - _CASE) for low, high in ranges if low <= 122 and high >= 97]
        return Chars(_joined([*ranges, *upper, *lower]))

    @property
    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]


def _only(char: str) -> Ranges:
    return ((ord(char), ord(char)),)


def _is_one(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def _source(node: Node) -> str:
    """The same for Python's engine, without what it reads differently: its ``$`` is also before a last newline."""
    match node:
        case Chars(ranges, negated):
            if not negated and _is_one(ranges):
                return re.escape(chr(ranges[0][0]))
            inside = "".join(_range_source(low, high) for low, high in ranges)
            return f"[{'^' if negated else ''}{inside}]"
        case Transition(end):
            return r"\Z" if end else r"\A"
        case Sequence(parts):
            return "".join(_source(part) for part in parts)
        case Either(parts):
            return f"(?:{'|'.join(_source(part) for part in parts)})"
        case Repeat(inner, least, most):
            return f"(?:{_source(inner)}){{{least},{'' if most is None else most}}}"


def _range_source(low: int, high: int) -> str:
    ends = [re.escape(chr(each)) if chr(each) in r"\]^-[&~|" else chr(each) for each in (low, high)]
    return ends[0] if low == high else "-".join(ends)


def _size(node: Node) -> int:
    match node:
        case Chars() | Transition():
            return 1
        case Sequence(parts):
            return sum(_size(part) for part in parts) + 1
        case Either(parts):
            return sum(_size(part) + 2 for part in parts)
        case Repeat(inner, least, most):
            return (_size(inner) + 2) * max(least + 1 if most is None else most, 1)


@dataclass(slots=True)
class _Step:
    """One step of a program: take a character (``chars``), stand at an edge, or go on at any of ``to``."""

    to: tuple[int, ...] = ()
    chars: Chars | None = None
    edge: Transition | None = None


class _State:
    """Where all ways through the program are after some characters."""

    __slots__ = ("at_end", "found", "next", "steps")

    def __init__(self, steps: frozenset[int], *, found: bool, at_end: bool) -> None:
        self.steps = steps
        self.found = found
        self.at_end = at_end
        self.next: dict[str, _State] = {}


class Automaton:
    """Searches in one pass, whatever the pattern: the states that occur are made once and remembered."""

    def __init__(self, node: Node) -> None:
        self._program: list[_Step] = [_Step()]  # the first is the end: the pattern was found
        self._entry = self._compile(node, 0)
        self._states: dict[frozenset[int], _State] = {}
        self._held = 0  # steps and transitions of these states
        self._work = 0  # steps that were visited so far
        self._again = self._closure([self._entry], at_start=False)
        begin = self._closure([self._entry], at_start=True)
        self._start = _State(begin, found=0 in begin, at_end=self._ends(begin, at_start=True))

    def search(self, text: str) -> bool:
        state = self._start
        for char in text:
            if state.found:
                return True
            following = state.next.get(char)
            if following is None:
                following = state.next[char] = self._after(state, char)
            state = following
        return state.found or state.at_end

    def _after(self, state: _State, char: str) -> _State:
        program = self._program
        taken = [
            each for step in state.steps if (chars := program[step].chars) is not None and chars.has(char)
            for each in program[step].to
        ]  # fmt: skip
        steps = self._closure(taken, at_start=False) | self._again
        self._work += len(state.steps) + len(steps)
        if self._work > _MAX_WORK:
            raise PatternTooExpensive
        found = self._states.get(steps)
        if found is None:
            self._held += len(steps)
            found = _State(steps, found=0 in steps, at_end=self._ends(steps, at_start=False))
        self._held += 1
        if self._held > _MAX_HELD:
            for each in self._states.values():
                each.next.clear()
            self._states.clear()
            self._start.next.clear()
            self._held = len(steps)
        self._states[steps] = found
        return found

    def _closure(self, steps: Iterable[int], *, at_start: bool, at_end: bool = False) -> frozenset[int]:
        """Everything that is reached from there without taking a character."""
        seen: set[int] = set()
        waiting = list(steps)
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            step = self._program[each]
            if step.chars is None and (step.edge is None or (at_end if step.edge.end else at_start)):
                waiting += step.to
        return frozenset(seen)

    def _ends(self, steps: frozenset[int], *, at_start: bool) -> bool:
        return 0 in self._closure(steps, at_start=at_start, at_end=True)

    def _add(self, step: _Step) -> int:
        self._program.append(step)
        return len(self._program) - 1

    def _compile(self, node: Node, then: int) -> int:
        """The step that begins with ``node`` and goes on at ``then``."""
        match node:
            case Chars():
                return self._add(_Step((then,), chars=node))
            case Transition():
                return self._add(_Step((then,), edge=node))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case Either(parts):
                return self._add(_Step(tuple(self._compile(part, then) for part in parts)))
            case Repeat(inner, least, most):
                return self._repeat(inner, least, most, then)

    def _repeat(self, inner: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self._add(_Step())
            self._program[loop].to = (self._compile(inner, loop), then)
            at = loop
        else:
            at = then
            for _ in range(most - least):
                at = self._add(_Step((self._compile(inner, at), then)))
        for _ in range(least):
            at = self._compile(inner, at)
        return at
