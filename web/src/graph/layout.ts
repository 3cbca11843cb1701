/** Where the nodes of a directed graph go: layers from left to right, with few crossings. Runs in a worker. */

import { coordSimplex, decrossTwoLayer, graphStratify, layeringLongestPath, sugiyama } from "d3-dag";

export interface LayoutAsk {
  readonly nodes: readonly string[];
  readonly edges: readonly (readonly [source: string, destination: string])[];
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly nodes: Readonly<Record<string, { readonly x: number; readonly y: number }>>;
}

const NODE: readonly [number, number] = [34, 150];
const GAP: readonly [number, number] = [24, 160];

/** Edges without those that would close a circle: they are drawn, but do not say what comes first. */
export function acyclic(nodes: readonly string[], edges: LayoutAsk["edges"]): [string, string][] {
  const next = new Map<string, string[]>(nodes.map((node) => [node, []]));
  const kept: [string, string][] = [];
  const reaches = (from: string, to: string): boolean => {
    const seen = new Set<string>([from]);
    const waiting = [from];
    while (waiting.length) {
      const at = waiting.pop()!;
      if (at === to) return true;
      for (const each of next.get(at) ?? []) if (!seen.has(each)) (seen.add(each), waiting.push(each));
    }
    return false;
  };
  for (const [source, destination] of edges) {
    if (source === destination || reaches(destination, source)) continue;
    next.get(source)!.push(destination);
    kept.push([source, destination]);
  }
  return kept;
}

export function layout(ask: LayoutAsk): Layout {
  const kept = acyclic(ask.nodes, ask.edges);
  const parents = new Map<string, string[]>(ask.nodes.map((node) => [node, []]));
  for (const [source, destination] of kept) parents.get(destination)!.push(source);
  const graph = graphStratify()(ask.nodes.map((id) => ({ id, parentIds: parents.get(id)! })));
  const arrange = sugiyama().layering(layeringLongestPath()).decross(decrossTwoLayer()).coord(coordSimplex()).nodeSize(NODE).gap(GAP);
  const { width, height } = arrange(graph);
  const places: Record<string, { x: number; y: number }> = {};
  // The library draws from top to bottom; services read better from left to right.
  for (const node of graph.nodes()) places[(node.data as { id: string }).id] = { x: node.y, y: node.x };
  return { width: height, height: width, nodes: places };
}
