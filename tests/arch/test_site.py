"""The site of the documentation: no page is left out, its checker finds broken links, every alert has a runbook."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from arch_source import ROOT

SCRIPTS = ROOT / "scripts" / "docs"


@pytest.fixture(scope="module")
def links() -> Iterator[ModuleType]:
    spec = util.spec_from_file_location("site_links", SCRIPTS / "links.py")
    assert spec is not None and spec.loader is not None
    loaded = util.module_from_spec(spec)
    sys.modules["site_links"] = loaded
    spec.loader.exec_module(loaded)
    yield loaded
    del sys.modules["site_links"]


def test_every_page_is_in_the_navigation_but_single_decisions() -> None:
    named = set(re.findall(r"[\w./-]+\.md\b", (ROOT / "mkdocs.yml").read_text()))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert not {page for page in pages if page not in named and not re.match(r"decisions/\d{4}-", page)}
    assert not {page for page in named - pages if not page.startswith("reference/") and page != "changelog.md"}


def test_the_site_is_checked_for_links_anchors_and_what_pages_load(links: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "style.css").write_text("")
    (tmp_path / "index.html").write_text('<link rel="stylesheet" href="style.css"><a href="guide/#there">guide</a>')
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "index.html").write_text('<h1 id="there"></h1><a href="../index.html">back</a>')
    assert links.faults_of(tmp_path) == []
    (tmp_path / "bad.html").write_text(
        '<a href="gone.html"></a><a href="guide/#nowhere"></a><script src="https://elsewhere.example/x.js"></script>'
        '<img src="gone.png"><a href="https://elsewhere.example/">fine</a>'
    )
    assert links.faults_of(tmp_path) == [
        "bad.html loads https://elsewhere.example/x.js from elsewhere",
        "bad.html loads gone.png, which does not exist",
        "bad.html: the link gone.html leads nowhere",
        "bad.html: the link guide/#nowhere leads to an anchor that does not exist",
    ]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "monitoring" / "rules.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    assert alerts == set(re.findall(r"^## (\w+)$", (ROOT / "docs/operations/runbooks.md").read_text(), re.MULTILINE))
