/** The small parts that every view is made of. */

import { createSignal, For, Show, type JSX, type ParentProps } from "solid-js";
import { now } from "../app/clock";
import { place } from "../app/router";
import { BASE } from "../app/paths";
import { folded, type DiffLine } from "../text/diff";
import { ago, clock, moment } from "../text/times";
import { tone, word, type Tone } from "../text/states";
import { RestError } from "../api/rest";
import { useDialog } from "./dialog";

export function State(props: { of: string | undefined; tone?: Tone; title?: string }) {
  const toned = () => props.tone ?? tone(props.of);
  return (
    <span class={`state ${toned()}`} title={props.title}>
      <Dot tone={toned()} />
      {word(props.of)}
    </span>
  );
}

export function Dot(props: { tone: Tone }) {
  return <span class={`dot ${props.tone}`} aria-hidden="true" />;
}

export function Tag(props: ParentProps<{ tone?: Tone; title?: string }>) {
  return (
    <span class={`tag ${props.tone ?? ""}`} title={props.title}>
      {props.children}
    </span>
  );
}

/** How long ago, counted on; the exact moment on hover. */
export function Ago(props: { at: number | undefined }) {
  return (
    <Show when={props.at} fallback="–">
      {(at) => (
        <time datetime={new Date(at()).toISOString()} title={moment(at())} class="nowrap">
          {ago(at(), now())}
        </time>
      )}
    </Show>
  );
}

export function Clock(props: { at: number }) {
  return (
    <time datetime={new Date(props.at).toISOString()} title={moment(props.at)} class="nowrap">
      {clock(props.at)}
    </time>
  );
}

export function Head(props: { title: string; crumbs?: JSX.Element; state?: JSX.Element; children?: JSX.Element }) {
  return (
    <div class="head">
      <div>
        <Show when={props.crumbs}>
          <div class="crumbs">{props.crumbs}</div>
        </Show>
        <div class="row">
          <h1>{props.title}</h1>
          {props.state}
        </div>
      </div>
      <div class="row">{props.children}</div>
    </div>
  );
}

export function Panel(props: ParentProps<{ title: string; note?: JSX.Element; end?: JSX.Element; class?: string }>) {
  return (
    <section class={`panel ${props.class ?? ""}`} aria-label={props.title}>
      <header>
        <h2>{props.title}</h2>
        <Show when={props.note}>
          <span class="soft small">{props.note}</span>
        </Show>
        <Show when={props.end}>
          <div class="end row">{props.end}</div>
        </Show>
      </header>
      {props.children}
    </section>
  );
}

/** What stands where nothing is yet: why, and what to do next. */
export function Empty(props: ParentProps<{ title: string; command?: string }>) {
  return (
    <div class="empty">
      <strong>{props.title}</strong>
      <Show when={props.children}>
        <div>{props.children}</div>
      </Show>
      <Show when={props.command}>{(text) => <Command text={text()} />}</Show>
    </div>
  );
}

interface Failure {
  readonly message: string;
  readonly code?: string;
  readonly fix?: string;
}

export function Problem(props: { error: unknown; title?: string }) {
  const failed = (): Failure => props.error as Failure;
  const details = () => (props.error instanceof RestError ? props.error.details : []);
  return (
    <div class="notice bad" role="alert">
      <strong>{props.title ?? "This did not work"}</strong>
      <Show when={details().length} fallback={<div>{failed().message}</div>}>
        <ul>
          <For each={details()}>
            {(each) => (
              <li>
                <code>{each.field}</code>: {each.message}
              </li>
            )}
          </For>
        </ul>
      </Show>
      <Show when={failed().fix}>
        <div>{failed().fix}</div>
      </Show>
    </div>
  );
}

/** A topic's or a request's state around what is shown of it. */
export function Loaded(props: ParentProps<{ ready: boolean; error?: unknown; what: string }>) {
  return (
    <>
      <Show when={props.error}>{(error) => <Problem error={error()} title={`${props.what}: not available`} />}</Show>
      <Show when={props.ready} fallback={<Show when={!props.error}><p class="soft" role="status">Loading {props.what.toLowerCase()}…</p></Show>}>
        {props.children}
      </Show>
    </>
  );
}

export function Command(props: { text: string }) {
  const [copied, setCopied] = createSignal(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.text);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    } catch {
      // The text can be selected by hand.
    }
  };
  return (
    <div class="command">
      <code>{props.text}</code>
      <button type="button" class="button tiny plain" onClick={() => void copy()} aria-label={`Copy the command: ${props.text}`}>
        {copied() ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

/** Tabs are links: they have an address, and the keyboard reaches them. */
export function Tabs(props: { label: string; tabs: readonly (readonly [key: string, title: JSX.Element])[]; chosen: string; name?: string }) {
  const address = (key: string) => {
    const asked = new URLSearchParams(place().query as Record<string, string>);
    asked.set(props.name ?? "tab", key);
    return `${BASE}${place().path}?${asked}`;
  };
  return (
    <nav class="tabs" aria-label={props.label}>
      <For each={props.tabs}>
        {([key, title]) => (
          <a href={address(key)} aria-current={props.chosen === key ? "page" : undefined}>
            {title}
          </a>
        )}
      </For>
    </nav>
  );
}

/** `plain`: full is no problem. */
export function Meter(props: { part: number | undefined; label: string; plain?: boolean }) {
  const part = () => Math.max(0, Math.min(1, props.part ?? 0));
  return (
    <span class={`meter ${props.plain ? "" : part() > 0.95 ? "bad" : part() > 0.8 ? "warn" : ""}`} role="img" aria-label={props.label} title={props.label}>
      <span style={{ "--part": `${part() * 100}%` }} />
    </span>
  );
}

export function Diff(props: { lines: readonly DiffLine[]; whole?: boolean }) {
  return (
    <div class="diff" tabindex="0" role="region" aria-label="Differences">
      <For each={props.whole ? props.lines : folded(props.lines)}>{(line) => <div class={line.kind}>{line.text}</div>}</For>
    </div>
  );
}

export function Pairs(props: { of: readonly (readonly [string, JSX.Element])[] }) {
  return (
    <dl class="pairs">
      <For each={props.of.filter(([, value]) => value !== undefined && value !== "")}>
        {([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        )}
      </For>
    </dl>
  );
}

export function Dialog(props: ParentProps<{ title: string; kind?: "wide" | "side"; onClose: () => void }>) {
  const attach = useDialog(() => props.onClose());
  return (
    <dialog ref={attach} class={`dialog ${props.kind ?? ""}`} aria-label={props.title}>
      <div class="body">
        <div class="spread">
          <h2>{props.title}</h2>
          <button type="button" class="button plain" onClick={() => props.onClose()} aria-label="Close">
            ✕
          </button>
        </div>
        {props.children}
      </div>
    </dialog>
  );
}
