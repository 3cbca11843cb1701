import { describe, expect, it } from "vitest";
import { plain } from "../src/text/ansi";
import { appCommand, command, quoted } from "../src/text/commands";
import { diffLines, folded } from "../src/text/diff";
import { count, memory, millis, rate, share } from "../src/text/numbers";
import { tone, urgency } from "../src/text/states";
import { ago, length } from "../src/text/times";

describe("numbers", () => {
  it("that are not known are a dash, never zero", () => {
    expect([count(undefined), rate(undefined), share(undefined), millis(undefined), memory(undefined)]).toEqual(["–", "–", "–", "–", "–"]);
  });
  it.each([[0, "0 %"], [0.00005, "<0.01 %"], [0.004, "0.40 %"], [0.049, "4.9 %"], [1, "100 %"]])("share %d", (value, text) => expect(share(value)).toBe(text));
  it.each([[0, "0/s"], [0.04, "<0.1/s"], [2.34, "2.3/s"], [420, "420/s"], [12_345, "12.3k/s"]])("rate %d", (value, text) => expect(rate(value)).toBe(text));
  it.each([[0.4, "0.4 ms"], [2, "2 ms"], [41.4, "41 ms"], [1500, "1.5 s"]])("millis %d", (value, text) => expect(millis(value)).toBe(text));
});

describe("times", () => {
  it.each([[59_999, "59 s"], [60_000, "1 min"], [5_400_000, "1 h 30 min"], [86_400_000 * 3, "3 d"], [-5, "0 s"]])("length %d", (ms, text) => expect(length(ms)).toBe(text));
  it("calls what clocks may differ by now", () => expect([ago(1000, 3500), ago(1000, 4500), ago(9000, 1000)]).toEqual(["now", "3 s ago", "now"]));
});

describe("states", () => {
  it("have a tone whatever their case", () => expect([tone("Ready"), tone("AgentLost"), tone("Lost"), tone("rolledBack"), tone(undefined)]).toEqual(["ok", "muted", "bad", "bad", "muted"]));
  it("put what is wrong first", () => expect(["Ready", "Lost", "Degraded"].sort((a, b) => urgency(a) - urgency(b))).toEqual(["Lost", "Degraded", "Ready"]));
});

describe("commands", () => {
  it("quote what a shell would read", () => expect([quoted("a-b/c:1"), quoted("two words"), quoted("it's"), quoted("$(rm)")]).toEqual(["a-b/c:1", "'two words'", `'it'\\''s'`, "'$(rm)'"]));
  it("leave out what is not given, and keep zero", () => expect(command(["shoal", undefined, false, "", "--replicas", 0])).toBe("shoal --replicas 0"));
  it("name the app", () => expect(appCommand({ project: "p", environment: "e", app: "a" }, ["scale"], ["--replicas", 2])).toBe("shoal scale a -p p -e e --replicas 2"));
});

describe("log lines", () => {
  it("lose colours, titles, links and other controls", () => {
    expect(plain("\u001b[1;32mok\u001b[0m \u001b]0;title\u0007x \u001b]8;;http://evil\u001b\\link\u001b]8;;\u001b\\ \u0008\u202e!")).toBe("ok x link !");
  });
  it("keep markup as the text it is", () => expect(plain("<script>alert(1)</script>\tx")).toBe("<script>alert(1)</script>\tx"));
});

describe("differences", () => {
  const kinds = (a: string, b: string) => diffLines(a, b).map((line) => `${line.kind[0]}${line.text}`);
  it("are the fewest lines", () => expect(kinds("a\nb\nc\nd", "a\nx\nc\ne\nd")).toEqual(["sa", "rb", "ax", "sc", "ae", "sd"]));
  it("rebuild both texts, whatever they are", () => {
    let seed = 5;
    const random = (n: number) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n;
    for (let round = 0; round < 200; round++) {
      const text = () => Array.from({ length: random(9) }, () => "abc"[random(3)]).join("\n");
      const [a, b] = [text(), text()];
      const lines = diffLines(a, b);
      expect(lines.filter((line) => line.kind !== "added").map((line) => line.text).join("\n")).toBe(a);
      expect(lines.filter((line) => line.kind !== "removed").map((line) => line.text).join("\n")).toBe(b);
    }
  });
  it("fold what is the same", () => expect(folded(diffLines("1\n2\n3\n4\n5\n6", "1\n2\n3\n4\n5\nx"), 1).map((line) => line.text)).toEqual(["…", "5", "6", "x"]));
});
