/** The ring of slots as arcs to draw. */

export type Owners = readonly (readonly [from: number, to: number, owner: string])[];

export const SLOTS = 1024;
const OUTER = 96;
const INNER = 68;

export interface Arc {
  readonly from: number;
  readonly to: number;
  readonly owner: string;
  readonly path: string;
}

/** Neighbouring ranges of one owner are one arc. `to` belongs to its range. */
export function joined(owners: Owners): [number, number, string][] {
  const sorted = [...owners].sort((a, b) => a[0] - b[0]);
  const ranges: [number, number, string][] = [];
  for (const [from, to, owner] of sorted) {
    const last = ranges.at(-1);
    if (last && last[2] === owner && last[1] + 1 === from) last[1] = to;
    else ranges.push([from, to, owner]);
  }
  return ranges;
}

export function arcs(owners: Owners): Arc[] {
  return joined(owners).map(([from, to, owner]) => ({ from, to, owner, path: arcPath(from / SLOTS, Math.min(1, (to + 1) / SLOTS)) }));
}

function arcPath(begin: number, end: number): string {
  const whole = end - begin >= 0.9999;
  const stop = whole ? begin + 0.9999 : end;
  const at = (part: number, radius: number) => {
    const angle = part * 2 * Math.PI - Math.PI / 2;
    return `${(radius * Math.cos(angle)).toFixed(2)} ${(radius * Math.sin(angle)).toFixed(2)}`;
  };
  const large = stop - begin > 0.5 ? 1 : 0;
  return `M${at(begin, OUTER)}A${OUTER} ${OUTER} 0 ${large} 1 ${at(stop, OUTER)}L${at(stop, INNER)}A${INNER} ${INNER} 0 ${large} 0 ${at(begin, INNER)}Z`;
}
