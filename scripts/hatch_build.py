"""Puts into a wheel what a checkout has beside the code: the compiled Kubernetes schema tables, and the examples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelFiles(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # set-up compiles them, and they may be compiled again at any time
            return
        build_data["force_include"][str(Path(self.root) / "examples")] = "shoal/examples"
        # In this process: one started from here would not see the packages of an isolated build.
        sys.path.insert(0, str(Path(self.root) / "src"))
        from shoal.kube.schema.compile import compile_tables

        compile_tables()
