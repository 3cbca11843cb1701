/** Instances in all regions, and their logs. */

import { createSignal, Show } from "solid-js";
import { session } from "../../app/session";
import type { InstanceRow } from "../../live/rows";
import { links } from "../../app/paths";
import { Ago, Empty, Panel, State } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { Log } from "../../ui/log";
import type { Part } from "./index";

export function Instances(props: Part) {
  const [logOf, setLogOf] = createSignal<InstanceRow>();
  const columns: readonly Column<InstanceRow>[] = [
    {
      key: "name", title: "Instance", sort: (of) => of.name,
      cell: (of) => <a class="wrap" href={links.why("Pod", of.name, { cluster: of.cluster, namespace: of.namespace })}>{of.name}</a>,
    },
    { key: "state", title: "State", sort: (of) => (of.ready ? 1 : 0), cell: (of) => (
      <div>
        <State of={of.ready ? "Ready" : of.status} tone={of.ready ? "ok" : undefined} />
        <Show when={!of.ready && (of.message || of.reason)}><div class="soft small wrap">{of.message || of.reason}</div></Show>
      </div>
    ) },
    { key: "revision", title: "Revision", align: "end", sort: (of) => of.revision, cell: (of) => of.revision },
    { key: "region", title: "Region", wide: true, sort: (of) => of.region, cell: (of) => of.region },
    { key: "cluster", title: "Cluster", wide: true, sort: (of) => of.cluster, cell: (of) => of.cluster },
    { key: "node", title: "Node", wide: true, sort: (of) => of.node, cell: (of) => of.node ?? "–" },
    { key: "address", title: "Address", wide: true, cell: (of) => <span class="mono small">{of.address ?? "–"}</span> },
    { key: "restarts", title: "Restarts", align: "end", descending: true, sort: (of) => of.restarts, cell: (of) => <span class={(of.restarts ?? 0) > 3 ? "warn" : ""}>{of.restarts ?? 0}</span> },
    { key: "started", title: "Started", align: "end", wide: true, sort: (of) => of.startedAt, cell: (of) => <Ago at={of.startedAt} /> },
    { key: "log", title: "Log", cell: (of) => (
      <Show when={session()?.navigator && of.namespace} fallback="–">
        <button type="button" class="button tiny" onClick={() => setLogOf(of)} aria-label={`Log of ${of.name}`}>Log</button>
      </Show>
    ) },
  ];
  return (
    <div class="stack">
      <Panel title="Instances">
        <Table label="Instances" columns={columns} rows={props.topic.list<InstanceRow>("instance")} sort={{ key: "state", down: false }} tall empty={<Empty title="No instance runs">The overview says what is waited for, per region.</Empty>} />
      </Panel>
      <Show when={logOf()} keyed>
        {(of) => <Log cluster={of.cluster} namespace={of.namespace ?? ""} pod={of.name} onClose={() => setLogOf(undefined)} />}
      </Show>
    </div>
  );
}
