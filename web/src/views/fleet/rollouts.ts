/** Rollouts that went back lately and were not followed by a better one: they belong to what is wrong. */

import type { ProblemRow, RolloutRow } from "../../live/rows";
import { appCommand } from "../../text/commands";

const LATELY_MS = 3_600_000;

export function gone(rollouts: readonly RolloutRow[], now: number): ProblemRow[] {
  const newest = new Map<string, RolloutRow>();
  for (const each of rollouts) {
    const name = `${each.project}/${each.environment}/${each.app}`;
    if ((newest.get(name)?.number ?? 0) < each.number) newest.set(name, each);
  }
  return [...newest]
    .filter(([, of]) => (of.outcome || of.phase) === "rolledBack" && (of.endedAt ?? 0) > now - LATELY_MS)
    .map(([name, of]) => ({
      key: `rollout/${name}`, severity: "warning" as const, kind: "Rollout", name: `${name}/${of.number}`, reason: "RolledBack",
      message: `Revision ${of.revision} was taken back: ${of.reason}.`,
      fix: `All requests go to what ran before. Correct the revision and apply it again, or try it again as it is.`,
      command: appCommand(of, ["rollout", "history"], ["--number", of.number]),
    }));
}
