"""Logs of containers: the engine's stream, limited to the requested range."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

from shoal.node.runtime.docker.engine import Engine, EngineError, EngineGone
from shoal.node.runtime.docker.frames import LogLines
from shoal.node.runtime.model import LogOptions, LogRecord, NoSuchContainer, OutputStream


async def read_log(
    engine: Engine, container_id: str, options: LogOptions, *, terminal: bool
) -> AsyncIterator[tuple[LogRecord, ...]]:
    """Records in batches. The engine counts ``tail`` over both streams; for a single stream it is counted here."""
    if options.tail == 0 and not options.follow:
        return
    split = options.tail is not None and options.streams != frozenset(OutputStream)
    skip = 0
    if split and options.tail is not None:
        last: deque[LogRecord] = deque(maxlen=options.tail)
        count = 0
        async for batch in _records(engine, container_id, options, terminal=terminal, tail=None, follow=False):
            last.extend(batch)
            count += len(batch)
        if not options.follow:
            if last:
                yield tuple(last)
            return
        skip = count - len(last)
    tail = None if split else options.tail
    async for batch in _records(engine, container_id, options, terminal=terminal, tail=tail, follow=options.follow):
        rest = batch[skip:]
        skip -= len(batch) - len(rest)
        if rest:
            yield rest


async def _records(
    engine: Engine, container_id: str, options: LogOptions, *, terminal: bool, tail: int | None, follow: bool
) -> AsyncIterator[tuple[LogRecord, ...]]:
    query = {
        "follow": follow, "timestamps": True, "tail": "all" if tail is None else str(tail),
        "stdout": terminal or OutputStream.STDOUT in options.streams, "stderr": OutputStream.STDERR in options.streams,
        "since": str(options.since_ns // 1_000_000_000) if options.since_ns else None,
    }  # fmt: skip
    lines = LogLines(terminal=terminal)

    def wanted(record: LogRecord) -> bool:
        return record.at_ns >= options.since_ns and record.stream in options.streams

    try:
        async with engine.stream("GET", "containers", container_id, "logs", query=query) as answer:
            while data := await answer.read():
                if batch := tuple(filter(wanted, lines.feed(data))):
                    yield batch
            if batch := tuple(filter(wanted, lines.end())):
                yield batch
    except EngineError as error:
        if error.missing:
            raise NoSuchContainer(f"container {container_id} not found") from error
        raise
    except EngineGone:
        if not engine.closed:
            raise
