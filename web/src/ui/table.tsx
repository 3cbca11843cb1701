/**
 * A table that sorts, and draws only the rows in sight once there are many.
 *
 * Rows are re-ordered at most every SORT_MS: rows that jump while they are read are worse than an order that is
 * half a second old.
 */

import { createEffect, createMemo, createSignal, For, on, onCleanup, onMount, Show, untrack, type JSX } from "solid-js";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer, type VirtualItem } from "@tanstack/virtual-core";

const SORT_MS = 500;
const VIRTUAL_FROM = 120;
const ROW_PX = 32;

export interface Column<T> {
  readonly key: string;
  readonly title: string;
  readonly cell: (row: T) => JSX.Element;
  /** What to sort by; without it the column does not sort. */
  readonly sort?: (row: T) => string | number | undefined;
  readonly align?: "end";
  /** Left out on narrow screens. */
  readonly wide?: boolean;
  readonly descending?: boolean;
}

export interface Sorting {
  readonly key: string;
  readonly down: boolean;
}

export function Table<T extends object>(props: {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly sort?: Sorting;
  readonly empty?: JSX.Element;
  readonly tall?: boolean;
}) {
  const [sorting, setSorting] = createSignal<Sorting | undefined>(props.sort);
  const sorted = throttled(() => order(props.rows, props.columns, sorting()), () => [props.rows, sorting()]);
  const virtual = () => sorted().length > VIRTUAL_FROM;

  const toggle = (column: Column<T>) => {
    const old = sorting();
    setSorting({ key: column.key, down: old?.key === column.key ? !old.down : (column.descending ?? false) });
  };
  const columnClass = (column: Column<T>) => `${column.align === "end" ? "num" : ""} ${column.wide ? "wide-only" : ""}`;
  const head = () => (
    <thead>
      <tr>
        <For each={props.columns}>
          {(column) => (
            <th scope="col" class={columnClass(column)} aria-sort={sorting()?.key === column.key ? (sorting()!.down ? "descending" : "ascending") : undefined}>
              <Show when={column.sort} fallback={column.title}>
                <button type="button" onClick={() => toggle(column)}>
                  {column.title}
                  <Show when={sorting()?.key === column.key}>
                    <span aria-hidden="true">{sorting()!.down ? " ↓" : " ↑"}</span>
                  </Show>
                </button>
              </Show>
            </th>
          )}
        </For>
      </tr>
    </thead>
  );
  const line = (row: T, index?: number) => (
    <tr aria-rowindex={index === undefined ? undefined : index + 2}>
      <For each={props.columns}>{(column) => <td class={columnClass(column)}>{column.cell(row)}</td>}</For>
    </tr>
  );

  return (
    <Show when={sorted().length} fallback={props.empty}>
      <Show
        when={virtual()}
        fallback={
          <div class={`scroll ${props.tall ? "tall" : ""}`} tabindex="0" role="region" aria-label={props.label}>
            <table class="table" aria-label={props.label}>
              {head()}
              <tbody>
                <For each={sorted()}>{(row) => line(row)}</For>
              </tbody>
            </table>
          </div>
        }
      >
        <VirtualRows label={props.label} rows={sorted()} columns={props.columns.length} head={head} line={line} />
      </Show>
    </Show>
  );
}

function VirtualRows<T extends object>(props: {
  readonly label: string;
  readonly rows: readonly T[];
  readonly columns: number;
  readonly head: () => JSX.Element;
  readonly line: (row: T, index: number) => JSX.Element;
}) {
  let scroller!: HTMLDivElement;
  const [items, setItems] = createSignal<readonly VirtualItem[]>([]);
  const [total, setTotal] = createSignal(0);
  onMount(() => {
    const options = () => ({
      count: props.rows.length,
      getScrollElement: () => scroller,
      estimateSize: () => ROW_PX,
      overscan: 12,
      scrollToFn: elementScroll,
      observeElementRect,
      observeElementOffset,
      onChange: () => show(),
    });
    const virtualizer = new Virtualizer<HTMLDivElement, HTMLTableRowElement>(options());
    const show = () => {
      setItems(virtualizer.getVirtualItems());
      setTotal(virtualizer.getTotalSize());
    };
    onCleanup(virtualizer._didMount());
    virtualizer._willUpdate();
    createEffect(
      on(
        () => props.rows.length,
        () => {
          virtualizer.setOptions(options());
          virtualizer._willUpdate();
          show();
        },
      ),
    );
  });
  // Rows in sight by identity: scrolling by one row makes one row, and does not draw the others again.
  const shown = createMemo(() => items().map((item) => props.rows[item.index]).filter((row) => row !== undefined) as T[]);
  const first = () => items()[0]?.index ?? 0;
  return (
    <div class="scroll tall" ref={scroller} tabindex="0" role="region" aria-label={props.label}>
      <table class="table fixed-rows" aria-label={props.label} aria-rowcount={props.rows.length + 1}>
        {props.head()}
        <tbody>
          <Space height={items()[0]?.start ?? 0} columns={props.columns} />
          <For each={shown()}>{(row, at) => props.line(row, untrack(first) + at())}</For>
          <Space height={Math.max(0, total() - (items().at(-1)?.end ?? 0))} columns={props.columns} />
        </tbody>
      </table>
    </div>
  );
}

function Space(props: { height: number; columns: number }) {
  return (
    <tr class="space" aria-hidden="true">
      <td colspan={props.columns} style={{ height: `${props.height}px` }} />
    </tr>
  );
}

function order<T>(rows: readonly T[], columns: readonly Column<T>[], by: Sorting | undefined): readonly T[] {
  const sort = columns.find((column) => column.key === by?.key)?.sort;
  if (!by || !sort) return rows;
  const keyed = rows.map((row) => [sort(row), row] as const);
  keyed.sort(([a], [b]) => compared(a, b, by.down));
  return keyed.map(([, row]) => row);
}

/** What is not known comes last, whichever way the table is sorted. */
export function compared(a: string | number | undefined, b: string | number | undefined, down: boolean): number {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? 1 : -1;
  const sign = down ? -1 : 1;
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** `compute` again at once when `urgent` changes, and otherwise at most every SORT_MS. */
function throttled<T extends object>(compute: () => T, urgent: () => unknown): () => T {
  const [value, setValue] = createSignal<T>(untrack(compute));
  let due: ReturnType<typeof setTimeout> | undefined;
  const fresh = createMemo(() => ({ of: compute() })); // tracks every field that the order depends on
  createEffect(() => {
    fresh();
    due ??= setTimeout(() => {
      due = undefined;
      setValue(() => untrack(fresh).of);
    }, SORT_MS);
  });
  createEffect(() => {
    urgent();
    setValue(() => untrack(fresh).of);
  });
  onCleanup(() => clearTimeout(due));
  return value;
}
