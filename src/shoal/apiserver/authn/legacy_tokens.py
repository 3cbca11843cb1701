"""Secrets of type ``kubernetes.io/service-account-token``: fills them in, removes those of accounts that are gone, and
notes the day they were last used. Such a token is valid as long as its secret exists; prefer the token
subresource."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from shoal.apiserver import objects
from shoal.apiserver.authn.accounts import LEGACY_CLAIMS, LEGACY_ISSUER
from shoal.apiserver.authn.keys import SigningKeys
from shoal.apiserver.authn.loop import StoreLoop
from shoal.apiserver.context import Core
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.model import Author, Write
from shoal.kube.kinds.core.config import SERVICE_ACCOUNT_NAME
from shoal.kube.objects import Obj
from shoal.store import At, Delete, Entry, Event, EventType, Key, RequirementFailed

TYPE = "kubernetes.io/service-account-token"
LAST_USED = "kubernetes.io/legacy-token-last-used"
_UID = "kubernetes.io/service-account.uid"
_AUTHOR = Author("shoal-apiserver")


class LegacyTokens:
    """A loop over the secrets that hold tokens."""

    def __init__(self, core: Core, writer: Writer, keys: SigningKeys) -> None:
        self.core, self.writer, self.keys = core, writer, keys
        self._used: set[Key] = set()
        self._loop = StoreLoop(core, "secrets", self._look, _holds_token)

    def note_use(self, key: Key) -> None:
        """Record that the token of this secret was used."""
        self._used.add(key)
        self._loop.add(key)

    def start(self) -> None:
        self._loop.start()
        self._unsubscribe = self.core.store.subscribe("serviceaccounts", self._on_accounts)

    async def stop(self) -> None:
        self._unsubscribe()
        await self._loop.stop()

    def _on_accounts(self, events: Sequence[Event]) -> None:
        """Queue the secrets of a deleted account for deletion."""
        for event in events:
            if event.type is EventType.DELETED:
                for entry in self.core.store.range("secrets", event.entry.key.namespace).entries:
                    if _holds_token(entry):
                        self._loop.add(entry.key)

    async def _look(self, key: Key) -> None:
        entry = self.core.store.get(key)
        if entry is None:
            return
        secret = objects.decode(entry)
        metadata = secret["metadata"]
        if secret.get("type") != TYPE or metadata.get("deletionTimestamp"):
            return
        notes = metadata.get("annotations") or {}
        account = self._account(key.namespace, notes)
        if account is None:
            await self._delete(secret, entry)
            return
        missing = self._missing(secret, account)
        named = {SERVICE_ACCOUNT_NAME: account["name"], _UID: account["uid"]}
        marks = self._marks(key, metadata.get("labels") or {})
        if missing or marks or any(notes.get(name) != value for name, value in named.items()):
            metadata["annotations"] = {**notes, **named}
            metadata["labels"] = {**(metadata.get("labels") or {}), **marks}
            secret["data"] = {**(secret.get("data") or {}), **missing}
            served = self.core.registry.stored("secrets")
            assert served is not None
            await self.writer.store(Write.own(served, secret, entry, _AUTHOR))

    def _marks(self, key: Key, labels: Obj) -> dict[str, str]:
        """The new last-use label, when it is out of date."""
        if key not in self._used:
            return {}
        self._used.discard(key)
        today = self.core.clock.now().strftime("%Y-%m-%d")
        return {LAST_USED: today} if labels.get(LAST_USED, "") < today else {}

    def _account(self, namespace: str, notes: Obj) -> Obj | None:
        """The metadata of the account that the secret is for, unless it was deleted or has another uid."""
        entry = self.core.store.get(Key("serviceaccounts", namespace, notes.get(SERVICE_ACCOUNT_NAME) or ""))
        if entry is None:
            return None
        account: Obj = objects.decode(entry)["metadata"]
        wanted = notes.get(_UID)
        return account if not wanted or wanted == account["uid"] else None

    def _missing(self, secret: Obj, account: Obj) -> dict[str, str]:
        """The entries of ``data`` that have to be written."""
        data, metadata = secret.get("data") or {}, secret["metadata"]
        found: dict[str, str] = {}
        authority = _encoded(self.core.config.ca_certificate)
        if authority and data.get("ca.crt") != authority:
            found["ca.crt"] = authority
        if not data.get("namespace"):
            found["namespace"] = _encoded(metadata["namespace"])
        if not data.get("token"):
            found["token"] = _encoded(self.keys.sign(_claims(metadata, account)))
        return found

    async def _delete(self, secret: Obj, entry: Entry) -> None:
        if secret["metadata"].get("finalizers"):
            return  # its finalizers must be removed first
        try:
            await self.core.store.commit([Delete(entry.key)], [At(entry.key, entry.revision)])
        except RequirementFailed:
            return  # changed or deleted: the change queues it again


def _holds_token(entry: Entry) -> bool:
    return TYPE.encode() in entry.value


def _claims(secret: Obj, account: Obj) -> Obj:
    return {
        "iss": LEGACY_ISSUER,
        f"{LEGACY_CLAIMS}namespace": secret["namespace"],
        f"{LEGACY_CLAIMS}secret.name": secret["name"],
        f"{LEGACY_CLAIMS}service-account.name": account["name"],
        f"{LEGACY_CLAIMS}service-account.uid": account["uid"],
        "sub": f"system:serviceaccount:{secret['namespace']}:{account['name']}",
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
