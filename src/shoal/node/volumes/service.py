"""Sets up the volumes of pods on the node, keeps those made from objects up to date, and removes them.

    <root>/pods/<uid>/volumes/<name>     the files of a volume, except host paths and claims
    <root>/pods/<uid>/containers/<name>  termination messages of a container

``prepare`` is idempotent: it updates what is outdated and leaves the rest alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.base.clock import Clock
from shoal.client import Client, TransportError
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity
from shoal.node.env import EnvironmentSources, expand
from shoal.node.errors import ConfigFault, VolumeFault
from shoal.node.references import ObjectReference, References
from shoal.node.runtime.model import Mount
from shoal.node.volumes import files
from shoal.node.volumes.content import VolumeSources, files_of, is_made_of_objects, object_references, token_projections
from shoal.node.volumes.subpaths import make_subpath
from shoal.node.volumes.tokens import PodTokens


@dataclass(frozen=True, slots=True)
class Prepared:
    """A volume that is set up."""

    path: Path
    read_only: bool = False


class Volumes:
    """The volumes of all pods of a node."""

    def __init__(
        self,
        root: Path,
        client: Client,
        references: References,
        *,
        clock: Clock,
        allocatable: Mapping[str, Quantity],
    ) -> None:
        self._root = root
        self._references = references
        self._clock = clock
        self.allocatable = allocatable
        self._tokens = PodTokens(client, clock=clock)

    def folder(self, uid: str) -> Path:
        """The folder of a pod, removed with it."""
        return self._root / "pods" / uid

    def uids(self) -> set[str]:
        """The uids of pods with a folder."""
        pods = self._root / "pods"
        return {each.name for each in pods.iterdir()} if pods.is_dir() else set()

    def renew_at(self, uid: str) -> float | None:
        """When the pod's next token has to be renewed."""
        return self._tokens.renew_at(uid)

    async def prepare(self, pod: Obj, sources: EnvironmentSources) -> dict[str, Prepared]:
        """Set up all volumes; raises ``VolumeFault``."""
        found: dict[str, Prepared] = {}
        for volume in pod["spec"].get("volumes") or ():
            found[volume["name"]] = await self._prepare(pod, volume, sources)
        return found

    async def refresh(self, pod: Obj, sources: EnvironmentSources) -> None:
        """Update volumes made from objects; a ``VolumeFault`` leaves the old content."""
        for volume in pod["spec"].get("volumes") or ():
            if is_made_of_objects(volume):
                await self._prepare(pod, volume, sources)

    def remove(self, uid: str) -> None:
        """Remove the folder and tokens of a pod."""
        self._tokens.forget(uid)
        shutil.rmtree(self.folder(uid), ignore_errors=True)

    async def _prepare(self, pod: Obj, volume: Obj, sources: EnvironmentSources) -> Prepared:
        name = volume["name"]
        place = volume_folder(self.folder(pod["metadata"]["uid"]), name)
        try:
            if is_made_of_objects(volume):
                return await self._from_objects(pod, volume, place, sources)
            if volume.get("hostPath") is not None:
                return Prepared(_host_path(name, volume["hostPath"]))
            if volume.get("persistentVolumeClaim") is not None or volume.get("ephemeral") is not None:
                return await self._claimed(pod, volume)
            if volume.get("emptyDir") is not None or set(volume) == {"name"}:
                return Prepared(_empty(place, _group(pod)))
        except OSError as error:
            raise VolumeFault(name, f"{error.strerror or error}: {error.filename or place}") from error
        kind = next(key for key in volume if key != "name")
        raise VolumeFault(name, f"volumes of the kind {kind} are not supported by this node")

    # made from objects

    async def _from_objects(self, pod: Obj, volume: Obj, place: Path, sources: EnvironmentSources) -> Prepared:
        name, namespace = volume["name"], pod["metadata"]["namespace"]
        config_maps, secrets = dict(sources.config_maps), dict(sources.secrets)
        try:
            for resource, wanted in object_references(volume):
                obj = await self._references.get(ObjectReference(resource, namespace, wanted))
                (config_maps if resource == "configmaps" else secrets)[wanted] = obj
            tokens = {projection: await self._tokens.get(pod, projection) for projection in token_projections(volume)}
        except (ApiError, TransportError) as error:
            raise VolumeFault(name, str(error)) from error
        complete = replace(sources, config_maps=config_maps, secrets=secrets, allocatable=self.allocatable)
        content = files_of(volume, pod, VolumeSources(environment=complete, tokens=tokens))
        stamp = self._clock.now().strftime("%Y_%m_%d_%H_%M_%S")
        files.write(place, content, stamp, group=_group(pod))
        return Prepared(place, read_only=True)

    # claims

    async def _claimed(self, pod: Obj, volume: Obj) -> Prepared:
        name, about = volume["name"], pod["metadata"]
        source = volume.get("persistentVolumeClaim") or {}
        claim_name = source.get("claimName") or f"{about['name']}-{name}"
        try:
            claim = await self._references.get(
                ObjectReference("persistentvolumeclaims", about["namespace"], claim_name)
            )
            if claim is None:
                raise VolumeFault(name, f'persistentvolumeclaim "{claim_name}" not found')
            bound = claim["spec"].get("volumeName")
            if not bound or (claim.get("status") or {}).get("phase") != "Bound":
                raise VolumeFault(name, f"PVC {about['namespace']}/{claim_name} is not bound")
            found = await self._references.get(ObjectReference("persistentvolumes", "", bound))
        except (ApiError, TransportError) as error:
            raise VolumeFault(name, str(error)) from error
        if found is None:
            raise VolumeFault(name, f'persistentvolume "{bound}" not found')
        spec = found["spec"]
        place = (spec.get("local") or spec.get("hostPath") or {}).get("path")
        if not place:
            raise VolumeFault(name, f'persistentvolume "{bound}" is of a kind that this node does not support')
        return Prepared(_ensure_directory(place), read_only=bool(source.get("readOnly")))

    # mounts

    def mounts(
        self, pod: Obj, container: Obj, prepared: Mapping[str, Prepared], env: Mapping[str, str], attempt: int
    ) -> tuple[Mount, ...]:
        """The mounts of a container; raises ``ConfigFault`` for a subPath that leads out of its volume."""
        found = [_mount(each, prepared, env) for each in container.get("volumeMounts") or ()]
        path = container.get("terminationMessagePath") or "/dev/termination-log"
        message = self.message_file(pod["metadata"]["uid"], container["name"], attempt)
        message.parent.mkdir(parents=True, exist_ok=True)
        message.touch()
        message.chmod(0o666)
        found.append(Mount(host_path=str(message), container_path=path))
        return tuple(found)

    def message_file(self, uid: str, container: str, attempt: int) -> Path:
        """The file of a container's termination message."""
        return self.folder(uid) / "containers" / container / f"{attempt}.termination-log"


