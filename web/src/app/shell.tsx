/** The frame of the page: navigation, search, the state of the stream, the view. */

import { createEffect, createSignal, ErrorBoundary, For, onCleanup, onMount, Show, Suspense } from "solid-js";
import { Dynamic } from "solid-js/web";
import { connect, start, status } from "../live/client";
import { length } from "../text/times";
import { Icon, Mark } from "../ui/icons";
import { Dot, Empty, Problem } from "../ui/parts";
import { Toasts } from "../ui/toasts";
import { NAVIGATION, PATTERNS, VIEWS } from "../views";
import { now } from "./clock";
import { Help, startKeys } from "./keys";
import { Palette } from "./palette";
import { BASE, matched } from "./paths";
import { navigate, place } from "./router";
import { logout, session, setWorkspace, workspace } from "./session";
import { setTheme, theme } from "./theme";

export function Shell() {
  const [finding, setFinding] = createSignal(false);
  const [helping, setHelping] = createSignal(false);
  const [menu, setMenu] = createSignal(false);
  const match = () => matched(PATTERNS, place().path);
  const title = () => NAVIGATION.find((each) => (each.views as readonly string[]).includes(match()?.view ?? ""))?.title;
  createEffect(() => {
    const named = match()?.parameters;
    const object = named?.app ?? named?.cluster ?? named?.name;
    document.title = [object, title(), "Shoal"].filter(Boolean).join(" · ");
  });
  createEffect(() => {
    place();
    setMenu(false);
  });
  onMount(() => {
    start();
    onCleanup(
      startKeys({
        find: () => setFinding(true),
        help: () => setHelping(true),
        go: (path) => navigate(BASE + path),
      }),
    );
  });

  return (
    <div class="shell">
      <a class="skip" href="#main">
        Go to the content
      </a>
      <header class="top">
        <button type="button" class="button plain menu" aria-label="Menu" aria-expanded={menu()} aria-controls="nav" onClick={() => setMenu(!menu())}>
          <Icon name="menu" />
        </button>
        <a class="brand" href={`${BASE}/`} aria-label="Shoal, the fleet">
          <Mark />
          <span>Shoal</span>
        </a>
        <button type="button" class="find" onClick={() => setFinding(true)} aria-haspopup="dialog" aria-keyshortcuts="Control+K Meta+K">
          <span>Find anything in the fleet</span>
          <kbd>Ctrl K</kbd>
        </button>
        <div class="end">
          <LinkState />
        </div>
      </header>
      <Banner />
      <nav id="nav" class="nav" classList={{ shown: menu() }} aria-label="Views">
        <For each={NAVIGATION}>
          {(each) => (
            <a href={BASE + each.path} aria-current={(each.views as readonly string[]).includes(match()?.view ?? "") ? "page" : undefined}>
              <Icon name={each.icon} />
              {each.title}
            </a>
          )}
        </For>
        <div class="foot">
          <Show when={(session()?.workspaces.length ?? 0) > 1}>
            <label class="field">
              <span>Workspace</span>
              <select onChange={(event) => setWorkspace(event.currentTarget.value)}>
                <For each={session()!.workspaces}>
                  {(each) => (
                    <option value={each} selected={each === (workspace() ?? session()!.workspace)}>
                      {each}
                    </option>
                  )}
                </For>
              </select>
            </label>
          </Show>
          <label class="field">
            <span>Colours</span>
            <select onChange={(event) => setTheme(event.currentTarget.value as "system" | "light" | "dark")}>
              <For each={["system", "light", "dark"] as const}>
                {(each) => (
                  <option value={each} selected={theme() === each}>
                    {{ system: "As the system", light: "Light", dark: "Dark" }[each]}
                  </option>
                )}
              </For>
            </select>
          </label>
          <div class="small soft wrap">
            {session()?.user}, {session()?.role}
            <br />
            Shoal {session()?.version}
          </div>
          <button type="button" class="button" onClick={() => void logout()}>
            Sign out
          </button>
        </div>
      </nav>
      <main id="main" class="main" tabindex="-1">
        <ErrorBoundary fallback={(error) => <Problem error={error} title="This view failed" />}>
          <Suspense fallback={<p class="soft">Loading…</p>}>
            <Show when={match()} keyed fallback={<NotFound />}>
              {(found) => (
                <Show when={`${workspace() ?? ""} ${found.view} ${JSON.stringify(found.parameters)}`} keyed>
                  <Dynamic component={VIEWS[found.view]} of={found.parameters} />
                </Show>
              )}
            </Show>
          </Suspense>
        </ErrorBoundary>
      </main>
      <Show when={finding()}>
        <Palette onClose={() => setFinding(false)} />
      </Show>
      <Show when={helping()}>
        <Help onClose={() => setHelping(false)} />
      </Show>
      <Toasts />
    </div>
  );
}

function NotFound() {
  return (
    <div class="panel">
      <Empty title="This page does not exist">
        <p>
          The address <code>{place().path}</code> names no view. Go to the <a href={`${BASE}/`}>fleet</a>, or search with Ctrl K.
        </p>
      </Empty>
    </div>
  );
}

function LinkState() {
  const words = { live: "Live", connecting: "Connecting", broken: "Not live", signedOut: "Signed out" } as const;
  const tones = { live: "ok", connecting: "info", broken: "warn", signedOut: "bad" } as const;
  return (
    <span class="link-state" role="status" title={words[status().state]}>
      <Dot tone={tones[status().state]} />
      <span>{words[status().state]}</span>
    </span>
  );
}

/** What is shown is as old as the last message: said as soon as the stream is broken. */
function Banner() {
  const heard = () => status().heardAt;
  const localNow = () => now() - status().clockOffset;
  return (
    <Show when={status().state === "broken"}>
      <div class="banner" role="alert">
        <strong>The connection to the control plane is broken.</strong>
        <span>
          <Show when={heard()} fallback="Nothing was received yet.">
            What you see is {length(Math.max(0, localNow() - heard()))} old.
          </Show>{" "}
          {status().reason && `Reason: ${status().reason}.`} The next attempt is{" "}
          {status().retryAt > localNow() + 999 ? `in ${length(status().retryAt - localNow())}` : "now"}.
        </span>
        <button type="button" class="button tiny" onClick={() => connect()}>
          Try now
        </button>
      </div>
    </Show>
  );
}
