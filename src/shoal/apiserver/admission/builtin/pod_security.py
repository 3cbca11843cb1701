"""PodSecurity: enforces the Pod Security Standard that the labels of a namespace ask for.

Violating pods are rejected; violating templates of controllers only give a warning. Raising the standard of a
namespace gives a warning that lists its violating pods. In a namespace without the labels a pod costs one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal.apiserver import objects
from shoal.apiserver.admission.builtin.object_cache import ObjectCache
from shoal.apiserver.admission.model import CREATE, UPDATE, Admission, Where
from shoal.apiserver.context import Core
from shoal.errors import FieldError, Invalid
from shoal.kube.objects import Obj
from shoal.kube.podsecurity import (
    PREFIX,
    PRIVILEGED,
    PodSecurityLevels,
    Standard,
    Violation,
    findings,
    in_detail,
    in_short,
    is_stricter,
    policy_of,
)

_IGNORED_SUBRESOURCES: Final = frozenset(
    {"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}
)
_TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    "podtemplates": ("template",),
    "replicationcontrollers": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}
_ENFORCED: Final = f"{PREFIX}enforce-policy"
_VIOLATIONS: Final = f"{PREFIX}audit-violations"
_ERROR: Final = f"{PREFIX}error"
_MAX_PODS: Final = 3000
_MAX_CHECK_S: Final = 0.1  # longest time to check the pods of a namespace while other requests wait


class _Labelled:
    """The policy that the labels of a namespace define."""

    __slots__ = ("errors", "policy")

    def __init__(self, policy: PodSecurityLevels, errors: list[FieldError]) -> None:
        self.policy = policy
        self.errors = errors


def _read(namespace: Obj) -> _Labelled | None:
    labels = namespace["metadata"].get("labels") or {}
    if not any(name.startswith(PREFIX) for name in labels):
        return None
    return _Labelled(*policy_of(labels))


class PodSecurity:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._namespaces: ObjectCache[_Labelled] = ObjectCache(core, "namespaces", _read)

    def start(self) -> None:
        self._namespaces.start()

    def handles(self, where: Where) -> bool:
        key, operation, subresource = where
        if operation not in (CREATE, UPDATE):
            return False
        if key == "pods":
            return subresource not in _IGNORED_SUBRESOURCES
        return not subresource and (key == "namespaces" or key in _TEMPLATES)

    def validate(self, admission: Admission) -> None:
        key = admission.served.key
        if key == "pods":
            self._check_pod(admission)
        elif key == "namespaces":
            self._check_namespace(admission)
        else:
            self._check_template(admission)

    # -- pods and their controllers -------------------------------------------------------------------------------

    def _check_pod(self, admission: Admission) -> None:
        labelled = self._namespaces.get(admission.namespace)
        if labelled is None or (labelled.policy.privileged and not labelled.errors):
            admission.annotations[_ENFORCED] = "privileged:latest"
            return
        pod, old = admission.object, admission.old
        assert pod is not None
        if old is not None and not _is_significant(pod, old):
            return
        self._evaluate(admission, labelled, pod["metadata"], pod["spec"], enforced=True)

    def _check_template(self, admission: Admission) -> None:
        labelled = self._namespaces.get(admission.namespace)
        if labelled is None:
            return
        policy = labelled.policy
        if not labelled.errors and policy.warn.level == policy.audit.level == PRIVILEGED:
            return
        template = admission.object
        for field in _TEMPLATES[admission.served.key]:
            template = (template or {}).get(field)
        if template is not None:
            self._evaluate(
                admission, labelled, template.get("metadata") or {}, template.get("spec") or {}, enforced=False
            )

    @staticmethod
    def _evaluate(admission: Admission, labelled: _Labelled, metadata: Obj, spec: Obj, *, enforced: bool) -> None:
        policy, notes = labelled.policy, admission.annotations
        known: dict[Standard, list[Violation]] = {}

        def found(standard: Standard) -> list[Violation]:
            if standard not in known:
                known[standard] = findings(standard, metadata, spec)
            return known[standard]

        if labelled.errors:
            notes[_ERROR] = f"Failed to parse policy: {_listed(labelled.errors)}"
        if enforced:
            notes[_ENFORCED] = str(policy.enforce)
        if found(policy.audit):
            notes[_VIOLATIONS] = f'would violate PodSecurity "{policy.audit}": {in_detail(found(policy.audit))}'
        if enforced and found(policy.enforce):
            raise admission.denied(f'violates PodSecurity "{policy.enforce}": {in_detail(found(policy.enforce))}')
        if found(policy.warn):
            admission.warnings.append(f'would violate PodSecurity "{policy.warn}": {in_detail(found(policy.warn))}')

    # -- namespaces ------------------------------------------------------------------------------------------------

    def _check_namespace(self, admission: Admission) -> None:
        namespace, old = admission.object, admission.old
        assert namespace is not None
        name = namespace["metadata"].get("name", "")
        policy, errors = policy_of(namespace["metadata"].get("labels"))
        before, old_errors = policy_of(None if old is None else old["metadata"].get("labels"))
        if errors and (old is None or errors != old_errors):
            raise Invalid.of("Namespace", "", name, errors)
        if old is None or policy.enforce == before.enforce or policy.enforce.level == PRIVILEGED:
            return
        if policy.enforce.minor == before.enforce.minor and not is_stricter(policy.enforce.level, before.enforce.level):
            return
        admission.warnings.extend(self._pods_against(name, policy.enforce))

    def _pods_against(self, namespace: str, standard: Standard) -> list[str]:
        """Warnings about pods of the namespace that violate its new enforced standard."""
        clock = self._core.clock
        entries = self._core.store.range("pods", namespace).entries
        deadline = clock.monotonic() + _MAX_CHECK_S
        checked = 0
        violators: dict[str, list[str]] = {}  # violation -> names of pods
        for pod in _different_ones_first(objects.decode(entry) for entry in entries[:_MAX_PODS]):
            checked += 1
            found = findings(standard, pod["metadata"], pod["spec"])
            if found:
                violators.setdefault(in_short(found), []).append(pod["metadata"]["name"])
            if clock.monotonic() > deadline:
                break
        warnings = []
        if checked < len(entries):
            warnings.append(
                f"new PodSecurity enforce level only checked against the first {checked} of {len(entries)} existing "
                "pods"
            )
        if violators:
            warnings.append(
                f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{standard}"'
            )
        return warnings + sorted(f"{_counted(names)}: {wrong}" for wrong, names in violators.items())


def _different_ones_first(pods: Iterable[Obj]) -> list[Obj]:
    """One pod of each controller first, then the rest: pods of one controller are usually equal."""
    first, rest = list[Obj](), list[Obj]()
    seen: set[str] = set()
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        controller = next((owner.get("uid", "") for owner in owners if owner.get("controller")), None)
        if controller is not None and controller in seen:
            rest.append(pod)
            continue
        first.append(pod)
        if controller is not None:
            seen.add(controller)
    return first + rest


def _counted(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'})"


def _is_significant(pod: Obj, old: Obj) -> bool:
    """Whether an update changes a field that the standards check; of these only images can change in practice."""
    new_spec, old_spec = pod["spec"], old["spec"]
    for field in ("containers", "initContainers"):
        if _images(new_spec.get(field)) != _images(old_spec.get(field)):
            return True
    before = {container.get("name"): container.get("image") for container in old_spec.get("ephemeralContainers") or ()}
    return any(
        container.get("name") not in before or before[container.get("name")] != container.get("image")
        for container in new_spec.get("ephemeralContainers") or ()
    )


def _images(containers: list[Obj] | None) -> list[str | None]:
    return [container.get("image") for container in containers or ()]


def _listed(errors: list[FieldError]) -> str:
    texts = [str(error) for error in errors]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
