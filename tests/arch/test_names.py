"""Names are the field's nouns: no metaphor returns, and a public class name means one thing, or says whose it is."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from arch_source import SRC, modules_in, nodes, tree

MOST_PACKAGES = 2  # that may have a public class of one name
ALLOWED_IN_MORE: dict[str, str] = {}  # class name -> why it may stand in three and more packages
METAPHORS = frozenset(
    "Station Books Desk Heart Pulse Courier Sleeper Shelf Believed Lodger Visit Ground Sides Script Asked Passage "
    "Surroundings Kit Tools Seams Parts".split()
)
MODULES = frozenset(word.lower() for word in METAPHORS) | {"host"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def _classes(path: Path, *, nested: bool) -> list[str]:
    found = nodes(path, ast.ClassDef) if nested else tree(path).body
    return [node.name for node in found if isinstance(node, ast.ClassDef)]


def crowded(root: Path) -> dict[str, list[str]]:
    """Public class names that stand in too many top-level packages, with the modules that define them."""
    owners: dict[str, list[str]] = defaultdict(list)
    for module, path in ((each.name, each.path) for each in modules_in(root)):
        for name in _classes(path, nested=False):
            if not name.startswith("_"):
                owners[name].append(module)
    return {
        name: modules
        for name, modules in owners.items()
        if name not in ALLOWED_IN_MORE and len({module.split(".")[1] for module in modules}) > MOST_PACKAGES
    }


def metaphors(root: Path) -> list[str]:
    """Classes that have a forbidden word as one of their CamelCase words, and modules that are called by one."""
    found = []
    for module, path in ((each.name, each.path) for each in modules_in(root)):
        if module.rsplit(".", 1)[-1] in MODULES:
            found.append(module)
        found += [
            f"{module}.{name}"
            for name in _classes(path, nested=True)
            if METAPHORS & set(_WORD.findall(name.lstrip("_")))
        ]
    return found


def test_a_class_name_stands_in_two_packages_at_most():
    assert crowded(SRC) == {}, "put the owner's word in front, or add the name with a reason"


def test_no_metaphor_is_a_class_or_a_module():
    assert metaphors(SRC) == []


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "shoal" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_name_in_three_packages_is_found(tmp_path):
    root = _tree(tmp_path, {f"{package}/model.py": "class Target: ...\n" for package in ("node", "store", "kube")})
    assert crowded(root) == {"Target": ["shoal.kube.model", "shoal.node.model", "shoal.store.model"]}


def test_two_packages_private_names_and_modules_of_one_package_are_no_crowd(tmp_path):
    files = {"node/a.py": "class Target: ...\n", "node/b.py": "class Target: ...\n", "kube/a.py": "class Target: ...\n"}
    files |= {f"{package}/c.py": "class _Hidden: ...\n" for package in ("node", "store", "kube")}
    assert crowded(_tree(tmp_path, files)) == {}


def test_a_metaphor_is_found_as_a_word_and_as_a_module(tmp_path):
    files = {
        "node/agent.py": "class AgentParts: ...\nclass _Parts: ...\nclass Partial: ...\n",
        "app/desk.py": "",
        "kube/host.py": "",
        "kube/hostports.py": "class Hosts:\n    class Surroundings: ...\n",
    }
    assert metaphors(_tree(tmp_path, files)) == [
        "shoal.app.desk", "shoal.kube.host", "shoal.kube.hostports.Surroundings", "shoal.node.agent.AgentParts",
        "shoal.node.agent._Parts",
    ]  # fmt: skip
