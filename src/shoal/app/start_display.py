"""What ``shoal up`` shows while it starts: a line per part that moves on a terminal, and plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from shoal.base.clock import Clock

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


class StartDisplay(Protocol):
    def begin(self, part: str) -> None: ...

    def done(self, part: str) -> None: ...

    def close(self) -> None:
        """Nothing changes any more."""


@contextmanager
def shown(display: StartDisplay, part: str) -> Iterator[None]:
    """Show that a part starts, and, once the block is left without an error, that it is ready."""
    display.begin(part)
    yield
    display.done(part)


class PlainDisplay:
    """Two lines for each part."""

    def __init__(self, say: Callable[[str], object], clock: Clock) -> None:
        self._say = say
        self._clock = clock
        self._began: dict[str, float] = {}

    def begin(self, part: str) -> None:
        self._began[part] = self._clock.monotonic()
        self._say(f"starting {part}")

    def done(self, part: str) -> None:
        self._say(f"{part} is ready after {self._clock.monotonic() - self._began[part]:.1f} s")

    def close(self) -> None:
        pass


class LiveDisplay:
    """A line for each part, with its time, on a terminal."""

    def __init__(self, clock: Clock, console: Console | None = None) -> None:
        from rich.console import Console  # a terminal is the exception: servers need not load it
        from rich.live import Live
        from rich.spinner import Spinner

        self._clock = clock
        self._spinner = Spinner("dots", style="cyan")
        self._parts: dict[str, tuple[float, float | None]] = {}  # when it began, and how long it took
        self._live = Live(
            console=console or Console(), get_renderable=self._table, refresh_per_second=8, transient=False
        )

    def begin(self, part: str) -> None:
        self._live.start()  # the first time
        self._parts[part] = (self._clock.monotonic(), None)

    def done(self, part: str) -> None:
        began = self._parts[part][0]
        self._parts[part] = (began, self._clock.monotonic() - began)

    def close(self) -> None:
        self._live.stop()

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        for part, (began, took) in list(self._parts.items()):
            mark = self._spinner if took is None else Text("✓", style="green")
            seconds = self._clock.monotonic() - began if took is None else took
            table.add_row(mark, part, Text(f"{seconds:.1f} s", style="dim"))
        return table
