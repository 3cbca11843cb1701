"""What is shown while ``shoal up`` starts."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from shoal.app.start_display import LiveDisplay, PlainDisplay, shown
from shoal.base.clock import FakeClock


async def test_in_a_pipe_each_part_has_a_line_for_its_begin_and_one_for_its_end(clock: FakeClock) -> None:
    said: list[str] = []
    display = PlainDisplay(said.append, clock)
    with shown(display, "the control plane"):
        await clock.advance(1.5)
    with pytest.raises(ValueError, match="broken"), shown(display, "the navigator"):
        raise ValueError("broken")
    display.close()
    assert said == ["starting the control plane", "the control plane is ready after 1.5 s", "starting the navigator"]


async def test_on_a_terminal_parts_that_are_ready_have_a_mark_and_their_time(clock: FakeClock) -> None:
    out = io.StringIO()
    display = LiveDisplay(clock, Console(file=out, force_terminal=True, width=60, color_system=None))
    with shown(display, "the control plane"):
        await clock.advance(2)
    display.begin("the navigator")
    await clock.advance(3)
    display.close()
    display.close()  # once more at the end of the start
    last = out.getvalue().replace("\x1b[2K", "").splitlines()[-3:]
    assert any("✓ the control plane 2.0 s" in line for line in last)
    assert any("the navigator" in line and "3.0 s" in line and "✓" not in line for line in last)
