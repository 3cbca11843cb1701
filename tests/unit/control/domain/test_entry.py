"""Certificates between gateways: made when the first gateway needs one, renewed without anybody being a stranger."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from fleet_world import ADMIN, World, a_fleet, a_route, an_app, doc

from shoal.control.database import tables
from shoal.control.database.tables import GatewayCertificate
from shoal.control.domain import entry
from shoal.errors import Invalid

DAY_MS = 86_400_000
NOW = 1_000 * DAY_MS


def a_certificate(revision: int, *, age_days: float, shown: bool = True) -> GatewayCertificate:
    made = round(NOW - age_days * DAY_MS)
    return GatewayCertificate(
        id=f"gwc_{revision}", revision=revision, shown=shown, created_at=made, expires_at=made + 365 * DAY_MS
    )


@pytest.mark.parametrize(
    ("known", "step"),
    [
        ([], entry.CertificateStep(make=True)),
        ([a_certificate(1, age_days=100)], entry.CertificateStep()),
        ([a_certificate(1, age_days=250)], entry.CertificateStep(make=True)),
        ([a_certificate(1, age_days=250), a_certificate(2, age_days=0.5, shown=False)], entry.CertificateStep()),
        (
            [a_certificate(1, age_days=251), a_certificate(2, age_days=1.5, shown=False)],
            entry.CertificateStep(show=("gwc_2",)),
        ),
        ([a_certificate(1, age_days=366), a_certificate(2, age_days=100)], entry.CertificateStep(forget=("gwc_1",))),
        ([a_certificate(1, age_days=366)], entry.CertificateStep(make=True, forget=("gwc_1",))),
    ],
)
def test_the_next_certificate_is_believed_before_it_is_shown_and_the_last_until_it_expires(
    known: list[GatewayCertificate], step: entry.CertificateStep
) -> None:
    assert entry.plan(known, NOW) == step


def test_a_certificate_is_signed_by_an_authority_that_can_sign_no_other() -> None:
    made = entry.make(datetime(2026, 1, 1, tzinfo=UTC))
    certificate, authority = (x509.load_pem_x509_certificate(one) for one in (made.certificate, made.authority))
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["sentinel.shoal"]
    assert certificate.not_valid_after_utc == authority.not_valid_after_utc
    assert b"PRIVATE KEY" in made.key and b"PRIVATE KEY" not in made.certificate + made.authority


async def certificates(world: World) -> list[Any]:
    return await world.rows(GatewayCertificate)


async def test_gateways_of_a_workspace_get_one_and_are_sent_again_when_it_changes(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.fleet.sweep()
        assert await certificates(world) == []  # nobody needs one
        await world.apply(an_app(regions=("eu", "us")))
        await world.apply(a_route())
        await world.report_app()
        before = await world.numbers()
        await world.fleet.sweep()
        (first,) = await certificates(world)
        assert first.shown and set(world.sealer.sealed[0]) == {"tls.crt", "tls.key"}
        assert b"PRIVATE" not in first.authority + first.ciphertext
        after = await world.numbers()
        changed = {key for key, number in after.items() if number != before[key]}
        assert {key.partition("/")[0] for _, key in changed} == {"sentinel"} and len(changed) == 2
        await world.fleet.sweep()
        assert await world.numbers() == after

        await world.clock.advance(260 * 86400)
        await world.fleet.sweep()
        old, new = sorted(await certificates(world), key=lambda one: int(one.revision))
        assert old.shown and not new.shown
        await world.clock.advance(86401)
        await world.fleet.sweep()
        assert all(one.shown for one in await certificates(world))
        await world.clock.advance(110 * 86400)
        await world.fleet.sweep()
        assert [one.id for one in await certificates(world)] == [new.id]


async def test_a_region_says_how_its_gateways_are_reached_and_they_are_sent_again(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        await world.apply(a_route())
        await world.report_app()
        before = await world.numbers()
        told = {"gateways": {"service": "NodePort", "entries": ["203.0.113.7:31043", "[2001:db8::7]:31043"]}}
        await world.apply(doc("Region", "us", told))
        after = await world.numbers()
        assert {key.partition("/")[0] for (_, key), number in after.items() if number != before[_, key]} == {"sentinel"}
        for bad in ({"service": "None"}, {"entries": ["gateway.example:8043"]}, {"entries": ["203.0.113.7"]}):
            with pytest.raises(Invalid):
                await world.fleet.apply(ADMIN, doc("Region", "us", {"gateways": bad}))


async def test_when_a_gateway_goes_its_peers_are_told(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        await world.apply(a_route())
        await world.report_app()
        gateways = {row.name: row for row in await world.rows(tables.Sentinel)}
        before = {row.key: row.number for row in await world.rows(tables.Desired, tables.Desired.kind == "sentinel")}
        await world.apply(an_app(regions=("eu",)))
        await world.report_app()
        rows = {row.key: row for row in await world.rows(tables.Desired, tables.Desired.kind == "sentinel")}
        assert rows[f"sentinel/{gateways['us'].id}"].action == "delete"
        stays = f"sentinel/{gateways['eu'].id}"
        assert rows[stays].action == "apply" and rows[stays].number > before[stays]


async def test_what_gateways_refuse_is_shown_with_their_reason(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        await world.apply(doc("Route", "front", {"host": "a.example", "app": "web"}))
        await world.report_app()
        refused = [{"gateway": "sentinel-eu-1", "message": "Envoy refuses it: no"}]
        async with world.databases.of("default").transaction() as tx:
            for row in await world.rows(tables.Desired, tables.Desired.kind == "route"):
                mine = await tx.session.merge(row)
                mine.observed, mine.applied_number = {"refused": refused}, mine.number
        shown = await world.fleet.status(ADMIN)
        assert shown["refused"] == [
            {"kind": "route", "name": "shop/prod/front", "cluster": "eu1", **refused[0]},
        ]
