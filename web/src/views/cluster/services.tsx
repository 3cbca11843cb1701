/** Services, those of one name in several clusters as one, with their endpoints. */

import { createMemo, createSignal, Show } from "solid-js";
import { place } from "../../app/router";
import { useTopic } from "../../live/topic";
import { plural } from "../../text/numbers";
import { Dialog, Empty, Loaded, Panel, State } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";

interface ServiceRow {
  readonly key: string;
  readonly namespace: string;
  readonly name: string;
  readonly types?: readonly string[];
  readonly ports?: readonly (number | Record<string, unknown>)[];
  readonly endpoints?: number;
  readonly readyEndpoints?: number;
  readonly clusters?: readonly (string | { cluster?: string; name?: string })[];
}
interface EndpointRow {
  readonly key: string;
  readonly address?: string;
  readonly ready?: boolean;
  readonly cluster?: string;
  readonly pod?: string;
  readonly name?: string;
  readonly node?: string;
  readonly zone?: string;
}

const portText = (port: number | Record<string, unknown>) => (typeof port === "number" ? String(port) : String(port.port ?? port.name ?? ""));
const clusterText = (cluster: string | { cluster?: string; name?: string }) => (typeof cluster === "string" ? cluster : (cluster.cluster ?? cluster.name ?? ""));

export function Services(props: { cluster?: string; at?: string }) {
  const topic = useTopic("services", () => ({ cluster: props.cluster, limit: 2000 }));
  const [text, setText] = createSignal(place().query.find ?? "");
  const [shown, setShown] = createSignal<ServiceRow>();
  const rows = createMemo(() => topic.list<ServiceRow>("").filter((of) => `${of.namespace}/${of.name}`.includes(text())));
  const columns: readonly Column<ServiceRow>[] = [
    { key: "name", title: "Service", sort: (of) => of.name, cell: (of) => <button type="button" class="link" onClick={() => setShown(of)}><strong>{of.name}</strong></button> },
    { key: "namespace", title: "Namespace", sort: (of) => of.namespace, cell: (of) => <span class="wrap">{of.namespace}</span> },
    { key: "ready", title: "Ready endpoints", align: "end", sort: (of) => (of.readyEndpoints ?? 0) - (of.endpoints ?? 0), cell: (of) => <span class={(of.readyEndpoints ?? 0) < (of.endpoints ?? 0) ? "warn" : ""}>{of.readyEndpoints ?? 0}/{of.endpoints ?? 0}</span> },
    { key: "types", title: "Type", wide: true, cell: (of) => (of.types ?? []).join(", ") },
    { key: "ports", title: "Ports", wide: true, cell: (of) => (of.ports ?? []).map(portText).join(", ") },
    { key: "clusters", title: "Clusters", wide: true, cell: (of) => <span class="wrap">{(of.clusters ?? []).map(clusterText).join(", ")}</span> },
  ];
  return (
    <Loaded ready={topic.ready()} error={topic.error()} what="Services">
      <Panel title="Services" note={plural(rows().length, "service")} end={<input type="search" placeholder="Filter by name" aria-label="Filter by name" value={text()} onInput={(event) => setText(event.currentTarget.value)} />}>
        <Table label="Services" columns={columns} rows={rows()} sort={{ key: "ready", down: false }} tall empty={<Empty title="No service has such a name" />} />
      </Panel>
      <Show when={shown()} keyed>{(of) => <Endpoints of={of} onClose={() => setShown(undefined)} />}</Show>
    </Loaded>
  );
}

function Endpoints(props: { of: ServiceRow; onClose: () => void }) {
  const topic = useTopic("service", () => ({ namespace: props.of.namespace, name: props.of.name }));
  const columns: readonly Column<EndpointRow>[] = [
    { key: "cluster", title: "Cluster", sort: (of) => of.cluster, cell: (of) => of.cluster },
    { key: "address", title: "Address", cell: (of) => <span class="mono small">{of.address}</span> },
    { key: "state", title: "State", sort: (of) => (of.ready ? 1 : 0), cell: (of) => <State of={of.ready ? "Ready" : "NotReady"} /> },
    { key: "pod", title: "Pod", wide: true, cell: (of) => <span class="small wrap">{of.pod ?? of.name ?? "–"}</span> },
  ];
  return (
    <Dialog kind="side" title={`Service ${props.of.namespace}/${props.of.name}`} onClose={props.onClose}>
      <Loaded ready={topic.ready()} error={topic.error()} what="Endpoints">
        <Table label="Endpoints" columns={columns} rows={topic.list<EndpointRow>("endpoint")} sort={{ key: "state", down: false }} empty={<Empty title="No endpoint">No ready pod has the labels that the service selects.</Empty>} />
      </Loaded>
    </Dialog>
  );
}
