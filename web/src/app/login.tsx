/** Signing in: by the code of a link that `shoal up` printed, else by a token. */

import { createSignal, onMount, Show } from "solid-js";
import { connect } from "../live/client";
import { Mark } from "../ui/icons";
import { Command } from "../ui/parts";
import { login } from "./session";

/** The code in the address, which is taken out of it at once: it works one time. */
export function takeCode(): string {
  const code = new URLSearchParams(location.hash.slice(1)).get("code") ?? "";
  if (code) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

export function Login(props: { code: string }) {
  const [token, setToken] = createSignal("");
  const [error, setError] = createSignal("");
  const [busy, setBusy] = createSignal(false);
  const enter = async (what: { code: string } | { token: string }) => {
    setBusy(true);
    setError("");
    try {
      await login(what);
      connect();
    } catch (failed) {
      setError(failed instanceof TypeError ? "The control plane does not answer. Check that it runs, then try again." : (failed as Error).message);
    } finally {
      setBusy(false);
    }
  };
  onMount(() => {
    if (props.code) void enter({ code: props.code });
  });
  return (
    <div class="login">
      <main>
        <div class="row">
          <span class="brand"><Mark /></span>
          <h1>Sign in to Shoal</h1>
        </div>
        <Show when={error()}>
          <div class="notice bad" role="alert">{error()}</div>
        </Show>
        <form
          class="stack"
          onSubmit={(event) => {
            event.preventDefault();
            void enter({ token: token().trim() });
          }}
        >
          <label class="field">
            <span>Token</span>
            <input type="password" autocomplete="current-password" required value={token()} onInput={(event) => setToken(event.currentTarget.value)} />
          </label>
          <button type="submit" class="button main-action" disabled={busy()}>
            {busy() ? "Signing in…" : "Sign in"}
          </button>
        </form>
        <div class="stack tight small soft">
          <p>On the machine that runs <code>shoal up</code>, use the link that it prints. For others, an administrator creates a token:</p>
          <Command text="shoal token create --kind user --name NAME --role viewer" />
        </div>
      </main>
    </div>
  );
}
