/** What happened to the app, newest first. */

import { createMemo } from "solid-js";
import type { EventRow } from "../../live/rows";
import { Empty, Panel } from "../../ui/parts";
import { Table } from "../../ui/table";
import { eventColumns } from "../../ui/events";
import type { Part } from "./index";

export function Events(props: Part) {
  const events = createMemo(() => [...props.topic.list<EventRow>("event")].sort((a, b) => b.at - a.at));
  return (
    <Panel title="Events" note="the newest 100">
      <Table label="Events" columns={eventColumns} rows={events()} sort={{ key: "at", down: true }} tall empty={<Empty title="No event yet" />} />
    </Panel>
  );
}
