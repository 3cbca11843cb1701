/** One rollout: where it is, what is measured of it, what was decided and why, and what can be done. */

import { createMemo, createSignal, For, Show } from "solid-js";
import { appPath, rest } from "../../api/rest";
import { now } from "../../app/clock";
import { links } from "../../app/paths";
import { may, workspace } from "../../app/session";
import { useTopic, type Topic } from "../../live/topic";
import type { AppName, DecisionRow, LimitRow, RolloutDetail, RolloutRegionRow, RolloutSample, StepRow } from "../../live/rows";
import { appCommand } from "../../text/commands";
import { millis, share } from "../../text/numbers";
import { length } from "../../text/times";
import { ActionButton, type Ask } from "../../ui/action";
import { aligned, Chart } from "../../ui/charts";
import { Clock, Command, Empty, Head, Loaded, Meter, Pairs, Panel, State, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import type { ViewProps } from "../index";
import { numbersText, ordinal, phase, stepState, stepText } from "./words";
import "./style.css";

export default function Rollout(props: ViewProps) {
  const name = () => props.of as unknown as AppName;
  const topic = useTopic("rollout", () => ({ project: name().project, environment: name().environment, app: name().app, number: Number(props.of.number ?? 0), workspace: workspace() }));
  const rollout = () => topic.one<RolloutDetail>("rollout");
  return (
    <>
      <Head
        title={`Rollout ${rollout()?.number ?? props.of.number ?? ""} of ${name().app}`}
        crumbs={
          <>
            <a href="/ui/rollouts">Rollouts</a> / {name().project} / {name().environment} / <a href={links.app(name())}>{name().app}</a>
          </>
        }
        state={<Show when={rollout()}>{(of) => <State of={phase(of()).word} tone={phase(of()).tone} />}</Show>}
      >
        <Show when={rollout()}>{(of) => <Steering rollout={of()} />}</Show>
      </Head>
      <Show
        when={topic.error()?.code !== "NotFound"}
        fallback={
          <div class="panel">
            <Empty title="There is no such rollout" command={appCommand(name(), ["rollout", "history"])}>
              {topic.error()?.message} A changed image or variable of an app begins one.
            </Empty>
          </div>
        }
      >
        <Loaded ready={topic.ready() && rollout() !== undefined} error={topic.error()} what="The rollout">
          <div class="stack">
            <Progress rollout={rollout()!} topic={topic} />
            <Measures topic={topic} />
            <Regions topic={topic} rollout={rollout()!} />
            <Decisions topic={topic} />
            <Rehearsal app={name()} />
          </div>
        </Loaded>
      </Show>
    </>
  );
}

function Steering(props: { rollout: RolloutDetail }) {
  const ended = () => props.rollout.endedAt !== undefined;
  const undone = () => ended() && (props.rollout.outcome || props.rollout.phase) !== "promoted";
  const ask = (verb: string, label: string, text: string, done: string, danger = false): Ask => {
    const [reason, setReason] = createSignal("");
    return {
      title: `${label} rollout ${props.rollout.number} of ${props.rollout.app}`, text, verb: label, done, danger,
      command: () => appCommand(props.rollout, ["rollout", verb], reason() ? ["--reason", reason()] : []),
      run: () => rest.send("POST", `${appPath(props.rollout)}/rollout/${verb}`, reason() ? { reason: reason() } : {}),
      form: () => (
        <label class="field">
          <span>Reason, kept with the decision</span>
          <input type="text" maxlength="500" value={reason()} onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
      ),
    };
  };
  return (
    <Show when={may("rollout")}>
      <Show
        when={!ended()}
        fallback={
          <Show when={undone()} fallback={<ActionButton label="Undo" ask={() => ask("undo", "Undo", `Revision ${props.rollout.stableRevision}, from which this rollout began, is applied again.`, "It goes back")} />}>
            <ActionButton label="Retry" ask={() => ask("retry", "Retry", "The revision that was taken back is applied again, with all its steps.", "It is tried again")} />
          </Show>
        }
      >
        <Show when={!props.rollout.paused} fallback={<ActionButton main label="Resume" ask={() => ask("resume", "Resume", "It goes on at the step where it was paused.", "It goes on")} />}>
          <ActionButton label="Pause" ask={() => ask("pause", "Pause", "It stays at this step with the same weights. A failure still takes it back.", "It is paused")} />
        </Show>
        <ActionButton label="Skip the step" ask={() => ask("skip", "Skip the step", "The rest of this step is left out.", "The step is left out")} />
        <ActionButton label="Promote" ask={() => ask("promote", "Promote", `All steps that are left are left out: revision ${props.rollout.revision} gets all requests. Regions still go in their waves.`, "It is promoted")} />
        <ActionButton label="Abort" danger ask={() => ask("abort", "Abort", `All requests go back to revision ${props.rollout.stableRevision}, in all regions at once.`, "It goes back", true)} />
      </Show>
    </Show>
  );
}

function Progress(props: { rollout: RolloutDetail; topic: Topic }) {
  const steps = createMemo(() =>
    [...props.topic.list<StepRow>("step")].sort((a, b) => a.index - b.index).map((step) => ({ step, state: stepState(step, props.rollout) })),
  );
  const left = (until: number | undefined) => (until === undefined || props.rollout.endedAt ? undefined : until > now() ? length(until - now()) : "now");
  return (
    <Panel title="Progress" note={`${props.rollout.strategy}, revision ${props.rollout.stableRevision ?? "–"} → ${props.rollout.revision}`}>
      <div class="inside stack">
        <Show when={steps().length}>
          <ol class="steps" aria-label="Steps">
            <For each={steps()}>
              {({ step, state }) => (
                <li class={state} aria-current={state === "now" ? "step" : undefined}>
                  <span>{stepText(step)}</span>
                  <span class="visually-hidden">{{ done: "done", now: "under way", next: "to come", failed: "went back here", never: "not reached" }[state]}</span>
                </li>
              )}
            </For>
          </ol>
        </Show>
        <Show when={props.rollout.failure && props.rollout.failure !== props.rollout.reason}>
          <div class="notice bad"><strong>{props.rollout.failure}</strong></div>
        </Show>
        <Show when={phase(props.rollout).tone === "bad"}>
          <div class="notice bad"><strong>{props.rollout.reason}</strong></div>
        </Show>
        <Pairs
          of={[
            ["Reason", phase(props.rollout).tone === "bad" ? undefined : props.rollout.reason],
            ["Waits for", props.rollout.endedAt || props.rollout.hold === props.rollout.reason ? undefined : props.rollout.hold],
            ["Verdict", props.rollout.verdict === props.rollout.reason ? undefined : props.rollout.verdict],
            ["Waves", props.rollout.waveRegions && <Waves of={props.rollout.waveRegions} at={props.rollout.wave} />],
            ["Step ends in", left(props.rollout.stepUntil)],
            ["Goes back in", left(props.rollout.holdEndsAt)],
            ["Next look in", left(props.rollout.dueAt)],
            ["Started by", props.rollout.actor],
          ]}
        />
      </div>
    </Panel>
  );
}

function Waves(props: { of: readonly (readonly string[])[]; at: number | undefined }) {
  return (
    <span class="row">
      <For each={props.of}>
        {(regions, at) => (
          <Tag tone={at() === props.at ? "info" : undefined}>
            {at() + 1}: {regions.join(", ")}
          </Tag>
        )}
      </For>
    </span>
  );
}

const LINES = [
  { label: "candidate", colour: "--series-2" },
  { label: "stable", colour: "--series-1" },
];

/** Candidate against stable over all regions, with the lines at which the rollout goes back. */
function Measures(props: { topic: Topic }) {
  const samples = createMemo(() => {
    const found = new Map<string, { at: number; requests: number; failed: number; p99: number | undefined; p50: number | undefined; role: string }>();
    for (const sample of props.topic.list<RolloutSample>("sample")) {
      const key = `${sample.role} ${sample.at}`;
      const sum = found.get(key) ?? { at: sample.at, requests: 0, failed: 0, p99: undefined, p50: undefined, role: sample.role };
      sum.requests += sample.requests ?? 0;
      sum.failed += sample.failed ?? (sample.errorShare ?? 0) * (sample.requests ?? 0);
      if (sample.failed === 0 && sample.errorShare) sum.failed += sample.errorShare * (sample.requests ?? 0);
      if (sample.p99Ms !== undefined) sum.p99 = Math.max(sum.p99 ?? 0, sample.p99Ms);
      found.set(key, sum);
    }
    return [...found.values()];
  });
  const of = (role: string, value: (sample: ReturnType<typeof samples>[number]) => number | undefined) =>
    samples().filter((sample) => sample.role === role).map((sample) => ({ at: sample.at, value: value(sample) }));
  const both = (value: (sample: ReturnType<typeof samples>[number]) => number | undefined) => aligned([of("candidate", value), of("stable", value)]);
  const limits = (unit: string) => props.topic.list<LimitRow>("limit").filter((limit) => limit.unit === unit && !limit.relative).map((limit) => ({ value: limit.value, text: limit.text }));
  const notes = () => props.topic.list<LimitRow>("limit").filter((limit) => limit.relative).map((limit) => limit.text).join("; ");
  return (
    <Show
      when={samples().length}
      fallback={
        <Panel title="Candidate against stable">
          <Empty title="No requests were counted yet">The gateways count what comes of users' requests. Without requests, an analysis waits.</Empty>
        </Panel>
      }
    >
      <div class="measures">
        <Panel title="Errors" note={`share of requests that failed${notes() ? `; ${notes()}` : ""}`}>
          <div class="inside"><Chart height={200} label="Share of failed requests, candidate against stable" lines={LINES} data={both((sample) => (sample.requests ? sample.failed / sample.requests : undefined))} format={share} limits={limits("share")} /></div>
        </Panel>
        <Panel title="Latency" note="p99, the slowest region">
          <div class="inside"><Chart height={200} label="99th percentile of latency, candidate against stable" lines={LINES} data={both((sample) => sample.p99)} format={millis} limits={limits("ms")} /></div>
        </Panel>
      </div>
    </Show>
  );
}

function Regions(props: { topic: Topic; rollout: RolloutDetail }) {
  const failed = (requests: number | undefined, lost: number | undefined) => (requests ? share((lost ?? 0) / requests) : "–");
  const columns: readonly Column<RolloutRegionRow>[] = [
    { key: "wave", title: "Wave", sort: (of) => of.wave, cell: (of) => ordinal(of.wave) },
    { key: "region", title: "Region", sort: (of) => of.region, cell: (of) => <strong>{of.region}</strong> },
    {
      key: "weight", title: "Requests", sort: (of) => of.routed,
      cell: (of) => (
        <div class="stack tight" title={`${of.goalWeight ?? of.weight ?? 0} % wanted, ${of.routed ?? 0} % taken by all gateways`}>
          <span>{of.routed ?? of.weight ?? 0} % <Show when={of.routed !== undefined && of.weight !== undefined && of.routed !== of.weight}><span class="soft">of {of.weight} %</span></Show></span>
          <Meter part={(of.routed ?? of.weight ?? 0) / 100} label={`${of.routed ?? of.weight ?? 0} % of the requests of ${of.region}`} plain />
        </div>
      ),
    },
    { key: "candidate", title: "New ready", align: "end", cell: (of) => `${of.candidateReady ?? 0}/${of.candidateInstances ?? 0}` },
    { key: "stable", title: "Old ready", align: "end", wide: true, cell: (of) => `${of.stableReady ?? 0}/${of.stableInstances ?? 0}` },
    { key: "errors", title: "New failed", align: "end", cell: (of) => failed(of.candidateRequests, of.candidateFailed) },
    { key: "old-errors", title: "Old failed", align: "end", wide: true, cell: (of) => failed(of.stableRequests, of.stableFailed) },
    { key: "p99", title: "New p99", align: "end", wide: true, cell: (of) => millis(of.candidateP99Ms) },
    { key: "old-p99", title: "Old p99", align: "end", wide: true, cell: (of) => millis(of.stableP99Ms) },
    { key: "waits", title: "Waits for", wide: true, cell: (of) => <span class="wrap">{of.failure ? <span class="bad">{of.failure}</span> : of.lost ? <span class="warn">its agent is lost</span> : of.leftOut ? "left out" : of.waitsFor || "–"}</span> },
  ];
  return (
    <Panel title="Regions" note="last minute">
      <Table label="Regions of the rollout" columns={columns} rows={props.topic.list<RolloutRegionRow>("region")} sort={{ key: "wave", down: false }} empty={<Empty title={props.rollout.endedAt ? "It has ended: no region is on its way" : "No region takes part"} />} />
    </Panel>
  );
}

function Decisions(props: { topic: Topic }) {
  const columns: readonly Column<DecisionRow>[] = [
    { key: "at", title: "Time", sort: (of) => of.at, cell: (of) => <Clock at={of.at} /> },
    { key: "action", title: "Decision", cell: (of) => <Tag tone={/back|abort|fail/i.test(of.action) ? "bad" : /promot/i.test(of.action) ? "ok" : undefined}>{of.action}</Tag> },
    { key: "reason", title: "Reason", cell: (of) => <div class="wrap">{of.reason}<Show when={of.numbers && Object.keys(of.numbers).length}><div class="soft small mono wrap">{numbersText(of.numbers!)}</div></Show></div> },
    { key: "step", title: "Wave, step", align: "end", wide: true, cell: (of) => `${ordinal(of.wave)}, ${ordinal(of.step)}` },
    { key: "actor", title: "By", wide: true, cell: (of) => of.actor },
  ];
  return (
    <Panel title="Decisions" note="newest first, each with its reason">
      <Table label="Decisions" columns={columns} rows={props.topic.list<DecisionRow>("decision")} sort={{ key: "at", down: true }} tall empty={<Empty title="No decision yet" />} />
    </Panel>
  );
}

function Rehearsal(props: { app: AppName }) {
  return (
    <Panel title="Rehearsal">
      <div class="inside stack tight">
        <p class="soft">Plays the rollout of a file step by step in virtual time, with the faults that a script names, and changes nothing:</p>
        <Command text={`shoal rollout plan -f ${props.app.app}.yaml`} />
      </div>
    </Panel>
  );
}
