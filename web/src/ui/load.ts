/** One answer of REST as a signal, asked for again when its question changes. */

import { createEffect, createSignal, on, onCleanup, type Accessor } from "solid-js";

export interface Loading<T> {
  readonly value: Accessor<T | undefined>;
  readonly error: Accessor<unknown>;
  readonly busy: Accessor<boolean>;
  readonly again: () => void;
}

export function useLoad<Q, T>(question: Accessor<Q | undefined>, ask: (question: Q, signal: AbortSignal) => Promise<T>): Loading<T> {
  const [value, setValue] = createSignal<T>();
  const [error, setError] = createSignal<unknown>();
  const [busy, setBusy] = createSignal(false);
  const [turn, setTurn] = createSignal(0);
  createEffect(
    on([() => { const asked = question(); return asked === undefined ? undefined : JSON.stringify(asked); }, turn], ([asked]) => {
      if (asked === undefined) return;
      const stop = new AbortController();
      onCleanup(() => stop.abort());
      setBusy(true);
      ask(JSON.parse(asked) as Q, stop.signal).then(
        (answer) => {
          if (stop.signal.aborted) return;
          setValue(() => answer);
          setError(undefined);
          setBusy(false);
        },
        (failed) => {
          if (stop.signal.aborted) return;
          setError(failed);
          setBusy(false);
        },
      );
    }),
  );
  return { value, error, busy, again: () => setTurn(turn() + 1) };
}
