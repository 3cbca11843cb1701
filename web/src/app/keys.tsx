/** Keys: Ctrl K finds, "/" too, "g" and a letter goes to a view, "?" shows the list. */

import { For } from "solid-js";
import { Dialog } from "../ui/parts";
import { NAVIGATION } from "../views";

interface Acts {
  readonly find: () => void;
  readonly help: () => void;
  readonly go: (path: string) => void;
}

const AFTER_G_MS = 1200;

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName));
}

export function startKeys(acts: Acts): () => void {
  let gAt = 0;
  const pressed = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      acts.find();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (Date.now() - gAt < AFTER_G_MS) {
      gAt = 0;
      const found = NAVIGATION.find((each) => each.letter === event.key);
      if (found) {
        event.preventDefault();
        acts.go(found.path);
      }
    } else if (event.key === "g") gAt = Date.now();
    else if (event.key === "/") {
      event.preventDefault();
      acts.find();
    } else if (event.key === "?") acts.help();
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

export function Help(props: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={() => props.onClose()}>
      <dl class="pairs">
        <dt>
          <kbd>Ctrl K</kbd> or <kbd>/</kbd>
        </dt>
        <dd>Find anything in the fleet</dd>
        <For each={NAVIGATION}>
          {(each) => (
            <>
              <dt>
                <kbd>g</kbd> <kbd>{each.letter}</kbd>
              </dt>
              <dd>{each.title}</dd>
            </>
          )}
        </For>
        <dt>
          <kbd>?</kbd>
        </dt>
        <dd>This list</dd>
        <dt>
          <kbd>Esc</kbd>
        </dt>
        <dd>Close a dialog</dd>
      </dl>
    </Dialog>
  );
}
