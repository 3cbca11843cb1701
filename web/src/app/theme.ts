/** Light, dark, or as the system says. Kept in this browser. */

import { createSignal } from "solid-js";

export type Theme = "system" | "light" | "dark";
const NAME = "shoal-theme";

function stored(): Theme {
  try {
    const kept = localStorage.getItem(NAME);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system"; // storage is blocked
  }
}

const [theme, write] = createSignal<Theme>(stored());
export { theme };

function show(chosen: Theme): void {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

/** Counts up when colours change, for what is drawn on a canvas. */
const [painted, setPainted] = createSignal(0);
export { painted };

export function setTheme(chosen: Theme): void {
  try {
    localStorage.setItem(NAME, chosen);
  } catch {
    // it holds for this visit only
  }
  write(chosen);
  show(chosen);
  setPainted(painted() + 1);
}

export function startTheme(): void {
  show(theme());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setPainted(painted() + 1));
}

/** The computed value of a colour of the design system, for a canvas. */
export function colour(name: string): string {
  const probe = document.getElementById("probe")!;
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}
