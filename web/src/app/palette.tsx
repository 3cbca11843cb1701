/** Ctrl K: views and apps at once, and every object of every cluster from the navigator's search. */

import { createEffect, createMemo, createSignal, For, on, onCleanup, Show } from "solid-js";
import { navigator_ } from "../api/rest";
import { useTopic } from "../live/topic";
import type { AppRow, ClusterRow } from "../live/rows";
import { useDialog } from "../ui/dialog";
import { NAVIGATION } from "../views";
import { BASE, links, href } from "./paths";
import { navigate } from "./router";
import { session } from "./session";

interface Hit {
  readonly kind: string;
  readonly name: string;
  readonly where: string;
  readonly address: string;
}

interface Found {
  readonly items: readonly { kind: string; cluster: string; namespace?: string; name: string }[];
}

const MOST = 40;

export function addressOf(hit: { kind: string; cluster: string; namespace?: string; name: string }): string {
  if (hit.kind === "pods") return links.why("Pod", hit.name, { cluster: hit.cluster, namespace: hit.namespace });
  if (hit.kind === "services") return href(["cluster", hit.cluster], { tab: "services", find: hit.name });
  if (hit.kind === "nodes") return href(["cluster", hit.cluster], { tab: "nodes", find: hit.name });
  const text = `${hit.kind} where name = '${hit.name.replaceAll("'", "''")}' and cluster = '${hit.cluster}'`;
  return links.query(text);
}

export function Palette(props: { onClose: () => void }) {
  const attach = useDialog(() => props.onClose());
  const [text, setText] = createSignal("");
  const [chosen, setChosen] = createSignal(0);
  const [found, setFound] = createSignal<readonly Hit[]>([]);
  const [busy, setBusy] = createSignal(false);
  const apps = useTopic("apps");
  const fleet = useTopic("fleet");

  const near = createMemo<readonly Hit[]>(() => {
    const words = text().toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (name: string) => words.every((word) => name.toLowerCase().includes(word));
    const hits: Hit[] = NAVIGATION.map((each) => ({ kind: "View", name: each.title, where: `g ${each.letter}`, address: BASE + each.path }));
    for (const app of apps.list<AppRow>("app")) {
      hits.push({ kind: "App", name: `${app.project}/${app.environment}/${app.app}`, where: app.state, address: links.app(app) });
    }
    for (const cluster of fleet.list<ClusterRow>("cluster")) {
      hits.push({ kind: "Cluster", name: cluster.name, where: cluster.region, address: links.cluster(cluster.name) });
    }
    return hits.filter((hit) => fits(`${hit.kind} ${hit.name}`)).slice(0, words.length ? 12 : 30);
  });
  const hits = createMemo(() => [...near(), ...found()].slice(0, MOST));

  createEffect(
    on(text, (asked) => {
      setChosen(0);
      if (asked.trim().length < 2 || !session()?.navigator) {
        setFound([]);
        setBusy(false);
        return;
      }
      const stop = new AbortController();
      setBusy(true);
      const due = setTimeout(() => {
        navigator_
          .get<Found>("/search", { text: asked, limit: MOST }, stop.signal)
          .then((answer) =>
            setFound(
              answer.items.map((hit) => ({
                kind: hit.kind,
                name: hit.name,
                where: [hit.cluster, hit.namespace].filter(Boolean).join(" · "),
                address: addressOf(hit),
              })),
            ),
          )
          .catch(() => !stop.signal.aborted && setFound([]))
          .finally(() => !stop.signal.aborted && setBusy(false));
      }, 120);
      onCleanup(() => {
        clearTimeout(due);
        stop.abort();
      });
    }),
  );
  const go = (hit: Hit | undefined) => {
    if (!hit) return;
    props.onClose();
    navigate(hit.address);
  };
  const pressed = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setChosen((chosen() + step + hits().length) % Math.max(1, hits().length));
      document.getElementById(`hit-${chosen()}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      go(hits()[chosen()]);
    }
  };
  return (
    <dialog ref={attach} class="dialog palette" aria-label="Find">
      <input
        type="text" autofocus placeholder="App, cluster, pod, service, node…" aria-label="Find anything in the fleet" role="combobox"
        aria-expanded="true" aria-controls="hits" aria-activedescendant={hits().length ? `hit-${chosen()}` : undefined} autocomplete="off" spellcheck={false}
        value={text()} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={pressed}
      />
      <div class="results" id="hits" role="listbox" aria-label="Found">
        <For each={hits()}>
          {(hit, at) => (
            <div role="option" id={`hit-${at()}`} aria-selected={chosen() === at()} onClick={() => go(hit)} onMouseMove={() => setChosen(at())}>
              <span class="soft">{hit.kind}</span>
              <span class="wrap">{hit.name}</span>
              <span class="soft nowrap">{hit.where}</span>
            </div>
          )}
        </For>
      </div>
      <Show when={!hits().length}>
        <p class="empty" role="status">{busy() ? "Searching…" : `Nothing in the fleet has a name with "${text()}".`}</p>
      </Show>
    </dialog>
  );
}
