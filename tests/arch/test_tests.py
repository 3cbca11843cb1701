"""Rules about the tests themselves.

Async tests are coroutine functions; a unit test is found by the name of the module it tests; no test sleeps to wait for
something, and no test reaches for private names of another module.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from arch_source import ROOT, SRC, dotted, nodes, tree

TESTS = ROOT / "tests"
UNIT = TESTS / "unit"
NUMBERED = re.compile(r"test_[nur]\d{1,2}_")
RUNNERS = {"asyncio.run", "uvloop.run"}
SLEEPS = {"asyncio.sleep", "time.sleep", "anyio.sleep"}
# Functions that let real time pass because time is what they are about, by the reason. Everything that waits for a
# condition uses `eventually` of shoal.testing.waiting.
MAY_SLEEP = {
    "the moment of a fault, or how long it lasts": """
        chaos/shard_chaos.py::World.kill
        chaos/shard_chaos.py::World.pause
        chaos/shard_chaos.py::World.cut
        chaos/shard_chaos.py::World.hurt_manager
        chaos/test_chaos_processes.py::test_many_kills_in_a_row_lose_nothing
        chaos/test_fleet_history.py::History._half_open
        chaos/test_fleet_history.py::History._kill
        chaos/test_scenarios.py::test_partition_of_a_region
        chaos/test_fleet_matrix.py::test_a_fleet_survives_every_fault_in_any_order
        chaos/test_navigator.py::test_killing_at_any_moment_converges
        chaos/test_sharding.py::hurt_workers
        chaos/test_sharding.py::hurt_managers
        chaos/test_sharding.py::change_size
        chaos/test_sharding.py::test_no_fault_breaks_exclusion_or_loses_an_object.everything
        cluster/controllers/test_replicaset.py::_killed_while_creating
        cluster/several_servers.py::nothing
        cluster/several_servers.py::redis_away
        cluster/several_servers.py::stream_emptied
        cluster/several_servers.py::transaction_held_open
        cluster/test_components.py::test_whatever_is_killed_under_load_the_cluster_converges
        cluster/test_concurrency.py::test_a_namespace_deleted_under_creates_leaves_no_orphans
        cluster/test_concurrency.py::test_a_definition_deleted_under_creates_leaves_no_orphans
        contract/test_fleet_database.py::test_cancelling_at_any_moment_leaves_a_database_that_works
        contract/test_store_shared.py::test_a_commit_whose_connection_broke_is_done_once_and_gets_its_result
        contract/test_store_shared.py::test_whatever_breaks_no_write_is_lost_doubled_or_seen_out_of_order
    """,
    "the pace of load": """
        cluster/fleet/test_fleet_adopt.py::always_served
        chaos/shard_chaos.py::World.rewrite
        chaos/test_fleet_history.py::History.keep_changing
        cluster/krane/test_silent_gateways.py::writing.write
        cluster/navigator_edge/navigator_processes.py::Writer.run
        cluster/node/test_service_addresses.py::Traffic.run
        cluster/sentinel/gateway_world.py::steady_load.ask
        cluster/several_servers.py::Load._find_out
        cluster/several_servers.py::Load._watch
        cluster/sharding/example_trial.py::Sites._write
        cluster/test_components.py::keep_scaling
        cluster/test_retry_storm.py::sampled
        cluster/test_retry_storm.py::weather
        contract/test_fleet_database.py::test_transactions_do_not_see_each_other_half_done.add
        contract/test_fleet_database.py::test_whoever_follows_the_numbers_misses_nothing.write
    """,
    "the period of a simulated component": """
        chaos/shard_chaos.py::Kubelet.run
        chaos/shard_chaos.py::Watch._look
        cluster/sharding/shard_world.py::Worker._run
        cluster/sharding/shard_world.py::Worker._acquire
        cluster/sharding/shard_world.py::PodWorkers._run
        cluster/watch_mirror.py::Mirror.run
        contract/test_navigator_service.py::test_a_standby_takes_over_within_a_second_of_the_end_of_the_grace_period.takeover_s
    """,
    "a peer that is slow": """
        chaos/shard_process.py::item
        cluster/controllers/lagging.py::_LateReply.chunks
        cluster/controllers/test_replicaset.py::LaggingStream.chunks
        cluster/sentinel/gateway_world.py::Instance._serve
        cluster/sentinel/test_translate_envoy.py::test_requests_without_an_instance_are_refused_with_codes_of_their_own.slow
        cluster/sentinel/test_translate_envoy.py::test_headers_that_do_not_come_in_time_end_the_connection_and_slow_answers_do_not.slow
        cluster/sharding/published_websites.py::published
        cluster/watch_mirror.py::Mirror._stream
        conformance/conformance_webhooks.py::_late
    """,
    "a time in which nothing happens is measured": """
        cluster/fleet/test_fleet_idle.py::test_an_idle_agent_with_a_hundred_objects_is_small_and_quiet
        cluster/krane/test_silent_gateways.py::test_a_silent_pod_leaves_its_service_is_named_and_not_waited_for_until_it_is_heard
        cluster/test_node_proxy.py::test_a_proxied_response_is_read_only_as_fast_as_the_client_reads
    """,
    "kopf closes its connections after its operator has ended, and says nothing when it has": """
        clients/test_kopf.py::running.operator
    """,
}
# Underscored names that are public: of named tuples, and of other libraries.
PUBLIC_UNDERSCORES = {
    "_replace",
    "_fields",
    "_asdict",
    "_make",
    "_continue",
    "_session",
    "_hypothesis_internal_use_settings",
}


def test_no_test_function_runs_a_loop_of_its_own() -> None:
    wrong = [f"{path.relative_to(ROOT)}:{line}" for path in sorted(TESTS.rglob("test_*.py")) for line in loops(path)]
    assert not wrong, "make the test an `async def`:\n" + "\n".join(wrong)


def test_the_tests_of_a_group_stay_on_one_worker(request: pytest.FixtureRequest) -> None:
    grouped = request.config.getoption("loadgroup", False)  # set by pytest-xdist in its workers
    assert not grouped or request.node.nodeid.endswith("@arch"), "pytest-xdist does not see the groups of this pytest"


def test_no_file_is_named_after_a_review() -> None:
    assert not sorted(TESTS.rglob("test_review_*.py")), "name the file after the module or the guarantee that it tests"


def test_no_test_is_named_by_the_number_of_a_rule() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in functions(path)
        if NUMBERED.match(node.name)
    ]
    assert not wrong, "a test's name is the guarantee:\n" + "\n".join(wrong)


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [*nodes(path, ast.FunctionDef), *nodes(path, ast.AsyncFunctionDef)]


def lines_of_calls(path: Path, names: set[str]) -> list[int]:
    return [node.lineno for node in nodes(path, ast.Call) if dotted(node.func) in names]


def loops(path: Path) -> Iterator[int]:
    """The lines on which a test function runs an event loop."""
    for line in lines_of_calls(path, RUNNERS):
        around = [each for each in functions(path) if each.lineno <= line <= (each.end_lineno or 0)]
        if any(function.name.startswith("test_") for function in around):
            yield line


def test_a_loop_in_a_test_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("def test_a():\n    asyncio.run(main())\n\n\ndef helper():\n    asyncio.run(main())\n")
    assert list(loops(path)) == [2]


def mirrored(test: Path, unit: Path = UNIT, source: Path = SRC / "shoal") -> bool:
    """Whether the name of a unit test leads to a module or package: ``test_[FOLDER_]MODULE[_ASPECT].py`` in its folder,
    or ``test_FOLDER[_ASPECT].py`` for the package itself."""
    folder = source / test.relative_to(unit).parent
    words = test.stem.removeprefix("test_").split("_")
    own = folder.name.split("_")
    if words[: len(own)] == own:
        return folder.is_dir()
    heads = ("_".join(words[:n]) for n in range(1, len(words) + 1))
    return any((folder / f"{head}.py").is_file() or (folder / head).is_dir() for head in heads)


def test_unit_tests_mirror_the_source() -> None:
    wrong = [str(path.relative_to(ROOT)) for path in sorted(UNIT.rglob("test_*.py")) if not mirrored(path)]
    assert not wrong, "name the file after the module or package that it tests:\n" + "\n".join(wrong)


def test_a_test_of_no_module_is_found(tmp_path: Path) -> None:
    source, unit = tmp_path / "src", tmp_path / "unit"
    (source / "node" / "pods").mkdir(parents=True)
    (source / "node" / "config.py").touch()
    names = "test_config.py test_config_errors.py test_pods_order.py test_node_start.py test_whatever.py".split()
    assert [name for name in names if not mirrored(unit / "node" / name, unit, source)] == ["test_whatever.py"]
    assert not mirrored(unit / "gone" / "test_gone.py", unit, source)


def sleeps(path: Path) -> Iterator[tuple[str, int]]:
    """(function, line) of every call that lets real time pass; ``sleep(0)`` only lets other tasks run."""

    def inside(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from inside(child, f"{name}.{child.name}" if name else child.name)
                continue
            if isinstance(child, ast.Call) and dotted(child.func) in SLEEPS and ast.unparse(child.args[0]) != "0":
                yield name, child.lineno
            yield from inside(child, name)

    return inside(tree(path), "") if lines_of_calls(path, SLEEPS) else iter(())


def test_no_test_sleeps_to_wait_for_something() -> None:
    found = {
        f"{path.relative_to(TESTS)}::{function}": line
        for path in sorted(TESTS.rglob("*.py"))
        for function, line in sleeps(path)
    }
    may = {place for places in MAY_SLEEP.values() for place in places.split()}
    wrong = [f"{place} (line {line})" for place, line in found.items() if place not in may]
    assert not wrong, "wait with `eventually`, or advance a fake clock:\n" + "\n".join(wrong)
    assert not may - set(found), "these do not sleep any more: take them off MAY_SLEEP"


def private_names(path: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of every private name of another module that a test uses. Names that the file itself defines, and
    those of ``self`` and ``super()``, are its own."""
    private = [node for node in nodes(path, ast.Attribute) if _is_private(node.attr)]
    own = {node.attr for node in private if dotted(node.value) == "self"} | PUBLIC_UNDERSCORES
    own |= {node.name for node in (*functions(path), *nodes(path, ast.ClassDef))}
    for node in private:
        if node.attr not in own and ast.unparse(node.value) not in ("self", "cls", "super()"):
            yield node.lineno, ast.unparse(node)
    for imported in nodes(path, ast.ImportFrom):
        yield from ((imported.lineno, alias.name) for alias in imported.names if _is_private(alias.name))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_test_reaches_for_private_names_of_another_module() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, name in private_names(path)
    ]
    assert not wrong, "test through the public surface:\n" + "\n".join(wrong)


