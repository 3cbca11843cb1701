"""The documents tell the truth about names: dotted names resolve, links lead somewhere, targets and commands exist."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from arch_source import LEVEL, ROOT

from shoal.app.main import COMMANDS

DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md") for path in ROOT.glob(pattern) if path.name != "CHANGELOG.md"
)
DOTTED = re.compile(r"(?<![\w./-])shoal(?:\.[A-Za-z_]\w*)+")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
MAKE = re.compile(r"`make ([a-z-]+)")
COMMAND = re.compile(r"`(?:\.venv/bin/)?shoal ([a-z][a-z-]*[a-z])")


@pytest.fixture(params=DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def document(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: object = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            if not hasattr(value, attribute):
                return False
            value = getattr(value, attribute)
        return True
    return False


def test_every_dotted_name_of_ours_exists(document: Path) -> None:
    names = {name for name in DOTTED.findall(document.read_text()) if not name.endswith((".dev", ".md"))}
    assert not [name for name in sorted(names) if not resolves(name)]


def test_every_relative_link_leads_to_a_file(document: Path) -> None:
    targets = [link for link in LINK.findall(document.read_text()) if "://" not in link]
    assert not [link for link in targets if not (document.parent / link).exists()]


def test_every_make_target_and_command_that_is_named_exists(document: Path) -> None:
    text = document.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(MAKE.findall(text)) <= targets
    assert set(COMMAND.findall(text)) <= {name for command in COMMANDS for name in command.names}


def test_the_architecture_page_lists_every_package_that_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    existing = {
        path.name for path in (ROOT / "src" / "shoal").iterdir() if path.name in LEVEL and any(path.glob("*.py"))
    }
    assert not [name for name in sorted(existing) if f"`{name}`" not in page]


def test_every_decision_has_a_number_of_its_own_and_those_up_to_30_have_no_gap() -> None:
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))]
    assert len(set(numbers)) == len(numbers)
    assert numbers[:30] == list(range(1, 31))
