"""A fuzzer for code that reads what strangers send: mutated inputs, a limit on time per byte, and a limit on memory.

    await fuzz(FuzzTarget("selectors", run, seeds=(b"a in (b,c)",), allowed=(BadRequest,)), inputs=10_000, seed=1)

Everything follows from the seed, so a failure is replayed by the seed and the number of the input that the message names. An
input may raise only the errors that the target allows. It may take 100 ms of processor time for each 100 KB, measured again
before it counts, since a collection of garbage or another thread may have been in the way.
"""

from __future__ import annotations

import gc
import inspect
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import orjson

from shoal.testing.tally import TALLY

_SLOWEST_S = 0.1  # for up to 100 KB
_PIECE = 100_000
_MEMORY = 64 << 20  # more than this must not be left after all inputs
_LONGEST = 300_000
_BYTES = (
    b"\0",
    b"\xff",
    b"\x80",
    b"\n",
    b"\r\n",
    b'"',
    b"'",
    b"\\",
    b"(",
    b")",
    b"[",
    b"]",
    b"{",
    b"}",
    b"<",
    b"<!--",
    b",",
    b":",
)
_NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 1e308, 0.1)
_VALUES: tuple[Any, ...] = (None, True, "", "a" * 300, "\0", "ü" * 50, [], {}, [[[[]]]], {"": {"": ""}}, *_NUMBERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTarget:
    """``run`` reads one input; it may be a coroutine function. ``tokens`` are pieces that inputs of this kind consist of."""

    name: str
    run: Callable[[bytes], Any]
    seeds: Sequence[bytes]
    allowed: tuple[type[BaseException], ...]
    tokens: Sequence[bytes] = ()
    bounded: bool = True  # False: its cost is limited by other means, and its time is not measured


async def fuzz(target: FuzzTarget, *, inputs: int, seed: int) -> None:
    """Run ``inputs`` inputs; raises ``AssertionError`` that names the first one that breaks a rule."""
    random = Random(f"{target.name}/{seed}")
    for data in target.seeds:
        await _run(target, data, f"{target.name}: the seed {data[:80]!r}")
    gc.collect()
    before = _resident()
    for number in range(inputs):
        data = mutate(random, target.seeds, target.tokens)
        await _run(target, data, f"{target.name}, seed {seed}, input {number} ({len(data)} bytes, {data[:200]!r})")
    gc.collect()
    grown = _resident() - before
    TALLY.checked += inputs
    TALLY.seeds.add(str(seed))
    assert grown < _MEMORY, f"{target.name}, seed {seed}: {grown >> 20} MiB are left after {inputs} inputs"


async def _run(target: FuzzTarget, data: bytes, where: str) -> None:
    limit_s = max(1.0, len(data) / _PIECE) * _SLOWEST_S
    taken_s = await _timed(target, data, where)
    if target.bounded and taken_s > limit_s:
        taken_s = min(taken_s, await _timed(target, data, where), await _timed(target, data, where))
        assert taken_s <= limit_s, f"{where}: took {taken_s:.2f} s of processor time"


async def _timed(target: FuzzTarget, data: bytes, where: str) -> float:
    begun_s = time.thread_time()
    try:
        result = target.run(data)
        if inspect.isawaitable(result):
            await result
    except target.allowed:
        pass
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    return time.thread_time() - begun_s


def mutate(random: Random, seeds: Sequence[bytes], tokens: Sequence[bytes] = ()) -> bytes:
    """A seed with some changes; if it is JSON, sometimes changed as a document."""
    data = random.choice(seeds)
    if data[:1] in b"{[" and random.random() < 0.6:
        data = _mutate_json(random, data)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 8))):
        data = _mutate_bytes(random, data, seeds, tokens)
    return data[:_LONGEST]


def _mutate_bytes(random: Random, data: bytes, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice((1, 2, 4, 16, 64)))
    piece = random.choice(tokens) if tokens and random.random() < 0.6 else random.choice(_BYTES)
    match random.randrange(7):
        case 0:
            return data[:at] + piece + data[at:]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + random.randbytes(random.choice((1, 2, 4))) + data[end:]
        case 3:
            return data[:at] + data[at:end] * random.choice((2, 10, 100)) + data[end:]
        case 4:
            return data[:at] + piece * random.choice((10, 1000, 20_000)) + data[at:]
        case 5:
            other = random.choice(seeds)
            return data[:at] + other[random.randrange(len(other) + 1) :]
        case _:
            return data[:at] + str(random.choice(_NUMBERS)).encode() + data[end:]


def _mutate_json(random: Random, data: bytes) -> bytes:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    for _ in range(random.choice((1, 1, 2, 4))):
        document = _replaced(random, document)
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:  # a number that is too large for it
        return repr(document).encode()


def _replaced(random: Random, value: Any) -> Any:
    """The document with one part, found by a random walk, changed."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        if random.random() < 0.1:
            return {**value, random.choice(("", "$patch", "metadata", "\0", "a" * 300)): random.choice(_VALUES)}
        return {**value, key: _replaced(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        if random.random() < 0.1:
            return value * random.choice((2, 50))
        return [*value[:at], _replaced(random, value[at]), *value[at + 1 :]]
    return random.choice(_VALUES)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
