"""One module interprets the steps of the fleet's session machine, and the fleet's machines reach no I/O."""

from __future__ import annotations

from arch_source import imports, modules

SERVICE, RELAY = "shoal.control.service", "shoal.control.relay"
MACHINE = f"{SERVICE}.stream.protocol"
STEPS = ("Load", "Send", "Wait", "Done")
# What a machine without I/O must not reach, by whatever it imports.
WORLD = {"asyncio", "sqlalchemy", "sqlite3", "socket", "random", "connectrpc", "uvloop"}


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
