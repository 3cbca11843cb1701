/** For one object: the chain of reasons from what was wanted to the pod, and what is missing. */

import { createMemo, For, Show } from "solid-js";
import { href, links } from "../../app/paths";
import { place } from "../../app/router";
import { workspace } from "../../app/session";
import { useTopic } from "../../live/topic";
import { Command, Dot, Empty, Head, Loaded, Panel } from "../../ui/parts";
import { Log } from "../../ui/log";
import type { ViewProps } from "../index";
import "./style.css";

interface Verdict { readonly level: Level; readonly text: string }
type Level = "ok" | "waiting" | "bad";
interface StepOfWhy {
  readonly key: string;
  readonly order: number;
  readonly level: Level;
  readonly title: string;
  readonly text: string;
  readonly kind?: string;
  readonly name?: string;
  readonly region?: string;
  readonly cluster?: string;
  readonly namespace?: string;
  readonly fix?: string;
  readonly command?: string;
}

const TONES = { ok: "ok", waiting: "warn", bad: "bad" } as const;
const WORDS = { ok: "in order", waiting: "waits", bad: "wrong" } as const;

export default function Why(props: ViewProps) {
  const kind = () => props.of.kind ?? "";
  const name = () => props.of.name ?? "";
  const query = () => place().query;
  const topic = useTopic("why", () => ({ kind: kind(), name: name(), project: query().project, environment: query().environment, cluster: query().cluster, namespace: query().namespace, workspace: workspace() }));
  const steps = createMemo(() => [...topic.list<StepOfWhy>("step")].sort((a, b) => a.order - b.order));
  const back = () =>
    kind() === "App" ? links.app({ project: query().project ?? "", environment: query().environment ?? "", app: name() }) : query().cluster ? links.cluster(query().cluster!, "pods") : href(["apps"]);
  return (
    <>
      <Head title={`Why is ${name()} as it is?`} crumbs={<a href={back()}>{kind()} {name()}</a>} />
      <Show when={topic.error()?.code !== "NotFound"} fallback={<div class="panel"><Empty title={`There is no ${kind()} ${name()}`}><p>{topic.error()?.message}</p></Empty></div>}>
        <Loaded ready={topic.ready()} error={topic.error()} what="The reasons">
          <div class="stack">
            <Show when={topic.one<Verdict>("#")}>
              {(verdict) => (
                <div class={`notice ${TONES[verdict().level]}`} role="status">
                  <strong class="wrap">{verdict().text}</strong>
                </div>
              )}
            </Show>
            <Panel title="From intent to pod">
              <ol class="chain">
                <For each={steps()} fallback={<li><Empty title="No reasons are known" /></li>}>
                  {(step) => (
                    <li class={TONES[step.level]}>
                      <Dot tone={TONES[step.level]} />
                      <div class="stack tight">
                        <div class="row">
                          <h3>{step.title}</h3>
                          <span class="soft small">{[step.region, step.cluster !== step.region && step.cluster].filter(Boolean).join(", ")}</span>
                          <span class="visually-hidden">{WORDS[step.level]}</span>
                        </div>
                        <p class="wrap">{step.text}</p>
                        <Show when={step.fix}><p class="soft wrap">{step.fix}</p></Show>
                        <Show when={step.command}>{(text) => <Command text={text()} />}</Show>
                        <Show when={step.kind === "Pod" && step.name && step.cluster && kind() !== "Pod"}>
                          <a href={links.why("Pod", step.name!, { cluster: step.cluster, namespace: step.namespace })}>Why is this pod as it is?</a>
                        </Show>
                      </div>
                    </li>
                  )}
                </For>
              </ol>
            </Panel>
            <Show when={kind() === "Pod" && query().cluster && query().namespace}>
              <Log cluster={query().cluster!} namespace={query().namespace!} pod={name()} />
            </Show>
          </div>
        </Loaded>
      </Show>
    </>
  );
}
