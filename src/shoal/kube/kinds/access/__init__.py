"""authentication.k8s.io, authorization.k8s.io and certificates.k8s.io."""

from __future__ import annotations

from shoal.kube.kinds.access import pod_certificate, reviews, signing, trust_bundle
from shoal.kube.rules import KindRules

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"

RULES: dict[tuple[str, str, str], KindRules] = {
    (_AUTHENTICATION, "v1", "TokenRequest"): reviews.TOKEN_REQUEST,
    (_AUTHENTICATION, "v1", "TokenReview"): reviews.TOKEN_REVIEW,
    (_AUTHENTICATION, "v1", "SelfSubjectReview"): KindRules(),
    (_AUTHORIZATION, "v1", "LocalSubjectAccessReview"): reviews.LOCAL_SUBJECT_ACCESS_REVIEW,
    (_AUTHORIZATION, "v1", "SelfSubjectAccessReview"): reviews.SELF_SUBJECT_ACCESS_REVIEW,
    (_AUTHORIZATION, "v1", "SelfSubjectRulesReview"): reviews.SELF_SUBJECT_RULES_REVIEW,
    (_AUTHORIZATION, "v1", "SubjectAccessReview"): reviews.SUBJECT_ACCESS_REVIEW,
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"): signing.RULES,
    ("certificates.k8s.io", "v1", "ClusterTrustBundle"): trust_bundle.RULES,
    ("certificates.k8s.io", "v1", "PodCertificateRequest"): pod_certificate.RULES,
}
