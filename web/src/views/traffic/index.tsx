/** What users' requests meet: routes (slow and failing first), gateways, hosts, policies, refusals, and who calls whom. */

import { createMemo, lazy, Show, Suspense } from "solid-js";
import { place, setQuery } from "../../app/router";
import { workspace } from "../../app/session";
import { useTopic } from "../../live/topic";
import type { AppRow, EdgeRow, GatewayRow, HostRow, PolicyRow, RefusalRow, RouteRow, Traffic as Numbers } from "../../live/rows";
import { links } from "../../app/paths";
import { millis, plural, rate, share } from "../../text/numbers";
import { aligned, Chart } from "../../ui/charts";
import { Empty, Head, Loaded, Panel, State } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { errorTone } from "../apps/table";
import { For } from "solid-js";
import { trouble } from "./trouble";
import "../app/style.css";

const Graph = lazy(() => import("./graph"));

const numbers = <T extends Numbers>(): Column<T>[] => [
  { key: "rate", title: "Requests", align: "end", descending: true, sort: (of) => of.rate, cell: (of) => rate(of.rate) },
  { key: "errors", title: "Errors", align: "end", descending: true, sort: (of) => of.errorShare, cell: (of) => <span class={errorTone(of.errorShare)}>{share(of.errorShare)}</span> },
  { key: "p99", title: "p99", align: "end", descending: true, sort: (of) => of.p99Ms, cell: (of) => millis(of.p99Ms) },
];

const ROUTES: readonly Column<RouteRow>[] = [
  { key: "trouble", title: "Route", sort: (of) => -trouble(of), cell: (of) => <span class="app-name"><strong class="wrap">{of.name}</strong> <span class="soft small wrap">{of.project}/{of.environment}</span></span> },
  { key: "state", title: "State", sort: (of) => of.state, cell: (of) => <div><State of={of.state} /><Show when={of.message}><div class="soft small wrap">{of.message}</div></Show></div> },
  { key: "host", title: "Host and paths", wide: true, sort: (of) => of.host, cell: (of) => <span class="mono small wrap">{of.host}{(of.paths ?? []).join(" ")}</span> },
  { key: "apps", title: "Leads to", wide: true, cell: (of) => <For each={of.apps}>{(app) => <a href={links.app({ project: of.project, environment: of.environment, app })}>{app} </a>}</For> },
  ...numbers<RouteRow>(),
];

