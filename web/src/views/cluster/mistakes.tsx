/** Mistakes in the configuration of the mesh, each with its place and its fix. */

import { Show } from "solid-js";
import { useTopic } from "../../live/topic";
import { plural } from "../../text/numbers";
import { Empty, Loaded, Panel, State } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";

interface MistakeRow {
  readonly key: string;
  readonly cluster: string;
  readonly code: string;
  readonly severity: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly path?: string;
  readonly message: string;
  readonly fix?: string;
}

const COLUMNS: readonly Column<MistakeRow>[] = [
  { key: "severity", title: "Severity", sort: (of) => (of.severity === "error" ? 0 : 1), cell: (of) => <State of={of.severity} tone={of.severity === "error" ? "bad" : "warn"} /> },
  { key: "object", title: "Object", sort: (of) => `${of.kind} ${of.name}`, cell: (of) => <span class="wrap">{of.kind} <strong>{of.namespace}/{of.name}</strong><Show when={of.path}><br /><span class="mono small soft">{of.path}</span></Show></span> },
  { key: "message", title: "Mistake and fix", cell: (of) => <span class="wrap">{of.message} <code class="small soft">{of.code}</code><Show when={of.fix}><br /><span class="soft">Fix: {of.fix}</span></Show></span> },
  { key: "cluster", title: "Cluster", wide: true, sort: (of) => of.cluster, cell: (of) => of.cluster },
];

export function Mistakes(props: { cluster?: string }) {
  const topic = useTopic("mistakes", () => ({ cluster: props.cluster }));
  return (
    <Loaded ready={topic.ready()} error={topic.error()} what="Mistakes">
      <Panel title="Mistakes in the mesh" note={plural(topic.list("").length, "mistake")}>
        <Table label="Mistakes" columns={COLUMNS} rows={topic.list<MistakeRow>("")} sort={{ key: "severity", down: false }} tall empty={<Empty title="No mistake was found">Every VirtualService, DestinationRule, Gateway and policy was checked.</Empty>} />
      </Panel>
    </Loaded>
  );
}
