/** A page's end of the worker: topics by number, the state of the stream. */

import { createSignal } from "solid-js";
import type { FromPage, LinkStatus, Parameters, ToPage, Update } from "./protocol";

interface Port {
  postMessage(message: unknown): void;
  onmessage: ((event: MessageEvent<ToPage>) => void) | null;
}

const [status, setStatus] = createSignal<LinkStatus>({
  state: "connecting", heardAt: 0, clockOffset: 0, retryAt: 0, reason: "",
});
export { status };

const handlers = new Map<number, (update: Update) => void>();
const opened = new Map<number, FromPage>();
let lastSub = 0;
let port: Port | undefined;

function thePort(): Port {
  if (port) return port;
  if (typeof SharedWorker === "undefined") {
    port = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }) as unknown as Port;
  } else {
    port = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: "shoal" }).port;
  }
  port.onmessage = (event) => {
    if (event.data.kind === "status") setStatus(event.data.status);
    else for (const update of event.data.updates) handlers.get(update.sub)?.(update);
  };
  document.addEventListener("visibilitychange", () => send({ kind: "pause", paused: document.hidden }));
  addEventListener("pagehide", () => send({ kind: "bye" }));
  addEventListener("pageshow", (event: PageTransitionEvent) => {
    if (event.persisted) location.reload(); // the worker has forgotten this page
  });
  return port;
}

function send(message: FromPage): void {
  thePort().postMessage(message);
}

/** Opens the stream if no page of the browser has opened it yet. */
export function start(): void {
  send({ kind: "start" });
}

/** Opens the stream, or opens it again at once: after a login, or when someone does not want to wait. */
export function connect(): void {
  send({ kind: "connect" });
}

/** Calls `handle` with what happens to a topic, until the returned function is called. */
export function subscribe(topic: string, parameters: Parameters, handle: (update: Update) => void): () => void {
  const sub = ++lastSub;
  const message: FromPage = { kind: "open", sub, topic, parameters };
  handlers.set(sub, handle);
  opened.set(sub, message);
  send(message);
  return () => {
    handlers.delete(sub);
    opened.delete(sub);
    send({ kind: "close", sub });
  };
}