def volume_folder(pod: Path, name: str) -> Path:
    """The folder of a volume below that of its pod."""
    return pod / "volumes" / name


def references_of(pod: Obj) -> set[ObjectReference]:
    """The objects that the pod's volumes refer to."""
    namespace = pod["metadata"]["namespace"]
    found: set[ObjectReference] = set()
    for volume in pod["spec"].get("volumes") or ():
        found |= {ObjectReference(resource, namespace, name) for resource, name in object_references(volume)}
    return found


def _group(pod: Obj) -> int | None:
    found: int | None = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return found


def _empty(place: Path, group: int | None) -> Path:
    if not place.is_dir():
        place.mkdir(parents=True)
        place.chmod(0o777)
        if group is not None:
            files.set_group(place, group)
            place.chmod(0o2777)  # what is made in it belongs to the group too
    return place


def _ensure_directory(place: str) -> Path:
    path = Path(place)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _host_path(name: str, source: Obj) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    elif kind == "FileOrCreate":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o644)
    checks = {
        "Directory": (path.is_dir, "directory"), "File": (path.is_file, "file"), "Socket": (path.is_socket, "socket"),
        "CharDevice": (path.is_char_device, "character device"), "BlockDevice": (path.is_block_device, "block device"),
    }  # fmt: skip
    if kind in checks and not checks[kind][0]():
        raise VolumeFault(name, f"hostPath type check failed: {path} is not a {checks[kind][1]}")
    return path


def _mount(each: Obj, prepared: Mapping[str, Prepared], env: Mapping[str, str]) -> Mount:
    volume = prepared.get(each["name"])
    if volume is None:
        raise ConfigFault(f"cannot find volume {each['name']!r} to mount into container")
    part = each.get("subPath") or ""
    if each.get("subPathExpr"):
        part = expand(each["subPathExpr"], env.get)
        if "$(" in part:
            raise ConfigFault(f"missing value for {each['subPathExpr']!r}")
    if part:
        make_subpath(volume.path, part)
    return Mount(
        host_path=str(volume.path / part),
        container_path=each["mountPath"],
        read_only=bool(each.get("readOnly")) or volume.read_only,
        propagation=each.get("mountPropagation") or "None",
        volume=each["name"],
        within=str(volume.path) if part else "",
    )
