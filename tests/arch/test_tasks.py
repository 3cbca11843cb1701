"""Every task has an owner: no module starts one that nobody waits for, and loops are started by supervision.

``asyncio.TaskGroup`` owns its tasks. ``shoal.base.tasks`` has the rest: ``run_all``, ``wait_first``, ``beside`` and
``OwnedTasks``. A bare ``create_task`` loses the error of its task, and a loop that ends so is a silent outage.

The API server drives the handlers of its requests by itself and closes them (``GeneratorExit``) when a client hangs up.
The locks of asyncio pass their turn on for a cancellation only, so what handlers run waits with
``shoal.base.fair_lock``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from arch_source import Module, calls, imports, modules, nodes

STARTERS = {"create_task", "ensure_future"}
MAY_START = {"shoal.base.tasks", "shoal.base.deadline"}  # the helpers themselves; they wait for what they start

OF_ONE_REQUEST = {("shoal.rest.streams", "until_gone")}  # ends with its request
# ``supervise`` itself, and what is called like a loop elsewhere: servers whose loops are supervised, and waiting
NO_LOOPS = {"supervise", "run", "wait"}
MAY_END_THEM = {
    "_until_one_hangs": "`shoal up` ends with its children",
    "until_registered": "the start of a cluster, which fails as a whole",
    "_begin": "runs in a supervised loop",
}
TURNS = {f"asyncio.{name}" for name in ("Lock", "Condition", "Semaphore", "BoundedSemaphore")}
# Of what the API server imports: these have turns among tasks, none of them a handler of a request.
TURNS_OF_TASKS = {
    "shoal.apiserver.inprocess": "components of the process, whose calls are tasks",
    "shoal.apiserver.metrics.service": "the readers of kubelets' statistics, which are tasks of the service",
    "shoal.store.postgres.housekeeping": "the loop that deletes old rows, and compaction",
}


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


def lost_loops(path: Path) -> list[tuple[str, int]]:
    """(name, line) of each start of a loop without an end as an owned task that nobody awaits: there its error is logged
    once, and it is gone."""
    endless = endless_functions(path) - {"supervise"}
    found: list[tuple[str, int]] = []
    for call in nodes(path, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "start" and call.args:
            (work, *_), awaited = call.args, any(each.arg == "awaited" for each in call.keywords)
            if isinstance(work, ast.Call) and not awaited:
                name = ast.unparse(work.func).split(".")[-1]
                found += [(name, call.lineno)] if name in endless else []
    return found


def _waits(loop: ast.While) -> bool:
    return any(isinstance(each, ast.Await | ast.AsyncFor | ast.AsyncWith) for each in ast.walk(loop))


def test_loops_without_an_end_are_supervised() -> None:
    found = [(module, *each) for module in modules() if module.package != "testing" for each in lost_loops(module.path)]
    lost = [
        f"{module.shown}:{line}: {name}" for module, name, line in found if (module.name, name) not in OF_ONE_REQUEST
    ]
    assert not lost, "use shoal.base.supervision: " + ", ".join(lost)
    assert {(module.name, name) for module, name, _ in found} == OF_ONE_REQUEST, "no longer needed"


def endless_functions(path: Path) -> set[str]:
    """The coroutine functions of a module that loop without an end."""
    loops = {loop for loop in nodes(path, ast.While) if isinstance(loop.test, ast.Constant) and _waits(loop)}
    functions = nodes(path, ast.AsyncFunctionDef) if loops else []
    return {function.name for function in functions if not loops.isdisjoint(ast.walk(function))}


def fatal_loops(path: Path, endless: set[str]) -> Iterator[tuple[str, int]]:
    """(name, line) of loops whose first failure ends what they run beside: the process, where it is its outermost wait."""
    for call in nodes(path, ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id == "wait_first":
            for part in call.args:
                if isinstance(part, ast.Call) and (name := ast.unparse(part.func).split(".")[-1]) in endless:
                    yield name, part.lineno


def test_a_fault_of_a_loop_ends_no_process() -> None:
    endless = set[str]().union(*(endless_functions(module.path) for module in modules())) - NO_LOOPS
    found = [
        (module, *each) for module in modules() if module.package == "app" for each in fatal_loops(module.path, endless)
    ]
    fatal = [f"{module.shown}:{line}: {name}" for module, name, line in found if name not in MAY_END_THEM]
    assert not fatal, "use shoal.base.supervision: " + ", ".join(fatal)
    assert {name for _, name, _ in found} == set(MAY_END_THEM), "no longer needed"


def test_the_rule_finds_loops_that_end_their_process(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(
        "async def sweep(self):\n    while True:\n        await self.turn()\n"
        "async def main(self):\n    await wait_first(self.sweep(), stop.wait(), supervise('sweep', self.sweep))\n"
    )
    assert endless_functions(path) == {"sweep"}
    assert list(fatal_loops(path, {"sweep"})) == [("sweep", 5)]


def test_the_rule_finds_lost_loops(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(
        "async def run(self):\n    while True:\n        await self.turn()\n"
        "async def once(self):\n    await self.turn()\n"
        "tasks.start(self.run(), name='a')\n"
        "tasks.start(self.once(), name='b')\n"
        "tasks.start(run(), name='c', awaited=True)\n"
        "loops.start('d', self.run)\n"
        "tasks.start(supervise('e', self.run), name='e')\n"
    )
    assert lost_loops(path) == [("run", 6)]


def run_by_handlers() -> list[Module]:
    """The modules of the API server, and all that they import."""
    known = {module.name: module for module in modules()}
    waiting = [name for name in known if name.startswith("shoal.apiserver")]
    found = dict[str, Module]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = known[name]
            waiting += [other for other, _ in imports(known[name], with_typing=False) if other in known]
    return list(found.values())


def turns(module: Module) -> list[int]:
    """The lines where a lock of asyncio, or the like, is made."""
    return [line for name, line in calls(module) if name in TURNS]


def test_handlers_wait_for_locks_that_pass_on_when_they_are_closed() -> None:
    found = {module.name: turns(module) for module in run_by_handlers()}
    assert len(found) > 300 and "shoal.store.group" in found, "what handlers run was not found"
    wrong = [f"{name}:{line}" for name, lines in found.items() if name not in TURNS_OF_TASKS for line in lines]
    assert not wrong, "use shoal.base.fair_lock: " + ", ".join(wrong)
    assert not [name for name in TURNS_OF_TASKS if not found[name]], "no longer needed"


def test_the_rule_finds_locks(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(
        "import asyncio\nfrom asyncio import Semaphore as S\na = asyncio.Lock()\nb = S(3)\nc = asyncio.Event()\n"
    )
    assert turns(Module("shoal.source", path)) == [3, 4]


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
