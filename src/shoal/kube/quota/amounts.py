"""Arithmetic on lists of resources."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from shoal.kube.kinds.checks import quantity_of
from shoal.kube.quantity import ZERO, Quantity

Amounts = dict[str, Quantity]
ONE: Final = Quantity(1)


def parse(texts: Mapping[str, str] | None) -> Amounts:
    return {name: quantity_of(text) for name, text in (texts or {}).items()}


def show(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def total(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    return {name: left.get(name, ZERO) + right.get(name, ZERO) for name in {**left, **right}}


def growth(new: Mapping[str, Quantity], old: Mapping[str, Quantity]) -> Amounts:
    """The increase of each amount; amounts that did not increase are omitted."""
    return {name: amount - old.get(name, ZERO) for name, amount in new.items() if amount > old.get(name, ZERO)}


def only(amounts: Mapping[str, Quantity], names: Container[str]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name in names}


def text_of(amounts: Mapping[str, Quantity], names: Iterable[str]) -> str:
    """``cpu=1,pods=2``."""
    return ",".join(f"{name}={amounts[name]}" for name in sorted(names) if name in amounts)
