/** How much a route deserves a look: failing before slow, and a refused one before all. */

import type { RouteRow } from "../../live/rows";
import { tone } from "../../text/states";

const SLOW_MS = 100;

export function trouble(route: Pick<RouteRow, "state" | "errorShare" | "p99Ms" | "rate">): number {
  const state = tone(route.state) === "bad" ? 1000 : tone(route.state) === "warn" ? 300 : 0;
  const failing = Math.min(500, (route.errorShare ?? 0) * 5000);
  const slow = Math.min(200, ((route.p99Ms ?? 0) / SLOW_MS) * 20);
  return state + failing + slow + Math.min(1, (route.rate ?? 0) / 1e6);
}
