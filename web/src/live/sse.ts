/** Server-sent events as they arrive in chunks of text: only `data:` lines matter here. */

export class EventParser {
  private rest = "";
  private data: string[] = [];

  /** The data of each event that `chunk` completes. */
  push(chunk: string): string[] {
    const events: string[] = [];
    const lines = (this.rest + chunk).split("\n");
    this.rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.data.length) events.push(this.data.join("\n"));
        this.data = [];
      } else if (line.startsWith("data:")) {
        this.data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
    return events;
  }
}
