"""Certificates with which gateways of different regions authenticate each other: one per workspace, created, sealed and
renewed here.

The gateways of a workspace present one certificate to each other and trust its issuer, so gateways of other workspaces
are rejected. An issuer signs one certificate only: its private key is discarded after that, and the private key of the
certificate is in plain text only until it is sealed. Gateways trust a new certificate for a day before any of them
presents it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.logs import get_logger
from shoal.control.database.engine import Database
from shoal.control.database.tables import GatewayCertificate, Sentinel
from shoal.control.database.transaction import Tx
from shoal.control.domain.gateways import wanted_again
from shoal.control.domain.model import Sealed, Sealer
from shoal.errors import ServiceUnavailable

NAME = "sentinel.shoal"  # what the certificates say
CERTIFICATE, KEY = "tls.crt", "tls.key"
LIFE = timedelta(days=365)
_RENEW_MS = round(LIFE.total_seconds() * 1000 / 3)  # what is left when the next one is made
_BELIEVED_MS = 86_400_000  # before it is shown
_BACKDATE = timedelta(minutes=5)  # clocks of gateways may be behind ours

log = get_logger("control.gateways")


@dataclass(frozen=True, slots=True)
class Made:
    authority: bytes  # PEM, as are the others
    certificate: bytes
    key: bytes


def make(now: datetime) -> Made:
    """A certificate of a gateway, and the authority that has signed it."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _named("shoal gateways")
    authority = (
        _builder(issuer, issuer, authority_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, SHA256())
    )
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        _builder(_named(NAME), issuer, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(both, critical=False)
        .sign(authority_key, SHA256())
    )
    return Made(
        authority.public_bytes(Encoding.PEM),
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + LIFE)
    )


@dataclass(frozen=True, slots=True)
class CertificateStep:
    """The certificate work that a workspace needs."""

    make: bool = False
    show: tuple[str, ...] = ()  # ids
    forget: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.make or bool(self.show or self.forget)


def plan(known: Sequence[GatewayCertificate], now: int) -> CertificateStep:
    """``known`` is in the order of revisions."""
    good = [one for one in known if one.expires_at > now]
    return CertificateStep(
        make=not good or good[-1].expires_at - now < _RENEW_MS,
        show=tuple(one.id for one in good if not one.shown and one.created_at <= now - _BELIEVED_MS),
        forget=tuple(one.id for one in known if one.expires_at <= now),
    )


async def keep(database: Database, sealer: Sealer, now_ms: int, new_id: Callable[[], str]) -> None:
    """Give the workspaces that have gateways the certificates they need; most calls find nothing to do."""
    async with database.reading() as session:
        steps = await _steps(session, now_ms)
    for workspace, step in steps.items():
        made = sealed = None
        if step.make:
            made = make(datetime.fromtimestamp(now_ms / 1000, UTC))
            try:  # sealing may ask a server for keys, so it is done before the database is
                sealed = await sealer.seal({CERTIFICATE: made.certificate.decode(), KEY: made.key.decode()})
            except ServiceUnavailable as error:
                log.warning("gateways wait for a certificate", workspace=workspace, reason=str(error))
                continue
        async with database.transaction() as tx:
            await tx.claim()
            step = (await _steps(tx.session, now_ms)).get(
                workspace, CertificateStep()
            )  # another process may have been faster
            await _take(tx, workspace, step, made, sealed, new_id())


async def _steps(session: AsyncSession, now: int) -> dict[str, CertificateStep]:
    """By workspace, where there is something to do."""
    needing = set(await session.scalars(select(Sentinel.workspace_id).distinct()))
    known: dict[str, list[GatewayCertificate]] = {workspace: [] for workspace in sorted(needing)}
    for row in await session.scalars(select(GatewayCertificate).order_by(GatewayCertificate.revision)):
        if row.workspace_id in known:
            known[row.workspace_id].append(row)
    return {workspace: step for workspace, rows in known.items() if (step := plan(rows, now))}


async def _take(
    tx: Tx, workspace: str, step: CertificateStep, made: Made | None, sealed: Sealed | None, id_: str
) -> None:
    rows = list(
        await tx.session.scalars(
            select(GatewayCertificate)
            .where(GatewayCertificate.workspace_id == workspace)
            .order_by(GatewayCertificate.revision)
        )
    )
    for row in rows:
        if row.id in step.forget:
            await tx.session.delete(row)
        elif row.id in step.show:
            row.shown = True
    if step.make and made is not None and sealed is not None:
        tx.session.add(
            GatewayCertificate(
                id=id_,
                workspace_id=workspace,
                revision=max((row.revision for row in rows), default=0) + 1,
                authority=made.authority,
                ciphertext=sealed.ciphertext,
                data_key=sealed.data_key,
                master_key=sealed.master_key,
                shown=len(step.forget) == len(rows),  # no gateway trusts another certificate yet
                created_at=tx.now,
                expires_at=tx.now + round(LIFE.total_seconds() * 1000),
            )
        )
    await tx.session.flush()
    if step:
        await tx.want_many(await wanted_again(tx.session, Sentinel.workspace_id == workspace))