def test_sleeps_and_private_names_are_found(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        "from shoal.a import _b\n"
        "async def test_a(c):\n"
        "    await asyncio.sleep(0)\n"
        "    await asyncio.sleep(0.1)\n"
        "    c._hidden, c._replace(a=1)\n"
        "class D:\n"
        "    def e(self):\n"
        "        self._mine = 1\n"
        "        time.sleep(1)\n"
        "        D()._mine\n"
    )
    assert list(sleeps(path)) == [("test_a", 4), ("D.e", 9)]
    assert sorted(private_names(path)) == [(1, "_b"), (5, "c._hidden")]


@pytest.mark.parametrize(("failing", "expected"), [("none", 0), ("chaos and not alone", 2), ("chaos and alone", 2)])
def test_both_parts_of_make_chaos_run_and_either_makes_it_fail(tmp_path: Path, failing: str, expected: int) -> None:
    """The first part once failed for weeks, and nobody saw whether the second part passed."""
    runs = tmp_path / "runs"
    stand_in = tmp_path / "pytest"
    stand_in.write_text(f'#!/bin/sh\necho "$*" >> {runs}\ncase "$*" in *"{failing}"*) exit 1 ;; esac\n')
    stand_in.chmod(0o755)
    done = subprocess.run(
        ["make", "--old-file=setup", "chaos", f"PYTEST={stand_in}"], cwd=ROOT, capture_output=True, check=False
    )
    chosen = [line.partition(" -m ")[2] for line in runs.read_text().splitlines()]
    assert chosen == ["chaos and not alone", "chaos and alone"]
    assert done.returncode == expected, done.stderr
    assert b" operations checked, 0 violations" in done.stdout, "the sum of both parts"


def test_errors_that_an_event_loop_reports_fail_a_test(tmp_path: Path) -> None:
    """Errors of tasks and futures that nobody looked at once went unseen for as long as there was a store."""
    (tmp_path / "test_lost.py").write_text(
        "import asyncio\n"
        "async def fails(): raise ValueError('lost')\n"
        "async def main(): asyncio.ensure_future(fails()); await asyncio.sleep(0)\n"
        "def test_of_a_task(): asyncio.run(main())\n"
        "def test_of_a_cycle():\n"
        "    future = asyncio.new_event_loop().create_future()\n"
        "    future.get_loop().close()\n"
        "    future.set_exception(ValueError('kept'))\n"
        "    held = [future]\n"
        "    held.append(held)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "2 passed, 2 errors" in done.stdout, done.stdout + done.stderr
    assert "Task exception was never retrieved" in done.stdout and "ValueError('kept')" in done.stdout
