/** Regions as tiles, each with its clusters: their state, what the agent does, how full they are. */

import { createMemo, For, Show } from "solid-js";
import { links } from "../../app/paths";
import type { AgentRow, ClusterRow, RegionRow } from "../../live/rows";
import { cores, memory, plural } from "../../text/numbers";
import { tone, urgency, word } from "../../text/states";
import { Ago, Dot, Empty, Meter, Panel, State, Tag } from "../../ui/parts";

/** From so many clusters on, each is a small tile instead of a card. */
const SMALL_FROM = 13;

export function Regions(props: { regions: readonly RegionRow[]; clusters: readonly ClusterRow[]; agents: readonly AgentRow[] }) {
  const byRegion = createMemo(() => {
    const found = new Map<string, ClusterRow[]>();
    for (const cluster of props.clusters) {
      const list = found.get(cluster.region) ?? [];
      list.push(cluster);
      found.set(cluster.region, list);
    }
    for (const list of found.values()) list.sort((a, b) => urgency(a.state) - urgency(b.state) || a.name.localeCompare(b.name, undefined, { numeric: true }));
    return found;
  });
  const agentsOf = createMemo(() => {
    const found = new Map<string, AgentRow[]>();
    for (const agent of props.agents) found.set(agent.cluster, [...(found.get(agent.cluster) ?? []), agent]);
    return found;
  });
  const small = () => props.clusters.length >= SMALL_FROM;
  return (
    <Panel title="Regions" note={`${plural(props.regions.length, "region")}, ${plural(props.clusters.length, "cluster")}`}>
      <Show
        when={props.regions.length}
        fallback={
          <Empty title="No region yet" command="shoal cluster join --help">
            A region begins with the first cluster that joins the fleet.
          </Empty>
        }
      >
        <ul class="regions" classList={{ small: small() }}>
          <For each={[...props.regions].sort((a, b) => a.name.localeCompare(b.name))}>
            {(region) => (
              <li class="region">
                <div class="spread">
                  <h3>{region.name}</h3>
                  <span class="small soft">
                    {region.platform} <Show when={!region.schedulable}><Tag tone="warn">takes no new apps</Tag></Show>
                  </span>
                </div>
                <ul class="clusters">
                  <For each={byRegion().get(region.name) ?? []} fallback={<li class="soft small">No cluster has joined.</li>}>
                    {(cluster) => (
                      <li>
                        <Show when={small()} fallback={<Card cluster={cluster} agents={agentsOf().get(cluster.name) ?? []} />}>
                          <Tile cluster={cluster} />
                        </Show>
                      </li>
                    )}
                  </For>
                </ul>
              </li>
            )}
          </For>
        </ul>
      </Show>
    </Panel>
  );
}

function Tile(props: { cluster: ClusterRow }) {
  return (
    <a class={`tile ${tone(props.cluster.state)}`} href={links.cluster(props.cluster.name)} title={`${props.cluster.name}: ${word(props.cluster.state)}${props.cluster.problem ? `. ${props.cluster.problem}` : ""}`}>
      <Dot tone={tone(props.cluster.state)} />
      <span>{props.cluster.name}</span>
      <span class="visually-hidden">{word(props.cluster.state)}</span>
    </a>
  );
}

/** Without anything that waits for its agent there is no lag to tell. */
export function lagText(seconds: number): string {
  return seconds < 0.05 ? "none" : `${seconds.toFixed(1)} s`;
}

function Card(props: { cluster: ClusterRow; agents: readonly AgentRow[] }) {
  const part = (used: number | undefined, of: number | undefined) => (used === undefined || !of ? undefined : used / of);
  const lag = () => Math.max(0, ...props.agents.map((agent) => agent.lag ?? 0));
  const heard = () => Math.min(...props.agents.map((agent) => agent.heartbeatAt ?? Infinity));
  return (
    <div class="cluster">
      <div class="spread">
        <a href={links.cluster(props.cluster.name)}>
          <strong>{props.cluster.name}</strong>
        </a>
        <State of={props.cluster.state} title={props.cluster.problem} />
      </div>
      <Show when={props.cluster.problem}>
        <div class="bad wrap">{props.cluster.problem}</div>
      </Show>
      <dl class="cells">
        <div>
          <dt title="When the agent was last heard of">Agent</dt>
          <dd>
            <Show when={Number.isFinite(heard())} fallback="–">
              <Ago at={heard()} />
            </Show>
          </dd>
        </div>
        <div>
          <dt>Lag</dt>
          <dd class={lag() > 10 ? "warn" : ""}>{props.agents.length ? lagText(lag()) : "–"}</dd>
        </div>
        <div>
          <dt>Nodes</dt>
          <dd class={(props.cluster.nodesReady ?? 0) < (props.cluster.nodes ?? 0) ? "warn" : ""}>
            {props.cluster.nodes === undefined ? "–" : `${props.cluster.nodesReady ?? 0}/${props.cluster.nodes}`}
          </dd>
        </div>
        <div>
          <dt>Pods</dt>
          <dd class={(props.cluster.podsReady ?? Infinity) < (props.cluster.pods ?? 0) ? "warn" : ""}>
            {props.cluster.pods === undefined ? "–" : props.cluster.podsReady === undefined ? props.cluster.pods : `${props.cluster.podsReady}/${props.cluster.pods}`}
          </dd>
        </div>
      </dl>
      <div class="capacity">
        <Show when={props.cluster.cpu}>
          <span class="soft">CPU</span>
          <Meter part={part(props.cluster.cpuUsed, props.cluster.cpu)} label={`${cores(props.cluster.cpuUsed)} of ${cores(props.cluster.cpu)} cores asked for`} />
          <span class="num soft">{cores(props.cluster.cpuUsed)} of {cores(props.cluster.cpu)}</span>
        </Show>
        <Show when={props.cluster.memory}>
          <span class="soft">Memory</span>
          <Meter part={part(props.cluster.memoryUsed, props.cluster.memory)} label={`${memory(props.cluster.memoryUsed)} of ${memory(props.cluster.memory)} asked for`} />
          <span class="num soft">{memory(props.cluster.memoryUsed)} of {memory(props.cluster.memory)}</span>
        </Show>
      </div>
      <div class="soft small row">
        <Show when={props.cluster.version}>
          <span>Kubernetes {props.cluster.version}</span>
        </Show>
        <Show when={props.cluster.freshness && props.cluster.freshness !== "healthy"}>
          <Tag tone={tone(props.cluster.freshness)} title={props.cluster.freshnessReason}>navigator: {props.cluster.freshness}</Tag>
        </Show>
        <For each={props.agents}>{(agent) => <Show when={agent.held?.length}><Tag tone="warn">holds deletions</Tag></Show>}</For>
      </div>
    </div>
  );
}
