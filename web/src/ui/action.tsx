/**
 * A change that someone makes: what it is, what it would do (a dry run), then doing it.
 *
 * The same request goes out twice, first with `dryRun`. The dialog names the `shoal` command that does the same.
 */

import { createEffect, createSignal, For, on, onCleanup, Show, type JSX } from "solid-js";
import { Command, Problem } from "./parts";
import { useDialog } from "./dialog";
import { toast } from "./toasts";

export interface Ask {
  readonly title: string;
  readonly text?: JSX.Element;
  /** Fields of the form; reads them when `run` and `command` are called. */
  readonly form?: () => JSX.Element;
  readonly command: () => string;
  /** Undefined: the operation has no dry run. */
  readonly preview?: () => Promise<readonly string[]>;
  readonly run: () => Promise<unknown>;
  readonly verb: string;
  readonly danger?: boolean;
  readonly done: string;
}

export function ActionDialog(props: { ask: Ask; onClose: () => void }) {
  const attach = useDialog(() => props.onClose());
  const [busy, setBusy] = createSignal(false);
  const [error, setError] = createSignal<unknown>();
  const [preview, setPreview] = createSignal<readonly string[]>();
  let due: ReturnType<typeof setTimeout> | undefined;
  let asked = 0;

  // Every change of the form is tried out: what it would do stands there before the button is pressed.
  createEffect(
    on(() => props.ask.command(), () => {
      if (!props.ask.preview) return;
      clearTimeout(due);
      const mine = ++asked;
      due = setTimeout(() => {
        props.ask.preview!().then(
          (lines) => mine === asked && (setError(undefined), setPreview(lines)),
          (failed) => mine === asked && (setPreview(undefined), setError(failed)),
        );
      }, 200);
    }),
  );
  onCleanup(() => clearTimeout(due));
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await props.ask.run();
      toast(props.ask.done);
      props.onClose();
    } catch (failed) {
      setError(failed);
    } finally {
      setBusy(false);
    }
  };
  return (
    <dialog ref={attach} class="dialog" aria-label={props.ask.title}>
      <form onSubmit={(event) => void submit(event)}>
        <h2>{props.ask.title}</h2>
        <Show when={props.ask.text}>
          <p>{props.ask.text}</p>
        </Show>
        {props.ask.form?.()}
        <Show when={props.ask.preview}>
          <section aria-live="polite" class="stack tight">
            <h3>What it would change</h3>
            <Show when={preview()} fallback={<p class="soft">{error() ? "Nothing: it would be refused." : "Trying it out…"}</p>}>
              {(lines) => (
                <Show when={lines().length} fallback={<p class="soft">Nothing: it is so already.</p>}>
                  <ul class="mono small stack tight">
                    <For each={lines()}>{(line) => <li class="wrap">{line}</li>}</For>
                  </ul>
                </Show>
              )}
            </Show>
          </section>
        </Show>
        <section class="stack tight">
          <h3>The same on the command line</h3>
          <Command text={props.ask.command()} />
        </section>
        <Show when={error()}>{(failed) => <Problem error={failed()} title="Refused" />}</Show>
        <div class="row end">
          <button type="button" class="button" onClick={() => props.onClose()}>
            Cancel
          </button>
          <button type="submit" class={`button ${props.ask.danger ? "danger" : "main-action"}`} disabled={busy() || (props.ask.preview !== undefined && preview() === undefined)}>
            {props.ask.verb}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** A button that opens its dialog; `when` false leaves it out (a role without the right sees no button). */
export function ActionButton(props: { label: string; ask: () => Ask; danger?: boolean; main?: boolean; when?: boolean }) {
  const [open, setOpen] = createSignal<Ask>();
  return (
    <Show when={props.when ?? true}>
      <button type="button" class={`button ${props.danger ? "danger" : ""} ${props.main ? "main-action" : ""}`} onClick={() => setOpen(props.ask())}>
        {props.label}
      </button>
      <Show when={open()}>{(ask) => <ActionDialog ask={ask()} onClose={() => setOpen(undefined)} />}</Show>
    </Show>
  );
}

interface ChangedField {
  readonly path: string;
  readonly before?: unknown;
  readonly after?: unknown;
}

interface Planned {
  readonly created?: boolean;
  readonly changed?: readonly ChangedField[];
  readonly effects?: readonly Effect[];
  readonly items?: readonly (Planned & { readonly object?: { kind?: string; metadata?: { name?: string } }; readonly error?: { message?: string } })[];
  readonly warnings?: readonly string[];
}

function shown(value: unknown): string {
  return value === undefined || value === null ? "(none)" : typeof value === "string" ? value : JSON.stringify(value);
}

interface Effect {
  readonly region?: string;
  readonly cluster?: string;
  readonly shard?: string;
  readonly action?: string;
  readonly kind?: string;
  readonly name?: string;
}

function effectText(effect: Effect): string {
  const where = [effect.region, effect.cluster, effect.shard].filter(Boolean).join("/");
  return `${where ? `${where}: ` : ""}${[effect.action, effect.kind, effect.name].filter(Boolean).join(" ")}`;
}

/** The answer of a dry run as lines, one per change. */
export function planned(answer: unknown): string[] {
  const said = (answer ?? {}) as Planned;
  const lines = (said.changed ?? []).map((each) => `${each.path}: ${shown(each.before)} → ${shown(each.after)}`);
  lines.push(...(said.effects ?? []).map(effectText));
  for (const item of said.items ?? []) {
    const inner = planned(item);
    const name = [item.object?.kind, item.object?.metadata?.name].filter(Boolean).join(" ");
    if (item.error) lines.push(`${name}: ${item.error.message}`);
    else if (item.created || inner.length) lines.push(`${name}: ${item.created ? "would be created" : "would be changed"}`, ...inner.map((line) => `  ${line}`));
  }
  lines.push(...(said.warnings ?? []).map((each) => `warning: ${each}`));
  return lines;
}
