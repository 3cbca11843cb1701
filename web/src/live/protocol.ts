/** What the control plane's stream says, and what the worker and the pages of one browser say to each other. */

export type Row = Readonly<Record<string, unknown>>;
export type Rows = Readonly<Record<string, Row>>;
export type Fields = Readonly<Record<string, unknown>>;

export interface TopicError {
  readonly code: string;
  readonly message: string;
  readonly fix?: string;
}

/** A message about one topic. `reset` replaces every row; `set` changes fields (null removes one); `drop` removes rows. */
export interface TopicMessage {
  readonly id: number;
  readonly reset?: boolean;
  readonly rows?: Rows;
  readonly set?: Readonly<Record<string, Fields>>;
  readonly drop?: readonly string[];
  readonly at?: number;
  readonly error?: TopicError;
}

export type StreamMessage =
  | TopicMessage
  | { readonly stream: string; readonly now: number }
  | { readonly beat: number }
  | { readonly end: { readonly code: string; readonly message: string } };

export interface Opening {
  readonly id: number;
  readonly topic: string;
  readonly [parameter: string]: unknown;
}

export type Parameters = Readonly<Record<string, string | number | boolean | undefined>>;

/** `live`: beats arrive. `connecting`: the first attempt. `broken`: it was lost and is being tried again. */
export type LinkState = "connecting" | "live" | "broken" | "signedOut";

export interface LinkStatus {
  readonly state: LinkState;
  /** When the last message came (this browser's clock), 0 for never. */
  readonly heardAt: number;
  /** Server's clock minus this browser's. */
  readonly clockOffset: number;
  /** When the next attempt is made, while broken. */
  readonly retryAt: number;
  readonly reason: string;
}

export type FromPage =
  | { readonly kind: "open"; readonly sub: number; readonly topic: string; readonly parameters: Parameters }
  | { readonly kind: "close"; readonly sub: number }
  | { readonly kind: "pause"; readonly paused: boolean }
  | { readonly kind: "start" }
  | { readonly kind: "connect" }
  | { readonly kind: "bye" };

export interface Update {
  readonly sub: number;
  readonly rows?: Rows;
  readonly set?: Readonly<Record<string, Fields>>;
  readonly drop?: readonly string[];
  readonly at?: number;
  readonly error?: TopicError | null;
}

export type ToPage =
  | { readonly kind: "status"; readonly status: LinkStatus }
  | { readonly kind: "updates"; readonly updates: readonly Update[] };
