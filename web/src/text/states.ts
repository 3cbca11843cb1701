/** What the words of states mean for a reader: good, busy, worth a look, bad, or of no interest. */

export type Tone = "ok" | "info" | "warn" | "bad" | "muted";

const TONES: Readonly<Record<string, Tone>> = {
  ready: "ok", healthy: "ok", joined: "ok", running: "ok", promoted: "ok", connected: "ok", programmed: "ok", synced: "ok",
  active: "ok", normal: "ok", true: "ok", accepted: "ok", live: "ok", applied: "ok", succeeded: "ok", done: "ok",
  progressing: "info", initializing: "info", pending: "info", deploying: "info", updating: "info", draining: "info", starting: "info",
  now: "info", paused: "warn", waiting: "info", containercreating: "info", noagent: "muted",
  degraded: "warn", stale: "warn", held: "warn", warning: "warn", half_open: "warn", expired: "warn", forbidden: "warn", unknown: "warn",
  broken: "bad", failed: "bad", lost: "bad", unreachable: "bad", disconnected: "bad", rolledback: "bad", error: "bad", refused: "bad",
  rejected: "bad", crashloopbackoff: "bad", oomkilled: "bad", dead: "bad", open: "bad", unhealthy: "bad", failing: "bad", false: "bad",
  imagepullbackoff: "bad", evicted: "bad", notready: "bad", silent: "bad",
};

export function tone(state: string | undefined): Tone {
  return (state && TONES[state.toLowerCase().replaceAll(" ", "")]) || "muted";
}

const ORDER: readonly Tone[] = ["bad", "warn", "info", "ok", "muted"];

/** For sorting: what is wrong comes first. */
export function urgency(state: string | undefined): number {
  return ORDER.indexOf(tone(state));
}

const WORDS: Readonly<Record<string, string>> = {
  rolledBack: "Went back", promoted: "Promoted", running: "Running", paused: "Paused", NoAgent: "No agent", superseded: "Superseded",
};

export function word(state: string | undefined): string {
  if (!state) return "–";
  return WORDS[state] ?? state.charAt(0).toUpperCase() + state.slice(1);
}
