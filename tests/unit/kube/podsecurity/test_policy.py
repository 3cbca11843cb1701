"""Pod security labels of namespaces: the standard that they select, and their errors."""

from __future__ import annotations

import pytest

from shoal.kube.podsecurity import PodSecurityLevels, Standard, is_stricter, policy_of

P = "pod-security.kubernetes.io/"


@pytest.mark.parametrize(
    ("labels", "enforce", "audit", "warn"),
    [
        ({}, "privileged:latest", "privileged:latest", "privileged:latest"),
        ({"a": "b"}, "privileged:latest", "privileged:latest", "privileged:latest"),
        # what is enforced is warned about too, unless something else is said
        ({"enforce": "baseline"}, "baseline:latest", "privileged:latest", "baseline:latest"),
        ({"enforce": "restricted", "enforce-version": "v1.24"}, "restricted:v1.24", "privileged:latest",
         "restricted:v1.24"),
        ({"enforce": "restricted", "enforce-version": "v1.24", "warn-version": "v1.30"}, "restricted:v1.24",
         "privileged:latest", "restricted:v1.30"),
        ({"enforce": "restricted", "warn": "privileged"}, "restricted:latest", "privileged:latest",
         "privileged:latest"),
        ({"audit": "baseline", "audit-version": "v1.0"}, "privileged:latest", "baseline:v1.0", "privileged:latest"),
        # what cannot be read is enforced strictly and spoken of not at all
        ({"enforce": "x", "audit": "x", "warn": "x"}, "restricted:latest", "privileged:latest", "privileged:latest"),
        ({"enforce": "baseline", "enforce-version": "1.2"}, "baseline:latest", "privileged:latest", "baseline:latest"),
    ],
)  # fmt: skip
def test_labels_make_a_policy(labels: dict[str, str], enforce: str, audit: str, warn: str) -> None:
    policy, _ = policy_of({P + name: value for name, value in labels.items()})
    assert (str(policy.enforce), str(policy.audit), str(policy.warn)) == (enforce, audit, warn)


def test_unreadable_labels_are_named() -> None:
    _, errors = policy_of({f"{P}enforce": "strict", f"{P}warn-version": "v2.0", f"{P}audit-version": "v1.01"})
    assert [str(error) for error in errors] == [
        f'metadata.labels[{P}enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted',
        f'metadata.labels[{P}audit-version]: Invalid value: "v1.01": must be "latest" or "v1.x"',
        f'metadata.labels[{P}warn-version]: Invalid value: "v2.0": must be "latest" or "v1.x"',
    ]


def test_a_policy_is_privileged_when_all_of_it_is() -> None:
    assert PodSecurityLevels().privileged
    assert not PodSecurityLevels(warn=Standard("baseline")).privileged


def test_levels_have_an_order() -> None:
    assert is_stricter("restricted", "baseline")
    assert is_stricter("baseline", "privileged")
    assert not is_stricter("baseline", "baseline")
