"""Every task has an owner: no module starts one that nobody waits for, and loops are started by supervision.

``asyncio.TaskGroup`` owns its tasks. ``shoal.base.tasks`` has the rest: ``run_all``, ``wait_first``, ``beside`` and
``OwnedTasks``. A bare ``create_task`` loses the error of its task, and a loop that ends so is a silent outage.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from arch_source import modules, nodes

STARTERS = {"create_task", "ensure_future"}
MAY_START = {"shoal.base.tasks", "shoal.base.deadline"}  # the helpers themselves; they wait for what they start


def bare_tasks(path: Path) -> Iterator[int]:
    """The lines where a task is started on the loop itself."""
    for call in nodes(path, ast.Call):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in STARTERS:
            owner = ast.unparse(function.value)
            if owner == "asyncio" or owner.split(".")[-1].removesuffix("()") in ("loop", "_loop", "get_running_loop"):
                yield call.lineno
        elif isinstance(function, ast.Name) and function.id in STARTERS:
            yield call.lineno


def test_every_task_has_an_owner() -> None:
    bare = [
        f"{module.shown}:{line}"
        for module in modules()
        if module.package != "testing" and module.name not in MAY_START
        for line in bare_tasks(module.path)
    ]
    assert not bare, "\n".join(bare)


def test_the_rule_finds_bare_tasks(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text(
        "import asyncio\n"
        "asyncio.create_task(a())\n"
        "asyncio.get_running_loop().create_task(a())\n"
        "self._loop.create_task(a())\n"
        "asyncio.ensure_future(a())\n"
        "group.create_task(a())\n"
    )
    assert list(bare_tasks(source)) == [2, 3, 4, 5]
