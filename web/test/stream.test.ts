import { describe, expect, it } from "vitest";
import { Connection, SILENCE_MS, type Surroundings } from "../src/live/connection";
import { Hub } from "../src/live/hub";
import { EventParser } from "../src/live/sse";
import type { LinkStatus, ToPage, TopicMessage } from "../src/live/protocol";

describe("server-sent events", () => {
  it("are found in chunks cut anywhere", () => {
    const text = 'data: {"a":1}\n\n: comment\ndata: x\ndata: y\r\n\r\ndata:z\n\n';
    for (let cut = 0; cut <= text.length; cut++) {
      const parser = new EventParser();
      expect([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))]).toEqual(['{"a":1}', "x\ny", "z"]);
    }
  });
});

/** A server and a clock in the test's hands. */
class Stage implements Surroundings {
  time = 1_000_000;
  readonly opened: string[] = [];
  readonly posted: { open: { id: number }[]; close: number[] }[] = [];
  answer: (path: string) => Response | Promise<Response> = () => this.stream();
  postStatus = 204;
  private controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  private timers = new Map<number, { at: number; run: () => void }>();
  private lastTimer = 0;

  fetch = async (address: string, init?: RequestInit): Promise<Response> => {
    if (init?.method === "POST") {
      this.posted.push(JSON.parse(init.body as string));
      return new Response(null, { status: this.postStatus });
    }
    this.opened.push(decodeURIComponent(address));
    return this.answer(address);
  };
  now = () => this.time;
  random = () => 0;
  later = (run: () => void, ms: number) => {
    this.timers.set(++this.lastTimer, { at: this.time + ms, run });
    return this.lastTimer;
  };
  cancel = (timer: unknown) => void this.timers.delete(timer as number);

