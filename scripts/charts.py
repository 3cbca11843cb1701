"""Write the rights in the chart shoal-agent from `shoal.app.joining.manifests`, their one source. `--check` only
compares: a difference ends with exit code 1."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from shoal.app.joining.manifests import NAMESPACE, draft, rights

FOLDER = Path(__file__).parents[1] / "charts" / "shoal-agent" / "files"
EACH = "each-namespace"  # stands for the namespaces in the values
_HEAD = "# Written by scripts/charts.py from shoal.app.joining.manifests. Do not edit.\n"
_CHART_LABELS = ("app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "app.kubernetes.io/version")

Objects = list[dict[str, Any]]


def files() -> dict[str, str]:
    """The content of each file. Helm makes the namespace of the release, so it is left out."""
    krane, edge = _plan(), _plan(edge=True)
    some, edge_some = _plan(EACH), _plan(EACH, edge=True)
    found = {
        "krane-cluster": krane,
        "krane-some": [each for each in some if _place(each) != EACH],
        "krane-each": [each for each in some if _place(each) == EACH],
        "edge-cluster": _without(edge, krane),
        "edge-some": [each for each in _without(edge_some, some) if _place(each) != EACH],
        "edge-each": [each for each in _without(edge_some, some) if _place(each) == EACH],
        "sharding": _without(_plan(sharding=True), krane),
    }
    return {f"{name}.yaml": _HEAD + yaml.safe_dump(objects, sort_keys=False) for name, objects in found.items()}


def _plan(*namespaces: str, edge: bool = False, sharding: bool = False) -> Objects:
    made = rights(draft("image", namespaces=namespaces, edge=edge, sharding=sharding))
    return [_plain(each) for each in made if (each["kind"], each["metadata"]["name"]) != ("Namespace", NAMESPACE)]


def _plain(obj: dict[str, Any]) -> dict[str, Any]:
    """Without the labels that the chart sets; what outlives the release is kept by Helm."""
    about = obj["metadata"]
    labels = {name: value for name, value in (about.get("labels") or {}).items() if name not in _CHART_LABELS}
    about = {name: value for name, value in about.items() if name != "labels"} | ({"labels": labels} if labels else {})
    if obj["kind"] in ("CustomResourceDefinition", "Namespace"):
        about["annotations"] = {**(about.get("annotations") or {}), "helm.sh/resource-policy": "keep"}
    return {**obj, "metadata": about}


def _place(obj: dict[str, Any]) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _without(objects: Iterable[dict[str, Any]], others: Objects) -> Objects:
    return [each for each in objects if each not in others]


def main(arguments: list[str]) -> int:
    stale = [name for name, text in files().items() if not _is(FOLDER / name, text)]
    if arguments == ["--check"]:
        for name in stale:
            print(f"charts/shoal-agent/files/{name} is not what the manifests say: run scripts/charts.py")
        return 1 if stale else 0
    for name, text in files().items():
        (FOLDER / name).write_text(text)
    return 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
