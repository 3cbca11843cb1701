/** Sharded controllers: the ring of slots with their owners, the load of each shard, moves under way, and why it is so. */

import { createMemo, For, Show } from "solid-js";
import { useTopic } from "../../live/topic";
import { plural, share } from "../../text/numbers";
import { Empty, Head, Loaded, Meter, Panel, State, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { arcs, SLOTS, type Owners } from "./ring";
import "./style.css";

interface Config {
  readonly key: string; readonly cluster: string; readonly namespace: string; readonly name: string;
  readonly minShards?: number; readonly maxShards?: number; readonly strategy?: string; readonly decision?: string; readonly averageLoad?: number;
  readonly scaleUpThreshold?: number; readonly scaleDownThreshold?: number; readonly assignedCount?: number; readonly unassignedSlots?: number;
  readonly conditions?: readonly { type: string; status: string; reason?: string; message?: string }[];
}
interface Instance {
  readonly key: string; readonly cluster: string; readonly namespace: string; readonly name: string; readonly config: string;
  readonly phase?: string; readonly state?: string; readonly reason?: string; readonly load?: number; readonly slots?: number; readonly assignedCount?: number;
}
interface Slots {
  readonly key: string; readonly cluster: string; readonly namespace: string; readonly config: string;
  readonly owners?: Owners; readonly moving?: readonly { slot: number; from?: string; to?: string; phase?: string }[];
}

const COLOURS = 8;

export default function Shards() {
  const topic = useTopic("shards");
  return (
    <>
      <Head title="Shards" />
      <Loaded ready={topic.ready()} error={topic.error()} what="Shards">
        <div class="stack">
          <For each={topic.list<Config>("config")} fallback={
            <div class="panel"><Empty title="No controller is sharded" command="kubectl apply -f shardconfig.yaml">A ShardConfig in a cluster spreads one controller over many workers. See the sharding guide.</Empty></div>
          }>
            {(config) => (
              <One config={config}
                instances={topic.list<Instance>("instance").filter((of) => of.cluster === config.cluster && of.namespace === config.namespace && of.config === config.name)}
                parts={topic.list<Slots>("slots").filter((of) => of.cluster === config.cluster && of.namespace === config.namespace && of.config === config.name)} />
            )}
          </For>
        </div>
      </Loaded>
    </>
  );
}

const GOOD = new Set(["Accepted", "Ready", "TargetsFound", "Available"]);

/** Some conditions are good when they are true; the others name something under way or in the way. */
function conditionTone(of: { type: string; status: string }) {
  if (of.status === "Unknown") return "warn";
  if (GOOD.has(of.type)) return of.status === "True" ? "ok" : "bad";
  return of.status === "False" ? "muted" : of.type === "Progressing" ? "info" : "warn";
}

function One(props: { config: Config; instances: readonly Instance[]; parts: readonly Slots[] }) {
  // The table of slots is in several objects.
  const owners = createMemo<Owners>(() => props.parts.flatMap((part) => part.owners ?? []));
  const moving = createMemo(() => props.parts.flatMap((part) => part.moving ?? []));
  const names = createMemo(() => [...new Set([...props.instances.map((of) => of.name), ...owners().map(([, , owner]) => owner)])].filter(Boolean).sort());
  const colour = (name: string) => `shard-${(names().indexOf(name) % COLOURS) + 1}`;
  const owned = (name: string) => owners().reduce((sum, [from, to, owner]) => sum + (owner === name ? to - from + 1 : 0), 0);
  const columns: readonly Column<Instance>[] = [
    { key: "name", title: "Shard", sort: (of) => of.name, cell: (of) => <span class="row"><span class={`swatch ${colour(of.name)}`} aria-hidden="true" /><strong class="wrap">{of.name}</strong></span> },
    { key: "phase", title: "State", cell: (of) => <><State of={of.state && of.state !== "Ready" ? of.state : of.phase} /><Show when={of.reason && of.reason !== of.state}><div class="soft small wrap">{of.reason}</div></Show></> },
    { key: "slots", title: "Slots", align: "end", sort: (of) => of.slots ?? owned(of.name), cell: (of) => of.slots ?? owned(of.name) },
    { key: "load", title: "Load", sort: (of) => of.load, cell: (of) => <span class="stack tight"><span>{share(of.load)}</span><Meter part={of.load} label={`load ${share(of.load)}`} /></span> },
    { key: "keys", title: "Objects", align: "end", wide: true, sort: (of) => of.assignedCount, cell: (of) => of.assignedCount ?? "–" },
  ];
  return (
    <Panel title={props.config.name} note={`${props.config.cluster}, ${props.config.namespace}: ${plural(props.instances.length, "shard")}${props.config.minShards ? ` of ${props.config.minShards} to ${props.config.maxShards ?? "any"}` : ""}${props.config.strategy ? `, ${props.config.strategy}` : ""}`}>
      <div class="inside shards">
        <svg class="ring" viewBox="-110 -110 220 220" role="img" aria-label={`${SLOTS} slots: ${names().map((name) => `${name} owns ${owned(name)}`).join(", ")}`}>
          <For each={arcs(owners())}>{(arc) => <path d={arc.path} class={colour(arc.owner)}><title>{arc.owner}: slots {arc.from} to {arc.to}</title></path>}</For>
          <For each={moving()}>{(move) => { const angle = () => (move.slot / SLOTS) * 2 * Math.PI - Math.PI / 2; return <circle class="moving" r="4" cx={101 * Math.cos(angle())} cy={101 * Math.sin(angle())}><title>slot {move.slot}: {move.from} → {move.to}</title></circle>; }}</For>
          <text y="-2" text-anchor="middle" class="big">{SLOTS}</text>
          <text y="16" text-anchor="middle">slots</text>
        </svg>
        <div class="stack">
          <Table label={`Shards of ${props.config.name}`} columns={columns} rows={props.instances} sort={{ key: "name", down: false }} empty={<Empty title="No shard runs">Raise minShards, or see its conditions.</Empty>} />
          <Show when={moving().length} fallback={<p class="soft small">No slot moves.</p>}>
            <div>
              <h3>{plural(moving().length, "slot")} on the move</h3>
              <ul class="small"><For each={moving().slice(0, 12)}>{(move) => <li class="wrap">slot {move.slot}: {move.from} → {move.to} <Tag tone="info">{move.phase}</Tag></li>}</For></ul>
            </div>
          </Show>
          <Show when={props.config.decision}><p class="wrap"><span class="soft">Scaling: </span>{props.config.decision}</p></Show>
          <ul class="stack tight small">
            <For each={props.config.conditions ?? []}>{(each) => <li class="wrap"><State of={each.type} tone={conditionTone(each)} /> <span class="soft">{each.status} {each.reason} {each.message}</span></li>}</For>
          </ul>
        </div>
      </div>
    </Panel>
  );
}
