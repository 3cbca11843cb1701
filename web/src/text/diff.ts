/** Line differences of two texts, by their longest common subsequence. */

export interface DiffLine {
  readonly kind: "same" | "added" | "removed";
  readonly text: string;
}

const MOST = 4_000_000; // cells of the table: beyond it, everything is shown as replaced

export function diffLines(before: string, after: string): DiffLine[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let endA = a.length;
  let endB = b.length;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) {
    endA--;
    endB--;
  }
  const lines: DiffLine[] = a.slice(0, start).map((text) => ({ kind: "same", text }));
  lines.push(...middle(a.slice(start, endA), b.slice(start, endB)));
  lines.push(...a.slice(endA).map((text): DiffLine => ({ kind: "same", text })));
  return lines;
}

function middle(a: readonly string[], b: readonly string[]): DiffLine[] {
  const removed = (text: string): DiffLine => ({ kind: "removed", text });
  const added = (text: string): DiffLine => ({ kind: "added", text });
  if (a.length * b.length > MOST) return [...a.map(removed), ...b.map(added)];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] =
        a[i] === b[j] ? longest[(i + 1) * width + j + 1]! + 1 : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!);
    }
  }
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i]! });
      i++;
      j++;
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!)) lines.push(removed(a[i++]!));
    else lines.push(added(b[j++]!));
  }
  return lines;
}

/** The changed lines with `around` unchanged ones beside them; gaps are lines of kind "same" with the text "…". */
export function folded(lines: readonly DiffLine[], around = 3): DiffLine[] {
  const keep = new Set<number>();
  lines.forEach((line, at) => {
    if (line.kind !== "same") for (let near = at - around; near <= at + around; near++) keep.add(near);
  });
  const shown: DiffLine[] = [];
  let gap = false;
  lines.forEach((line, at) => {
    if (keep.has(at)) {
      shown.push(line);
      gap = false;
    } else if (!gap) {
      shown.push({ kind: "same", text: "…" });
      gap = true;
    }
  });
  return shown;
}
