/** Revisions, newest first, and what differs between two of them. */

import { createMemo, createSignal, Show } from "solid-js";
import type { RevisionRow } from "../../live/rows";
import { diffLines } from "../../text/diff";
import { yamlOf } from "../../text/yaml";
import { Ago, Diff, Empty, Panel, State, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { useLoad } from "../../ui/load";
import { Rollback } from "./actions";
import type { Part } from "./index";

export function Revisions(props: Part) {
  const [shown, setShown] = createSignal<number>();
  const revisions = createMemo(() => [...props.topic.list<RevisionRow>("revision")].sort((a, b) => b.revision - a.revision));
  const columns: readonly Column<RevisionRow>[] = [
    { key: "revision", title: "Revision", sort: (of) => of.revision, cell: (of) => <><strong>{of.revision}</strong> <Show when={of.live}><Tag tone="ok">live</Tag></Show></> },
    { key: "status", title: "Status", cell: (of) => <><State of={of.status} /><Show when={of.reason}><div class="soft small wrap">{of.reason}</div></Show></> },
    { key: "state", title: "Runs", wide: true, cell: (of) => of.state ?? "–" },
    { key: "image", title: "Image", cell: (of) => <span class="mono small wrap">{of.image}</span> },
    { key: "git", title: "Commit", wide: true, cell: (of) => <span class="mono small wrap">{of.git ? Object.values(of.git).join(" ") : "–"}</span> },
    { key: "created", title: "Created", align: "end", wide: true, sort: (of) => of.createdAt, cell: (of) => <Ago at={of.createdAt} /> },
    { key: "act", title: "Compare, go back", cell: (of) => (
      <span class="row">
        <button type="button" class="button tiny" onClick={() => setShown(of.revision)} aria-label={`Compare revision ${of.revision} with the one before`}>Compare</button>
        <Show when={!of.live && of.status !== "failed"}><Rollback app={props.app} to={of.revision} tiny /></Show>
      </span>
    ) },
  ];
  return (
    <div class="stack">
      <Panel title="Revisions">
        <Table label="Revisions" columns={columns} rows={revisions()} sort={{ key: "revision", down: true }} tall empty={<Empty title="No revision yet" />} />
      </Panel>
      <Show when={shown()} keyed>
        {(number) => <Compared revisions={revisions()} number={number} />}
      </Show>
    </div>
  );
}

function Compared(props: { revisions: readonly RevisionRow[]; number: number }) {
  const at = () => props.revisions.findIndex((each) => each.revision === props.number);
  const one = () => props.revisions[at()];
  const before = () => props.revisions[at() + 1];
  const texts = useLoad(
    () => ({ now: one()?.template ?? { image: one()?.image }, before: before()?.template ?? { image: before()?.image } }),
    async (of) => [await yamlOf(of.before), await yamlOf(of.now)] as const,
  );
  return (
    <Panel title={`Revision ${props.number}`} note={before() ? `compared with revision ${before()!.revision}` : "the first one"}>
      <div class="inside">
        <Show when={texts.value()}>{(both) => <Diff lines={diffLines(before() ? both()[0] : "", both()[1])} />}</Show>
      </div>
    </Panel>
  );
}
