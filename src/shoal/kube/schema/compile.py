"""Compile the schema package's JSON schemas into the tables the server loads: ``python -m shoal.kube.schema.compile``.

Runs at set-up and at wheel build. The output is generated and git-ignored, since the descriptions in it (which
``kubectl explain`` prints) are not ours. Two files, because start-up needs the types but not their prose:

    generated/types.json       {"version": "1.37.0", "types": {name: definition without descriptions}}
    generated/openapi.json.gz  {name: definition with descriptions}, for the OpenAPI documents only
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parent / "generated"


def newest_schemas() -> tuple[str, Path]:
    """Version and folder of the newest schema set in the installed package."""
    import kubernetes_validate

    root = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    found = []
    for folder in root.iterdir():
        match = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)-local", folder.name)
        if match:
            found.append((tuple(int(part) for part in match.groups()), folder))
    if not found:
        raise SystemExit(f"no schemas found in {root}; reinstall kubernetes-validate")
    version, folder = max(found)
    return ".".join(map(str, version)), folder


def clean(schema: Any, *, keep_text: bool) -> Any:
    """Undo what the package adds for validation ("null" among types, local reference paths)."""
    if isinstance(schema, list):
        return [clean(item, keep_text=keep_text) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            result[key] = {name: clean(sub, keep_text=keep_text) for name, sub in value.items()}
        elif key == "type" and isinstance(value, list):
            result[key] = next(item for item in value if item != "null")
        elif key == "$ref":
            result[key] = value.rsplit("/", 1)[-1]
        elif key == "description":
            if keep_text:
                result[key] = value
        elif key == "enum" and "properties" not in schema and len(value) == 1:
            continue  # apiVersion and kind pinned to the definition's own: of no use here
        elif key == "enum":
            result[key] = [item for item in value if item is not None]
        else:
            result[key] = clean(value, keep_text=keep_text)
    return result


def compile_tables(output: Path = OUTPUT) -> str:
    """Write both tables; returns the Kubernetes version they describe."""
    version, folder = newest_schemas()
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    output.mkdir(parents=True, exist_ok=True)
    types = {"version": version, "types": {n: clean(d, keep_text=False) for n, d in definitions.items()}}
    described = {n: clean(d, keep_text=True) for n, d in definitions.items()}
    (output / "types.json").write_text(json.dumps(types, separators=(",", ":")))
    text = json.dumps(described, separators=(",", ":")).encode()
    (output / "openapi.json.gz").write_bytes(gzip.compress(text, mtime=0))  # the same bytes each time
    (output / "openapi.json").unlink(missing_ok=True)  # of earlier versions
    return version


if __name__ == "__main__":
    print(f"compiled the types of Kubernetes {compile_tables()} to {OUTPUT}", file=sys.stderr)
