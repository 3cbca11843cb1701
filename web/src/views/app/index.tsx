/** One app: what is wanted, what is applied, what runs, and what can be done about it. */

import { createMemo, Show } from "solid-js";
import { links } from "../../app/paths";
import { place } from "../../app/router";
import { workspace } from "../../app/session";
import { useTopic, type Topic } from "../../live/topic";
import type { AppDetail, AppName, RolloutRow } from "../../live/rows";
import { Empty, Head, Loaded, State, Tabs } from "../../ui/parts";
import type { ViewProps } from "../index";
import { Actions } from "./actions";
import { Configuration } from "./configuration";
import { Events } from "./events";
import { Instances } from "./instances";
import { Overview } from "./overview";
import { Revisions } from "./revisions";

const TABS = [
  ["overview", "Overview"],
  ["instances", "Instances"],
  ["revisions", "Revisions"],
  ["events", "Events"],
  ["configuration", "Configuration"],
] as const;

export interface Part {
  readonly topic: Topic;
  readonly app: AppDetail;
}

export default function App(props: ViewProps) {
  const name = () => props.of as unknown as AppName;
  const topic = useTopic("app", () => ({ ...name(), workspace: workspace() }));
  const app = () => topic.one<AppDetail>("app");
  const tab = () => TABS.find(([key]) => key === place().query.tab)?.[0] ?? "overview";
  const rollout = createMemo(() => topic.one<RolloutRow>("rollout"));
  const gone = () => topic.error()?.code === "NotFound";
  return (
    <>
      <Head
        title={name().app}
        crumbs={
          <>
            <a href="/ui/apps">Apps</a> / {name().project} / {name().environment}
          </>
        }
        state={<Show when={!gone() && app()}>{(of) => <State of={of().state} />}</Show>}
      >
        <Show when={!gone() && app()}>{(of) => <Actions app={of()} topic={topic} />}</Show>
      </Head>
      <Show
        when={!gone()}
        fallback={
          <div class="panel">
            <Empty title="This app does not exist">
              <p>
                {topic.error()?.message} It may have been deleted while you looked at it. See <a href="/ui/apps">all apps</a>.
              </p>
            </Empty>
          </div>
        }
      >
        <Loaded ready={topic.ready() && app() !== undefined} error={topic.error()} what="The app">
          <div class="stack notes">
          <Show when={app()?.reason}>
            <div class="notice warn">
              <span class="wrap">
                <strong>{app()!.summary}.</strong> {app()!.reason}{" "}
                <a href={links.why("App", name().app, { project: name().project, environment: name().environment })}>Why?</a>
              </span>
            </div>
          </Show>
          <Show when={rollout() && rollout()!.phase === "running" && rollout()!.configured !== false}>
            <a class="notice rollout-note" href={links.rollout(name(), rollout()!.number)}>
              <span>
                <strong>
                  Rollout {rollout()!.number}: revision {rollout()!.stableRevision} → {rollout()!.revision}, {rollout()!.weight ?? 0} % of the requests.
                </strong>{" "}
                {rollout()!.paused ? "Paused. " : ""}
                {rollout()!.reason}
              </span>
            </a>
          </Show>
          </div>
          <Tabs label="About this app" tabs={TABS} chosen={tab()} />
          <Show when={tab() === "overview"}><Overview topic={topic} app={app()!} /></Show>
          <Show when={tab() === "instances"}><Instances topic={topic} app={app()!} /></Show>
          <Show when={tab() === "revisions"}><Revisions topic={topic} app={app()!} /></Show>
          <Show when={tab() === "events"}><Events topic={topic} app={app()!} /></Show>
          <Show when={tab() === "configuration"}><Configuration topic={topic} app={app()!} /></Show>
        </Loaded>
      </Show>
    </>
  );
}
