"""``shoal apply``: creates or changes the objects that files describe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.documents import ManifestDocument, ordered, placed, read_all
from shoal.cli.fleet.hints import hints
from shoal.cli.fleet.kinds import BY_NAME, ROOT, ref_of
from shoal.cli.fleet.session import CorrelationId, DryRun, Environment, FleetSession, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, brief, indented, put
from shoal.cli.rest import AnswerLost, CannotReach, RequestRefused, in_lines
from shoal.errors import ConfigError, ShoalError

app = new_app("Create or change the objects that files describe.")

MOST_DOCUMENTS = 500  # per request
MOST_BYTES = 900_000
_place = re.compile(r"documents\[(\d+)\]\.?")

Files = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", metavar="FILE", help="a file, a folder of files, or - for standard input"),
]


class NothingApplied(ShoalError):
    """A document is refused, so none was applied."""

    def __init__(self, message: str, correlation: str) -> None:
        super().__init__(message)
        self.correlation = correlation


class PartlyApplied(ShoalError):
    """There were more documents than one request may have, and a later request failed."""


@app.command()
def apply(
    filename: Files = None,
    dry_run: DryRun = False,
    force: Annotated[
        bool, typer.Option("--force", help="also a revision of an app or of gateways that a rollout has taken back")
    ] = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Create or change the objects that files describe, in the order of their dependencies: all of them, or none if one
    is refused. More than 500 documents are applied in parts. The exit code is 1 if one was refused."""
    if not filename:
        raise ConfigError("filename is missing: use -f FILE, or -f - for standard input")
    documents = ordered(read_all(filename))
    with opened(context, project, environment, correlation=correlation_id) as session:
        documents = [placed(each, session.project, session.environment) for each in documents]
        results: list[dict[str, Any]] = []
        for batch in batches(documents):
            try:
                results += send(session, batch, dry_run=dry_run, force=force)
            except (NothingApplied, CannotReach) as error:
                if not results:
                    raise
                typer.echo(report(results), nl=False)
                raise PartlyApplied(f"the documents above were applied, the others not:\n{error}") from None
        put({"items": results, "dryRun": dry_run}, output, lambda: report(results))
        failed = [(each, found) for each, found in zip(documents, results, strict=True) if "error" in found]
        for each, found in failed:
            typer.echo(failure(session, each, found["error"]), err=True, nl=False)
        if not dry_run and any(each.get("created") or each.get("changed") for each in results):
            session.say_correlation()
    if failed:
        raise typer.Exit(1)


