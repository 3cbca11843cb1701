"""Reconciles the default roles and bindings when a server starts.

Missing rules, subjects, labels and annotations are restored; additions by users stay. An object whose autoupdate
annotation is ``false`` is left alone.
"""

from __future__ import annotations

import asyncio

from shoal.apiserver import objects
from shoal.apiserver.authz.rules import compiled, uncovered
from shoal.apiserver.context import Core
from shoal.apiserver.registry import Served
from shoal.apiserver.write import ATTEMPTS, Writer
from shoal.apiserver.writing.model import Author, Retry, Write
from shoal.errors import AlreadyExists
from shoal.kube.decode import normalize
from shoal.kube.kinds import bootstrap_rbac
from shoal.kube.kinds.rbac import GROUP
from shoal.kube.objects import Obj
from shoal.store import At, Delete, Entry, RequirementFailed

AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AUTHOR = Author("shoal-apiserver")


async def reconcile_policy(core: Core, writer: Writer) -> None:
    """Create the default roles and bindings that are missing, and put back what is missing in them. All at once, so
    that they share few commits."""
    await asyncio.gather(*(_reconcile(core, writer, wanted) for wanted in bootstrap_rbac.bootstrap_objects()))


async def _reconcile(core: Core, writer: Writer, wanted: Obj) -> None:
    served = core.registry.by_kind(GROUP, "v1", wanted["kind"])
    assert served is not None
    metadata = wanted["metadata"]
    key = served.key_of(metadata.get("namespace"), metadata["name"])
    for _ in range(ATTEMPTS):
        entry = core.store.get(key)
        try:
            if entry is None:
                await _create(writer, served, wanted)
            else:
                await _update(core, writer, served, entry, wanted)
        except (AlreadyExists, Retry, RequirementFailed):
            continue  # another server wrote first: read again
        return


async def _create(writer: Writer, served: Served, wanted: Obj) -> None:
    made = {**wanted, "metadata": dict(wanted["metadata"])}
    normalize(made, served.type)
    await writer.store(Write.own(served, made, None, _AUTHOR, trusted=True))


async def _update(core: Core, writer: Writer, served: Served, entry: Entry, wanted: Obj) -> None:
    stored = objects.decode(entry)
    if (stored["metadata"].get("annotations") or {}).get(AUTO_UPDATE) == "false":
        return
    if "roleRef" in wanted and stored.get("roleRef") != wanted["roleRef"]:
        # the role of a binding cannot be changed, so the binding is made anew
        await core.store.commit([Delete(entry.key)], [At(entry.key, entry.revision)])
        await _create(writer, served, wanted)
        return
    new = reconciled(stored, wanted)
    if new is not None:
        await writer.store(Write.own(served, new, entry, _AUTHOR))


def reconciled(stored: Obj, wanted: Obj) -> Obj | None:
    """``stored`` plus the parts of ``wanted`` that it lacks; None when it lacks none."""
    new: Obj = {**stored, "metadata": dict(stored["metadata"])}
    for name in ("labels", "annotations"):
        new["metadata"][name] = {**(wanted["metadata"].get(name) or {}), **(stored["metadata"].get(name) or {})}
    if "roleRef" in wanted:
        subjects = stored.get("subjects") or []
        missing = [subject for subject in wanted.get("subjects") or () if subject not in subjects]
        if missing:
            new["subjects"] = [*subjects, *missing]
    else:
        _add_rules(new, stored, wanted)
    return None if new == stored else new


def _add_rules(new: Obj, stored: Obj, wanted: Obj) -> None:
    rules = stored.get("rules") or []
    if "aggregationRule" not in wanted:
        new.pop("aggregationRule", None)
        expected = [rule for rule in wanted["rules"] if rule not in rules]
        missing = uncovered(compiled(rules), expected) if expected else []
        if missing:
            new["rules"] = [*rules, *missing]
        return
    selectors = (stored.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    lacking = [each for each in wanted["aggregationRule"]["clusterRoleSelectors"] if each not in selectors]
    if lacking:
        new["aggregationRule"] = {"clusterRoleSelectors": [*selectors, *lacking]}
