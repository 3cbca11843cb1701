/** Who is signed in, what they may do, and in which workspace they look. */

import { createSignal } from "solid-js";

export interface Session {
  readonly user: string;
  readonly role: "admin" | "editor" | "viewer";
  readonly workspace: string;
  readonly workspaces: readonly string[];
  readonly operator: boolean;
  readonly may: readonly string[];
  readonly version: string;
  readonly navigator: boolean;
  readonly now: number;
  readonly expiresAt: number;
  readonly command: string;
  readonly context: string;
}

export type SignIn = "unknown" | "in" | "out";

const [session, setSession] = createSignal<Session>();
const [signedIn, setSignedIn] = createSignal<SignIn>("unknown");
const [workspace, setWorkspace] = createSignal<string>();
export { session, setWorkspace, signedIn, workspace };

export function markSignedOut(): void {
  setSignedIn("out");
}

/** Whether the user's role has a right: buttons that would be refused are not offered. */
export function may(verb: string): boolean {
  const held = session();
  return held !== undefined && (verb === "operate" ? held.operator : held.may.includes(verb));
}

/** Asks who is signed in; false when the control plane does not answer. */
export async function loadSession(): Promise<boolean> {
  let answer: Response;
  try {
    answer = await fetch("/ui/session", { headers: { Accept: "application/json" }, cache: "no-store" });
  } catch {
    return false;
  }
  if (answer.status === 401) setSignedIn("out");
  else if (answer.ok) {
    setSession((await answer.json()) as Session);
    setSignedIn("in");
  } else return false;
  return true;
}

export class LoginRefused extends Error {}

export async function login(what: { code: string } | { token: string }): Promise<void> {
  const answer = await fetch("/ui/login", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Shoal-Page": "1" },
    body: JSON.stringify(what),
  });
  if (!answer.ok) {
    const body = (await answer.json().catch(() => ({}))) as { error?: { message?: string; details?: { message: string }[] } };
    throw new LoginRefused(body.error?.details?.[0]?.message ?? body.error?.message ?? `the control plane answered ${answer.status}`);
  }
  await loadSession();
}

export async function logout(): Promise<void> {
  await fetch("/ui/logout", { method: "POST", headers: { "X-Shoal-Page": "1" } });
  location.assign("/ui/");
}
