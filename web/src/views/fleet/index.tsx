/** The whole fleet on one page: what is wrong first, then regions with their clusters, then apps with their traffic. */

import { createMemo, For, Show } from "solid-js";
import { now } from "../../app/clock";
import { href } from "../../app/paths";
import { useTopic } from "../../live/topic";
import type { AgentRow, AppRow, ClusterRow, FleetSummary, ProblemRow, RegionRow, RolloutRow } from "../../live/rows";
import { count, millis, plural, rate, share } from "../../text/numbers";
import { Command, Dot, Empty, Head, Loaded, Panel } from "../../ui/parts";
import { AppTable, errorTone } from "../apps/table";
import { linkOf } from "./links";
import { gone } from "./rollouts";
import { Regions } from "./regions";
import "./style.css";

export default function Fleet() {
  const fleet = useTopic("fleet");
  const apps = useTopic("apps");
  const rollouts = useTopic("rollouts");
  const minute = createMemo(() => Math.floor(now() / 60_000) * 60_000); // what is lately changes no faster
  const problems = createMemo(() => {
    const known = fleet.list<ProblemRow>("problem");
    const back = gone(rollouts.list<RolloutRow>(""), minute()).filter((each) => !known.some((other) => other.kind === "Rollout" && other.name.startsWith(each.name)));
    return [...known, ...back].sort((a, b) => a.severity.localeCompare(b.severity) || a.kind.localeCompare(b.kind));
  });
  return (
    <>
      <Head title="Fleet" />
      <Loaded ready={fleet.ready()} error={fleet.error()} what="The fleet">
        <div class="stack">
          <Summary summary={fleet.one<FleetSummary>("#")} apps={apps.list<AppRow>("app")} />
          <Show when={problems().length} fallback={<AllWell clusters={fleet.list<ClusterRow>("cluster").length} />}>
            <Problems problems={problems()} />
          </Show>
          <Regions
            regions={fleet.list<RegionRow>("region")}
            clusters={fleet.list<ClusterRow>("cluster")}
            agents={fleet.list<AgentRow>("agent")}
          />
          <Panel title="Apps" note={plural(apps.list("app").length, "app")} end={<a href={href(["apps"])}>All apps</a>}>
            <AppTable
              apps={apps.list<AppRow>("app")}
              tall
              empty={
                <Empty title={apps.ready() ? "No app runs yet" : "Loading apps…"} command={apps.ready() ? "shoal apply -f examples/hello.yaml" : undefined}>
                  {apps.ready() && "Apply a file that describes one:"}
                </Empty>
              }
            />
          </Panel>
        </div>
      </Loaded>
    </>
  );
}

function Summary(props: { summary: FleetSummary | undefined; apps: readonly AppRow[] }) {
  const total = createMemo(() => {
    let requests: number | undefined;
    let failed = 0;
    let worst: number | undefined;
    for (const app of props.apps) {
      if (app.rate === undefined) continue;
      requests = (requests ?? 0) + app.rate;
      failed += app.errorRate ?? 0;
      if (app.p99Ms !== undefined) worst = Math.max(worst ?? 0, app.p99Ms);
    }
    return { requests, errors: requests ? failed / requests : undefined, worst };
  });
  return (
    <Show when={props.summary}>
      {(of) => (
        <dl class="facts">
          <Fact name="Clusters" value={count(of().clusters)} note={of().lost ? `${of().lost} of ${of().agents} agents lost` : plural(of().agents, "agent")} bad={of().lost > 0} />
          <Fact name="Apps" value={count(of().apps)} note={of().notReady ? `${of().notReady} not ready` : "all ready"} bad={of().notReady > 0} />
          <Fact name="Gateways" value={count(of().gateways)} note={of().unhealthy ? `${of().unhealthy} not healthy` : "all healthy"} bad={of().unhealthy > 0} />
          <Fact name="Rollouts" value={count(of().rollouts)} note="under way" />
          <Fact name="Requests" value={rate(total().requests)} note="of users, last minute" />
          <div>
            <dt>Errors</dt>
            <dd>
              <span class={errorTone(total().errors)}>{share(total().errors)}</span> <small>worst p99 {millis(total().worst)}</small>
            </dd>
          </div>
        </dl>
      )}
    </Show>
  );
}

function Fact(props: { name: string; value: string; note: string; bad?: boolean }) {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>
        {props.value} <small class={props.bad ? "bad" : ""}>{props.note}</small>
      </dd>
    </div>
  );
}

function Problems(props: { problems: readonly ProblemRow[] }) {
  return (
    <Panel title="What is wrong" note={plural(props.problems.length, "problem")} class="problems">
      <For each={props.problems.slice(0, 50)}>
        {(each) => (
          <div class="problem">
            <Dot tone={each.severity === "error" ? "bad" : "warn"} />
            <div class="wrap">
              <a href={linkOf(each)}>
                <strong>
                  {each.kind} {each.name}
                </strong>
              </a>{" "}
              <Show when={each.region ?? each.cluster}>
                <span class="soft">in {each.cluster ?? each.region}</span>
              </Show>
              <div>
                <span class="visually-hidden">{each.severity}: </span>
                {each.message}
              </div>
            </div>
            <code class="soft small">{each.reason}</code>
            <Show when={each.fix}>
              <div class="fix">{each.fix}</div>
            </Show>
            <Show when={each.command}>
              {(command) => (
                <div class="fix">
                  <Command text={command()} />
                </div>
              )}
            </Show>
          </div>
        )}
      </For>
      <Show when={props.problems.length > 50}>
        <p class="inside soft">{plural(props.problems.length - 50, "more problem")}.</p>
      </Show>
    </Panel>
  );
}

function AllWell(props: { clusters: number }) {
  return (
    <Show when={props.clusters}>
      <p class="notice ok">
        <span>
          <strong>Nothing is wrong.</strong> Every agent answers, every app has what it should have.
        </span>
      </p>
    </Show>
  );
}
