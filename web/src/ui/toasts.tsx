/** Short words about what was just done. They go by themselves, and screen readers say them. */

import { createSignal, For } from "solid-js";

interface Toast {
  readonly text: string;
}

const [toasts, setToasts] = createSignal<readonly Toast[]>([]);

export function toast(text: string): void {
  const mine = { text };
  setToasts([...toasts(), mine]);
  setTimeout(() => setToasts(toasts().filter((each) => each !== mine)), 6000);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      <For each={toasts()}>{(each) => <div class="notice ok">{each.text}</div>}</For>
    </div>
  );
}
