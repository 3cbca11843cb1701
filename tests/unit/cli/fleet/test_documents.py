"""Manifests: split, ordered, completed with project and environment."""

from __future__ import annotations

from shoal.cli.fleet.documents import ManifestDocument, ordered, parse, placed


def test_documents_are_split_ordered_and_completed() -> None:
    found = parse(b"kind: App\nmetadata: {name: a}\n--- # next\nkind: Project\n---\n\n---\n- kind: Region\n", "f")
    assert [each.origin for each in found] == ["f, document 1", "f, document 2", "f, document 3"]
    assert [each.kind for each in ordered(found)] == ["Region", "Project", "App"]
    assert placed(found[0], "p", "e").metadata == {"name": "a", "project": "p", "environment": "e"}
    own = ManifestDocument({"kind": "App", "metadata": {"project": "own"}}, "f")
    assert placed(own, "p", "e").metadata == {"project": "own", "environment": "e"}
    assert placed(found[1], "p", "e") is found[1]
