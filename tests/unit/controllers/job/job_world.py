"""A world of one job for the pure parts of its controller: pods that end as planned, and crashes at any point."""

from __future__ import annotations

import copy
from itertools import count

from shoal.controllers.job.model import COMPLETION_INDEX, FINALIZER, JobBackoff, JobCounts, has_finalizer
from shoal.controllers.job.plan import observe, plan_pods, reached
from shoal.controllers.job.tracking import begin_status, conclude, same_status, settle, suspension, track
from shoal.kube.times import format_time


class Crash(Exception):
    pass


class JobWorld:
    """``crash_after`` counts writes down; the one it falls on is done, and nothing that should follow it."""

    def __init__(self, **spec):
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]},
        }
        spec = {"parallelism": 3, "backoffLimit": 10**6, "template": template, **spec}
        self.job = {"metadata": {"name": "j", "namespace": "d", "uid": "job"}, "spec": spec, "status": {}}
        self.pods = {}
        self.stale = {}  # pods as a cache that is behind shows them
        self.released, self.backoff = set(), JobBackoff()
        self.now = 1_700_000_000.0
        self.numbers = count()
        self.crash_after = None
        self.ended = {}  # uid -> how, of all pods that ever ended

    # the server

    def write(self):
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                raise Crash

    def put_status(self, status):
        self.job = {**self.job, "status": copy.deepcopy(status)}
        self.write()

    def create(self, pod):
        uid = f"pod-{next(self.numbers)}"
        about = {**pod["metadata"], "uid": uid, "name": uid, "creationTimestamp": format_time(self.now)}
        self.pods[uid] = {**pod, "metadata": about, "status": {"phase": "Running"}}
        self.write()

    def release(self, uid, lag):
        pod = self.pods.get(uid)
        if pod is not None:
            if lag:
                self.stale[uid] = pod
            left = [f for f in pod["metadata"]["finalizers"] if f != FINALIZER]
            self.pods[uid] = {**pod, "metadata": {**pod["metadata"], "finalizers": left}}
        self.write()

    # the nodes

    def active(self):
        return [
            u
            for u, p in self.pods.items()
            if p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]
        ]

    def end(self, uid, phase):
        self.ended[uid] = phase
        self.pods[uid] = {**self.pods[uid], "status": {"phase": phase}}

    def delete(self, uid):
        pod = self.pods[uid]
        self.ended.setdefault(uid, "Failed")
        self.pods[uid] = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": format_time(self.now)}}

    def collect(self):
        """What has ended and is not held may go at any time."""
        for uid in [u for u, p in self.pods.items() if u in self.ended and not has_finalizer(p)]:
            del self.pods[uid]

    # the controller

    def restart(self):
        self.released, self.backoff, self.crash_after = set(), JobBackoff(), None
        self.stale = {}

    def seen(self):
        return [self.stale.get(uid, pod) for uid, pod in self.pods.items()] + [
            pod for uid, pod in self.stale.items() if uid not in self.pods
        ]

    def step(self, lag=False):
        self.now += 1000
        pods = self.seen()
        self.released &= {p["metadata"]["uid"] for p in pods if has_finalizer(p)}
        view = observe(self.job, pods, frozenset(self.released), self.backoff, self.now)
        counts = JobCounts(len(view.active), view.ready, view.terminating)
        ending, managed = view.ending, False
        if ending is not None:
            for pod in view.active:
                self.delete(pod["metadata"]["uid"])
            counts = JobCounts(0, 0, view.terminating + len(view.active))
        else:
            managed = True
            plan = plan_pods(view, self.now)
            for pod in plan.creates:
                self.create(pod)
            for pod in plan.deletes:
                uid = pod["metadata"]["uid"]
                self.release(uid, False)
                self.delete(uid)
                self.ended.pop(uid)
                self.pods.pop(uid)
            made = len(plan.creates) - len(plan.deletes)
            counts = JobCounts(counts.active + made, 0, counts.terminating)
            ending = reached(view, counts.active)
        status = begin_status(view, counts, self.now)
        if managed and ending is None:
            status, _ = suspension(view, status, self.now)
        tracking = track(view, status, ending, self.now)
        if not same_status(tracking.status, self.job["status"]):
            self.put_status(tracking.status)
        self.backoff = view.backoff
        gone = set()
        for pod in tracking.releases:
            uid = pod["metadata"]["uid"]
            self.release(uid, lag)
            gone.add(uid)
        self.released |= gone
        status = settle(tracking.status, view.held - gone)
        finished = conclude(status, ending, self.now) if ending and not tracking.limited else None
        if not same_status(finished or status, self.job["status"]):
            self.put_status(finished or status)

    # facts

    @property
    def status(self):
        return self.job["status"]

    def finished(self):
        return next((c["type"] for c in self.status.get("conditions", ()) if c["type"] in ("Complete", "Failed")), "")

    def counted(self, name):
        uncounted = self.status.get("uncountedTerminatedPods") or {}
        return (self.status.get(name) or 0) + len(uncounted.get(name) or ())

    def truth(self, phase):
        return sum(how == phase for how in self.ended.values())

    def index(self, uid):
        return int(self.pods[uid]["metadata"]["annotations"][COMPLETION_INDEX])
