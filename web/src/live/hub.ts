/**
 * What the shared worker does: one connection for all pages of the browser, one topic for equal requests of them.
 *
 * Changes are gathered for FLUSH_MS per page, so that twenty changes a second are a few messages. A page that is
 * hidden gets nothing, and the whole state of its topics when it is shown again.
 */

import { Connection, type Surroundings } from "./connection";
import { Pending, TopicRows } from "./patch";
import type { FromPage, LinkStatus, Parameters, ToPage, TopicError, TopicMessage } from "./protocol";

const FLUSH_MS = 60;
const LINGER_MS = 4_000; // a topic stays open so long without a page: going back to a view shows it at once

interface Topic {
  readonly id: number;
  readonly name: string;
  readonly rows: TopicRows;
  error: TopicError | undefined;
  readonly listeners: Set<Listener>;
  linger: unknown;
}

interface Listener {
  readonly page: Page;
  readonly sub: number;
  pending: Pending | undefined;
}

interface Page {
  readonly send: (message: ToPage) => void;
  readonly subs: Map<number, { topic: Topic; listener: Listener }>;
  paused: boolean;
  flush: unknown;
}

export class Hub {
  private readonly pages = new Set<Page>();
  private readonly byName = new Map<string, Topic>();
  private readonly byId = new Map<number, Topic>();
  private readonly connection: Connection;
  private started = false;
  private lastId = 0;

  constructor(private readonly around: Surroundings) {
    this.connection = new Connection(around, (message) => this.took(message), (status) => this.tell(status));
  }

  /** A page that `send` reaches; returns what to do with its messages. */
  join(send: (message: ToPage) => void): (message: FromPage) => void {
    const page: Page = { send, subs: new Map(), paused: false, flush: undefined };
    this.pages.add(page);
    send({ kind: "status", status: this.connection.status });
    return (message) => this.hear(page, message);
  }

  private hear(page: Page, message: FromPage): void {
    switch (message.kind) {
      case "start":
        this.start();
        break;
      case "connect":
        this.started = true;
        this.connection.connect();
        break;
      case "open":
        this.subscribe(page, message.sub, message.topic, message.parameters);
        break;
      case "close":
        this.unsubscribe(page, message.sub);
        break;
      case "pause":
        page.paused = message.paused;
        if (!message.paused) for (const { topic, listener } of page.subs.values()) this.whole(topic, listener);
        break;
      case "bye":
        for (const sub of [...page.subs.keys()]) this.unsubscribe(page, sub);
        this.pages.delete(page);
        break;
    }
  }

  /** Opens the stream unless it is open, or being opened. */
  private start(): void {
    if (this.started && this.connection.status.state !== "signedOut") return;
    this.started = true;
    this.connection.connect();
  }

  private subscribe(page: Page, sub: number, topic: string, parameters: Parameters): void {
    const asked = Object.fromEntries(Object.entries(parameters).filter(([, value]) => value !== undefined).sort());
    const name = JSON.stringify([topic, asked]);
    let found = this.byName.get(name);
    if (!found) {
      found = { id: ++this.lastId, name, rows: new TopicRows(), error: undefined, listeners: new Set(), linger: undefined };
      this.byName.set(name, found);
      this.byId.set(found.id, found);
      this.connection.add({ ...asked, id: found.id, topic });
    }
    this.around.cancel(found.linger);
    const listener: Listener = { page, sub, pending: undefined };
    found.listeners.add(listener);
    page.subs.set(sub, { topic: found, listener });
    this.whole(found, listener);
    this.start(); // after it was added: a new stream opens it without another request
  }

  private unsubscribe(page: Page, sub: number): void {
    const held = page.subs.get(sub);
    if (!held) return;
    page.subs.delete(sub);
    const { topic, listener } = held;
    topic.listeners.delete(listener);
    if (topic.listeners.size) return;
    topic.linger = this.around.later(() => {
      this.byName.delete(topic.name);
      this.byId.delete(topic.id);
      this.connection.remove(topic.id);
    }, LINGER_MS);
  }

  private took(message: TopicMessage): void {
    const topic = this.byId.get(message.id);
    if (!topic) return; // closed meanwhile
    topic.error = message.error;
    if (!message.error) topic.rows.apply(message);
    for (const listener of topic.listeners) {
      if (listener.page.paused) continue;
      (listener.pending ??= new Pending()).add(message);
      this.flushSoon(listener.page);
    }
  }

  /** Sends everything that is known of a topic. */
  private whole(topic: Topic, listener: Listener): void {
    if (!topic.rows.known && !topic.error) return;
    const pending = new Pending();
    if (topic.rows.known) pending.add({ id: topic.id, reset: true, rows: topic.rows.snapshot(), at: topic.rows.at });
    if (topic.error) pending.add({ id: topic.id, error: topic.error });
    listener.pending = pending;
    this.flush(listener.page);
  }

  private flushSoon(page: Page): void {
    page.flush ??= this.around.later(() => this.flush(page), FLUSH_MS);
  }

  private flush(page: Page): void {
    this.around.cancel(page.flush);
    page.flush = undefined;
    const updates = [];
    for (const { listener } of page.subs.values()) {
      if (!listener.pending) continue;
      updates.push(listener.pending.taken(listener.sub));
      listener.pending = undefined;
    }
    if (updates.length) page.send({ kind: "updates", updates });
  }

  private tell(status: LinkStatus): void {
    for (const page of this.pages) page.send({ kind: "status", status });
  }
}
