"""The fingerprint of a report, which both ends compare to detect a lost report.

The agent leaves out reports whose fingerprint has not changed, and sends a digest of the last ones with its heartbeat;
the control plane stores the fingerprint with the report and answers with the buckets that differ. The stamp of
a digest's entry is the fingerprint in decimal; an object that was reported gone has no entry on either side.
"""

from __future__ import annotations

from hashlib import blake2b

from shoal.wire.fleet.v1 import cluster_pb as pb


def fingerprint(report: pb.DeploymentReport | pb.SentinelReport) -> int:
    """Signed, 64 bit. It covers everything except the times of observation and apply, which change on their own."""
    observed_ms, report.observed_ms = report.observed_ms, 0
    applied_ms = 0
    if isinstance(report, pb.DeploymentReport):
        applied_ms, report.applied_ms = report.applied_ms, 0
    try:
        content = report.to_binary()
    finally:
        report.observed_ms = observed_ms
        if isinstance(report, pb.DeploymentReport):
            report.applied_ms = applied_ms
    return int.from_bytes(blake2b(content, digest_size=8, person=b"report").digest(), "big", signed=True)
