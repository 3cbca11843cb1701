/** Every cluster, how fresh what is known of it is; services over all clusters; mistakes in the mesh. */

import { createMemo, Show } from "solid-js";
import { links } from "../../app/paths";
import { place } from "../../app/router";
import { session } from "../../app/session";
import { useTopic } from "../../live/topic";
import type { ClusterRow } from "../../live/rows";
import { cores, memory, plural } from "../../text/numbers";
import { urgency } from "../../text/states";
import { Ago, Empty, Head, Loaded, Panel, State, Tabs } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { Mistakes } from "../cluster/mistakes";
import { Services } from "../cluster/services";
import { NoNavigator } from "../cluster/none";

const TABS = [["clusters", "Clusters"], ["services", "Services"], ["mistakes", "Mistakes"]] as const;

const COLUMNS: readonly Column<ClusterRow>[] = [
  { key: "name", title: "Cluster", sort: (of) => of.name, cell: (of) => <a href={links.cluster(of.name)}><strong>{of.name}</strong></a> },
  { key: "state", title: "State", sort: (of) => urgency(of.state), cell: (of) => <div><State of={of.state} /><Show when={of.problem}><div class="soft small wrap">{of.problem}</div></Show></div> },
  { key: "region", title: "Region", sort: (of) => of.region, cell: (of) => of.region },
  { key: "freshness", title: "Navigator", wide: true, sort: (of) => urgency(of.freshness), cell: (of) => <State of={of.freshness} title={of.freshnessReason} /> },
  { key: "version", title: "Version", wide: true, sort: (of) => of.version, cell: (of) => of.version ?? "–" },
  { key: "nodes", title: "Nodes", align: "end", wide: true, sort: (of) => of.nodes, cell: (of) => (of.nodes === undefined ? "–" : `${of.nodesReady}/${of.nodes}`) },
  { key: "pods", title: "Pods", align: "end", sort: (of) => of.pods, cell: (of) => (of.pods === undefined ? "–" : of.podsReady === undefined ? of.pods : `${of.podsReady}/${of.pods}`) },
  { key: "cpu", title: "CPU asked for", align: "end", wide: true, sort: (of) => (of.cpu ? (of.cpuUsed ?? 0) / of.cpu : undefined), cell: (of) => (of.cpu ? `${cores(of.cpuUsed)} of ${cores(of.cpu)}` : "–") },
  { key: "memory", title: "Memory asked for", align: "end", wide: true, sort: (of) => (of.memory ? (of.memoryUsed ?? 0) / of.memory : undefined), cell: (of) => (of.memory ? `${memory(of.memoryUsed)} of ${memory(of.memory)}` : "–") },
  { key: "heard", title: "Heard", align: "end", wide: true, sort: (of) => of.heardAt, cell: (of) => <Ago at={of.heardAt} /> },
];

export default function Clusters() {
  const fleet = useTopic("fleet");
  const tab = () => TABS.find(([key]) => key === place().query.tab)?.[0] ?? "clusters";
  const clusters = createMemo(() => fleet.list<ClusterRow>("cluster"));
  return (
    <>
      <Head title="Clusters" />
      <Tabs label="About clusters" tabs={TABS} chosen={tab()} />
      <Show when={tab() === "clusters"}>
        <Loaded ready={fleet.ready()} error={fleet.error()} what="Clusters">
          <Panel title="Clusters" note={plural(clusters().length, "cluster")}>
            <Table label="Clusters" columns={COLUMNS} rows={clusters()} sort={{ key: "state", down: false }} tall
              empty={<Empty title="No cluster has joined" command="shoal cluster join --help">Let one join the fleet:</Empty>} />
          </Panel>
        </Loaded>
      </Show>
      <Show when={tab() !== "clusters"}>
        <Show when={session()?.navigator} fallback={<NoNavigator />}>
          <Show when={tab() === "services"} fallback={<Mistakes />}><Services /></Show>
        </Show>
      </Show>
    </>
  );
}
