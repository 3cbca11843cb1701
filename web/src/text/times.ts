/** Moments and lengths of time, in the reader's zone. */

export function length(ms: number): string {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = seconds / 60;
  if (minutes < 60) return `${Math.floor(minutes)} min`;
  const hours = minutes / 60;
  if (hours < 24) return hours < 10 && Math.floor(minutes % 60) ? `${Math.floor(hours)} h ${Math.floor(minutes % 60)} min` : `${Math.floor(hours)} h`;
  return `${Math.floor(hours / 24)} d`;
}

/** How long ago; what is less than three seconds old is "now": clocks differ by that. */
export function ago(at: number, now: number): string {
  const passed = now - at;
  return passed < 3000 ? "now" : `${length(passed)} ago`;
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const dayFormat = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
});

export function clock(at: number): string {
  return clockFormat.format(at);
}

export function moment(at: number): string {
  return dayFormat.format(at);
}

/** Milliseconds of what REST writes as text, or undefined. */
export function parsed(text: string | number | undefined | null): number | undefined {
  if (typeof text === "number") return text;
  if (!text) return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : at;
}
