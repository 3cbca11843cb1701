/** One cluster: its agents, and its pods, workloads, services, nodes and mesh as the navigator knows them. */

import { createMemo, createSignal, Show } from "solid-js";
import { navigator_, rest } from "../../api/rest";
import { links } from "../../app/paths";
import { place } from "../../app/router";
import { may, session } from "../../app/session";
import { useTopic } from "../../live/topic";
import type { AgentRow, ClusterRow } from "../../live/rows";
import { cores, memory } from "../../text/numbers";
import { command } from "../../text/commands";
import { ActionButton } from "../../ui/action";
import { Ago, Dialog, Empty, Head, Loaded, Pairs, Panel, Problem, State, Tabs, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { useLoad } from "../../ui/load";
import { Log } from "../../ui/log";
import type { ViewProps } from "../index";
import { Answer } from "../query/answer";
import { Mistakes } from "./mistakes";
import { lagText } from "../fleet/regions";
import { NoNavigator } from "./none";
import { Services } from "./services";

const TABS = [["overview", "Overview"], ["pods", "Pods"], ["workloads", "Workloads"], ["services", "Services"], ["nodes", "Nodes"], ["mistakes", "Mesh"]] as const;

export default function Cluster(props: ViewProps) {
  const name = () => props.of.cluster ?? "";
  const fleet = useTopic("fleet");
  const tab = () => TABS.find(([key]) => key === place().query.tab)?.[0] ?? "overview";
  const cluster = () => fleet.one<ClusterRow>(`cluster/${name()}`);
  const of = (kind: string) => `${kind} where cluster = '${name().replaceAll("'", "''")}'`;
  return (
    <>
      <Head title={name()} crumbs={<a href="/ui/clusters">Clusters</a>} state={<Show when={cluster()}>{(row) => <State of={row().state} />}</Show>}>
        <a class="button" href={links.query(of("pods"))}>Query it</a>
      </Head>
      <Tabs label="About this cluster" tabs={TABS} chosen={tab()} />
      <Show
        when={tab() === "overview"}
        fallback={
          <Show when={session()?.navigator} fallback={<NoNavigator />}>
            <Show when={tab() === "pods"}><Pods cluster={name()} /></Show>
            <Show when={tab() === "workloads"}><Panel title="Workloads"><Answer text={of("deployments")} /></Panel></Show>
            <Show when={tab() === "nodes"}><Panel title="Nodes"><Answer text={of("nodes")} /></Panel></Show>
            <Show when={tab() === "services"}><Services cluster={name()} /></Show>
            <Show when={tab() === "mistakes"}><Mistakes cluster={name()} /></Show>
          </Show>
        }
      >
        <Loaded ready={fleet.ready()} error={fleet.error()} what="The cluster">
          <Show when={cluster()} fallback={<div class="panel"><Empty title="No such cluster"><p>No cluster of the fleet is called {name()}. See <a href="/ui/clusters">all clusters</a>.</p></Empty></div>}>
            {(row) => (
              <div class="stack">
                <Show when={row().problem}><div class="notice bad"><strong>{row().problem}</strong></div></Show>
                <Panel title="Cluster">
                  <div class="inside">
                    <Pairs of={[
                      ["Region", row().region], ["Kubernetes", row().version], ["Takes new apps", row().schedulable ? "yes" : "no"],
                      ["Nodes", row().nodes === undefined ? undefined : `${row().nodesReady} of ${row().nodes} ready`], ["Pods", row().pods === undefined || row().podsReady === undefined ? row().pods?.toString() : `${row().podsReady} of ${row().pods} ready`],
                      ["CPU", row().cpu ? `${cores(row().cpuUsed)} of ${cores(row().cpu)} cores asked for` : undefined], ["Memory", row().memory ? `${memory(row().memoryUsed)} of ${memory(row().memory)} asked for` : undefined],
                      ["Navigator", row().freshness && <span class="row"><State of={row().freshness} /> {row().freshnessReason} <span class="soft">heard <Ago at={row().heardAt} /></span></span>],
                    ]} />
                  </div>
                </Panel>
                <Agents cluster={name()} agents={fleet.list<AgentRow>("agent").filter((agent) => agent.cluster === name())} />
                <Show when={session()?.navigator}><Kinds cluster={name()} /></Show>
              </div>
            )}
          </Show>
        </Loaded>
      </Show>
    </>
  );
}

function Agents(props: { cluster: string; agents: readonly AgentRow[] }) {
  const columns: readonly Column<AgentRow>[] = [
    { key: "shard", title: "Shard", sort: (of) => of.shard, cell: (of) => <strong>{of.shard}</strong> },
    { key: "state", title: "State", cell: (of) => <div><State of={of.state} /><Show when={of.reason}><div class="soft small wrap">{of.reason}</div></Show></div> },
    { key: "heard", title: "Heard", align: "end", cell: (of) => <Ago at={of.heartbeatAt} /> },
    { key: "lag", title: "Lag", align: "end", cell: (of) => lagText(of.lag ?? 0) },
    { key: "objects", title: "Objects", align: "end", wide: true, cell: (of) => of.objects ?? "–" },
    { key: "retrying", title: "Retrying", align: "end", wide: true, cell: (of) => <span class={of.retrying ? "warn" : ""}>{of.retrying ?? "–"}</span> },
    { key: "breaker", title: "Breaker", wide: true, cell: (of) => of.breaker ?? "–" },
    { key: "software", title: "Version", wide: true, cell: (of) => of.software ?? "–" },
    { key: "held", title: "Deletions", cell: (of) => (
      <Show when={of.held?.length} fallback="free">
        <span class="row"><Tag tone="warn">held: {of.held!.join(", ")}</Tag>
        <ActionButton label="Confirm" danger when={may("operate")} ask={() => ({
          title: `Confirm the deletions that ${props.cluster}/${of.shard} holds back`, verb: "Confirm", danger: true, done: "The deletions are confirmed",
          text: "The agent was asked to delete unusually many objects, and waits for a person. Confirm only if these deletions are meant.",
          command: () => command(["shoal", "agents", "confirm-deletes", `${props.cluster}/${of.shard}`]),
          run: () => rest.send("POST", `/agents/${encodeURIComponent(props.cluster)}/${encodeURIComponent(of.shard)}/confirm-deletes`, {}),
        })} /></span>
      </Show>
    ) },
  ];
  return <Panel title="Agents"><Table label="Agents" columns={columns} rows={props.agents} empty={<Empty title="No agent has joined" command={command(["shoal", "cluster", "join", props.cluster])} />} /></Panel>;
}

interface KindState { readonly kind: string; readonly state: string; readonly error?: string; readonly rows?: number }
interface KnownCluster { readonly kinds?: readonly KindState[] }

function Kinds(props: { cluster: string }) {
  const topic = useTopic("clusters");
  const kinds = createMemo(() => (topic.list<KnownCluster & { name: string }>("").find((of) => of.name === props.cluster)?.kinds ?? []).filter((of) => of.state !== "missing"));
  const columns: readonly Column<KindState>[] = [
    { key: "kind", title: "Kind", sort: (of) => of.kind, cell: (of) => <a href={links.query(`${of.kind} where cluster = '${props.cluster}'`)}>{of.kind}</a> },
    { key: "state", title: "State", sort: (of) => of.state, cell: (of) => <div><State of={of.state} /><Show when={of.error}><div class="soft small wrap">{of.error}</div></Show></div> },
    { key: "rows", title: "Objects", align: "end", descending: true, sort: (of) => of.rows, cell: (of) => of.rows ?? "–" },
  ];
  return <Panel title="What the navigator knows"><Table label="Kinds" columns={columns} rows={kinds()} sort={{ key: "rows", down: true }} tall empty={<Empty title="Nothing is known of this cluster">Its edge has not reported yet.</Empty>} /></Panel>;
}

function Pods(props: { cluster: string }) {
  const [shown, setShown] = createSignal<PodName>();
  return (
    <>
      <Panel title="Pods">
        <Answer text={`pods where cluster = '${props.cluster.replaceAll("'", "''")}'`} open={(row) => setShown({ cluster: String(row.cluster), namespace: String(row.namespace), name: String(row.name) })} />
      </Panel>
      <Show when={shown()} keyed>{(pod) => <Pod pod={pod} onClose={() => setShown(undefined)} />}</Show>
    </>
  );
}

interface PodName { readonly cluster: string; readonly namespace: string; readonly name: string }
interface Acting { readonly kind: string; readonly namespace: string; readonly name: string; readonly reason: string }

function Pod(props: { pod: PodName; onClose: () => void }) {
  const path = () => `/pods/${[props.pod.cluster, props.pod.namespace, props.pod.name].map(encodeURIComponent).join("/")}`;
  const mesh = useLoad(path, (of, signal) => navigator_.get<{ items: readonly Acting[] }>(`${of}/istio`, {}, signal));
  const acting = () => mesh.value()?.items ?? [];
  const [log, setLog] = createSignal(false);
  return (
    <Dialog kind="side" title={`Pod ${props.pod.name}`} onClose={props.onClose}>
      <Pairs of={[["Cluster", props.pod.cluster], ["Namespace", props.pod.namespace]]} />
      <div class="row">
        <a class="button" href={links.why("Pod", props.pod.name, props.pod)}>Why?</a>
        <button type="button" class="button" onClick={() => setLog(!log())}>{log() ? "Close the log" : "Log"}</button>
      </div>
      <Show when={log()}><Log {...props.pod} pod={props.pod.name} /></Show>
      <h3>Istio resources that act on it</h3>
      <Show when={!mesh.error()} fallback={<Problem error={mesh.error()} title="Not known" />}>
        <Table label="Istio resources that act on the pod" rows={acting()}
          columns={[
            { key: "kind", title: "Resource", cell: (of) => <span class="wrap">{of.kind} <strong>{[of.namespace, of.name].filter(Boolean).join("/")}</strong></span> },
            { key: "why", title: "Why", cell: (of) => <span class="wrap">{of.reason}</span> },
          ]} empty={<p class="soft">{mesh.busy() ? "Loading…" : "None."}</p>} />
      </Show>
    </Dialog>
  );
}
