/** The service graph. A worker places the nodes; it does so again only when nodes or edges come or go, not when rates change. */

import { createEffect, createMemo, createSignal, For, on, onCleanup, Show } from "solid-js";
import type { Layout } from "../../graph/layout";
import type { EdgeRow } from "../../live/rows";
import { millis, rate, share } from "../../text/numbers";
import "./graph.css";

const MOST = 120;
const NODE_WIDTH = 150;
const NODE_HEIGHT = 34;
const MARGIN = 14;

const idOf = (end: { namespace: string; service: string }) => `${end.namespace}/${end.service}`;

export default function Graph(props: { edges: readonly EdgeRow[] }) {
  const [places, setPlaces] = createSignal<Layout>();
  const [chosen, setChosen] = createSignal<string>();
  const edges = createMemo(() => {
    const of = chosen();
    const all = of ? props.edges.filter((edge) => idOf(edge.source) === of || idOf(edge.destination) === of) : props.edges;
    return all.length <= MOST ? all : [...all].sort((a, b) => (b.rate ?? 0) - (a.rate ?? 0)).slice(0, MOST);
  });
  const nodes = createMemo(() => [...new Set(edges().flatMap((edge) => [idOf(edge.source), idOf(edge.destination)]))].sort());
  const shape = createMemo(() => JSON.stringify({ nodes: nodes(), edges: edges().map((edge) => [idOf(edge.source), idOf(edge.destination)]).sort() }));

  const worker = new Worker(new URL("../../graph/worker.ts", import.meta.url), { type: "module" });
  onCleanup(() => worker.terminate());
  worker.onmessage = (event: MessageEvent<Layout>) => setPlaces(event.data);
  createEffect(on(shape, (asked) => worker.postMessage(JSON.parse(asked))));

  const line = (edge: EdgeRow) => {
    const from = places()?.nodes[idOf(edge.source)];
    const to = places()?.nodes[idOf(edge.destination)];
    if (!from || !to) return undefined;
    const back = to.x <= from.x;
    const x1 = from.x + (back ? 0 : NODE_WIDTH / 2);
    const x2 = to.x - (back ? 0 : NODE_WIDTH / 2);
    const bend = back ? -60 : 0;
    const middle = (x1 + x2) / 2;
    return { path: `M${x1} ${from.y}C${middle} ${from.y + bend} ${middle} ${to.y + bend} ${x2} ${to.y}`, x: middle, y: (from.y + to.y) / 2 + bend * 0.7 };
  };
  const bad = (edge: EdgeRow) => (edge.errorShare ?? 0) >= 0.01;
  const width = (edge: EdgeRow) => Math.max(1, Math.min(6, Math.log10((edge.rate ?? 0) + 1) * 1.8));
  return (
    <div class="inside stack tight">
      <div class="spread">
        <span class="soft small">Lines: requests per second, share of errors, p99. Choose a service to see its calls alone.</span>
        <Show when={chosen()}><button type="button" class="button tiny" onClick={() => setChosen(undefined)}>Show all</button></Show>
      </div>
      <div class="scroll graph" tabindex="0" role="region" aria-label="Service graph">
        <Show when={places()} fallback={<p class="soft">Placing the services…</p>}>
          {(of) => (
            <svg width={of().width + 2 * MARGIN} height={of().height + 2 * MARGIN} viewBox={`${-MARGIN} ${-MARGIN} ${of().width + 2 * MARGIN} ${of().height + 2 * MARGIN}`} role="group" aria-label={`${nodes().length} services, ${edges().length} calls`}>
              <For each={edges()}>
                {(edge) => (
                  <Show when={line(edge)}>
                    {(drawn) => (
                      <g class="edge" classList={{ failing: bad(edge) }}>
                        <path d={drawn().path} stroke-width={width(edge)} />
                        <text x={drawn().x} y={drawn().y - 4} text-anchor="middle">
                          {rate(edge.rate)}
                          {bad(edge) ? ` · ${share(edge.errorShare)}` : ""}
                          {edge.p99Ms === undefined ? "" : ` · ${millis(edge.p99Ms)}`}
                        </text>
                      </g>
                    )}
                  </Show>
                )}
              </For>
              <For each={nodes()}>
                {(name) => (
                  <Show when={of().nodes[name]}>
                    {(at) => (
                      <g class="node" classList={{ chosen: chosen() === name }} transform={`translate(${at().x} ${at().y})`} role="button" tabindex="0"
                        onClick={() => setChosen(chosen() === name ? undefined : name)}
                        onKeyDown={(event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), setChosen(chosen() === name ? undefined : name))}>
                        <rect x={-NODE_WIDTH / 2} y={-NODE_HEIGHT / 2} width={NODE_WIDTH} height={NODE_HEIGHT} rx="5" />
                        <text class="name" text-anchor="middle" y="-1">{short(name.split("/")[1] ?? name)}</text>
                        <text class="space" text-anchor="middle" y="12">{short(name.split("/")[0] ?? "")}</text>
                        <title>{name}</title>
                      </g>
                    )}
                  </Show>
                )}
              </For>
            </svg>
          )}
        </Show>
      </div>
    </div>
  );
}

function short(name: string): string {
  return name.length > 22 ? `${name.slice(0, 21)}…` : name;
}
