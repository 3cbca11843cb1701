/** Regions with desired, applied and reported; traffic by revision; what leads requests here. */

import { createMemo, For, Show } from "solid-js";
import type { GatewayRow, PlaceRow, PolicyRow, RouteRow, SampleRow, TrafficRow } from "../../live/rows";
import { millis, rate, share } from "../../text/numbers";
import { aligned, Chart } from "../../ui/charts";
import { Ago, Empty, Panel, State, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { errorTone } from "../apps/table";
import type { Part } from "./index";
import "./style.css";

const PLACES: readonly Column<PlaceRow>[] = [
  { key: "region", title: "Region", sort: (of) => `${of.region} ${String(1e6 - of.revision)}`, cell: (of) => <strong>{of.region}</strong> },
  { key: "cluster", title: "Cluster", wide: true, cell: (of) => <a href={`/ui/cluster/${encodeURIComponent(of.cluster)}`} title={of.placement?.because && `Placed because ${of.placement.because}`}>{of.cluster}</a> },
  { key: "revision", title: "Revision", align: "end", sort: (of) => of.revision, cell: (of) => of.revision },
  {
    key: "state", title: "State",
    cell: (of) => (
      <div>
        <State of={of.state} /> <Show when={of.moving}><Tag tone="info">moving</Tag></Show>
        <Show when={of.message || of.reason}>
          <div class="soft small wrap">{of.message || of.reason}</div>
        </Show>
      </div>
    ),
  },
  { key: "weight", title: "Requests", align: "end", sort: (of) => of.weight, cell: (of) => (of.weight === undefined ? "–" : `${of.weight} %`) },
  { key: "ready", title: "Ready", align: "end", cell: (of) => <span class={(of.ready ?? 0) < (of.needed ?? of.replicas ?? 0) ? "warn" : ""}>{of.ready ?? 0}/{of.needed ?? of.replicas ?? "–"}</span> },
  { key: "desired", title: "Desired", align: "end", wide: true, cell: (of) => (of.desiredVersion === undefined ? "–" : `v${of.desiredVersion}`) },
  { key: "applied", title: "Applied", align: "end", wide: true, cell: (of) => <span class={of.appliedVersion !== of.desiredVersion ? "warn" : ""}>{of.appliedVersion === undefined ? "not yet" : `v${of.appliedVersion}`}</span> },
  { key: "reported", title: "Reported", align: "end", wide: true, cell: (of) => <><Ago at={of.reportedAt} /><Show when={of.drift?.length}> <Tag tone="warn" title={`Changed in the cluster: ${of.drift!.join(", ")}`}>drift</Tag></Show></> },
];

export function Overview(props: Part) {
  const places = createMemo(() => props.topic.list<PlaceRow>("place"));
  return (
    <div class="stack">
      <TrafficCharts {...props} />
      <Panel title="Regions" note="what is desired, applied and reported">
        <Table label="Regions" columns={PLACES} rows={places()} sort={{ key: "region", down: false }} empty={<Empty title="It is placed nowhere">Its regions have no cluster that accepts it. The reasons are under "Why".</Empty>} />
      </Panel>
      <div class="columns">
        <ByRevision {...props} />
        <Leading {...props} />
      </div>
      <Show when={props.app.explain?.length}>
        <Panel title="Why it is so">
          <ol class="inside stack tight">
            <For each={props.app.explain}>{(line) => <li class="wrap">{line}</li>}</For>
          </ol>
        </Panel>
      </Show>
    </div>
  );
}

const COLOURS = ["--series-1", "--series-2", "--series-3", "--series-4"];

function TrafficCharts(props: Part) {
  const revisions = createMemo(() => {
    const found = new Map<number, SampleRow[]>();
    for (const sample of props.topic.list<SampleRow>("sample")) {
      const list = found.get(sample.revision) ?? [];
      list.push(sample);
      found.set(sample.revision, list);
    }
    // The newest revisions that had requests: more than four lines are no help.
    return [...found].filter(([, list]) => list.some((sample) => (sample.requests ?? 0) > 0)).sort(([a], [b]) => b - a).slice(0, 4);
  });
  const lines = () => revisions().map(([revision], at) => ({ label: `revision ${revision}`, colour: COLOURS[at]! }));
  const of = (value: (sample: SampleRow) => number | undefined) =>
    aligned(revisions().map(([, list]) => list.map((sample) => ({ at: sample.at, value: value(sample) }))));
  return (
    <Show
      when={revisions().length}
      fallback={
        <Panel title="Traffic">
          <Empty title="No requests in the last ten minutes">Numbers come from the gateways. Lead requests here with a Route.</Empty>
        </Panel>
      }
    >
      <div class="charts">
        <Panel title="Requests" note="per second, by revision">
          <div class="inside"><Chart label="Requests per second by revision" lines={lines()} data={of((sample) => sample.rate ?? (sample.requests ?? 0) / sample.seconds)} format={rate} /></div>
        </Panel>
        <Panel title="Errors" note="share of requests that failed">
          <div class="inside"><Chart label="Share of failed requests by revision" lines={lines()} data={of((sample) => (sample.requests ? (sample.failed ?? 0) / sample.requests : undefined))} format={share} /></div>
        </Panel>
        <Panel title="Latency" note="p99">
          <div class="inside"><Chart label="99th percentile of latency by revision" lines={lines()} data={of((sample) => sample.p99Ms)} format={millis} /></div>
        </Panel>
      </div>
    </Show>
  );
}

function ByRevision(props: Part) {
  const columns: readonly Column<TrafficRow>[] = [
    { key: "revision", title: "Revision", sort: (of) => of.revision, cell: (of) => of.revision },
    { key: "region", title: "Region", sort: (of) => of.region, cell: (of) => of.region },
    { key: "rate", title: "Requests", align: "end", sort: (of) => of.rate, cell: (of) => rate(of.rate) },
    { key: "errors", title: "Errors", align: "end", sort: (of) => of.errorShare, cell: (of) => <span class={errorTone(of.errorShare)}>{share(of.errorShare)}</span> },
    { key: "p50", title: "p50", align: "end", wide: true, sort: (of) => of.p50Ms, cell: (of) => millis(of.p50Ms) },
    { key: "p99", title: "p99", align: "end", sort: (of) => of.p99Ms, cell: (of) => millis(of.p99Ms) },
  ];
  return (
    <Panel title="Traffic by revision" note="last minute">
      <Table label="Traffic by revision" columns={columns} rows={props.topic.list<TrafficRow>("traffic")} sort={{ key: "revision", down: true }} empty={<Empty title="No requests in the last minute" />} />
    </Panel>
  );
}

/** Routes, policies and gateways of the environment that concern this app. */
function Leading(props: Part) {
  const rows = createMemo(() => [
    ...props.topic.list<RouteRow>("route").map((of) => ({ kind: "Route", name: of.name, text: of.host ?? "", state: of.state, message: of.message })),
    ...props.topic.list<PolicyRow>("policy").map((of) => ({ kind: "Policy", name: of.name, text: of.type, state: of.state, message: of.message })),
    ...props.topic.list<GatewayRow>("gateway").map((of) => ({ kind: "Gateway", name: of.region, text: of.address ?? "", state: of.health, message: of.reason })),
  ]);
  const columns: readonly Column<ReturnType<typeof rows>[number]>[] = [
    { key: "kind", title: "Kind", cell: (of) => <span class="soft">{of.kind}</span> },
    { key: "name", title: "Name", cell: (of) => of.name },
    { key: "text", title: "Leads to, does", wide: true, cell: (of) => <span class="mono small wrap">{of.text}</span> },
    { key: "state", title: "State", cell: (of) => <><State of={of.state} /><Show when={of.message}><div class="soft small wrap">{of.message}</div></Show></> },
  ];
  return (
    <Panel title="Environment" note="routes, policies and gateways">
      <Table label="Routes, policies and gateways" columns={columns} rows={rows()} empty={<Empty title="No route leads here">Users reach an app through a Route: see the gateways guide.</Empty>} />
    </Panel>
  );
}
