"""Temporary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.control.rollout.strategy import Strategy


def strategy_of(app: Mapping[str, Any], environment: Mapping[str, Any]) -> Strategy:
    return Strategy()
