"""Ranked text search over names, namespaces, images, hosts, addresses and labels of all kinds in all clusters.

Every word must be found. A match of the whole name ranks highest, then of its beginning, of the beginning of one of its
parts, of any place in it, and last of other fields. Results with equal rank are in the order of kinds and names.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.navigator.answers.query.fields import CLUSTERS
from shoal.navigator.answers.query.run import cluster_row
from shoal.navigator.model import KINDS, LASTING, Cluster, Row
from shoal.navigator.route_summaries import RouteSummary
from shoal.navigator.summaries import (
    DeploymentSummary,
    IstioSummary,
    NodeSummary,
    PodSummary,
    ServiceSummary,
    SliceSummary,
)
from shoal.navigator.summary_base import Summary
from shoal.navigator.view import View

MAX_WORDS = 8
_TURN = 5000
_WHOLE, _START, _PART, _ANYWHERE, _ELSEWHERE_WHOLE, _ELSEWHERE, _LABEL = 100, 80, 60, 40, 50, 20, 10
_ORDER = {name: number for number, name in enumerate((CLUSTERS, *KINDS))}


@dataclass(frozen=True, slots=True)
class Hit:
    row: Row
    score: int
    matched: tuple[str, ...]  # what was found where: "name", "image reg/web:v2"

    def as_json(self) -> dict[str, Any]:
        row = self.row
        return {
            "kind": row.kind, "cluster": row.cluster, "namespace": row.namespace, "name": row.name,
            "score": self.score, "matched": list(self.matched),
        }  # fmt: skip


def search(
    view: View, text: str, *, kinds: Iterable[str] = (), cluster: str = "", limit: int = 50
) -> Generator[None, None, tuple[list[Hit], int]]:
    """The best hits and their number; pauses regularly, so that other tasks can run."""
    words = text.lower().split()[:MAX_WORDS]
    hits: list[Hit] = []
    if not words:
        return hits, 0
    wanted = set(kinds)
    if not wanted or CLUSTERS in wanted:
        known = [each for each in view.clusters() if cluster in ("", each.name)]
        hits += [hit for each in known if (hit := _hit(cluster_row(each), words, {})) is not None]
    for kind in [each for each in KINDS if each in wanted] if wanted else LASTING:
        rows = list(view.rows(kind, cluster=cluster))
        labels: dict[int, dict[str, str]] = {}  # what is found in a set of labels; many rows share one
        likely = _LikelyPods(words, labels) if kind == "pods" else None
        for start in range(0, len(rows), _TURN):
            part = rows[start : start + _TURN]
            if likely is not None:
                part = [row for row in part if likely.may_have(row)]
            hits += [hit for row in part if (hit := _hit(row, words, labels)) is not None]
            yield
    best = heapq.nsmallest(limit, hits, key=_rank)
    return best, len(hits)


class _LikelyPods:
    """Tells pods that cannot match from the others, fast: there are many, and most of what is searched in them is the
    same for all pods of one owner on one node."""

    def __init__(self, words: list[str], labels: dict[int, dict[str, str]]) -> None:
        self._words: list[tuple[str, dict[tuple[int, str, str, int], bool]]] = [(word, {}) for word in words]
        self._labels = labels

    def may_have(self, row: Row) -> bool:
        pod = row.summary
        if not isinstance(pod, PodSummary):
            return True
        name, namespace, ip = row.name, row.namespace, pod.ip
        shared: tuple[int, str, str, int] | None = None
        for word, known in self._words:
            if word in name or word in namespace or word in ip or "/" in word:
                continue
            shared = shared or (id(pod.containers), pod.owner, pod.node, id(pod.labels))
            found = known.get(shared)
            if found is None:
                texts = [(what, text) for what, text in _texts(row) if what != "address"]
                found = known[shared] = bool(_in_texts(texts, word)[0] or _in_labels(row, word, self._labels))
            if not found:
                return False
        return True


def _rank(hit: Hit) -> tuple[Any, ...]:
    row = hit.row
    return -hit.score, _ORDER[row.kind], row.cluster, row.namespace, row.name


def _hit(row: Row, words: list[str], labels: dict[int, dict[str, str]]) -> Hit | None:
    score = 0
    matched: dict[str, None] = {}
    others: list[tuple[str, str]] | None = None
    for word in words:
        points, where = _in_name(row, word)
        if not points:
            if others is None:
                others = list(_texts(row)) if not isinstance(row.summary, SliceSummary) or _is_address(word) else []
            points, where = _in_texts(others, word)
        if not points:
            where = _in_labels(row, word, labels)
            points = _LABEL if where else 0
        if not points:
            return None
        score += points
        matched[where] = None
    return Hit(row, score, tuple(matched))


def _is_address(word: str) -> bool:
    """Endpoints are many, and only their addresses are searched."""
    return "." in word or ":" in word


def _in_name(row: Row, word: str) -> tuple[int, str]:
    name = row.name  # they have no capitals
    at = name.find(word)
    if at >= 0:
        if len(name) == len(word):
            return _WHOLE, "name"
        if at == 0:
            return _START, "name"
        return (_PART if name[at - 1] in "-._/" else _ANYWHERE), "name"
    if "/" in word and row.key.lower() == word:
        return _WHOLE, "name"
    return (_ELSEWHERE_WHOLE, "namespace") if row.namespace == word else (0, "")


def _in_texts(texts: list[tuple[str, str]], word: str) -> tuple[int, str]:
    best, where = 0, ""
    for name, text in texts:
        if word in text.lower():
            points = _ELSEWHERE_WHOLE if text.lower() == word else _ELSEWHERE
            if points > best:
                best, where = points, f"{name} {text}"
    return best, where


def _in_labels(row: Row, word: str, known: dict[int, dict[str, str]]) -> str:
    summary = row.summary
    if not isinstance(summary, Summary) or not summary.labels:
        return ""
    found = known.setdefault(id(summary.labels), {})
    if word not in found:
        found[word] = _label_with(summary.labels, word)
    return found[word]


def _label_with(labels: Mapping[str, str], word: str) -> str:
    name, sign, value = word.partition("=")
    for label, text in labels.items():
        if (label.lower() == name and text.lower() == value) if sign else word in text.lower():
            return f"label {label}={text}"
    return ""


def _texts(row: Row) -> Iterable[tuple[str, str]]:
    match row.summary:
        case PodSummary() as pod:
            yield "address", pod.ip
            yield "node", pod.node
            yield "owner", pod.owner
            for container in pod.containers:
                yield "image", container.image
        case ServiceSummary() as service:
            yield "address", service.cluster_ip
            yield "external name", service.external_name
            for address in service.external_ips:
                yield "address", address
        case SliceSummary() as slice_:
            for endpoint in slice_.endpoints:
                yield "address", endpoint.address
        case NodeSummary() as node:
            yield "address", node.address
            yield "version", node.version
        case DeploymentSummary() as deployment:
            for image in deployment.images:
                yield "image", image
        case IstioSummary() | RouteSummary() as routed:
            for host in routed.hosts:
                yield "host", host
            for gateway in routed.gateways:
                yield "gateway", gateway
        case Cluster() as cluster:
            yield "region", cluster.region
            yield from cluster.metadata.items()
