/** Starts the page: theme, address, session, then the shell or the login. */

import { createResource, Match, Show, Switch } from "solid-js";
import { render } from "solid-js/web";
import "./ui/style.css";
import { startClock } from "./app/clock";
import { Login, takeCode } from "./app/login";
import { startRouter } from "./app/router";
import { loadSession, markSignedOut, signedIn } from "./app/session";
import { Shell } from "./app/shell";
import { startTheme } from "./app/theme";
import { connect, status } from "./live/client";
import { createEffect } from "solid-js";

const code = takeCode();
startTheme();
startRouter();
startClock();

function Page() {
  const [reached, { refetch }] = createResource(async () => {
    if (code) {
      markSignedOut(); // the login uses the code
      return true;
    }
    return loadSession();
  });
  createEffect(() => {
    if (status().state === "signedOut" && signedIn() === "in") markSignedOut();
  });
  return (
    <Switch>
      <Match when={signedIn() === "in"}>
        <Shell />
      </Match>
      <Match when={signedIn() === "out"}>
        <Login code={code} />
      </Match>
      <Match when={reached() === false}>
        <div class="login">
          <main>
            <h1>The control plane does not answer</h1>
            <p>Check that it runs. On your own machine:</p>
            <pre class="command">shoal up</pre>
            <button type="button" class="button main-action" onClick={() => (void refetch(), connect())}>
              Try again
            </button>
          </main>
        </div>
      </Match>
      <Match when={true}>
        <Show when={!reached.loading}>
          <p class="soft">Loading…</p>
        </Show>
      </Match>
    </Switch>
  );
}

const probe = document.createElement("span"); // what colours of the design system compute to, for canvases
probe.id = "probe";
probe.hidden = true;
document.body.append(probe);
render(() => <Page />, document.getElementById("page")!);
