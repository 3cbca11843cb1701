"""Strict limits: one count for all gateways, kept in Redis and checked there by one script.

The measure is a sliding window in twenty steps. Counts of a step that has begun to leave the window still count in
full, so in no window of that length do more than ``limit`` pass, wherever it begins; a token bucket would let twice as
many through. The cost: quota is freed up to a twentieth of the window late. Redis provides the time: the
clocks of gateways do not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shoal.sentinel.policies.wire import FITS, LIMIT, POLICY, WINDOW, BadRule

# KEYS: one per limit. ARGV: for each limit, cost and window in microseconds. All are checked before one is charged, so
# a request that one limit refuses costs nothing in the others. Returns per limit: allowed (1 or 0), remaining,
# microseconds until the whole limit is available again, microseconds until this request could pass (-1: never).
TAKE = """
local STEPS = 20
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local found, passes = {}, true
for i = 1, #KEYS do
  local limit, cost, window = tonumber(ARGV[i * 3 - 2]), tonumber(ARGV[i * 3 - 1]), tonumber(ARGV[i * 3])
  local step = window / STEPS
  local at = math.floor(now / step)
  local counts, total, old = {}, 0, {}
  local fields = redis.call('HGETALL', KEYS[i])
  for j = 1, #fields, 2 do
    local index, count = tonumber(fields[j]), tonumber(fields[j + 1])
    if index < at - STEPS then
      old[#old + 1] = fields[j]
    else
      counts[#counts + 1] = {index, count}
      total = total + count
    end
  end
  local good = total + cost <= limit
  passes = passes and good
  found[i] = {limit = limit, cost = cost, step = step, at = at, counts = counts, total = total, old = old, good = good}
end
local made = {}
for i = 1, #KEYS do
  local one = found[i]
  table.sort(one.counts, function(a, b) return a[1] < b[1] end)
  local last = #one.counts > 0 and one.counts[#one.counts][1] or nil
  if passes and one.cost > 0 then
    redis.call('HINCRBY', KEYS[i], string.format('%.0f', one.at), one.cost)
    redis.call('PEXPIRE', KEYS[i], math.ceil(one.step * (STEPS + 1) / 1000))
    one.total, last = one.total + one.cost, one.at
  end
  if #one.old > 0 then redis.call('HDEL', KEYS[i], unpack(one.old)) end
  local wait = one.good and 0 or -1
  if not one.good and one.cost <= one.limit then
    local left = one.total
    for j = 1, #one.counts do
      left = left - one.counts[j][2]
      if left + one.cost <= one.limit then
        wait = math.ceil((one.counts[j][1] + STEPS + 1) * one.step - now)
        break
      end
    end
  end
  local full = last and math.ceil((last + STEPS + 1) * one.step - now) or 0
  made[i] = {one.good and 1 or 0, math.max(0, one.limit - one.total), full, wait}
end
return made
"""


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """One limit that applies to a request."""

    limit: int
    window_s: int
    key: str  # key in Redis; empty: the request has no identifier


@dataclass(frozen=True, slots=True)
class LimitDecision:
    limit: int
    window_s: int
    allowed: bool
    remaining: int = 0
    reset_s: float = 0.0  # until the whole limit is available again
    retry_s: float = 0.0  # until the same request could pass; less than 0: never


def read_descriptor(entries: Sequence[tuple[str, str]]) -> LimitCheck:
    """Parse one descriptor; raise BadRule if its policy, limit or window is invalid."""
    told = dict(entries)
    try:
        policy, limit, window_s = told.pop(POLICY), int(told.pop(LIMIT)), int(told.pop(WINDOW))
    except (KeyError, ValueError):
        raise BadRule("invalid descriptor: expected a policy, and numbers for limit and window") from None
    if not policy or limit < 0 or window_s < 1:
        raise BadRule("invalid descriptor: use a limit of 0 or more and a window of 1 s or more")
    told.pop(FITS, None)
    key = _redis_key(policy, window_s, told.items()) if any(told.values()) else ""
    return LimitCheck(limit, window_s, key)


def _redis_key(policy: str, window_s: int, who: Iterable[tuple[str, str]]) -> str:
    """Only the digest of an identifier is stored: it may be long or secret. A raised limit keeps its count; a changed
    window starts a new one."""
    digest = hashlib.sha256("\0".join(f"{name}\1{value}" for name, value in who).encode("utf-8", "surrogateescape"))
    return f"shoal:limit:{policy}:{window_s}:{digest.hexdigest()[:32]}"


def script_arguments(questions: Sequence[LimitCheck], costs: Sequence[int]) -> list[int]:
    return [
        number
        for question, cost in zip(questions, costs, strict=True)
        for number in (question.limit, cost, question.window_s * 1_000_000)
    ]


def judgements(questions: Sequence[LimitCheck], answer: Sequence[Sequence[int]]) -> list[LimitDecision]:
    return [
        LimitDecision(one.limit, one.window_s, bool(allowed), remaining, reset / 1e6, wait / 1e6 if wait >= 0 else -1.0)
        for one, (allowed, remaining, reset, wait) in zip(questions, answer, strict=True)
    ]


def tightest(judged: Sequence[LimitDecision]) -> LimitDecision:
    """The limit reported to clients: one that refuses, else the one with the smallest fraction left."""
    return min(
        judged,
        key=lambda one: (one.allowed, -one.retry_s if not one.allowed else one.remaining / max(one.limit, 1)),
    )


def limit_headers(judged: LimitDecision) -> dict[str, str]:
    made = {
        "x-ratelimit-limit": str(judged.limit),
        "x-ratelimit-remaining": str(judged.remaining),
        "x-ratelimit-reset": str(_whole(judged.reset_s)),
    }
    if not judged.allowed:
        made["retry-after"] = str(max(1, _whole(judged.retry_s if judged.retry_s >= 0 else judged.window_s)))
    return made


def _whole(seconds: float) -> int:
    return -int(-seconds // 1)
