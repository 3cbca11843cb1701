"""The parts of the cluster service import downwards only, its machine is pure, and one module interprets its steps."""

from __future__ import annotations

from arch_source import Module, imports, modules

SERVICE, RELAY = "shoal.control.service", "shoal.control.relay"
# A part imports only lower levels; modules of the service itself (the calls, the wiring) stand above all of them.
LEVEL = {"config": 0, "metrics": 0, "garbage": 0, "desired": 1, "stream": 2, "agents": 3, "reports": 4}
TOP = 5
MACHINE = f"{SERVICE}.stream.protocol"
STEPS = ("Load", "Send", "Wait", "Done")
# What a machine without I/O must not reach, by whatever it imports.
WORLD = {"asyncio", "sqlalchemy", "sqlite3", "socket", "random", "connectrpc", "uvloop"}


def part_of(name: str) -> str:
    return name.removeprefix(f"{SERVICE}.").split(".")[0]


def level_of(name: str) -> int:
    return LEVEL.get(part_of(name), TOP)


def service() -> list[Module]:
    return [module for module in modules() if module.name.startswith(f"{SERVICE}.")]


def test_the_parts_of_the_service_import_downwards_only() -> None:
    wrong = [
        f"{module.shown}:{line} imports {name}"
        for module in service()
        for name, line in imports(module)
        if name.startswith(f"{SERVICE}.") and part_of(name) != part_of(module.name)
        if level_of(name) >= level_of(module.name) and level_of(module.name) != TOP
    ]
    assert not wrong, "\n".join(wrong)


def test_the_relay_stands_on_the_service_and_not_the_other_way_round() -> None:
    wrong = [
        f"{module.shown}:{line} imports {name}"
        for module in service()
        for name, line in imports(module)
        if name.startswith(RELAY)
    ]
    assert not wrong, "\n".join(wrong)


def test_one_module_interprets_the_steps_of_a_session() -> None:
    steps = {f"{MACHINE}.{step}" for step in STEPS}
    found = {module.name for module in modules() for name, _ in imports(module) if name in steps}
    assert found == {f"{SERVICE}.stream.driver"}


def test_the_machines_of_the_fleet_reach_nothing_that_waits() -> None:
    known = {module.name: module for module in modules()}
    for machine in (MACHINE, f"{RELAY}.protocol", "shoal.krane.protocol"):
        reached, left = set[str](), [machine]
        while left:
            name = left.pop()
            for imported, _ in imports(known[name], with_typing=False):
                if imported not in reached:
                    reached.add(imported)
                    left += [imported] if imported in known else []
        assert not {name for name in reached if name.split(".")[0] in WORLD}, machine
