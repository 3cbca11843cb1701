/** The past: a moment chosen with a slider, what was then, and what changed until another. */

import { createMemo, createSignal, For, Show } from "solid-js";
import { navigator_ } from "../../api/rest";
import { now } from "../../app/clock";
import { links } from "../../app/paths";
import { place, setQuery } from "../../app/router";
import { session } from "../../app/session";
import { useTopic } from "../../live/topic";
import type { RolloutRow } from "../../live/rows";
import { command } from "../../text/commands";
import { count, plural } from "../../text/numbers";
import { length, moment, parsed } from "../../text/times";
import { Ago, Command, Empty, Head, Loaded, Panel, Problem, State, Tabs, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { useLoad } from "../../ui/load";
import { NoNavigator } from "../cluster/none";
import { Answer } from "../query/answer";
import { phase } from "../rollout/words";

interface Ref { readonly kind: string; readonly cluster: string; readonly namespace: string; readonly name: string }
interface Changed extends Ref { readonly fields: readonly { path: string; before: unknown; after: unknown }[] }
interface Difference {
  readonly historyBegins?: string | null;
  readonly added: readonly Ref[];
  readonly removed: readonly Ref[];
  readonly changed: readonly Changed[];
  readonly totals?: Readonly<Record<string, number>>;
  readonly complete?: boolean;
}
interface Line extends Ref { readonly what: "added" | "removed" | "changed"; readonly fields?: Changed["fields"] }

const SPANS = [["10m", 600_000, "10 minutes"], ["1h", 3_600_000, "1 hour"], ["6h", 21_600_000, "6 hours"], ["1d", 86_400_000, "1 day"], ["7d", 604_800_000, "7 days"]] as const;
const TABS = [["changes", "What changed"], ["clusters", "Clusters"], ["apps", "Apps"], ["pods", "Pods"], ["rollouts", "Rollouts"], ["others", "Other views"]] as const;
const STEPS = 600;

export default function Time() {
  const opened = now();
  const span = () => SPANS.find(([key]) => key === place().query.span) ?? SPANS[0];
  const from = () => parsed(place().query.at) ?? opened - span()[1];
  const to = () => parsed(place().query.to);
  const [dragged, setDragged] = createSignal<number>();
  const shown = () => dragged() ?? from();
  const start = () => opened - span()[1];
  const position = () => Math.round(((shown() - start()) / span()[1]) * STEPS);
  const momentAt = (step: number) => start() + (step / STEPS) * span()[1];
  const iso = (at: number) => new Date(at).toISOString();
  const tab = () => TABS.find(([key]) => key === place().query.tab)?.[0] ?? "changes";
  const [other, setOther] = createSignal("");
  return (
    <>
      <Head title="Time" />
      <Show when={session()?.navigator} fallback={<NoNavigator />}>
        <div class="stack">
          <Panel title={moment(shown())} note={`${length(now() - shown())} ago`} end={
            <label class="row"><span class="soft">The last</span>
              <select onChange={(event) => setQuery({ span: event.currentTarget.value, at: undefined })}>
                <For each={SPANS}>{([key, , title]) => <option value={key} selected={key === span()[0]}>{title}</option>}</For>
              </select>
            </label>
          }>
            <div class="inside stack tight">
              <input
                type="range" min="0" max={STEPS} value={position()} aria-label="Moment of the past" aria-valuetext={moment(shown())}
                onInput={(event) => setDragged(momentAt(Number(event.currentTarget.value)))}
                onChange={(event) => { const at = momentAt(Number(event.currentTarget.value)); setDragged(undefined); setQuery({ at: iso(at) }); }}
              />
              <div class="spread soft small"><span>{moment(start())}</span><span>{moment(opened)}</span></div>
              <div class="row">
                <label class="row"><span class="soft">Compare it with</span>
                  <select onChange={(event) => setQuery({ to: event.currentTarget.value })}>
                    <option value="" selected={!to()}>now</option>
                    <For each={[0.25, 0.5, 0.75]}>{(part) => { const at = () => shown() + (opened - shown()) * part; return <option value={iso(at())}>{moment(at())}</option>; }}</For>
                    <Show when={to()}>{(at) => <option value={iso(at())} selected>{moment(at())}</option>}</Show>
                  </select>
                </label>
              </div>
            </div>
          </Panel>
          <div>
            <Tabs label="What is shown of the past" tabs={TABS} chosen={tab()} />
            <Show when={tab() === "changes"}><Changes from={iso(from())} to={to() ? iso(to()!) : undefined} /></Show>
            <Show when={tab() === "clusters"}><Panel title="Clusters then"><Answer text="clusters" at={iso(from())} /></Panel></Show>
            <Show when={tab() === "apps"}><Panel title="Apps then" note="in each cluster"><Answer text="apps" at={iso(from())} /></Panel></Show>
            <Show when={tab() === "pods"}>
              <Panel title="Pods then" end={<input type="search" placeholder="where: not ready" aria-label="Condition" onChange={(event) => setOther(event.currentTarget.value)} />}>
                <Answer text={other() ? `pods where ${other()}` : "pods"} at={iso(from())} />
                <div class="inside"><a href={links.query(other() ? `pods where ${other()}` : "pods", iso(from()))}>Ask any other question of this moment</a></div>
              </Panel>
            </Show>
            <Show when={tab() === "rollouts"}><Rollouts at={from()} /></Show>
            <Show when={tab() === "others"}><Others /></Show>
          </div>
        </div>
      </Show>
    </>
  );
}

function short(value: unknown): string {
  const text = value === undefined || value === null ? "(none)" : typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}

function Changes(props: { from: string; to: string | undefined }) {
  const answer = useLoad(() => ({ from: props.from, to: props.to, limit: 500 }), (asked, signal) => navigator_.get<Difference>("/diff", asked, signal));
  const lines = createMemo<readonly Line[]>(() => {
    const said = answer.value();
    if (!said) return [];
    return [
      ...said.changed.map((each): Line => ({ ...each, what: "changed" })),
      ...said.added.map((each): Line => ({ ...each, what: "added" })),
      ...said.removed.map((each): Line => ({ ...each, what: "removed" })),
    ];
  });
  const columns: readonly Column<Line>[] = [
    { key: "what", title: "Change", sort: (of) => of.what, cell: (of) => <Tag tone={of.what === "added" ? "ok" : of.what === "removed" ? "bad" : "info"}>{of.what}</Tag> },
    { key: "kind", title: "Kind", sort: (of) => of.kind, cell: (of) => of.kind },
    { key: "name", title: "Object", sort: (of) => of.name, cell: (of) => <span class="wrap">{of.namespace ? <span class="soft">{of.namespace}/</span> : ""}{of.name}</span> },
    { key: "cluster", title: "Cluster", wide: true, sort: (of) => of.cluster, cell: (of) => of.cluster },
    { key: "fields", title: "Fields", wide: true, cell: (of) => <ul class="small mono"><For each={(of.fields ?? []).slice(0, 6)}>{(field) => <li class="wrap">{field.path}: {short(field.before)} → {short(field.after)}</li>}</For></ul> },
  ];
  const totals = () => Object.entries(answer.value()?.totals ?? {}).map(([name, value]) => `${count(value)} ${name}`).join(", ");
  return (
    <Panel title="What changed" note={answer.busy() ? "asking…" : totals() || plural(lines().length, "change")}>
      <Show when={answer.error()}>{(failed) => <div class="inside"><Problem error={failed()} title="This moment cannot be shown" /></div>}</Show>
      <Show when={answer.value()?.historyBegins}>{(begins) => <div class="inside"><div class="notice warn">The history begins <Ago at={parsed(begins())} />: everything counts as added since.</div></div>}</Show>
      <Show when={answer.value()}>
        <Table label="Changes" columns={columns} rows={lines()} tall empty={<Empty title="Nothing changed between these moments">Move the slider further back.</Empty>} />
        <div class="inside"><Command text={command(["shoal", "changes", "--from", props.from, props.to && "--to", props.to])} /></div>
      </Show>
    </Panel>
  );
}

/** Rollouts keep their decisions: which were under way then follows from when they began and ended. */
function Rollouts(props: { at: number }) {
  const topic = useTopic("rollouts");
  const then = createMemo(() => topic.list<RolloutRow>("").filter((of) => (of.startedAt ?? Infinity) <= props.at && (of.endedAt ?? Infinity) >= props.at));
  const columns: readonly Column<RolloutRow>[] = [
    { key: "app", title: "App", cell: (of) => <a href={links.rollout(of, of.number)}>{of.project}/{of.environment}/{of.app}, rollout {of.number}</a> },
    { key: "revision", title: "Revision", cell: (of) => `${of.stableRevision ?? "–"} → ${of.revision}` },
    { key: "started", title: "Started", cell: (of) => <Ago at={of.startedAt} /> },
    { key: "end", title: "Came to", cell: (of) => <State of={phase(of).word} tone={phase(of).tone} /> },
  ];
  return (
    <Loaded ready={topic.ready()} error={topic.error()} what="Rollouts">
      <Panel title="Rollouts under way then" note="each keeps its decisions and their reasons">
        <Table label="Rollouts under way then" columns={columns} rows={then()} empty={<Empty title="No rollout was under way then">See <a href="/ui/rollouts">all rollouts</a>.</Empty>} />
      </Panel>
    </Loaded>
  );
}

function Others() {
  return (
    <Panel title="Other views">
      <div class="inside stack tight">
        <p>Traffic keeps its numbers for ten minutes, a rollout those of its last fifteen: they are drawn in these views.</p>
        <p>Fleet, Shards and Settings have no past. For who changed what, see the audit log in <a href="/ui/settings?tab=audit">Settings</a>.</p>
      </div>
    </Panel>
  );
}
