/** What may follow at a place in a query: kinds, fields, operators, words. Pure; the server checks the whole text. */

export interface QueryField {
  readonly name: string;
  readonly type: string;
  readonly help?: string;
}
export interface QueryKind {
  readonly name: string;
  readonly words?: readonly string[];
  readonly columns?: readonly string[];
  readonly fields: readonly QueryField[];
}
export interface Suggestion {
  readonly text: string;
  readonly help: string;
}
export interface Completion {
  /** From where to the caret the chosen text goes. */
  readonly start: number;
  readonly suggestions: readonly Suggestion[];
}

const OPERATORS: Readonly<Record<string, readonly string[]>> = {
  text: ["=", "!=", "~", "!~", "in"], texts: ["=", "!=", "~", "!~", "in"], map: ["=", "!=", "~", "!~", "in"],
  number: ["=", "!=", ">", ">=", "<", "<="], numbers: ["=", "!=", ">", "<", "in"], age: [">", "<", ">=", "<="], time: [">", "<", ">=", "<="],
  version: ["=", "!=", "<", "<=", ">", ">="], bool: [],
};
const CLAUSES = ["where", "select", "count", "order by", "limit"];
const TOKEN = /'(?:[^']|'')*'?|"(?:[^"]|"")*"?|!=|!~|<=|>=|[=~<>(),!]|[A-Za-z0-9_][\w./:@*+-]*/g;
const MOST = 12;

export function complete(text: string, caret: number, kinds: readonly QueryKind[]): Completion {
  const before = text.slice(0, caret);
  const tokens = [...before.matchAll(TOKEN)].map((found) => ({ text: found[0], start: found.index, end: found.index + found[0].length }));
  const last = tokens.at(-1);
  const typing = last && last.end === caret && /^[\w.]/.test(last.text) ? last : undefined;
  const start = typing ? typing.start : caret;
  const done = (typing ? tokens.slice(0, -1) : tokens).map((token) => token.text);
  const prefix = typing?.text.toLowerCase() ?? "";
  if (last && /^['"]/.test(last.text) && last.end === caret && !closed(last.text)) return { start: caret, suggestions: [] };

  const kind = kinds.find((each) => [each.name, ...(each.words ?? [])].includes((done[0] ?? "").toLowerCase()));
  const fits = (all: readonly Suggestion[]) => {
    const starting = all.filter((each) => each.text.toLowerCase().startsWith(prefix) && each.text.toLowerCase() !== prefix);
    const inside = all.filter((each) => !each.text.toLowerCase().startsWith(prefix) && each.text.toLowerCase().includes(prefix));
    return { start, suggestions: [...starting, ...inside].slice(0, MOST) };
  };
  if (!done.length) return fits(kinds.map((each) => ({ text: each.name, help: (each.columns ?? []).slice(0, 4).join(", ") })));
  if (!kind) return { start, suggestions: [] };

  const words = (list: readonly string[]) => list.map((word) => ({ text: word, help: "" }));
  const fields = kind.fields.map((field) => ({ text: field.name, help: field.help ?? field.type }));
  const clause = done.findLast((word) => /^(where|select|count|by|limit|order)$/i.test(word))?.toLowerCase();
  const previous = done.at(-1)!.toLowerCase();
  if (!clause) return fits(words(CLAUSES));
  if (previous === "order") return fits(words(["by"]));
  if (clause === "limit") return { start, suggestions: [] };
  if (clause === "select" || clause === "by") {
    if (previous === clause || previous === ",") return fits(fields);
    return fits(words([...(done.includes("order") ? ["desc", "asc"] : []), ...CLAUSES.filter((word) => !done.includes(word.split(" ")[0]!))]));
  }
  if (clause === "count") return fits(words(["by", "order by", "limit"]));
  // where: a field, an operator, a value, then "and", "or" or the next clause
  if (["where", "and", "or", "not", "("].includes(previous)) return fits([...fields, ...(previous === "not" ? [] : [{ text: "not", help: "the opposite" }])]);
  const field = kind.fields.find((each) => each.name === previous.split(".")[0]);
  const beforePrevious = done.at(-2)?.toLowerCase() ?? "";
  const isField = field !== undefined && ["where", "and", "or", "not", "("].includes(beforePrevious);
  const next = words(["and", "or", ...CLAUSES.filter((word) => word !== "where")]);
  if (isField) return fits([...words(OPERATORS[field.type] ?? ["="]), ...next]);
  if (/^(=|!=|~|!~|<|<=|>|>=|in)$/.test(previous)) return { start, suggestions: [] };
  return fits(next);
}

function closed(text: string): boolean {
  const quote = text[0]!;
  return text.length > 1 && text.endsWith(quote) && (text.split(quote).length - 1) % 2 === 0;
}

/** `text` with a suggestion in its place, and where the caret goes. */
export function inserted(text: string, caret: number, start: number, suggestion: string): { text: string; caret: number } {
  const head = text.slice(0, start) + suggestion + " ";
  return { text: head + text.slice(caret).replace(/^\s+/, ""), caret: head.length };
}
