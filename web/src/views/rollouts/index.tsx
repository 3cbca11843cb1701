/** Rollouts that are under way, and the newest that ended. */

import { createMemo, Show } from "solid-js";
import { links } from "../../app/paths";
import { useTopic } from "../../live/topic";
import type { RolloutRow } from "../../live/rows";
import { plural } from "../../text/numbers";
import { length } from "../../text/times";
import { Ago, Empty, Head, Loaded, Meter, Panel, State } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { phase } from "../rollout/words";

const COLUMNS: readonly Column<RolloutRow>[] = [
  {
    key: "app", title: "App", sort: (of) => `${of.project}/${of.environment}/${of.app}`,
    cell: (of) => (
      <a href={links.rollout(of, of.number)} class="app-name">
        <strong class="wrap">{of.app}</strong> <span class="soft small wrap">{of.project}/{of.environment}, rollout {of.number}</span>
      </a>
    ),
  },
  { key: "state", title: "State", sort: (of) => phase(of).word, cell: (of) => <State of={phase(of).word} tone={phase(of).tone} /> },
  { key: "strategy", title: "Strategy", wide: true, sort: (of) => of.strategy, cell: (of) => of.strategy },
  { key: "revision", title: "Revision", align: "end", wide: true, cell: (of) => `${of.stableRevision ?? "–"} → ${of.revision}` },
  {
    key: "weight", title: "Requests", align: "end", sort: (of) => of.weight,
    cell: (of) => <span class="stack tight"><span>{of.weight ?? 0} %</span><Meter part={(of.weight ?? 0) / 100} label={`${of.weight ?? 0} % of the requests go to revision ${of.revision}`} plain /></span>,
  },
  { key: "step", title: "Step", align: "end", wide: true, cell: (of) => (of.steps ? `${Math.min(of.steps, (of.step ?? 0) + 1)}/${of.steps}` : "–") },
  { key: "reason", title: "Reason", wide: true, cell: (of) => <span class="wrap">{of.reason}</span> },
  { key: "started", title: "Started", align: "end", sort: (of) => of.startedAt, descending: true, cell: (of) => <Ago at={of.startedAt} /> },
  { key: "took", title: "Took", align: "end", wide: true, cell: (of) => <Show when={of.endedAt && of.startedAt} fallback="–">{length(of.endedAt! - of.startedAt!)}</Show> },
];

export default function Rollouts() {
  const topic = useTopic("rollouts");
  const all = createMemo(() => topic.list<RolloutRow>(""));
  const running = createMemo(() => all().filter((of) => !of.endedAt));
  const ended = createMemo(() => all().filter((of) => of.endedAt));
  return (
    <>
      <Head title="Rollouts" />
      <Loaded ready={topic.ready()} error={topic.error()} what="Rollouts">
        <div class="stack">
          <Panel title="Under way" note={plural(running().length, "rollout")}>
            <Table label="Rollouts under way" columns={COLUMNS} rows={running()} sort={{ key: "started", down: true }}
              empty={<Empty title="No rollout is under way" command="shoal apply -f examples/canary.yaml">A changed image or variable of an app with `spec.rollout` begins one:</Empty>} />
          </Panel>
          <Panel title="Ended" note="the newest 100">
            <Table label="Rollouts that ended" columns={COLUMNS} rows={ended()} sort={{ key: "started", down: true }} tall empty={<Empty title="None has ended yet" />} />
          </Panel>
        </div>
      </Loaded>
    </>
  );
}
