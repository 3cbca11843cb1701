/** Apps as rows: state, rollout, traffic. Used by Apps and by Fleet. */

import { Show, type JSX } from "solid-js";
import { links } from "../../app/paths";
import type { AppRow } from "../../live/rows";
import { millis, rate, share } from "../../text/numbers";
import { urgency } from "../../text/states";
import { State, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";

const COLUMNS: readonly Column<AppRow>[] = [
  {
    key: "app", title: "App",
    sort: (app) => `${app.project}/${app.environment}/${app.app}`,
    cell: (app) => (
      <a href={links.app(app)} class="app-name">
        <strong class="wrap">{app.app}</strong>
        <span class="soft small wrap"> {app.project}/{app.environment}</span>
      </a>
    ),
  },
  {
    key: "state", title: "State",
    sort: (app) => urgency(app.state) * 10 + (app.rollout ? 0 : 1),
    cell: (app) => (
      <span class="row">
        <State of={app.state} title={app.reason} />
        <RolloutTag app={app} />
      </span>
    ),
  },
  { key: "regions", title: "Regions", align: "end", wide: true, sort: (app) => app.readyRegions - app.regions, cell: (app) => `${app.readyRegions}/${app.regions}` },
  { key: "rate", title: "Requests", align: "end", descending: true, sort: (app) => app.rate, cell: (app) => rate(app.rate) },
  {
    key: "errors", title: "Errors", align: "end", descending: true, sort: (app) => app.errorShare,
    cell: (app) => <span class={errorTone(app.errorShare)}>{share(app.errorShare)}</span>,
  },
  { key: "p99", title: "p99", align: "end", descending: true, wide: true, sort: (app) => app.p99Ms, cell: (app) => millis(app.p99Ms) },
  { key: "revision", title: "Revision", align: "end", wide: true, sort: (app) => app.revision, cell: (app) => app.revision ?? "–" },
  { key: "image", title: "Image", wide: true, sort: (app) => app.image, cell: (app) => <span class="mono small wrap">{app.image}</span> },
];

export function errorTone(value: number | undefined): string {
  return value === undefined || value < 0.001 ? "" : value < 0.01 ? "warn" : "bad";
}

export function RolloutTag(props: { app: AppRow }) {
  return (
    <Show when={props.app.rollout}>
      {(rollout) => (
        <a href={links.rollout(props.app, rollout().number)}>
          <Tag tone={rollout().paused ? "warn" : "info"} title={rollout().reason}>
            rollout {rollout().weight ?? 0} %{rollout().paused ? ", paused" : ""}
          </Tag>
        </a>
      )}
    </Show>
  );
}

export function AppTable(props: { apps: readonly AppRow[]; empty: JSX.Element; tall?: boolean }) {
  return <Table label="Apps" columns={COLUMNS} rows={props.apps} sort={{ key: "state", down: false }} empty={props.empty} tall={props.tall} />;
}