export default function Traffic() {
  const environment = () => place().query.environment;
  const parameters = () => {
    const [project, name] = (environment() ?? "").split("/");
    return { ...(project && name ? { project, environment: name } : {}), workspace: workspace() };
  };
  const topic = useTopic("traffic", parameters);
  const apps = useTopic("apps");
  const environments = createMemo(() => [...new Set(apps.list<AppRow>("app").map((app) => `${app.project}/${app.environment}`))].sort());
  const samples = createMemo(() => topic.list<Numbers & { key: string; at: number; seconds: number }>("sample"));
  const refusals = createMemo(() => topic.list<RefusalRow>("refusal"));
  return (
    <>
      <Head title="Traffic">
        <label class="row">
          <span class="soft">Environment</span>
          <select onChange={(event) => setQuery({ environment: event.currentTarget.value })}>
            <option value="">All</option>
            <For each={environments()}>{(name) => <option value={name} selected={name === environment()}>{name}</option>}</For>
          </select>
        </label>
      </Head>
      <Loaded ready={topic.ready()} error={topic.error()} what="Traffic">
        <div class="stack">
          <Show when={refusals().length}>
            <Panel title="Refused by gateways" note={`${plural(refusals().length, "object")} not taken; the last good one is in use`}>
              <Table
                label="Refused by gateways" rows={refusals()}
                columns={[
                  { key: "kind", title: "Object", cell: (of) => <span>{of.kind} <strong class="wrap">{of.name}</strong></span> },
                  { key: "gateway", title: "Gateway", cell: (of) => `${of.gateway} in ${of.cluster}` },
                  { key: "message", title: "Cause", cell: (of) => <span class="bad wrap">{of.message}</span> },
                ]}
              />
            </Panel>
          </Show>
          <Show when={samples().length}>
            <div class="charts">
              <Panel title="Requests" note="per second"><div class="inside"><Chart label="Requests per second" lines={[{ label: "requests", colour: "--series-1" }]} data={aligned([samples().map((of) => ({ at: of.at, value: of.rate }))])} format={rate} /></div></Panel>
              <Panel title="Errors" note="share of requests"><div class="inside"><Chart label="Share of failed requests" lines={[{ label: "errors", colour: "--series-2" }]} data={aligned([samples().map((of) => ({ at: of.at, value: of.requests ? (of.failed ?? 0) / of.requests : undefined }))])} format={share} /></div></Panel>
              <Panel title="Latency"><div class="inside"><Chart label="Latency" lines={[{ label: "p99", colour: "--series-1" }, { label: "p50", colour: "--series-3" }]} data={aligned([samples().map((of) => ({ at: of.at, value: of.p99Ms })), samples().map((of) => ({ at: of.at, value: of.p50Ms }))])} format={millis} /></div></Panel>
            </div>
          </Show>
          <Panel title="Routes" note="slow and failing first; numbers are of the apps behind them">
            <Table label="Routes" columns={ROUTES} rows={topic.list<RouteRow>("route")} sort={{ key: "trouble", down: false }} tall empty={<Empty title="No route yet" command="shoal apply -f examples/canary.yaml">A Route leads users' requests to an app:</Empty>} />
          </Panel>
          <Panel title="Service graph" note="who calls whom, with requests, errors and latency">
            <Show when={topic.list<EdgeRow>("edge").length} fallback={<Empty title="No calls between services were counted">The navigator reads them from gateways and, in a mesh, from proxies.</Empty>}>
              <Suspense fallback={<p class="inside soft">Loading…</p>}><Graph edges={topic.list<EdgeRow>("edge")} /></Suspense>
            </Show>
          </Panel>
          <div class="columns">
            <Panel title="Hosts">
              <Table label="Hosts" rows={topic.list<HostRow>("host")} sort={{ key: "rate", down: true }} tall
                columns={[{ key: "host", title: "Host", sort: (of) => of.host, cell: (of) => <span class="mono small wrap">{of.host}</span> }, ...numbers<HostRow>()]} empty={<Empty title="No host had requests" />} />
            </Panel>
            <Panel title="Gateways">
              <Table label="Gateways" rows={topic.list<GatewayRow>("gateway")} sort={{ key: "health", down: false }} tall
                columns={[
                  { key: "region", title: "Region", sort: (of) => of.region, cell: (of) => <span><strong>{of.region}</strong> <span class="soft small wrap">{of.project ? `${of.project}/${of.environment}` : "shared"}</span></span> },
                  { key: "health", title: "State", sort: (of) => of.health, cell: (of) => <div><State of={of.health} /><Show when={of.reason}><div class="soft small wrap">{of.reason}</div></Show></div> },
                  { key: "pods", title: "Ready", align: "end", cell: (of) => `${of.available ?? 0}/${of.desired ?? "–"}` },
                  { key: "address", title: "Address", wide: true, cell: (of) => <span class="mono small wrap">{of.address ?? "–"}</span> },
                ]} empty={<Empty title="No gateway runs">One starts with the first route of an environment.</Empty>} />
            </Panel>
            <Panel title="Policies">
              <Table label="Policies" rows={topic.list<PolicyRow>("policy")} tall
                columns={[
                  { key: "name", title: "Policy", cell: (of) => <span><strong>{of.name}</strong> <span class="soft small wrap">{of.project}/{of.environment}</span></span> },
                  { key: "type", title: "Type", cell: (of) => of.type },
                  { key: "state", title: "State", cell: (of) => <div><State of={of.state} /><Show when={of.message}><div class="soft small wrap">{of.message}</div></Show></div> },
                ]} empty={<Empty title="No policy yet">Policies check requests at the gateways: keys, tokens, rates, sizes, addresses.</Empty>} />
            </Panel>
          </div>
        </div>
      </Loaded>
    </>
  );
}
