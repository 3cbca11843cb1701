/** Paths of the page, as data: patterns, matching, building. `:name` is one part; `*name` the rest. */

export interface Place {
  readonly path: string; // below /ui, "/" at least
  readonly query: Readonly<Record<string, string>>;
}

export interface Match {
  readonly view: string;
  readonly parameters: Readonly<Record<string, string>>;
}

export const BASE = "/ui";

export function placeOf(address: { pathname: string; search: string }): Place {
  const below = address.pathname.startsWith(BASE) ? address.pathname.slice(BASE.length) : address.pathname;
  return { path: below === "" ? "/" : below, query: Object.fromEntries(new URLSearchParams(address.search)) };
}

/** The first pattern that `path` fits, with what its named parts are. */
export function matched(patterns: readonly (readonly [pattern: string, view: string])[], path: string): Match | undefined {
  const parts = path.split("/").filter(Boolean);
  for (const [pattern, view] of patterns) {
    const wanted = pattern.split("/").filter(Boolean);
    const optional = wanted.filter((part) => part.endsWith("?")).length;
    if (parts.length > wanted.length || parts.length < wanted.length - optional) continue;
    const parameters: Record<string, string> = {};
    const fits = wanted.every((part, at) => {
      const given = parts[at];
      if (!part.startsWith(":")) return part === given;
      if (given !== undefined) parameters[part.slice(1).replace("?", "")] = decoded(given);
      return true;
    });
    if (fits) return { view, parameters };
  }
  return undefined;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a lone percent sign
  }
}

/** An address of the page from parts, which may hold any characters. */
export function href(parts: readonly (string | number)[], query: Readonly<Record<string, string | undefined>> = {}): string {
  const path = parts.map((part) => `/${encodeURIComponent(part)}`).join("");
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) asked.set(name, value);
  const search = asked.toString();
  return `${BASE}${path || "/"}${search ? `?${search}` : ""}`;
}

export const links = {
  app: (app: { project: string; environment: string; app: string }, tab?: string) =>
    href(["app", app.project, app.environment, app.app], { tab }),
  rollout: (app: { project: string; environment: string; app: string }, number?: number) =>
    href(["rollout", app.project, app.environment, app.app, ...(number ? [number] : [])]),
  cluster: (name: string, tab?: string) => href(["cluster", name], { tab }),
  query: (text: string, at?: string) => href(["query"], { q: text, at }),
  why: (kind: string, name: string, where: { project?: string; environment?: string; cluster?: string; namespace?: string }) =>
    href(["why", kind, name], where),
};
