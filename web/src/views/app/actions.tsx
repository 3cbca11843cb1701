/** What people do to an app: each is one REST call, tried out first, shown as its command. */

import { createSignal, For, Show } from "solid-js";
import { appPath, rest } from "../../api/rest";
import { may } from "../../app/session";
import { links } from "../../app/paths";
import type { Topic } from "../../live/topic";
import type { AppDetail, PlaceRow } from "../../live/rows";
import { appCommand } from "../../text/commands";
import { ActionButton, planned, type Ask } from "../../ui/action";

const post = (app: AppDetail, verb: string, body: unknown, dryRun: boolean) =>
  rest.send<unknown>("POST", `${appPath(app)}/${verb}`, body, dryRun ? { dryRun: true } : {});

function simple(app: AppDetail, verb: "restart" | "stop" | "start", text: string, done: string): Ask {
  return {
    title: `${verb[0]!.toUpperCase()}${verb.slice(1)} ${app.app}`, text, verb: `${verb[0]!.toUpperCase()}${verb.slice(1)}`, done, danger: verb === "stop",
    command: () => appCommand(app, [verb]),
    preview: async () => planned(await post(app, verb, undefined, true)),
    run: () => post(app, verb, undefined, false),
  };
}

export function Actions(props: { app: AppDetail; topic: Topic }) {
  const stopped = () => props.app.desired === "stopped" || props.app.state === "Stopped";
  return (
    <>
      <a class="button" href={links.why("App", props.app.app, { project: props.app.project, environment: props.app.environment })}>Why?</a>
      <Show when={may("apply")}>
        <Scale app={props.app} topic={props.topic} />
        <ActionButton label="Restart" ask={() => simple(props.app, "restart", "A new revision like the newest one replaces all instances, region by region.", `${props.app.app} restarts`)} when={!stopped()} />
        <Rollback app={props.app} />
        <ActionButton label="Stop" danger ask={() => simple(props.app, "stop", "All instances end in every region. Everything else of the app is kept.", `${props.app.app} stops`)} when={!stopped()} />
        <ActionButton label="Start" main ask={() => simple(props.app, "start", "It runs again as before.", `${props.app.app} starts`)} when={stopped()} />
      </Show>
    </>
  );
}

function Scale(props: { app: AppDetail; topic: Topic }) {
  const regions = () => [...new Set(props.topic.list<PlaceRow>("place").map((place) => place.region))].sort();
  const ask = (): Ask => {
    const [region, setRegion] = createSignal("");
    const [replicas, setReplicas] = createSignal(String(props.topic.list<PlaceRow>("place").find((place) => place.newest)?.replicas ?? 2));
    const body = () => ({ replicas: Number(replicas()), ...(region() ? { region: region() } : {}) });
    return {
      title: `Scale ${props.app.app}`, verb: "Scale", done: `${props.app.app} is scaled`,
      command: () => appCommand(props.app, ["scale"], [region() && "--region", region(), "--replicas", replicas()]),
      preview: async () => planned(await post(props.app, "scale", body(), true)),
      run: () => post(props.app, "scale", body(), false),
      form: () => (
        <div class="row">
          <label class="field">
            <span>Region</span>
            <select value={region()} onChange={(event) => setRegion(event.currentTarget.value)}>
              <option value="">All regions</option>
              <For each={regions()}>{(name) => <option value={name}>{name}</option>}</For>
            </select>
          </label>
          <label class="field">
            <span>Instances in each</span>
            <input type="number" min="0" max="10000" required value={replicas()} onInput={(event) => setReplicas(event.currentTarget.value)} />
          </label>
        </div>
      ),
    };
  };
  return <ActionButton label="Scale" ask={ask} />;
}

export function Rollback(props: { app: AppDetail; to?: number; tiny?: boolean }) {
  const ask = (): Ask => {
    const body = props.to === undefined ? {} : { to: props.to };
    return {
      title: `Roll ${props.app.app} back${props.to === undefined ? "" : ` to revision ${props.to}`}`,
      text: `A new revision like ${props.to === undefined ? "the one that was ready before" : `revision ${props.to}`} takes the place of the newest one. Regions and the number of instances stay.`,
      verb: "Roll back", done: `${props.app.app} goes back`,
      command: () => appCommand(props.app, ["rollback", "app"], [props.to !== undefined && "--to", props.to]),
      preview: async () => planned(await post(props.app, "rollback", body, true)),
      run: () => post(props.app, "rollback", body, false),
    };
  };
  return <ActionButton label={props.tiny ? "Go back to it" : "Roll back"} ask={ask} when={may("apply")} />;
}
