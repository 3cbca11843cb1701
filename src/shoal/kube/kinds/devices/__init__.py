"""resource.k8s.io: device claims, their templates, device classes, and the slices that list devices."""

from __future__ import annotations

from shoal.kube.kinds.devices import claim, device_class, resource_slice, taint_rule
from shoal.kube.rules import KindRules

_GROUP = "resource.k8s.io"

RULES: dict[tuple[str, str, str], KindRules] = {
    (_GROUP, "v1", "DeviceClass"): device_class.RULES,
    (_GROUP, "v1", "DeviceTaintRule"): taint_rule.RULES,
    (_GROUP, "v1", "ResourceClaim"): claim.CLAIM,
    (_GROUP, "v1", "ResourceClaimTemplate"): claim.TEMPLATE,
    (_GROUP, "v1", "ResourceSlice"): resource_slice.RULES,
}
