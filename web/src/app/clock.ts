/** The time, by the server's clock, in steps of a second: ages are counted from it. */

import { createSignal } from "solid-js";
import { status } from "../live/client";

const [tick, setTick] = createSignal(Date.now());

export function now(): number {
  return tick() + status().clockOffset;
}

export function startClock(): void {
  setInterval(() => {
    if (!document.hidden) setTick(Date.now());
  }, 1000);
  document.addEventListener("visibilitychange", () => setTick(Date.now()));
}
