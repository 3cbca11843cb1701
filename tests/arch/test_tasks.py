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
# Modules that have not been converted yet. No module is added here.
NOT_YET = """
shoal.app.cluster
shoal.app.components
shoal.app.sharding.manager
shoal.base.asgi
shoal.base.connect
shoal.base.http1.server
shoal.control.database.engine
shoal.control.relay.service
shoal.control.service.calls
shoal.control.service.region
shoal.krane.cache
shoal.krane.controller
shoal.krane.heartbeats
shoal.krane.stream
shoal.navigator.edge.mesh.watching
shoal.navigator.edge.requests.pool
shoal.navigator.manager.service
shoal.rest.streams
shoal.sentinel.service
shoal.sentinel.supervisor
shoal.sentinel.xds.server
shoal.sharding.manager.sweep
shoal.sharding.manager.sweeper
shoal.sharding.proxy.reading
shoal.sharding.worker.moving
shoal.sharding.worker.slot_cache
shoal.sharding.worker.worker
"""


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
    found = {
        module.name: [f"{module.shown}:{line}" for line in bare_tasks(module.path)]
        for module in modules()
        if module.package != "testing" and module.name not in MAY_START
    }
    bare = {name: lines for name, lines in found.items() if lines}
    new = [line for name, lines in bare.items() if name not in NOT_YET.split() for line in lines]
    assert not new, "\n".join(new)
    assert set(NOT_YET.split()) == set(bare), "NOT_YET names modules that start no bare task any more"


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
