"""Options that several commands share. A setting's default is in its process's settings, so every flag is optional."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.base import logs

# every process
LogLevel = Annotated[str | None, typer.Option(help=f"{', '.join(logs.LEVELS)}; default info")]
StopOnEof = Annotated[bool, typer.Option(hidden=True)]  # for a parent process: exit when standard input closes
ReloadedConfig = Annotated[Path | None, typer.Option(help="YAML file with settings; SIGHUP reads it again")]

# processes that serve TLS
CertificateNames = Annotated[
    list[str] | None, typer.Option(help="additional DNS name or IP address in the certificate; may be repeated")
]

# processes that connect to a cluster
Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="kubeconfig of the cluster; default: the pod's service account, else kubectl's file"),
]
KubeContext = Annotated[str | None, typer.Option(help="context in the kubeconfig")]
ElectionName = Annotated[
    str | None,
    typer.Option(help="identity of this process in the leader election; default: derived from the host name"),
]
HealthHost = Annotated[str | None, typer.Option(help="address of health and metrics; default 127.0.0.1")]
