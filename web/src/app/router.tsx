/** Where the page is: one signal over the browser's history. Links are ordinary `<a href="/ui/…">`. */

import { createSignal } from "solid-js";
import { BASE, placeOf, type Place } from "./paths";

const [place, setPlace] = createSignal<Place>(placeOf(location));
export { place };

export function navigate(address: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  const before = place().path;
  setPlace(placeOf(location));
  if (place().path !== before) {
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
}

/** Changes the query of the address, and nothing else; undefined removes a name. */
export function setQuery(change: Record<string, string | undefined>, options: { push?: boolean } = {}): void {
  const asked = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(change)) {
    if (value) asked.set(name, value);
    else asked.delete(name);
  }
  const search = asked.toString();
  navigate(`${location.pathname}${search ? `?${search}` : ""}`, { replace: !options.push });
}

export function startRouter(): void {
  addEventListener("popstate", () => setPlace(placeOf(location)));
  addEventListener("click", (event: MouseEvent) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || !link.pathname.startsWith(`${BASE}/`)) return;
    event.preventDefault();
    if (link.href !== location.href) navigate(link.href);
  });
}
