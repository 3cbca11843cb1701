"""Puts into a wheel what a checkout has beside the code: the compiled Kubernetes schema tables, the page, and the
examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelFiles(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # set-up compiles them, and they may be compiled again at any time
            return
        root = Path(self.root)
        build_data["force_include"][str(root / "examples")] = "shoal/examples"
        # In this process: one started from here would not see the packages of an isolated build.
        sys.path.insert(0, str(root / "src"))
        from shoal.kube.schema.compile import compile_tables

        compile_tables()
        if not (root / "src/shoal/dashboard/static/index.html").exists():
            # Set-up has built it, unless the registry of npm could not be reached.
            subprocess.run([str(root / "scripts/page.sh"), str(root / ".venv")], cwd=root, check=False)
