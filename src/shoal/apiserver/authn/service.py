"""Builds authentication: the authenticator, the token issuer, the certificate signer, and their
loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.apiserver.authn.accounts import AccountReader
from shoal.apiserver.authn.authenticator import Authenticator
from shoal.apiserver.authn.credential import Credential
from shoal.apiserver.authn.keys import IssuerDocuments, SigningKeys
from shoal.apiserver.authn.legacy_tokens import LegacyTokens
from shoal.apiserver.authn.signer import CertificateSigner
from shoal.apiserver.authn.signers import Authority
from shoal.apiserver.authn.tokens import TokenIssuer
from shoal.apiserver.authz.authorizer import Authorizer
from shoal.apiserver.context import Core
from shoal.apiserver.user import User
from shoal.apiserver.write import Writer


class Authentication:
    """The parts of one server. Without a signing key there are no service account tokens, without an authority no
    certificates."""

    def __init__(
        self,
        core: Core,
        writer: Writer,
        authorizer: Authorizer,
        tokens: Mapping[str, User | Credential],
        *,
        signing_key: bytes = b"",
        verification_keys: Sequence[bytes] = (),
        authority: Authority | None = None,
    ) -> None:
        self._loops: list[LegacyTokens | CertificateSigner] = []
        self._keys = keys = SigningKeys(signing_key, verification_keys) if signing_key else None
        if keys is None:
            self.issuer, self.documents, accounts = None, None, None
        else:
            config = core.config
            address = f"{config.advertise_address}:{config.advertise_port}"
            secrets = LegacyTokens(core, writer, keys)
            accounts = AccountReader(core, keys, secrets.note_use)
            self.issuer = TokenIssuer(core, keys)
            self.documents = IssuerDocuments(keys, issuer=config.issuer, address=address)
            self._loops.append(secrets)
        self.authenticator = Authenticator(core, tokens, accounts)
        self._signer = None if authority is None else CertificateSigner(core, writer, authorizer, authority)
        if self._signer is not None:
            self._loops.append(self._signer)

    def replace_keys(self, signing_key: bytes, verification_keys: Sequence[bytes]) -> None:
        """Sign with this key; tokens that none of these keys signed become invalid."""
        if self._keys is not None:
            self._keys.replace(signing_key, verification_keys)
            self.authenticator.forget()

    def replace_authority(self, authority: Authority) -> None:
        """Sign certificates with this authority; those of others stay valid as long as TLS trusts them."""
        if self._signer is not None:
            self._signer.replace_authority(authority)

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        for loop in self._loops:
            await loop.stop()


__all__ = ["Authentication", "Authority"]
