/**
 * The one stream of a browser to the control plane: opens it, notices when it breaks, opens it again.
 *
 * Topics are named by the caller's ids. After every reconnect all open topics are asked for again, and the server
 * sends a reset for each. A stream without a message for SILENCE_MS is broken, even if the connection looks open.
 */

import { EventParser } from "./sse";
import type { LinkStatus, Opening, StreamMessage, TopicMessage } from "./protocol";

export const SILENCE_MS = 15_000;
const RETRY_FIRST_MS = 500;
const RETRY_MOST_MS = 10_000;
const LONGEST_ADDRESS = 6_000;

export interface Surroundings {
  fetch(address: string, init?: RequestInit): Promise<Response>;
  now(): number;
  later(run: () => void, ms: number): unknown;
  cancel(timer: unknown): void;
  random(): number;
}

export class Connection {
  private readonly open = new Map<number, Opening>();
  private toOpen = new Map<number, Opening>();
  private toClose = new Set<number>();
  private stream = "";
  private stop: AbortController | undefined;
  private silence: unknown;
  private retry: unknown;
  private flush: unknown;
  private failures = 0;
  private state: LinkStatus = { state: "connecting", heardAt: 0, clockOffset: 0, retryAt: 0, reason: "" };

  constructor(
    private readonly around: Surroundings,
    private readonly onTopic: (message: TopicMessage) => void,
    private readonly onStatus: (status: LinkStatus) => void,
  ) {}

  get status(): LinkStatus {
    return this.state;
  }

  add(opening: Opening): void {
    this.open.set(opening.id, opening);
    if (!this.stream) return; // the next connection opens it
    this.toOpen.set(opening.id, opening);
    this.flushSoon();
  }

  remove(id: number): void {
    this.open.delete(id);
    if (this.toOpen.delete(id) || !this.stream) return;
    this.toClose.add(id);
    this.flushSoon();
  }

  connect(): void {
    this.around.cancel(this.retry);
    this.drop();
    void this.run();
  }

  close(): void {
    this.around.cancel(this.retry);
    this.drop();
  }

  private drop(): void {
    this.stop?.abort();
    this.stop = undefined;
    this.stream = "";
    this.toOpen.clear();
    this.toClose.clear();
    this.around.cancel(this.silence);
    this.around.cancel(this.flush);
    this.flush = undefined;
  }

  private async run(): Promise<void> {
    const stop = new AbortController();
    this.stop = stop;
    this.listen();
    try {
      const all = JSON.stringify([...this.open.values()]);
      const asked = all.length < LONGEST_ADDRESS ? new Set(this.open.keys()) : new Set<number>();
      const query = asked.size ? `?open=${encodeURIComponent(all)}` : "";
      const answer = await this.around.fetch(`/ui/stream${query}`, {
        signal: stop.signal,
        headers: { Accept: "text/event-stream" },
        cache: "no-store",
      });
      if (answer.status === 401) {
        this.drop();
        this.say({ state: "signedOut", reason: "" });
        return;
      }
      if (!answer.ok || !answer.body) throw new Error(`the control plane answered ${answer.status}`);
      await this.read(answer.body, asked, stop);
      throw new Error("the control plane closed the stream");
    } catch (error) {
      if (this.stop !== stop) return; // a newer connection took over
      this.lost(error instanceof Error ? error.message : String(error));
    }
  }

  private async read(body: ReadableStream<Uint8Array>, asked: Set<number>, stop: AbortController): Promise<void> {
    const reader = body.getReader();
    const text = new TextDecoder();
    const parser = new EventParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.stop !== stop) return;
      for (const data of parser.push(text.decode(value, { stream: true }))) {
        const said = JSON.parse(data) as StreamMessage | StreamMessage[];
        for (const message of Array.isArray(said) ? said : [said]) this.heard(message, asked);
      }
    }
  }

  private heard(message: StreamMessage, asked: Set<number>): void {
    this.listen();
    this.state = { ...this.state, heardAt: this.around.now() };
    if ("stream" in message) {
      this.stream = message.stream;
      this.failures = 0;
      for (const [id, opening] of this.open) if (!asked.has(id)) this.toOpen.set(id, opening);
      for (const id of asked) if (!this.open.has(id)) this.toClose.add(id);
      this.flushSoon();
      this.say({ state: "live", clockOffset: message.now - this.around.now(), retryAt: 0, reason: "" });
    } else if ("beat" in message) {
      this.say({ state: "live", clockOffset: message.beat - this.around.now() });
    } else if ("end" in message) {
      if (message.end.code === "Unauthorized") {
        this.drop();
        this.say({ state: "signedOut", reason: message.end.message });
      } else throw new Error(message.end.message);
    } else {
      this.onTopic(message);
    }
  }

  /** Starts the wait for the next message again. */
  private listen(): void {
    this.around.cancel(this.silence);
    this.silence = this.around.later(() => {
      this.stop?.abort();
      this.lost("nothing was heard of the control plane for 15 seconds");
    }, SILENCE_MS);
  }

  private lost(reason: string): void {
    this.drop();
    const most = Math.min(RETRY_MOST_MS, RETRY_FIRST_MS * 2 ** this.failures++);
    const wait = most * (0.5 + this.around.random() / 2);
    this.say({ state: this.state.heardAt ? "broken" : "connecting", retryAt: this.around.now() + wait, reason });
    if (!this.state.heardAt && this.failures > 2) this.say({ state: "broken" });
    this.retry = this.around.later(() => void this.run(), wait);
  }

  private flushSoon(): void {
    if (this.flush !== undefined || (!this.toOpen.size && !this.toClose.size)) return;
    this.flush = this.around.later(() => {
      this.flush = undefined;
      void this.send();
    }, 5);
  }

  private async send(): Promise<void> {
    const stop = this.stop;
    if (!this.stream || !stop) return;
    const body = JSON.stringify({ open: [...this.toOpen.values()], close: [...this.toClose] });
    this.toOpen = new Map();
    this.toClose = new Set();
    try {
      const answer = await this.around.fetch(`/ui/stream/${this.stream}`, {
        method: "POST",
        body,
        signal: stop.signal,
        headers: { "Content-Type": "application/json", "X-Shoal-Page": "1" },
      });
      // 404: another control plane answered than the one that holds the stream. What was asked for is in `open`.
      if (!answer.ok && this.stop === stop) this.lost(`the control plane answered ${answer.status}`);
    } catch {
      if (this.stop === stop) this.lost("the control plane does not answer");
    }
  }

  private say(change: Partial<LinkStatus>): void {
    const next = { ...this.state, ...change };
    this.state = next;
    this.onStatus(next);
  }
}
