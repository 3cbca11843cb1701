"""Creates the objects that must exist before the first request: namespaces, the kubernetes Service, default policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from shoal.apiserver.advertising import Advertising
from shoal.apiserver.context import Core
from shoal.apiserver.front_proxy import certificates_in
from shoal.apiserver.housekeeping import ROOT_CA
from shoal.apiserver.objects import decode
from shoal.apiserver.roles.bootstrap import reconcile_policy
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.model import Author, Write
from shoal.base.logs import get_logger
from shoal.errors import AlreadyExists, ConfigError
from shoal.kube.decode import normalize
from shoal.kube.objects import Obj
from shoal.store import Key, StoreReadOnly

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_AUTHOR = Author("shoal-apiserver")


def check_same_cluster(core: Core) -> None:
    """Refuse to serve a shared store with another certificate authority: clients of one server would not trust
    the other, and each would overwrite the other's certificate in every namespace."""
    if not core.store.shared:
        return
    entry = core.store.get(Key("configmaps", "kube-system", ROOT_CA))
    if entry is None:
        return
    stored = (decode(entry).get("data") or {}).get("ca.crt", "")
    known, own = certificates_in(stored), certificates_in(core.config.ca_certificate)
    same = bool(set(known) & set(own)) if known and own else stored == core.config.ca_certificate
    if not same:  # while an authority is replaced, servers may trust both or one of the two
        raise ConfigError(
            "the cluster in this store has another certificate authority than this server; start it with "
            "--credentials DIR, where DIR is the directory of a server that already runs (or a copy of its pki folder "
            "and tokens.json)"
        )


async def create_boot_objects(core: Core, writer: Writer, advertising: Advertising) -> None:
    """Create missing default objects. Changes by users stay; default roles and bindings get their missing
    rules and subjects back, and the Service ``kubernetes`` leads to this server."""
    cidr = _object("networking.k8s.io/v1", "ServiceCIDR", "kubernetes", spec={"cidrs": [core.config.service_cidr]})
    try:
        await _create_all(core, writer, (_object("v1", "Namespace", name) for name in NAMESPACES))
        await asyncio.gather(
            _create_all(core, writer, (cidr, *_policies())), reconcile_policy(core, writer), advertising.ensure()
        )
    except StoreReadOnly as refused:  # reads are served all the same
        get_logger("boot").warning("default objects not created", reason=str(refused))


async def _create_all(core: Core, writer: Writer, wanted: Iterable[Obj]) -> None:
    """Concurrently, so that they share few commits."""
    await asyncio.gather(*(_create(core, writer, obj) for obj in wanted))


async def _create(core: Core, writer: Writer, obj: Obj) -> None:
    group, _, version = obj["apiVersion"].rpartition("/")
    served = core.registry.by_kind(group, version, obj["kind"])
    assert served is not None, obj["kind"]
    metadata = obj["metadata"]
    if core.store.get(served.key_of(metadata.get("namespace"), metadata["name"])) is not None:
        return
    normalize(obj, served.type)
    try:
        await writer.store(Write.own(served, obj, None, _AUTHOR, trusted=True))
    except AlreadyExists:
        return


def _object(api_version: str, kind: str, name: str, **content: object) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **content}


def _policies() -> list[Obj]:
    from shoal.kube.kinds import bootstrap_flowcontrol
    from shoal.kube.kinds.cluster import priority_class

    return [
        *priority_class.bootstrap_objects(),
        *bootstrap_flowcontrol.bootstrap_objects(),
    ]
