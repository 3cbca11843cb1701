/** Columns of events, for every view that lists some. */

import type { EventRow } from "../live/rows";
import { Clock, State, Tag } from "./parts";
import type { Column } from "./table";

export const eventColumns: readonly Column<EventRow>[] = [
  { key: "at", title: "Time", sort: (of) => of.at, cell: (of) => <Clock at={of.at} /> },
  { key: "type", title: "Type", wide: true, sort: (of) => of.type, cell: (of) => <State of={of.type} tone={of.type === "Warning" ? "warn" : "muted"} /> },
  { key: "reason", title: "Reason", sort: (of) => of.reason, cell: (of) => <Tag tone={of.type === "Warning" ? "warn" : undefined}>{of.reason}</Tag> },
  { key: "region", title: "Region", wide: true, sort: (of) => of.region, cell: (of) => of.region || "–" },
  { key: "message", title: "Message", cell: (of) => <span class="wrap">{of.message}</span> },
];
