"""Kinds that extend the API: webhooks, admission policies and aggregated APIs."""

from __future__ import annotations

from shoal.kube.kinds.extension import api_service, policy, webhook
from shoal.kube.rules import KindRules

_ADMISSION = "admissionregistration.k8s.io"

RULES: dict[tuple[str, str, str], KindRules] = {
    (_ADMISSION, "v1", "MutatingAdmissionPolicy"): policy.MUTATING,
    (_ADMISSION, "v1", "MutatingAdmissionPolicyBinding"): policy.MUTATING_BINDING,
    (_ADMISSION, "v1", "MutatingWebhookConfiguration"): webhook.MUTATING,
    (_ADMISSION, "v1", "ValidatingAdmissionPolicy"): policy.VALIDATING,
    (_ADMISSION, "v1", "ValidatingAdmissionPolicyBinding"): policy.VALIDATING_BINDING,
    (_ADMISSION, "v1", "ValidatingWebhookConfiguration"): webhook.VALIDATING,
    ("apiregistration.k8s.io", "v1", "APIService"): api_service.RULES,
}
