"""batch/v1: Job and CronJob."""

from __future__ import annotations

from shoal.kube.kinds.batch import cronjob, job
from shoal.kube.rules import KindRules

RULES: dict[tuple[str, str, str], KindRules] = {
    ("batch", "v1", "CronJob"): cronjob.RULES,
    ("batch", "v1", "Job"): job.RULES,
}
