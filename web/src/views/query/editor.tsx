/** The line in which a query is written, with what may follow. */

import { createEffect, createMemo, createSignal, For, on, Show } from "solid-js";
import { complete, inserted, type QueryKind } from "./complete";

export function Editor(props: { text: string; kinds: readonly QueryKind[]; ask: (text: string) => void }) {
  let input!: HTMLInputElement;
  const [text, setText] = createSignal(props.text);
  const [caret, setCaret] = createSignal(props.text.length);
  const [open, setOpen] = createSignal(false);
  const [chosen, setChosen] = createSignal(-1);
  createEffect(on(() => props.text, (given) => setText(given)));
  const completion = createMemo(() => complete(text(), caret(), props.kinds));
  const shown = () => open() && completion().suggestions.length > 0;
  const take = (at: number) => {
    const suggestion = completion().suggestions[at];
    if (!suggestion) return;
    const next = inserted(text(), caret(), completion().start, suggestion.text);
    setText(next.text);
    input.value = next.text;
    input.setSelectionRange(next.caret, next.caret);
    setCaret(next.caret);
    setChosen(-1);
    setOpen(true);
    input.focus();
  };
  const moved = () => {
    setCaret(input.selectionStart ?? input.value.length);
    setChosen(-1);
  };
  const pressed = (event: KeyboardEvent) => {
    const count = completion().suggestions.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!count) return;
      event.preventDefault();
      setOpen(true);
      setChosen((chosen() + (event.key === "ArrowDown" ? 1 : -1) + count) % count);
    } else if (event.key === "Tab" && shown() && !event.shiftKey && chosen() >= 0) {
      event.preventDefault();
      take(chosen());
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (shown() && chosen() >= 0) take(chosen());
      else if (text().trim()) {
        setOpen(false);
        props.ask(text().trim());
      }
    } else if (event.key === "Escape") setOpen(false);
  };
  return (
    <div class="query">
      <input
        ref={input} type="text" class="mono" value={text()} placeholder="pods where not ready" aria-label="Query" spellcheck={false} autocomplete="off" autocapitalize="off"
        role="combobox" aria-expanded={shown()} aria-controls="suggestions" aria-autocomplete="list" aria-activedescendant={shown() && chosen() >= 0 ? `suggestion-${chosen()}` : undefined}
        onInput={() => (setText(input.value), setOpen(true), moved())} onClick={moved} onKeyUp={(event) => event.key.startsWith("Arrow") && !event.key.match(/Up|Down/) && moved()}
        onKeyDown={pressed} onFocus={() => setOpen(true)} onBlur={() => setTimeout(() => setOpen(false), 150)}
      />
      <button type="button" class="button main-action" onClick={() => text().trim() && props.ask(text().trim())}>Ask</button>
      <div id="suggestions" class="suggestions" role="listbox" aria-label="What may follow" hidden={!shown()}>
        <Show when={shown()}>
          <For each={completion().suggestions}>
            {(each, at) => (
              <div id={`suggestion-${at()}`} role="option" aria-selected={chosen() === at()} onMouseDown={(event) => (event.preventDefault(), take(at()))}>
                <code>{each.text}</code> <span class="soft small">{each.help}</span>
              </div>
            )}
          </For>
        </Show>
      </div>
    </div>
  );
}
