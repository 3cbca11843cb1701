import { describe, expect, it } from "vitest";
import { href, links, matched, placeOf } from "../src/app/paths";
import { acyclic, layout } from "../src/graph/layout";
import { complete, inserted, type QueryKind } from "../src/views/query/complete";
import { csv, csvCell } from "../src/views/query/export";
import { gone } from "../src/views/fleet/rollouts";
import { numbersText, stepState, stepText } from "../src/views/rollout/words";
import { arcs, joined } from "../src/views/shards/ring";
import { trouble } from "../src/views/traffic/trouble";

describe("addresses", () => {
  const patterns = [["/", "fleet"], ["/app/:project/:environment/:app", "app"], ["/rollout/:project/:number?", "rollout"]] as const;
  it("name a view and its object, in any characters", () => {
    const made = href(["app", "a b", "c/d", "ü%"]);
    expect(made).toBe("/ui/app/a%20b/c%2Fd/%C3%BC%25");
    expect(matched(patterns, placeOf({ pathname: made, search: "" }).path)).toEqual({ view: "app", parameters: { project: "a b", environment: "c/d", app: "ü%" } });
  });
  it("may leave out what is optional, and nothing else", () => {
    expect(matched(patterns, "/rollout/p")?.parameters).toEqual({ project: "p" });
    expect(matched(patterns, "/rollout/p/3")?.parameters).toEqual({ project: "p", number: "3" });
    expect(matched(patterns, "/rollout")).toBeUndefined();
    expect(matched(patterns, "/app/p/e/a/more")).toBeUndefined();
    expect(matched(patterns, "/app/p/e/%")?.parameters.app).toBe("%");
  });
  it("below /ui are places", () => expect(placeOf({ pathname: "/ui/", search: "?a=1" })).toEqual({ path: "/", query: { a: "1" } }));
  it("carry a query", () => expect(links.why("Pod", "x", { cluster: "c", namespace: undefined })).toBe("/ui/why/Pod/x?cluster=c"));
});

const KINDS: QueryKind[] = [
  { name: "pods", words: ["pod"], columns: ["cluster", "name"], fields: [{ name: "image", type: "texts" }, { name: "ready", type: "bool" }, { name: "restarts", type: "number" }, { name: "region", type: "text" }] },
  { name: "nodes", words: [], columns: [], fields: [{ name: "ready", type: "bool" }] },
];
const offered = (text: string) => complete(text, text.length, KINDS).suggestions.map((each) => each.text);

describe("completion of queries", () => {
  it("begins with kinds", () => expect([offered(""), offered("po")]).toEqual([["pods", "nodes"], ["pods"]]));
  it("goes on with clauses, fields and operators", () => {
    expect(offered("pods ")).toContain("where");
    expect(offered("pods where ")).toEqual(["image", "ready", "restarts", "region", "not"]);
    expect(offered("pods where re")).toEqual(["ready", "restarts", "region"]);
    expect(offered("pods where restarts ")).toContain(">=");
    expect(offered("pods where ready ")).toEqual(["and", "or", "select", "count", "order by", "limit"]);
    expect(offered("pods where restarts > 3 ")).toContain("and");
    expect(offered("pods count by re")).toContain("region");
    expect(offered("pods order ")).toEqual(["by"]);
  });
  it("knows a kind by its other words", () => expect(offered("pod where ")).toContain("image"));
  it("offers nothing inside quotes, for values, and for kinds that do not exist", () => {
    expect([offered("pods where image = 'na"), offered("pods where image = "), offered("nope where ")]).toEqual([[], [], []]);
  });
  it("puts the word where the caret is", () => expect(inserted("pods where re and x", 13, 11, "region")).toEqual({ text: "pods where region and x", caret: 18 }));
});

describe("exports", () => {
  it("never hold a formula", () => expect(["=1+1", "+x", "-x", "@x", 'a"b,c', -5].map(csvCell)).toEqual(["'=1+1", "'+x", "'-x", "'@x", '"a""b,c"', "-5"]));
  it("have a line per row", () => expect(csv({ columns: [{ name: "a", type: "text" }, { name: "at", type: "age" }], rows: [{ a: "x", at: 0 }, {}] })).toBe("a,at\r\nx,1970-01-01T00:00:00.000Z\r\n,\r\n"));
});

describe("the ring", () => {
  it("joins neighbouring ranges of one owner", () => expect(joined([[512, 1023, "b"], [0, 99, "a"], [100, 511, "a"]])).toEqual([[0, 511, "a"], [512, 1023, "b"]]));
  it("draws a whole ring for one owner", () => expect(arcs([[0, 1023, "a"]])[0]!.path).toMatch(/^M.*Z$/));
});

describe("routes", () => {
  it("that are refused come before failing, failing before slow", () => {
    const [refused, failing, slow, fine] = [{ state: "Refused" }, { state: "Applied", errorShare: 0.05, p99Ms: 10 }, { state: "Applied", errorShare: 0, p99Ms: 900 }, { state: "Applied", p99Ms: 5 }].map(trouble);
    expect(refused! > failing! && failing! > slow! && slow! > fine!).toBe(true);
  });
});

describe("steps", () => {
  it("are said in few words", () => expect([
    stepText({ key: "", index: 0, kind: "weight", weight: 5, state: "done" }), stepText({ key: "", index: 1, kind: "analysis", seconds: 120, state: "now" }),
    stepText({ key: "", index: 2, kind: "pause", approval: true, state: "next" }), stepText({ key: "", index: 3, kind: "header", name: "x-beta", value: "v2", state: "next" }),
  ]).toEqual(["5 %", "analysis 2 min", "approval", "header x-beta=v2"]));
});

describe("the service graph", () => {
  it("is laid out from left to right, circles included", () => {
    const made = layout({ nodes: ["a", "b", "c", "alone"], edges: [["a", "b"], ["b", "c"], ["c", "a"], ["a", "a"]] });
    expect(made.nodes.a!.x).toBeLessThan(made.nodes.b!.x);
    expect(made.nodes.b!.x).toBeLessThan(made.nodes.c!.x);
    expect(Object.keys(made.nodes)).toHaveLength(4);
  });
  it("leaves out only what closes a circle", () => expect(acyclic(["a", "b", "c"], [["a", "b"], ["b", "a"], ["a", "c"]])).toEqual([["a", "b"], ["a", "c"]]));
});

describe("rollouts that went back", () => {
  const of = (number: number, outcome: string, endedAt: number) => ({ key: "", project: "p", environment: "e", app: "a", number, strategy: "canary", revision: number + 1, phase: "ended", outcome, endedAt, reason: "4.9 % failed", step: 1 });
  it("are wrong until a newer one, or for an hour", () => {
    expect(gone([of(1, "rolledBack", 1000)], 2000).map((each) => each.name)).toEqual(["p/e/a/1"]);
    expect(gone([of(1, "rolledBack", 1000), of(2, "promoted", 1500)], 2000)).toEqual([]);
    expect(gone([of(1, "rolledBack", 1000)], 3_700_000)).toEqual([]);
  });
  it("show the step at which they did", () => {
    const states = [0, 1, 2].map((index) => stepState({ key: "", index, kind: "weight", state: "done" }, of(1, "rolledBack", 5)));
    expect(states).toEqual(["done", "failed", "never"]);
    expect(stepState({ key: "", index: 2, kind: "weight", state: "done" }, of(1, "promoted", 5))).toBe("done");
  });
  it("have their numbers in words", () => expect(numbersText({ requests: 187, eu: { candidate: { requests: 57, failed: 3 } } })).toBe("requests 187 · eu candidate requests 57, failed 3"));
});