def batches(documents: Sequence[ManifestDocument]) -> Iterator[list[ManifestDocument]]:
    """The documents in batches within the limits of one request."""
    batch: list[ManifestDocument] = []
    size = 0
    for each in documents:
        length = len(json.dumps(each.content, default=str))
        if batch and (len(batch) == MOST_DOCUMENTS or size + length > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += length
    if batch:
        yield batch


def send(
    session: FleetSession, batch: Sequence[ManifestDocument], *, dry_run: bool, force: bool = False
) -> list[dict[str, Any]]:
    """Apply one batch; the results are in the order of its documents."""
    body = [each.content for each in batch]
    try:
        params = {"dryRun": dry_run, "force": force}
        answer = session.rest.request("POST", f"{ROOT}/apply", body, params=params).body
    except AnswerLost as lost:
        return _found_out(session, batch, lost, force=force)
    except RequestRefused as refused:
        items = refused.body.get("items") if isinstance(refused.body, dict) else None
        if items:
            raise NothingApplied(_refused(session, batch, items), refused.correlation) from None
        if refused.status == 422 and refused.details:
            raise NothingApplied(_wrong(session, batch, refused), refused.correlation) from None
        if len(batch) == 1:
            message = f"nothing was applied: {batch[0].shown}: {refused}"
            raise NothingApplied(message, refused.correlation) from None
        raise
    found: list[dict[str, Any]] = answer["items"]
    return found


def _found_out(
    session: FleetSession, batch: Sequence[ManifestDocument], lost: AnswerLost, *, force: bool
) -> list[dict[str, Any]]:
    """The results of a batch whose answer was lost, from a dry run; ``AnswerLost`` unless all of it is applied."""
    first, last = batch[0].shown, batch[-1].shown
    named = first if len(batch) == 1 else f"{first} to {last}"
    try:
        found: list[dict[str, Any]] = session.rest.request(
            "POST", f"{ROOT}/apply", [each.content for each in batch], params={"dryRun": True, "force": force}
        ).body["items"]
    except ShoalError:
        raise AnswerLost(f"{lost}; either all or none of {named} were applied: apply again to be sure") from None
    if any(each["created"] or each["changed"] for each in found):
        raise AnswerLost(f"{lost}; {named} had not been applied when asked a moment later: apply again")
    typer.echo(f"note: {lost}; asked again, everything of {named} is applied", err=True)
    return [{**each, "dryRun": False} for each in found]


def _refused(session: FleetSession, batch: Sequence[ManifestDocument], items: Sequence[dict[str, Any]]) -> str:
    """The error message: the documents that are refused, each with its error and hints."""
    lines = ["nothing was applied:"]
    for each, item in zip(batch, items, strict=True):
        error = item.get("error") or {}
        if error.get("code") in (None, "NotApplied"):
            continue
        details = error.get("details") or []
        faults = [{"field": one.get("field", ""), "message": one.get("message", "")} for one in details]
        lines.append(f"  {each.shown}:")
        lines += [f"    {': '.join(part for part in one.values() if part)}" for one in faults] or [
            f"    {error.get('message', '')}"
        ]
        lines += [f"    → {hint}" for hint in hints(session, faults, each.metadata)]
    return "\n".join(lines)


def _wrong(session: FleetSession, batch: Sequence[ManifestDocument], refused: RequestRefused) -> str:
    """The error message: invalid documents with their fields and hints."""
    lines = ["nothing was applied:"]
    by_document: dict[int, list[dict[str, str]]] = {}
    for each in refused.details:
        place = _place.match(each.get("field", ""))
        position = int(place[1]) if place else 0
        field = each.get("field", "")[place.end() :] if place else each.get("field", "")
        by_document.setdefault(position, []).append({"field": field, "message": each.get("message", "")})
    for position, faults in sorted(by_document.items()):
        lines.append(f"  {batch[position].shown}:")
        lines += [f"    {': '.join(part for part in (each['field'], each['message']) if part)}" for each in faults]
        lines += [f"    → {hint}" for hint in hints(session, faults, batch[position].metadata)]
    return "\n".join(lines)


def report(results: Sequence[dict[str, Any]]) -> str:
    """One line per object, with its changed fields below."""
    named = [(_name(each["object"]), each) for each in results]
    width = max((len(name) for name, _ in named), default=0)
    return "".join(f"{name:<{width}}   {outcome(each)}\n{_below(each)}" for name, each in named)


def _name(found: dict[str, Any]) -> str:
    return ref_of(found).shown if found.get("kind") in BY_NAME else str(found.get("kind"))


def outcome(result: dict[str, Any]) -> str:
    if "error" in result:
        return "failed"
    word = "created" if result["created"] else "changed" if result["changed"] else "unchanged"
    if not result.get("dryRun"):
        return word
    return f"would be {word}" if word != "unchanged" else "would not change"


def _below(result: dict[str, Any]) -> str:
    if "error" in result:
        return ""
    lines = [] if result["created"] else [_change(each) for each in result["changed"]]
    if result.get("dryRun"):
        lines += [effect_line(each) for each in result["effects"]]
    key = (result["object"].get("status") or {}).get("key")
    if key:
        lines.append(f"key (shown only once): {key}")
    lines += [f"note: {each}" for each in result.get("warnings") or ()]
    return indented("\n".join(lines)) if lines else ""


def _change(diff: dict[str, Any]) -> str:
    before, after = (("(none)" if diff[side] is None else brief(diff[side])) for side in ("before", "after"))
    return f"{diff['path']}: {before} → {after}"


def effect_line(effect: Mapping[str, Any]) -> str:
    """The effect of a change on one cluster, as a line."""
    where = "/".join(part for part in (effect["region"], effect["cluster"], effect["shard"]) if part)
    what = " ".join(part for part in (effect["action"], effect["kind"], effect["name"]) if part)
    return f"{where or 'not placed yet'}: {what}"


def failure(session: FleetSession, which: ManifestDocument, error: dict[str, Any]) -> str:
    details = error.get("details") or []
    text = f"error: {which.origin}: {in_lines(str(error.get('message', '')), details)}\n"
    return text + "".join(f"  → {hint}\n" for hint in hints(session, details, which.metadata))
