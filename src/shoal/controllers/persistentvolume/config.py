"""Settings: the directory of volumes, and the default storage class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal.errors import ConfigError

PROVISIONER: Final = "shoal.dev/folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeConfig:
    directory: Path  # directory of the volumes' folders
    class_name: str = "local"  # the default class; empty: none
    wait_for_consumer: bool = True  # bind claims of that class when a pod is scheduled
    pinned: bool = False  # volumes belong to the chosen node, for nodes that do not share the directory

    def __post_init__(self) -> None:
        if not self.directory.is_absolute():
            raise ConfigError(f"volumes.directory is {self.directory}: use an absolute path")
        if self.pinned and not self.wait_for_consumer:
            raise ConfigError("volumes.pinned needs volumes.wait_for_consumer: a node has to be chosen first")

    def storage_class(self) -> dict[str, object]:
        return {
            "metadata": {
                "name": self.class_name,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": PROVISIONER,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer" if self.wait_for_consumer else "Immediate",
            "allowVolumeExpansion": True,
        }
