/** The app as YAML: what is stored, an editor, the difference, what applying it would do, and applying it. */

import { createEffect, createSignal, For, on, Show } from "solid-js";
import { appPath, failure, rest } from "../../api/rest";
import { may, workspace } from "../../app/session";
import { diffLines } from "../../text/diff";
import { yamlOf } from "../../text/yaml";
import { planned } from "../../ui/action";
import { Command, Diff, Pairs, Panel, Problem } from "../../ui/parts";
import { useLoad } from "../../ui/load";
import { toast } from "../../ui/toasts";
import type { Part } from "./index";

interface Stored {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly spec: Readonly<Record<string, unknown>>;
}

/** The document as a file would have it: without what the control plane adds. */
function asFile(app: Stored): unknown {
  const { name, project, environment, labels, annotations } = app.metadata as Record<string, unknown>;
  const some = (value: unknown) => (value && Object.keys(value as object).length ? value : undefined);
  return { apiVersion: app.apiVersion, kind: app.kind, metadata: { name, project, environment, ...(some(labels) ? { labels } : {}), ...(some(annotations) ? { annotations } : {}) }, spec: app.spec };
}

async function applyText(text: string, dryRun: boolean): Promise<unknown> {
  const answer = await fetch(`/api/v1/apply${dryRun ? "?dryRun=true" : ""}`, {
    method: "POST",
    headers: { "Content-Type": "application/yaml", "X-Shoal-Page": "1", ...(workspace() ? { "X-Shoal-Workspace": workspace()! } : {}) },
    body: text,
  });
  if (!answer.ok) throw await failure(answer);
  return answer.json();
}

export function Configuration(props: Part) {
  const stored = useLoad(
    () => ({ path: appPath(props.app), version: props.app.version }),
    async ({ path }, signal) => yamlOf(asFile(await rest.get<Stored>(path, {}, signal).catch(() => ({ apiVersion: "shoal.dev/v1", kind: "App", metadata: { name: props.app.app, project: props.app.project, environment: props.app.environment, labels: props.app.labels }, spec: props.app.spec ?? {} })))),
  );
  const [text, setText] = createSignal<string>();
  const [effects, setEffects] = createSignal<readonly string[]>();
  const [error, setError] = createSignal<unknown>();
  const [busy, setBusy] = createSignal(false);
  const changed = () => text() !== undefined && text() !== stored.value();
  createEffect(on(text, () => (setEffects(undefined), setError(undefined)), { defer: true }));

  const send = async (dryRun: boolean) => {
    setBusy(true);
    setError(undefined);
    try {
      const answer = await applyText(text()!, dryRun);
      if (dryRun) setEffects(planned(answer));
      else {
        toast(`${props.app.app} is applied`);
        setText(undefined);
        stored.again();
      }
    } catch (failed) {
      setError(failed);
    } finally {
      setBusy(false);
    }
  };
  return (
    <div class="stack">
      <Panel title="Environment variables">
        <div class="inside">
          <Variables env={(props.app.spec?.env ?? {}) as Record<string, unknown>} secrets={props.app.spec?.secrets} />
        </div>
      </Panel>
      <Panel title="File" note={may("apply") ? "change it, see what that would do, apply it" : "read only: your role may not change apps"}>
        <div class="inside stack">
          <Show when={stored.value() !== undefined} fallback={<p class="soft">Loading…</p>}>
            <textarea
              rows={Math.min(34, (stored.value()!.match(/\n/g)?.length ?? 1) + 2)} spellcheck={false} aria-label="The app as YAML" readOnly={!may("apply")}
              value={text() ?? stored.value()} onInput={(event) => setText(event.currentTarget.value)}
            />
          </Show>
          <Show when={changed()}>
            <Diff lines={diffLines(stored.value()!, text()!)} />
            <Show when={effects()}>
              {(lines) => (
                <section class="stack tight" aria-live="polite">
                  <h3>What it would change</h3>
                  <Show when={lines().length} fallback={<p class="soft">Nothing: it is so already.</p>}>
                    <ul class="mono small"><For each={lines()}>{(line) => <li class="wrap">{line}</li>}</For></ul>
                  </Show>
                </section>
              )}
            </Show>
            <Show when={error()}>{(failed) => <Problem error={failed()} title="Nothing was applied" />}</Show>
            <div class="spread">
              <Command text={effects() ? "shoal apply -f app.yaml" : "shoal apply -f app.yaml --dry-run"} />
              <div class="row">
                <button type="button" class="button" onClick={() => setText(undefined)}>Discard</button>
                <Show when={effects()} fallback={<button type="button" class="button main-action" disabled={busy()} onClick={() => void send(true)}>Try it (dry run)</button>}>
                  <button type="button" class="button main-action" disabled={busy()} onClick={() => void send(false)}>Apply</button>
                </Show>
              </div>
            </div>
          </Show>
        </div>
      </Panel>
    </div>
  );
}

function Variables(props: { env: Record<string, unknown>; secrets: unknown }) {
  const pairs = () => Object.entries(props.env).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)] as const);
  return (
    <Show when={pairs().length} fallback={<p class="soft">None.</p>}>
      <div class="mono"><Pairs of={pairs()} /></div>
    </Show>
  );
}
