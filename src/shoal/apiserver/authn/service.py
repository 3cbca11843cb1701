"""Authentication put together: who asks, the tokens this server issues, the certificates it signs; and the loops that
go with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shoal.apiserver.authn.accounts import AccountReader
from shoal.apiserver.authn.authenticator import Authenticator
from shoal.apiserver.authn.certificate_rules import certificate_guard
from shoal.apiserver.authn.credential import Credential
from shoal.apiserver.authn.keys import IssuerDocuments, SigningKeys
from shoal.apiserver.authn.legacy_tokens import LegacyTokens
from shoal.apiserver.authn.signer import REQUESTS, CertificateSigner
from shoal.apiserver.authn.signers import Authority
from shoal.apiserver.authn.tokens import TokenIssuer
from shoal.apiserver.context import Core, User
from shoal.apiserver.write import Writer

if TYPE_CHECKING:
    from shoal.apiserver.handler import Handler


class Authentication:
    """The parts of one server. Without a signing key there are no service account tokens, without an authority no
    certificates."""

    def __init__(
        self,
        core: Core,
        writer: Writer,
        tokens: Mapping[str, User | Credential],
        *,
        signing_key: bytes = b"",
        verification_keys: Sequence[bytes] = (),
    ) -> None:
        self.core, self.writer = core, writer
        self.authenticator = Authenticator(core, tokens)
        self._keys = SigningKeys(signing_key, verification_keys) if signing_key else None
        self._loops: list[LegacyTokens | CertificateSigner] = []

    def install(self, handler: Handler, authority: Authority | None) -> None:
        """Give the handler what it answers with; called once, before ``start``."""
        if self._keys is not None:
            config = self.core.config
            address = f"{config.advertise_address}:{config.advertise_port}"
            secrets = LegacyTokens(self.core, self.writer, self._keys)
            reader = self.authenticator.accounts = AccountReader(self.core, self._keys)
            reader.on_legacy_use = secrets.note_use
            handler.subresources.issue_token = TokenIssuer(self.core, self._keys).issue
            handler.pages.issuer = IssuerDocuments(self._keys, issuer=config.issuer, address=address)
            self._loops.append(secrets)
        self.writer.guards[REQUESTS] = certificate_guard(handler.authorizer)
        if authority is not None:
            self._loops.append(CertificateSigner(self.core, self.writer, handler.authorizer, authority))

    def replace_keys(self, signing_key: bytes, verification_keys: Sequence[bytes]) -> None:
        """Sign with this key from now on; tokens that none of these keys has signed end."""
        if self._keys is not None:
            self._keys.replace(signing_key, verification_keys)
            self.authenticator.forget()

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        for loop in self._loops:
            await loop.stop()


__all__ = ["Authentication", "Authority"]
