/**
 * A topic as reactive rows. A row keeps its identity while its key exists, and each field is a signal of its own:
 * a changed number updates one text node, whatever the size of the table.
 */

import { batch, createEffect, createSignal, on, onCleanup, untrack, type Accessor } from "solid-js";
import { createStore, reconcile, type SetStoreFunction } from "solid-js/store";
import { subscribe } from "./client";
import { RENEWED } from "./patch";
import type { Fields, Parameters, Row, TopicError, Update } from "./protocol";

export type Live<T> = T & { readonly key: string };

interface Held {
  readonly row: Record<string, unknown>;
  readonly set: SetStoreFunction<Record<string, unknown>>;
}

export interface Topic {
  /** The rows whose key begins with `section/` (all rows for ""), in the server's order of arrival. */
  list<T = Row>(section: string): readonly Live<T>[];
  /** One row by its key. */
  one<T = Row>(key: string): Live<T> | undefined;
  /** Whether the first answer has come. */
  ready(): boolean;
  error(): TopicError | undefined;
  /** The moment of the data. */
  at(): number;
}

export function useTopic(name: string, parameters: Accessor<Parameters | undefined> = () => ({})): Topic {
  const held = new Map<string, Held>();
  const sections = new Map<string, { read: Accessor<number>; bump: () => void }>();
  const lists = new Map<string, { version: number; rows: readonly Live<Row>[] }>();
  const [ready, setReady] = createSignal(false);
  const [error, setError] = createSignal<TopicError>();
  const [at, setAt] = createSignal(0);

  function section(of: string) {
    let found = sections.get(of);
    if (!found) {
      const [read, write] = createSignal(0);
      found = { read, bump: () => write(untrack(read) + 1) };
      sections.set(of, found);
    }
    return found;
  }
  const touched = new Set<string>();
  function touch(key: string): void {
    touched.add("");
    const slash = key.indexOf("/");
    touched.add(slash < 0 ? `=${key}` : key.slice(0, slash));
  }
  function put(key: string, fields: Fields, whole: boolean): void {
    const found = held.get(key);
    if (!found) {
      const clean: Record<string, unknown> = { key };
      for (const name in fields) if (fields[name] !== null && name !== RENEWED) clean[name] = fields[name];
      const [row, set] = createStore<Record<string, unknown>>(clean);
      held.set(key, { row, set });
      touch(key);
    } else if (whole || RENEWED in fields) {
      found.set(reconcile({ ...fields, key, [RENEWED]: undefined }, { key: null, merge: false }));
    } else {
      for (const name in fields) {
        const value = fields[name];
        if (typeof value === "object" && value !== null) found.set(name, reconcile(value, { key: null, merge: true }));
        else found.set(name, value === null ? undefined : value);
      }
    }
  }
  function took(update: Update): void {
    batch(() => {
      if (update.at !== undefined) setAt(update.at);
      if (update.error !== undefined) setError(update.error ?? undefined);
      if (update.rows) {
        for (const key of [...held.keys()]) {
          if (!(key in update.rows)) {
            held.delete(key);
            touch(key);
          }
        }
        for (const key in update.rows) put(key, update.rows[key]!, true);
        setReady(true);
      }
      for (const key in update.set) put(key, update.set[key]!, false);
      for (const key of update.drop ?? []) {
        if (held.delete(key)) touch(key);
      }
      for (const each of touched) sections.get(each)?.bump();
      touched.clear();
    });
  }

  createEffect(
    on(
      () => {
        const asked = parameters();
        return asked && JSON.stringify(asked);
      },
      (asked) => {
        if (asked === undefined) return;
        batch(() => {
          held.clear();
          setReady(false);
          setError(undefined);
          for (const each of sections.values()) each.bump();
        });
        onCleanup(subscribe(name, JSON.parse(asked) as Parameters, took));
      },
    ),
  );

  return {
    ready,
    error,
    at,
    list<T>(of: string) {
      const version = section(of).read();
      const cached = lists.get(of);
      if (cached?.version === version) return cached.rows as readonly Live<T>[];
      const rows: Live<Row>[] = [];
      const prefix = of && `${of}/`;
      for (const [key, each] of held) {
        if (prefix ? key.startsWith(prefix) : key !== "#") rows.push(each.row as Live<Row>);
      }
      lists.set(of, { version, rows });
      return rows as readonly unknown[] as readonly Live<T>[];
    },
    one<T>(key: string) {
      const slash = key.indexOf("/");
      section(slash < 0 ? `=${key}` : key.slice(0, slash)).read();
      return held.get(key)?.row as Live<T> | undefined;
    },
  };
}
