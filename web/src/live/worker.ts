/** The worker that holds the browser's stream: shared between its pages, or of one page where browsers cannot share. */

import { Hub } from "./hub";
import type { FromPage } from "./protocol";

const hub = new Hub({
  fetch: (address, init) => fetch(address, init),
  now: () => Date.now(),
  later: (run, ms) => setTimeout(run, ms),
  cancel: (timer) => clearTimeout(timer as number | undefined),
  random: () => Math.random(),
});

interface Port {
  postMessage(message: unknown): void;
  onmessage: ((event: MessageEvent<FromPage>) => void) | null;
}

function serve(port: Port): void {
  const hear = hub.join((message) => port.postMessage(message));
  port.onmessage = (event) => hear(event.data);
}

if ("onconnect" in self) {
  (self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) =>
    serve(event.ports[0] as unknown as Port);
} else {
  serve(self as unknown as Port);
}
