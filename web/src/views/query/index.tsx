/** Questions to all clusters at once, with completion; saved ones as checks; answers as files. */

import { createSignal, For, Show } from "solid-js";
import { navigator_ } from "../../api/rest";
import { place, setQuery } from "../../app/router";
import { may, session } from "../../app/session";
import { command } from "../../text/commands";
import { ActionButton, type Ask } from "../../ui/action";
import { Command, Head, Panel } from "../../ui/parts";
import { useLoad } from "../../ui/load";
import { NoNavigator } from "../cluster/none";
import { Answer, type Answered } from "./answer";
import { Checks } from "./checks";
import { csv, download } from "./export";
import { Editor } from "./editor";
import type { QueryKind } from "./complete";
import "./style.css";

const EXAMPLES = ["pods where not ready", "pods where restarts > 3 and age < 1h", "nodes where not ready", "apps where not ready", "events where type = 'Warning' and seen < 10m", "pods count by region"];

export default function Query() {
  const asked = () => place().query.q ?? "";
  const at = () => place().query.at;
  const [answer, setAnswer] = createSignal<Answered>();
  const kinds = useLoad(() => (session()?.navigator ? "kinds" : undefined), async (_of, signal) => {
    const said = await navigator_.get<{ items?: QueryKind[]; kinds?: QueryKind[] }>("/kinds", {}, signal);
    return said.items ?? said.kinds ?? [];
  });
  const save = (): Ask => {
    const [name, setName] = createSignal("");
    const [expect, setExpect] = createSignal("empty");
    return {
      title: "Save as a check", verb: "Save", done: "The check is saved",
      text: "A check is a query that must find nothing, or something. Its result is on this page and in `shoal checks run`.",
      command: () => command(["shoal", "checks", "save", name() || "NAME", asked(), expect() === "some" && "--some"]),
      run: () => navigator_.send("PUT", `/checks/${encodeURIComponent(name())}`, { query: asked(), expect: expect() }),
      form: () => (
        <div class="row">
          <label class="field"><span>Name</span><input type="text" required pattern="[a-z0-9]([a-z0-9-]*[a-z0-9])?" title="lower-case letters, digits and -" value={name()} onInput={(event) => setName(event.currentTarget.value)} /></label>
          <label class="field"><span>It must find</span><select onChange={(event) => setExpect(event.currentTarget.value)}><option value="empty">nothing</option><option value="some">something</option></select></label>
        </div>
      ),
    };
  };
  return (
    <>
      <Head title="Query" />
      <Show when={session()?.navigator} fallback={<NoNavigator />}>
        <div class="stack">
          <Panel title="Ask all clusters" note={at() ? `as it was at ${at()}` : undefined}>
            <div class="inside stack tight">
              <Editor text={asked()} kinds={kinds.value() ?? []} ask={(text) => setQuery({ q: text }, { push: true })} />
              <div class="row">
                <span class="soft small">For example:</span>
                <For each={EXAMPLES}>{(text) => <button type="button" class="button tiny" onClick={() => setQuery({ q: text }, { push: true })}>{text}</button>}</For>
              </div>
            </div>
          </Panel>
          <Show when={asked()}>
            <Panel title="Answer" end={
              <>
                <ActionButton label="Save as a check" ask={save} when={may("operate")} />
                <button type="button" class="button" disabled={!answer()?.rows.length} onClick={() => download("query.csv", "text/csv", csv(answer()!))}>CSV</button>
                <button type="button" class="button" disabled={!answer()?.rows.length} onClick={() => download("query.json", "application/json", JSON.stringify(answer()!.rows, null, 2))}>JSON</button>
              </>
            }>
              <Answer text={asked()} at={at()} got={setAnswer} />
              <div class="inside"><Command text={command(["shoal", "query", asked(), ...(at() ? ["--at", at()!] : [])])} /></div>
            </Panel>
          </Show>
          <Checks />
        </div>
      </Show>
    </>
  );
}
