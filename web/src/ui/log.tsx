/** The log of a pod, followed as it is written. What programs write is shown as text, without escape codes. */

import { createSignal, onCleanup, onMount, Show } from "solid-js";
import { navigator_ } from "../api/rest";
import { plain } from "../text/ansi";
import { Panel, Problem } from "./parts";

const MOST_LINES = 2000;
const DRAW_MS = 200;

export function Log(props: { cluster: string; namespace: string; pod: string; onClose?: () => void }) {
  let box!: HTMLPreElement;
  const [error, setError] = createSignal<unknown>();
  const [ended, setEnded] = createSignal(false);
  const [previous, setPrevious] = createSignal(false);
  const [follow, setFollow] = createSignal(true);
  let stop = new AbortController();
  let lines: string[] = [];
  let due: ReturnType<typeof setTimeout> | undefined;

  const draw = () => {
    due = undefined;
    box.textContent = lines.join("\n");
    if (follow()) box.scrollTop = box.scrollHeight;
  };
  const add = (more: string[]) => {
    lines.push(...more.map(plain));
    if (lines.length > MOST_LINES) lines = lines.slice(-MOST_LINES);
    due ??= setTimeout(draw, DRAW_MS);
  };
  const read = async () => {
    stop.abort();
    const mine = (stop = new AbortController());
    lines = [];
    draw();
    setEnded(false);
    setError(undefined);
    try {
      const path = `/pods/${[props.cluster, props.namespace, props.pod].map(encodeURIComponent).join("/")}/logs`;
      const answer = await navigator_.stream(path, { follow: !previous(), previous: previous() || undefined, tail: 500 }, mine.signal);
      const reader = answer.body!.getReader();
      const text = new TextDecoder();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const parts = (rest + text.decode(value, { stream: true })).split("\n");
        rest = parts.pop() ?? "";
        if (parts.length) add(parts);
      }
      if (rest) add([rest]);
      setEnded(true);
    } catch (failed) {
      if (!mine.signal.aborted) setError(failed);
    }
  };
  onMount(() => {
    void read();
    box.scrollIntoView({ block: "nearest" });
  });
  onCleanup(() => {
    stop.abort();
    clearTimeout(due);
  });
  return (
    <Panel
      title={`Log of ${props.pod}`}
      note={ended() ? "ended" : previous() ? "of the container before" : "following"}
      end={
        <>
          <label class="row small">
            <input type="checkbox" checked={follow()} onChange={(event) => setFollow(event.currentTarget.checked)} /> Stay at the end
          </label>
          <label class="row small">
            <input type="checkbox" checked={previous()} onChange={(event) => (setPrevious(event.currentTarget.checked), void read())} /> Before the last restart
          </label>
          <Show when={props.onClose}>
            <button type="button" class="button tiny" onClick={() => props.onClose!()}>Close</button>
          </Show>
        </>
      }
    >
      <Show when={error()}>{(failed) => <div class="inside"><Problem error={failed()} title="The log cannot be read" /></div>}</Show>
      <pre class="log" ref={box} tabindex="0" aria-label={`Log of ${props.pod}`} />
    </Panel>
  );
}