  stream(): Response {
    return new Response(new ReadableStream({ start: (controller) => void (this.controller = controller) }));
  }
  async send(...messages: unknown[]): Promise<void> {
    for (const message of messages) this.controller!.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(message)}\n\n`));
    await settled();
  }
  async cut(): Promise<void> {
    this.controller!.close();
    await settled();
  }
  async pass(ms: number): Promise<void> {
    const end = this.time + ms;
    for (;;) {
      const due = [...this.timers].filter(([, timer]) => timer.at <= end).sort(([, a], [, b]) => a.at - b.at)[0];
      if (!due) break;
      this.timers.delete(due[0]);
      this.time = Math.max(this.time, due[1].at);
      due[1].run();
      await settled();
    }
    this.time = end;
    await settled();
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  await new Promise((done) => setTimeout(done, 0));
}

function connected() {
  const stage = new Stage();
  const topics: TopicMessage[] = [];
  const statuses: LinkStatus[] = [];
  const connection = new Connection(stage, (message) => topics.push(message), (status) => statuses.push(status));
  return { stage, topics, statuses, connection, state: () => statuses.at(-1)?.state };
}

describe("the connection", () => {
  it("opens its topics with the stream, and later ones by a request", async () => {
    const { stage, connection, topics, state } = connected();
    connection.add({ id: 1, topic: "fleet" });
    connection.connect();
    await settled();
    expect(stage.opened[0]).toContain('"topic":"fleet"');
    await stage.send({ stream: "s1", now: stage.time + 500 }, [{ id: 1, reset: true, rows: { a: {} } }]);
    expect(state()).toBe("live");
    expect(connection.status.clockOffset).toBe(500);
    expect(topics).toHaveLength(1);
    connection.add({ id: 2, topic: "apps" });
    connection.remove(1);
    await stage.pass(10);
    expect(stage.posted).toEqual([{ open: [{ id: 2, topic: "apps" }], close: [1] }]);
  });

  it("says that it is broken when the stream ends, and opens everything again", async () => {
    const { stage, connection, state } = connected();
    connection.add({ id: 1, topic: "fleet" });
    connection.connect();
    await settled();
    await stage.send({ stream: "s1", now: stage.time });
    await stage.cut();
    expect(state()).toBe("broken");
    await stage.pass(600);
    expect(stage.opened).toHaveLength(2);
    expect(stage.opened[1]).toContain("fleet");
    await stage.send({ stream: "s2", now: stage.time });
    expect(state()).toBe("live");
  });

  it("is broken after silence, though nothing has closed it", async () => {
    const { stage, connection, state } = connected();
    connection.connect();
    await settled();
    await stage.send({ stream: "s1", now: stage.time });
    await stage.pass(SILENCE_MS - 1);
    expect(state()).toBe("live");
    await stage.send({ beat: stage.time });
    await stage.pass(SILENCE_MS - 1);
    expect(state()).toBe("live");
    await stage.pass(1);
    expect(state()).toBe("broken");
  });

  it("opens a new stream when another control plane answers for it", async () => {
    const { stage, connection, state } = connected();
    connection.connect();
    await settled();
    await stage.send({ stream: "s1", now: stage.time });
    stage.postStatus = 404;
    connection.add({ id: 4, topic: "apps" });
    await stage.pass(10);
    expect(state()).toBe("broken");
    await stage.pass(600);
    expect(stage.opened.at(-1)).toContain("apps");
  });

  it("waits longer with each failure", async () => {
    const { stage, connection } = connected();
    stage.answer = () => new Response(null, { status: 503 });
    connection.connect();
    await settled();
    await stage.pass(60_000);
    expect(stage.opened.length).toBeGreaterThan(5);
    expect(stage.opened.length).toBeLessThan(18);
  });

  it("stops when the session has ended", async () => {
    const { stage, connection, state } = connected();
    stage.answer = () => new Response(null, { status: 401 });
    connection.connect();
    await settled();
    await stage.pass(60_000);
    expect(state()).toBe("signedOut");
    expect(stage.opened).toHaveLength(1);
  });
});

describe("the hub", () => {
  async function withPages() {
    const stage = new Stage();
    const hub = new Hub(stage);
    const got: ToPage[][] = [[], []];
    const [one, two] = got.map((list) => hub.join((message) => list.push(message)));
    one!({ kind: "open", sub: 1, topic: "fleet", parameters: {} });
    await settled();
    await stage.send({ stream: "s1", now: stage.time });
    await stage.send({ id: 1, reset: true, rows: { a: { n: 1 } } });
    await stage.pass(100);
    const updates = (page: number) => got[page]!.flatMap((message) => (message.kind === "updates" ? message.updates : []));
    return { stage, one: one!, two: two!, updates };
  }
  it("asks once for what two pages show, and gives the second one what is known", async () => {
    const { stage, two, updates } = await withPages();
    two({ kind: "open", sub: 7, topic: "fleet", parameters: {} });
    await stage.pass(100);
    expect(stage.posted).toEqual([]);
    expect(updates(1)).toMatchObject([{ sub: 7, rows: { a: { n: 1 } } }]);
  });
  it("gathers changes, and gives a hidden page nothing but the state when it is shown again", async () => {
    const { stage, one, updates } = await withPages();
    await stage.send({ id: 1, set: { a: { n: 2 } } }, { id: 1, set: { a: { n: 3 } } });
    await stage.pass(100);
    expect(updates(0).slice(1)).toMatchObject([{ set: { a: { n: 3 } } }]);
    one({ kind: "pause", paused: true });
    await stage.send({ id: 1, set: { a: { n: 4 } } });
    await stage.pass(100);
    expect(updates(0)).toHaveLength(2);
    one({ kind: "pause", paused: false });
    expect(updates(0).at(-1)).toMatchObject({ rows: { a: { n: 4 } } });
  });
  it("closes a topic some seconds after the last page has left it", async () => {
    const { stage, one } = await withPages();
    one({ kind: "bye" });
    await stage.pass(3_000);
    expect(stage.posted).toEqual([]);
    await stage.pass(3_000);
    expect(stage.posted).toEqual([{ open: [], close: [1] }]);
  });
});
