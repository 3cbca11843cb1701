"""Runs tests that are coroutine functions, each on an event loop of its own."""

from __future__ import annotations

import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
async def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames  # as pytest's own implementation of this hook
    await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    return True
