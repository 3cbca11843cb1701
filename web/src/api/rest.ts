/** Requests to the control plane and, through it, to the navigator. The session's cookie says who asks. */

import { markSignedOut, workspace } from "../app/session";

export class RestError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: readonly { field: string; message: string }[] = [],
    readonly fix: string = "",
  ) {
    super(message);
  }
}

interface ErrorBody {
  error?: { code?: string; message?: string; fix?: string; details?: { field: string; message: string }[] };
}

export async function failure(answer: Response): Promise<RestError> {
  const body = (await answer.json().catch(() => ({}))) as ErrorBody;
  const said = body.error ?? {};
  return new RestError(answer.status, said.code ?? String(answer.status), said.message ?? `the control plane answered ${answer.status}`, said.details ?? [], said.fix ?? "");
}

export type Asked = Readonly<Record<string, string | number | boolean | undefined>>;

export function address(path: string, query: Asked = {}): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") asked.set(name, String(value));
  const search = asked.toString();
  return search ? `${path}?${search}` : path;
}

async function send(method: string, where: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET") headers["X-Shoal-Page"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const chosen = workspace();
  if (chosen) headers["X-Shoal-Workspace"] = chosen;
  let answer: Response;
  try {
    answer = await fetch(where, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RestError(0, "Unreachable", "The control plane does not answer.", [], "Check that it runs, then try again.");
  }
  if (answer.status === 401) markSignedOut();
  if (!answer.ok) throw await failure(answer);
  return answer;
}

async function json<T>(answer: Response): Promise<T> {
  if (answer.status === 204) return undefined as T;
  return (await answer.json()) as T;
}

export const rest = {
  get: async <T>(path: string, query?: Asked, signal?: AbortSignal) =>
    json<T>(await send("GET", address(`/api/v1${path}`, query), undefined, signal)),
  send: async <T>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string, body?: unknown, query?: Asked) =>
    json<T>(await send(method, address(`/api/v1${path}`, query), body)),
};

export const navigator_ = {
  get: async <T>(path: string, query?: Asked, signal?: AbortSignal) =>
    json<T>(await send("GET", address(`/ui/navigator${path}`, query), undefined, signal)),
  send: async <T>(method: "PUT" | "DELETE", path: string, body?: unknown) =>
    json<T>(await send(method, `/ui/navigator${path}`, body)),
  stream: (path: string, query: Asked, signal: AbortSignal) => send("GET", address(`/ui/navigator${path}`, query), undefined, signal),
};

export const page = {
  post: async (path: string, body?: unknown) => void (await send("POST", `/ui${path}`, body ?? {})),
};

/** The path of an app in the REST API. */
export function appPath(app: { project: string; environment: string; app: string }): string {
  const { project, environment } = app;
  return `/projects/${encodeURIComponent(project)}/environments/${encodeURIComponent(environment)}/apps/${encodeURIComponent(app.app)}`;
}
