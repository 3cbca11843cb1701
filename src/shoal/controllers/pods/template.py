"""Builds pods, references and hashes from a workload and its template. Pure.

Results share parts with the template: send them, do not change them.
"""

from __future__ import annotations

import hashlib
from typing import Final

import orjson

from shoal.base.ids import SUFFIX_ALPHABET
from shoal.kube.objects import Obj

_HASH_LENGTH: Final = 10


def controller_reference(owner: Obj, api_version: str, kind: str) -> Obj:
    about = owner["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of(template: Obj, owner: Obj, reference: Obj) -> Obj:
    """A pod of a template; the server generates its name."""
    about = template.get("metadata") or {}
    made: Obj = {
        "generateName": f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [reference],
    }
    for field in ("labels", "annotations", "finalizers"):
        if about.get(field):
            made[field] = about[field]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"]}


def hash_of(value: Obj, collisions: int | None) -> str:
    """A short hash of the value and the number of collisions, valid in names and labels."""
    digest = hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=8)
    if collisions:
        digest.update(b"/%d" % collisions)
    number = int.from_bytes(digest.digest(), "big")
    letters = []
    for _ in range(_HASH_LENGTH):
        number, place = divmod(number, len(SUFFIX_ALPHABET))
        letters.append(SUFFIX_ALPHABET[place])
    return "".join(letters)
