"""Volumes of a pod and the sources they share with persistent volumes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from shoal.errors import duplicate, forbidden, invalid, not_supported, required, too_long
from shoal.kube.kinds.checks import (
    Errors,
    check_enum,
    check_range,
    check_required_enum,
    check_required_name,
    check_syntax,
    quantity_of,
    size_bytes,
)
from shoal.kube.kinds.core.claims import check_claim_template
from shoal.kube.kinds.core.containers import PULL_POLICIES, container_name_faults
from shoal.kube.kinds.core.paths import check_descending, check_mode, check_no_backsteps
from shoal.kube.kinds.core.projected import check_downward_items, check_key_items, check_projected
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain
from shoal.kube.objects import Obj

_HOST_PATH_TYPES = frozenset({
    "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
})  # fmt: skip
_CACHING = frozenset({"None", "ReadOnly", "ReadWrite"})
_DISK_KINDS = frozenset({"Shared", "Dedicated", "Managed"})
_MANAGED_DISK = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_DISK = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_ISCSI_NAMES = {
    "iqn": re.compile(r".*iqn\.\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)", re.ASCII),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}"),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}"),
}
# Kubernetes reports some sources under another name than that of the field.
_REPORTED_AS = {"gcePersistentDisk": "persistentDisk"}
_FORBIDDEN_AS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}


def check_volumes(volumes: list[Obj], pod_name: str, path: str, errors: Errors) -> Mapping[str, Obj]:
    """The valid volumes by name. ``pod_name`` is empty for templates, whose pods have no name yet."""
    valid: dict[str, Obj] = {}
    made = {f"{pod_name}-{v.get('name', '')}" for v in volumes if pod_name and v.get("ephemeral") is not None}
    for index, volume in enumerate(volumes):
        found: Errors = []
        where, name = f"{path}[{index}]", volume.get("name", "")
        _check_volume(volume, pod_name, where, found)
        if not name:
            found.append(required(f"{where}.name"))
        else:
            for text in container_name_faults(name):
                found.append(invalid(f"{where}.name", name, text))
        if name in valid:
            found.append(duplicate(f"{where}.name", name))
        if found:
            errors += found
        else:
            valid[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if made and claim in made:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(f"{where}.persistentVolumeClaim.claimName", claim, detail))
    return valid


def _check_volume(volume: Obj, pod_name: str, path: str, errors: Errors) -> None:
    count = 0
    for kind in _ORDER if len(volume) > 2 else volume:
        source = volume.get(kind)
        if source is None or kind == "name":
            continue
        check = SOURCES.get(kind)
        if check is None:
            continue
        count += 1
        if count > 1:
            where = f"{path}.{_FORBIDDEN_AS.get(kind, kind)}"
            errors.append(forbidden(where, "may not specify more than 1 volume type"))
            continue
        check(source, f"{path}.{_REPORTED_AS.get(kind, kind)}", errors)
        if kind == "iscsi":
            _check_iscsi_length(volume.get("name", ""), source, path, errors)
        elif kind == "ephemeral" and pod_name and volume.get("name"):
            _check_claim_name(pod_name, volume["name"], path, errors)
    if not count:
        errors.append(required(path, "must specify a volume type"))


def _check_claim_name(pod_name: str, name: str, path: str, errors: Errors) -> None:
    claim = f"{pod_name}-{name}"
    for text in is_dns1123_subdomain(claim):
        errors.append(invalid(f"{path}.name", name, f'PVC name "{claim}": {text}'))


def _check_iscsi_length(name: str, source: Obj, path: str, errors: Errors) -> None:
    if source.get("initiatorName") is not None and len(f"{name}:{source.get('targetPortal', '')}") > 64:
        detail = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
            "if iscsi.initiatorName is specified."
        )
        errors.append(invalid(f"{path}.name", name, detail))


def check_required_fields(source: Obj, fields: tuple[str, ...], path: str, errors: Errors) -> None:
    for field in fields:
        if not source.get(field):
            errors.append(required(f"{path}.{field}"))


def _requires(*fields: str) -> Callable[[Obj, str, Errors], None]:
    return lambda source, path, errors: check_required_fields(source, fields, path, errors)


def _check_empty_dir(source: Obj, path: str, errors: Errors) -> None:
    limit, mode = source.get("sizeLimit"), source.get("mode")
    if limit is not None and quantity_of(limit).mantissa < 0:
        errors.append(forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"))
    if mode is not None and not 0 <= mode <= 0o1777:
        detail = "must be a number between 0 and 01777 (octal), both inclusive"
        errors.append(invalid(f"{path}.mode", mode, detail))


def check_host_path(source: Obj, path: str, errors: Errors) -> None:
    if not source.get("path"):
        errors.append(required(f"{path}.path"))
        return
    check_no_backsteps(source["path"], f"{path}.path", errors)
    if source.get("type") is not None:
        check_enum(source["type"], _HOST_PATH_TYPES, f"{path}.type", errors)


def _check_git_repo(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("repository",), path, errors)
    check_descending(source.get("directory", ""), f"{path}.directory", errors)


def _check_secret(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("secretName",), path, errors)
    check_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    check_key_items(source.get("items"), f"{path}.items", errors)


def _check_config_map(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("name",), path, errors)
    check_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    check_key_items(source.get("items"), f"{path}.items", errors)


def _check_downward_api(source: Obj, path: str, errors: Errors) -> None:
    check_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    check_downward_items(source.get("items"), path, errors)


def _check_partitioned(field: str) -> Callable[[Obj, str, Errors], None]:
    def check(source: Obj, path: str, errors: Errors) -> None:
        check_required_fields(source, (field,), path, errors)
        partition = source.get("partition", 0)
        if not 0 <= partition <= 255:
            errors.append(invalid(f"{path}.partition", partition, "must be between 1 and 255, inclusive"))

    return check


def check_nfs(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("server", "path"), path, errors)
    if not source.get("path", "").startswith("/"):
        errors.append(invalid(f"{path}.path", source.get("path", ""), "must be an absolute path"))


def check_iscsi(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("targetPortal", "iqn"), path, errors)
    if source.get("iqn"):
        _check_iscsi_name(source["iqn"], f"{path}.iqn", errors)
    check_range(source.get("lun", 0), 0, 255, f"{path}.lun", errors)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        errors.append(required(f"{path}.secretRef"))
    if source.get("initiatorName") is not None:
        _check_iscsi_name(source["initiatorName"], f"{path}.initiatorname", errors)


def _check_iscsi_name(name: str, path: str, errors: Errors) -> None:
    expression = _ISCSI_NAMES.get(name[:3])
    if expression is None:
        errors.append(invalid(path, name, "must be valid format starting with iqn, eui, or naa"))
    elif not expression.fullmatch(name):
        errors.append(invalid(path, name, "must be valid format"))


def check_fc(source: Obj, path: str, errors: Errors) -> None:
    targets, wwids, lun = source.get("targetWWNs"), source.get("wwids"), source.get("lun")
    if not targets and not wwids:
        errors.append(required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if targets and wwids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(invalid(f"{path}.targetWWNs", targets, detail))
    if targets and lun is None:
        errors.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
    elif targets and lun is not None:
        check_range(lun, 0, 255, f"{path}.lun", errors)


def check_quobyte(source: Obj, path: str, errors: Errors) -> None:
    detail = "must be a host:port pair or multiple pairs separated by commas"
    registry = source.get("registry", "")
    if not registry:
        errors.append(required(f"{path}.registry", detail))
    elif len(source.get("tenant", "")) >= 65:
        too_big = "must be a UUID and may not exceed a length of 64 characters"
        errors.append(required(f"{path}.tenant", too_big))
    else:
        for pair in registry.split(","):
            if ":" not in pair.rpartition("]")[2]:
                errors.append(invalid(f"{path}.registry", registry, detail))
    check_required_fields(source, ("volume",), path, errors)


def check_flocker(source: Obj, path: str, errors: Errors) -> None:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        errors.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(invalid(path, "resource", detail))
    if "/" in name:
        errors.append(invalid(f"{path}.datasetName", name, "must not contain '/'"))


def check_flex(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("driver",), path, errors)
    for key in source.get("options") or ():
        domain = "." + key.partition("/")[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errors.append(invalid(f"{path}.options[{key}]", key, detail))


def check_azure_disk(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("diskName", "diskURI"), path, errors)
    caching, kind, uri = source.get("cachingMode"), source.get("kind"), source.get("diskURI", "")
    if caching is not None:
        check_enum(caching, _CACHING, f"{path}.cachingMode", errors)
    if kind is None:
        return
    check_enum(kind, _DISK_KINDS, f"{path}.kind", errors)
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        errors.append(not_supported(f"{path}.diskURI", uri, (_MANAGED_DISK,)))
    elif kind != "Managed" and not uri.startswith("https://"):
        errors.append(not_supported(f"{path}.diskURI", uri, (_BLOB_DISK,)))


def check_storage_os(source: Obj, path: str, errors: Errors) -> None:
    check_required_name(source.get("volumeName"), is_dns1123_label, f"{path}.volumeName", errors)
    if source.get("volumeNamespace"):
        check_syntax(source["volumeNamespace"], is_dns1123_label, f"{path}.volumeNamespace", errors)
    _check_secret_name(source.get("secretRef"), f"{path}.secretRef", errors)


def _check_cinder(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("volumeID",), path, errors)
    _check_secret_name(source.get("secretRef"), f"{path}.secretRef", errors)


def _check_secret_name(reference: Obj | None, path: str, errors: Errors) -> None:
    if reference is not None and not reference.get("name"):
        errors.append(required(f"{path}.name"))


def check_csi_driver_name(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.append(required(path))
        return
    if size_bytes(name) > 63:
        errors.append(too_long(path, 63))
    check_syntax(name.lower(), is_dns1123_subdomain, path, errors, shown=name)


def _check_csi(source: Obj, path: str, errors: Errors) -> None:
    check_csi_driver_name(source.get("driver", ""), f"{path}.driver", errors)
    reference = source.get("nodePublishSecretRef")
    if reference is None:
        return
    if not reference.get("name"):
        errors.append(required(f"{path}.nodePublishSecretRef.name"))
    else:
        check_syntax(reference["name"], is_dns1123_subdomain, f"{path}.name", errors)


def _check_ephemeral(source: Obj, path: str, errors: Errors) -> None:
    template = source.get("volumeClaimTemplate")
    if template is None:
        errors.append(required(f"{path}.volumeClaimTemplate"))
    else:
        check_claim_template(template, f"{path}.volumeClaimTemplate", errors)


def _check_image(source: Obj, path: str, errors: Errors) -> None:
    check_required_fields(source, ("reference",), path, errors)
    check_required_enum(source.get("pullPolicy"), PULL_POLICIES, f"{path}.pullPolicy", errors)


# The order in which Kubernetes reports several sources of a volume.
SOURCES: Final[dict[str, Callable[[Obj, str, Errors], None]]] = {
    "emptyDir": _check_empty_dir,
    "hostPath": check_host_path,
    "gitRepo": _check_git_repo,
    "gcePersistentDisk": _check_partitioned("pdName"),
    "awsElasticBlockStore": _check_partitioned("volumeID"),
    "secret": _check_secret,
    "nfs": check_nfs,
    "iscsi": check_iscsi,
    "glusterfs": _requires("endpoints", "path"),
    "flocker": check_flocker,
    "persistentVolumeClaim": _requires("claimName"),
    "rbd": _requires("monitors", "image"),
    "cinder": _check_cinder,
    "cephfs": _requires("monitors"),
    "quobyte": check_quobyte,
    "downwardAPI": _check_downward_api,
    "fc": check_fc,
    "flexVolume": check_flex,
    "configMap": _check_config_map,
    "azureFile": _requires("secretName", "shareName"),
    "vsphereVolume": _requires("volumePath"),
    "photonPersistentDisk": _requires("pdID"),
    "portworxVolume": _requires("volumeID"),
    "azureDisk": check_azure_disk,
    "storageos": check_storage_os,
    "projected": check_projected,
    "scaleIO": _requires("gateway", "system", "volumeName"),
    "csi": _check_csi,
    "ephemeral": _check_ephemeral,
    "image": _check_image,
}
_ORDER = tuple(SOURCES)
