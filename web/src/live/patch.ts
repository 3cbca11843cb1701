/** Rows of a topic as plain data: what messages do to them, and what several changes amount to. */

import type { Fields, Row, Rows, TopicMessage, Update } from "./protocol";

/** A row with `fields` over it; a field that is null is gone. */
export function merged(row: Row | undefined, fields: Fields): Row {
  const next: Record<string, unknown> = { ...row };
  for (const name in fields) {
    if (fields[name] === null) delete next[name];
    else next[name] = fields[name];
  }
  return next;
}

/** The rows of one topic as the server last said. */
export class TopicRows {
  readonly rows = new Map<string, Row>();
  /** Whether a reset has come: before it, nothing is known. */
  known = false;
  at = 0;

  apply(message: TopicMessage): void {
    if (message.at !== undefined) this.at = message.at;
    if (message.reset) {
      this.rows.clear();
      this.known = true;
      for (const key in message.rows) this.rows.set(key, message.rows[key]!);
      return;
    }
    for (const key in message.set) this.rows.set(key, merged(this.rows.get(key), message.set[key]!));
    for (const key of message.drop ?? []) this.rows.delete(key);
  }

  snapshot(): Rows {
    return Object.fromEntries(this.rows);
  }
}

/** Changes that wait to be sent on: a later one of the same row wins, field by field. */
export class Pending {
  private reset: Rows | undefined;
  private set = new Map<string, Record<string, unknown>>();
  private drop = new Set<string>();
  private error: Update["error"];
  private at: number | undefined;

  add(message: TopicMessage): void {
    if (message.at !== undefined) this.at = message.at;
    if (message.error) {
      this.error = message.error;
      return;
    }
    this.error = null;
    if (message.reset) {
      this.reset = message.rows ?? {};
      this.set.clear();
      this.drop.clear();
      return;
    }
    for (const key in message.set) {
      // A row that was dropped and is set again is a new one: nothing of the old one may stay.
      if (this.drop.delete(key) && this.reset === undefined) this.set.set(key, { ...message.set[key], [RENEWED]: true });
      else this.set.set(key, { ...this.set.get(key), ...message.set[key] });
    }
    for (const key of message.drop ?? []) {
      this.set.delete(key);
      this.drop.add(key);
    }
  }

  taken(sub: number): Update {
    const update: Record<string, unknown> = { sub, at: this.at };
    if (this.error !== undefined) update.error = this.error;
    if (this.reset !== undefined) {
      const rows = new TopicRows();
      rows.apply({ id: 0, reset: true, rows: this.reset });
      rows.apply({ id: 0, set: Object.fromEntries(this.set), drop: [...this.drop] });
      update.rows = rows.snapshot();
    } else {
      if (this.set.size) update.set = Object.fromEntries(this.set);
      if (this.drop.size) update.drop = [...this.drop];
    }
    return update as unknown as Update;
  }
}

/** Marks fields that are a whole new row under the key of a dropped one. */
export const RENEWED = " renewed";
