/** What a rollout's phase and steps are called. */

import type { RolloutRow, StepRow } from "../../live/rows";
import type { Tone } from "../../text/states";
import { length } from "../../text/times";

const ENDS: Readonly<Record<string, { word: string; tone: Tone }>> = {
  promoted: { word: "Promoted", tone: "ok" },
  rolledBack: { word: "Went back", tone: "bad" },
  aborted: { word: "Aborted", tone: "warn" },
  superseded: { word: "Superseded", tone: "muted" },
  cancelled: { word: "Cancelled", tone: "muted" },
};

export function phase(of: RolloutRow): { word: string; tone: Tone } {
  const ended = ENDS[of.outcome || of.phase];
  if (ended) return ended;
  if (of.paused) return { word: "Paused", tone: "warn" };
  if (of.phase === "running") return { word: "Running", tone: "info" };
  const word = of.phase.replace(/([A-Z])/g, (capital) => ` ${capital.toLowerCase()}`);
  return { word: word.charAt(0).toUpperCase() + word.slice(1), tone: "info" };
}

export function stepText(step: StepRow): string {
  const time = step.seconds ? ` ${length(step.seconds * 1000)}` : "";
  switch (step.kind) {
    case "weight":
      return `${step.weight ?? 0} %${time}`;
    case "pause":
      return step.approval ? "approval" : `pause${time}`;
    case "analysis":
      return `analysis${time}`;
    case "replicas":
      return `${step.percent !== undefined ? `${step.percent} %` : (step.replicas ?? "")} instances`;
    case "header":
    case "cookie":
      return step.name ? `${step.kind} ${step.name}${step.value ? `=${step.value}` : ""}` : `end of ${step.kind}`;
    case "mirror":
      return `copies ${step.percent ?? step.weight ?? 0} %`;
    case "promote":
      return "all requests";
    default:
      return step.kind;
  }
}

/** Waves and steps are counted from 0 by the control plane, and from 1 for people. */
export function ordinal(index: number | undefined): string {
  return index === undefined ? "–" : String(index + 1);
}

/** Of a rollout that went back, the step at which it did, and those that were never reached. */
export function stepState(step: StepRow, of: RolloutRow): StepRow["state"] | "failed" | "never" {
  if (!of.endedAt || (of.outcome || of.phase) === "promoted" || of.step === undefined) return step.state;
  return step.index < of.step ? "done" : step.index === of.step ? "failed" : "never";
}

/** The numbers behind a decision, as words: "eu candidate requests 57, failed 3". */
export function numbersText(numbers: Readonly<Record<string, unknown>>, path = ""): string {
  const plain: string[] = [];
  const nested: string[] = [];
  for (const [name, value] of Object.entries(numbers)) {
    if (value && typeof value === "object" && !Array.isArray(value)) nested.push(numbersText(value as Record<string, unknown>, `${path}${name} `));
    else if (value !== null && value !== "") plain.push(`${name} ${typeof value === "number" ? Math.round(value * 1000) / 1000 : Array.isArray(value) ? value.join(", ") : String(value)}`);
  }
  return [plain.length ? path + plain.join(", ") : "", ...nested].filter(Boolean).join(" · ");
}
