import { describe, expect, it } from "vitest";
import { merged, Pending, TopicRows } from "../src/live/patch";

describe("a row", () => {
  it("takes changed fields and loses those that are null", () => {
    expect(merged({ a: 1, b: 2 }, { a: 3, b: null, c: 4 })).toEqual({ a: 3, c: 4 });
  });
  it("that was not there is a new row", () => {
    expect(merged(undefined, { a: 1, b: null })).toEqual({ a: 1 });
  });
});

describe("rows of a topic", () => {
  it("are what the last reset and the changes since say", () => {
    const rows = new TopicRows();
    rows.apply({ id: 1, reset: true, rows: { x: { a: 1 }, y: { a: 2 } }, at: 5 });
    rows.apply({ id: 1, set: { x: { b: 7 }, z: { a: 3 } }, drop: ["y"], at: 6 });
    expect(rows.snapshot()).toEqual({ x: { a: 1, b: 7 }, z: { a: 3 } });
    expect(rows.at).toBe(6);
    rows.apply({ id: 1, reset: true, rows: {} });
    expect(rows.snapshot()).toEqual({});
    expect(rows.known).toBe(true);
  });
});

/** What a page ends up with, if it gets the coalesced update instead of each message. */
function throughPending(before: Record<string, Record<string, unknown>>, messages: Parameters<Pending["add"]>[0][]) {
  const direct = new TopicRows();
  direct.apply({ id: 1, reset: true, rows: before });
  const pending = new Pending();
  for (const message of messages) {
    direct.apply(message);
    pending.add(message);
  }
  const page = new TopicRows();
  page.apply({ id: 1, reset: true, rows: before });
  const update = pending.taken(9);
  if (update.rows) page.apply({ id: 1, reset: true, rows: update.rows });
  for (const [key, fields] of Object.entries(update.set ?? {})) {
    const { [" renewed"]: renewed, ...rest } = fields as Record<string, unknown>;
    if (renewed) page.rows.delete(key);
    page.apply({ id: 1, set: { [key]: rest } });
  }
  page.apply({ id: 1, drop: update.drop });
  return { page: page.snapshot(), direct: direct.snapshot() };
}

describe("changes that wait for a page", () => {
  it("amount to the same as each of them in turn, whatever they are", () => {
    let seed = 3;
    const random = (n: number) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n;
    for (let round = 0; round < 500; round++) {
      const messages = Array.from({ length: 1 + random(6) }, () => {
        const key = "xyz"[random(3)]!;
        const kind = random(5);
        if (kind === 0) return { id: 1, drop: [key] };
        if (kind === 1 && random(3) === 0) return { id: 1, reset: true, rows: { [key]: { a: random(9) } } };
        return { id: 1, set: { [key]: { ["ab"[random(2)]!]: random(4) === 0 ? null : random(9) } } };
      });
      const { page, direct } = throughPending({ x: { a: 1, b: 2 }, y: { a: 5 } }, messages);
      expect(page, JSON.stringify(messages)).toEqual(direct);
    }
  });
  it("say that an error has gone", () => {
    const pending = new Pending();
    pending.add({ id: 1, error: { code: "X", message: "no" } });
    pending.add({ id: 1, set: { x: { a: 1 } } });
    expect(pending.taken(1).error).toBeNull();
  });
});
