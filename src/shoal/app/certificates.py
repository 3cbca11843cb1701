"""Keeps the certificates of a running process valid: renewed long before they expire, and used at once.

Once a day, and soon after another process has changed the files, every certificate is asked of ``Pki`` again, which
makes a new one when a third of its life is left. New connections then get the new certificate; connections that are
open stay open. ``shoal_certificate_expiry_seconds`` and a daily warning tell of those that expire soon all the same.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from shoal.app.pki import KeyPair, Pki, changing
from shoal.base.asgi import Tls
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.metrics import Gauge, Metrics

log = get_logger("certificates")

DAY_S = 86_400.0
WARN_S = 30 * DAY_S
_LOOK_S = 1.0  # between two looks at the files
_AGAIN_S = 60.0  # after a failure

# Certificates of one kind whose names differ: by node, by server of a cluster.
_KINDS = {"node": "kubelet", "server": "server"}

Stamp = tuple[int, int, int]


def define_certificate_metrics(metrics: Metrics) -> Gauge:
    return metrics.gauge(
        "shoal_certificate_expiry_seconds", "Time until a certificate of this process expires.", ("certificate",)
    )


class LiveContext:
    """A server's TLS context whose certificate and trusted authorities can be replaced while it serves."""

    def __init__(self, make: Callable[[], ssl.SSLContext]) -> None:
        self._make = make
        self.context = make()

    def renew(self) -> None:
        """Use the files as they are now for the connections to come. A context keeps what it once trusted, so these get
        another one, in the first step of their handshake."""
        fresh = self._make()

        def use(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            connection.context = fresh

        self.context.sni_callback = use


@dataclass(slots=True)
class _Kept:
    kind: str
    ensure: Callable[[Pki], KeyPair]
    renewed: Callable[[], object]
    seen: tuple[bytes, bytes]  # certificate and authorities in use


class CertificateKeeper:
    """``run`` it as a loop. ``metrics`` is the process's."""

    def __init__(self, directory: Path, *, clock: Clock, metrics: Metrics) -> None:
        self._dir = directory
        self._clock = clock
        self._kept: list[_Kept] = []
        self._on_authority: list[Callable[[Pki], object]] = []
        self._authorities = b""
        self._expiries: dict[str, float] = {}
        self._due_at = inf  # when the next step of a rotation is to be taken
        define_certificate_metrics(metrics).follow_each(self._left, by=str(directory))

    def keep(self, kind: str, ensure: Callable[[Pki], KeyPair], renewed: Callable[[], object]) -> KeyPair:
        """The certificate that ``ensure`` gives, from now on kept valid; ``renewed`` is called when it, or what is
        trusted, has changed. ``kind`` is its label in the metric."""
        with changing(self._dir):
            pki = Pki(self._dir, now=self._clock.now())
            pair = ensure(pki)
        self._authorities = self._authorities or pki.ca_cert.read_bytes()
        self._kept.append(_Kept(kind, ensure, renewed, (pair.cert.read_bytes(), self._authorities)))
        self._note(pki)
        return pair

    def keep_tls(self, kind: str, ensure: Callable[[Pki], KeyPair]) -> Tls:
        """The same for a server of ``shoal.base.asgi``."""
        made: list[Tls] = []
        pair = self.keep(kind, ensure, lambda: made[0].reload())
        made.append(Tls(pair.cert, pair.key))
        return made[0]

    def keep_context(
        self, kind: str, ensure: Callable[[Pki], KeyPair], make: Callable[[KeyPair, Path], ssl.SSLContext]
    ) -> ssl.SSLContext:
        """The same for a server whose clients may have certificates: ``make`` is given the server's, and what to
        trust."""
        made: list[LiveContext] = []
        pair = self.keep(kind, ensure, lambda: made[0].renew())
        made.append(LiveContext(lambda: make(pair, self._dir / "ca.crt")))
        return made[0].context

    def on_authority(self, changed: Callable[[Pki], object]) -> None:
        """Call ``changed`` when the trusted authorities have changed, before any certificate is replaced."""
        self._on_authority.append(changed)

    async def run(self) -> None:
        checked_s, seen = self._clock.monotonic(), self._stamps()
        while True:
            await self._clock.sleep(_LOOK_S)
            now_s, stamps = self._clock.monotonic(), self._stamps()
            if stamps == seen and now_s - checked_s < DAY_S and self._clock.wall_s() < self._due_at:
                continue
            try:
                self.check()
            except (OSError, ValueError) as error:  # a full disk, damaged files
                log.error("certificates not checked", error=error, path=str(self._dir))
                await self._clock.sleep(_AGAIN_S)
            else:
                checked_s, seen = now_s, self._stamps()

    def check(self) -> None:
        """Renew what has to be renewed, and use what has changed."""
        with changing(self._dir):
            self._check()

    def _check(self) -> None:
        pki = Pki(self._dir, now=self._clock.now())
        pki.ensure_ca()
        authorities = pki.ca_cert.read_bytes()
        if authorities != self._authorities:
            self._authorities = authorities
            for changed in self._on_authority:
                changed(pki)
            log.info("the trusted authorities have changed", path=str(pki.ca_cert))
        for each in self._kept:
            found = (each.ensure(pki).cert.read_bytes(), authorities)
            if found != each.seen:
                each.renewed()
                log.info("a new certificate is used", certificate=each.kind)
                each.seen = found
        self._note(pki)
        for kind, left_s in self._left().items():
            if left_s < WARN_S:
                log.warning("a certificate expires soon", certificate=kind[0], days=round(left_s / DAY_S, 1))

    def _note(self, pki: Pki) -> None:
        """The earliest expiry of each kind: the label must not be a node's name."""
        found: dict[str, float] = {}
        for name, at in pki.expiries().items():
            kind = next((kind for start, kind in _KINDS.items() if name.startswith(start)), name)
            found[kind] = min(at, found.get(kind, at))
        self._expiries = found
        rotation = pki.rotation
        self._due_at = inf if rotation is None else rotation.due_at.timestamp()

    def _left(self) -> Mapping[tuple[str, ...], float]:
        now = self._clock.wall_s()
        return {(kind,): at - now for kind, at in self._expiries.items()}

    def _stamps(self) -> list[Stamp | None]:
        return [_stamp(self._dir / name) for name in ("manifest.json", "ca.crt")]


async def follow_certificate(tls: Tls, clock: Clock) -> None:
    """Use a certificate that others renew, as cert-manager does, when its files have changed. A certificate and a key
    that do not belong together, such as half a change, leave the one before in use. Run it as a loop."""
    seen = _pair_stamps(tls)
    while True:
        await clock.sleep(_LOOK_S)
        stamps = _pair_stamps(tls)
        if stamps == seen:
            continue
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
            tls.reload()
        except (OSError, ssl.SSLError) as error:
            log.warning("a certificate that has changed cannot be used", error=error, path=str(tls.certificate))
        else:
            log.info("a new certificate is used", path=str(tls.certificate))
        seen = stamps


def _pair_stamps(tls: Tls) -> list[Stamp | None]:
    return [_stamp(path) for path in (tls.certificate, tls.key)]


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
