"""Selects the objects of a list or watch: scope, label selector, field selector, and the index that answers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.apiserver.context import Call
from shoal.apiserver.registry import Served
from shoal.kube import fieldselector, labels
from shoal.kube.fieldselector import FieldSelector
from shoal.kube.labels import Selector
from shoal.store import Attrs, Entry, Store

Predicate = Callable[[Attrs], bool]

# events.k8s.io shows the stored core events under other field names
_RENAMED = {
    "events.k8s.io": {
        **{f"regarding.{f}": f"involvedObject.{f}" for f in (
            "kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")},
        "reportingController": "reportingComponent",
    },
    "": {"spec.host": "spec.nodeName"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Selection:
    """``where`` is None when everything in scope matches; ``index`` narrows the search and is implied by ``where``."""

    namespace: str | None
    where: Predicate | None
    index: str
    name: str | None  # the one object name asked for
    text: str  # canonical form: equal texts select equal objects

    def entries(self, store: Store, served: Served) -> Sequence[Entry] | None:
        """The selected objects without a search, when they are named; None when a search is needed."""
        if self.name is None or (self.namespace is None and served.resource.namespaced):
            return None
        entry = store.get(served.key_of(self.namespace, self.name))
        if entry is None or (self.where is not None and not self.where(entry.attrs)):
            return ()
        return (entry,)

    def before_conversion(self, call: Call) -> Selection:
        """The selection in the store when a webhook converts the objects: field selectors refer to the converted
        version, so they apply only after conversion."""
        if call.served.converter is None or "fieldSelector" not in call.query or not call.served.rules.selectable:
            return self
        return Selection(self.namespace, None, "", None, self.text)

    def of(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        where = self.where
        return entries if where is None else [entry for entry in entries if where(entry.attrs)]


def select(call: Call) -> Selection:
    """The selection a request describes; BadRequest when a selector cannot be parsed or a field is not selectable."""
    query = call.query
    label_text, field_text = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not label_text and not field_text and not call.name:
        return Selection(call.namespace, None, "", None, "")
    by_label = labels.parse(label_text)
    by_field = fieldselector.parse(field_text)
    served = call.served
    resource = served.resource
    by_field = by_field.renamed(_RENAMED.get(resource.group, {}))
    supported = {"metadata.name", *served.storage.rules.selectable}
    if resource.namespaced:
        supported.add("metadata.namespace")
    generic = len(supported) <= 2
    by_field.check(supported, kind="" if generic else resource.kind, generic=generic)
    name = by_field.exact("metadata.name")
    if call.name:  # the deprecated watch of one object
        name = call.name
    namespace = call.namespace
    if namespace is None and resource.namespaced:
        namespace = by_field.exact("metadata.namespace")
    return Selection(
        namespace,
        _predicate(by_label, by_field, name),
        _index(served, by_label, by_field),
        name,
        f"{by_label}|{by_field}|{name or ''}",
    )


def _predicate(by_label: Selector, by_field: FieldSelector, name: str | None) -> Predicate | None:
    label_match, field_match = by_label.matches, by_field.matches
    if name is not None and by_field.everything:
        return lambda attrs: attrs.fields["metadata.name"] == name and label_match(attrs.labels)
    if by_field.everything:
        return None if by_label.everything else lambda attrs: label_match(attrs.labels)
    if by_label.everything:
        return lambda attrs: field_match(attrs.fields)
    return lambda attrs: label_match(attrs.labels) and field_match(attrs.fields)


def _index(served: Served, by_label: Selector, by_field: FieldSelector) -> str:
    for field in served.storage.rules.indexed_fields:
        value = by_field.exact(field)
        if value is not None:
            return f"@{field}={value}"
    return by_label.index_hint() or ""
