/** Saved checks with their state. */

import { Show } from "solid-js";
import { navigator_ } from "../../api/rest";
import { links } from "../../app/paths";
import { may } from "../../app/session";
import { useTopic } from "../../live/topic";
import { command } from "../../text/commands";
import { ActionButton } from "../../ui/action";
import { Empty, Loaded, Panel, State } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";

interface CheckRow {
  readonly key: string;
  readonly name: string;
  readonly query: string;
  readonly expect: string;
  readonly description?: string;
  readonly ok?: boolean;
  readonly total?: number;
  readonly error?: string;
}

const COLUMNS: readonly Column<CheckRow>[] = [
  { key: "state", title: "State", sort: (of) => (of.ok === false ? 0 : of.ok === undefined ? 1 : 2), cell: (of) => <State of={of.ok === undefined ? "Unknown" : of.ok ? "ok" : "Failing"} tone={of.ok === undefined ? "warn" : of.ok ? "ok" : "bad"} /> },
  { key: "name", title: "Check", sort: (of) => of.name, cell: (of) => <><strong>{of.name}</strong><Show when={of.description || of.error}><div class="soft small wrap">{of.error || of.description}</div></Show></> },
  { key: "query", title: "Query", cell: (of) => <a class="mono small wrap" href={links.query(of.query)}>{of.query}</a> },
  { key: "found", title: "Found", align: "end", cell: (of) => <span title={`It must find ${of.expect === "some" ? "something" : "nothing"}`}>{of.total ?? "–"}</span> },
  { key: "remove", title: "Remove", wide: true, cell: (of) => (
    <ActionButton label="Remove" danger when={may("operate")} ask={() => ({ title: `Remove the check ${of.name}`, verb: "Remove", danger: true, done: "The check is removed", command: () => command(["shoal", "checks", "remove", of.name]), run: () => navigator_.send("DELETE", `/checks/${encodeURIComponent(of.name)}`) })} />
  ) },
];

export function Checks() {
  const topic = useTopic("checks");
  return (
    <Panel title="Checks" note="saved queries that must find nothing, or something">
      <Loaded ready={topic.ready()} error={topic.error()} what="Checks">
        <Table label="Checks" columns={COLUMNS} rows={topic.list<CheckRow>("")} sort={{ key: "state", down: false }} empty={<Empty title="No check is saved" command="shoal checks save no-old-images &quot;pods where image ~ ':v0$'&quot;">Ask something above, then save it.</Empty>} />
      </Loaded>
    </Panel>
  );
}
