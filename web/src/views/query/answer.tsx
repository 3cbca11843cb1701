/** The answer to a query as a table that changes as the clusters do. With `at`, the answer of the past. */

import { createMemo, Show } from "solid-js";
import { navigator_ } from "../../api/rest";
import { useTopic } from "../../live/topic";
import type { Row } from "../../live/protocol";
import { links } from "../../app/paths";
import { plural } from "../../text/numbers";
import { parsed } from "../../text/times";
import { Ago, Empty, Problem, State } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { useLoad } from "../../ui/load";

export interface AnswerColumn {
  readonly name: string;
  readonly type: string;
}
interface Meta {
  readonly kind?: string;
  readonly columns?: readonly (AnswerColumn | string)[];
  readonly total?: number;
  readonly notFresh?: readonly unknown[];
  readonly forbidden?: readonly unknown[];
}
export interface Answered {
  readonly columns: readonly AnswerColumn[];
  readonly rows: readonly Row[];
}

function texts(items: readonly unknown[] | undefined): string {
  return (items ?? []).map((each) => (typeof each === "string" ? each : Object.values(each as object).filter((part) => typeof part === "string").join(" "))).join(", ");
}

function cell(value: unknown, type: string) {
  if (value === undefined || value === null || value === "") return <span class="soft">–</span>;
  if (type === "age" && typeof value === "number") return <Ago at={value} />;
  if (type === "time" && typeof value === "string") return <Ago at={parsed(value)} />;
  if (typeof value === "boolean") return <span class={value ? "" : "warn"}>{value ? "yes" : "no"}</span>;
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

export function Answer(props: { text: string; at?: string; limit?: number; open?: (row: Row) => void; got?: (answer: Answered) => void; moment?: boolean }) {
  const topic = useTopic("query", () => (props.at ? undefined : { text: props.text, limit: props.limit ?? 1000 }));
  const past = useLoad(
    () => (props.at ? { q: props.text, at: props.at, limit: props.limit ?? 1000 } : undefined),
    (asked, signal) => navigator_.get<Meta & { rows?: readonly (readonly unknown[] | Row)[]; items?: readonly Row[] }>("/query", asked, signal),
  );
  const meta = createMemo<Meta>(() => (props.at ? (past.value() ?? {}) : (topic.one<Meta>("#") ?? {})));
  const columns = createMemo<readonly AnswerColumn[]>(() => (meta().columns ?? []).map((each) => (typeof each === "string" ? { name: each, type: "text" } : each)));
  const rows = createMemo<readonly Row[]>(() => {
    if (!props.at) return topic.list<Row>("").filter((row) => (row as { key?: string }).key !== "#");
    const said = past.value();
    return (said?.rows ?? said?.items ?? []).map((row) => (Array.isArray(row) ? Object.fromEntries(columns().map((column, at) => [column.name, row[at]])) : (row as Row)));
  });
  const error = () => (props.at ? past.error() : topic.error());
  const ready = () => (props.at ? past.value() !== undefined : topic.ready());
  createMemo(() => props.got?.({ columns: columns(), rows: rows() }));
  const shown = createMemo<readonly Column<Row>[]>(() =>
    columns().map((column, at) => ({
      key: column.name, title: column.name.replaceAll("_", " "),
      ...(column.type === "number" || column.type === "age" ? { align: "end" as const } : {}),
      wide: at > 4,
      sort: (row: Row) => { const value = row[column.name]; return typeof value === "number" ? value : typeof value === "boolean" ? Number(value) : value === undefined || value === null ? undefined : String(value); },
      cell: (row: Row) => {
        const value = row[column.name];
        if (column.name === "name" && props.open) return <button type="button" class="link" onClick={() => props.open!(row)}>{String(value)}</button>;
        if (column.name === "name" && meta().kind === "pods") return <a href={links.why("Pod", String(value), { cluster: String(row.cluster ?? ""), namespace: String(row.namespace ?? "") })}>{String(value)}</a>;
        if (column.name === "cluster" && typeof value === "string") return <a href={links.cluster(value)}>{value}</a>;
        if (["status", "phase", "state", "freshness"].includes(column.name)) return <State of={String(value ?? "")} />;
        return cell(value, column.type);
      },
    })),
  );
  return (
    <>
      <Show when={error()}>{(failed) => <div class="inside"><Problem error={failed()} title="This query cannot be answered" /></div>}</Show>
      <Show when={meta().notFresh?.length}><div class="inside"><div class="notice warn">Not current: {texts(meta().notFresh)}. Their last known state is shown.</div></div></Show>
      <Show when={meta().forbidden?.length}><div class="inside"><div class="notice warn">Left out, since an edge may not read it: {texts(meta().forbidden)}.</div></div></Show>
      <Show when={ready()} fallback={<Show when={!error()}><p class="inside soft" role="status">Asking…</p></Show>}>
        <p class="inside soft small" role="status">{plural(meta().total ?? rows().length, "row")}{(meta().total ?? 0) > rows().length ? `, the first ${rows().length} shown` : ""}</p>
        <Table label="Answer" columns={shown()} rows={rows()} tall empty={<Empty title="Nothing fits" />} />
      </Show>
    </>
  );
}
