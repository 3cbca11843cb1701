/** Lines over time. uPlot is loaded with the first chart; small lines in tables are drawn here. */

import { createEffect, createMemo, on, onCleanup, onMount } from "solid-js";
import type uPlot from "uplot";
import { colour, painted } from "../app/theme";
import { clock } from "../text/times";

export interface Line {
  readonly label: string;
  readonly colour: string; // name of a variable of the design system
  readonly dashed?: boolean;
}

export interface Limit {
  readonly value: number;
  readonly text: string;
}

/** `data[0]` are moments in ms; each other array belongs to one line; null is a gap. */
export function Chart(props: {
  readonly label: string;
  readonly lines: readonly Line[];
  readonly data: readonly (readonly (number | null)[])[];
  readonly format: (value: number) => string;
  readonly limits?: readonly Limit[];
  readonly height?: number;
}) {
  let place!: HTMLDivElement;
  let plot: uPlot | undefined;
  let gone = false;
  const values = () => props.data.map((column, at) => (at ? column : column.map((ms) => (ms ?? 0) / 1000))) as unknown as uPlot.AlignedData;
  // The same set of lines keeps its chart; only the numbers change.
  const shape = createMemo(() => JSON.stringify([props.lines, props.limits]));

  onMount(() => {
    void Promise.all([import("uplot"), import("uplot/dist/uPlot.min.css")]).then(([{ default: UPlot }]) => {
      if (gone) return;
      const build = () => {
        plot?.destroy();
        plot = new UPlot(options(), values(), place);
      };
      const observer = new ResizeObserver(() => plot?.setSize({ width: place.clientWidth, height: props.height ?? 160 }));
      observer.observe(place);
      stopObserving = () => observer.disconnect();
      build();
      rebuild = build;
      update = () => plot?.setData(values());
    });
  });
  let rebuild: (() => void) | undefined;
  let update: (() => void) | undefined;
  let stopObserving: (() => void) | undefined;
  createEffect(on([shape, painted], () => rebuild?.(), { defer: true }));
  createEffect(on(() => props.data, () => update?.(), { defer: true }));
  onCleanup(() => {
    gone = true;
    plot?.destroy();
    stopObserving?.();
  });

  function options(): uPlot.Options {
    const soft = colour("--soft");
    const line = colour("--line");
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { show: false }, font };
    return {
      width: place.clientWidth,
      height: props.height ?? 160,
      cursor: { drag: { x: false, y: false }, points: { size: 6 } },
      legend: { live: true },
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(high || 0, 0.000001, ...(props.limits ?? []).map((limit) => limit.value)) * 1.12] } },
      axes: [{ ...axis, space: 70, size: 26, values: (_plot, ticks) => ticks.map((tick) => clock(tick * 1000).slice(0, 5)) }, { ...axis, size: 62, values: (_plot, ticks) => ticks.map((tick) => props.format(tick)) }],
      series: [
        { value: (_plot, value) => (value ? new Date(value * 1000).toLocaleTimeString() : "–") },
        ...props.lines.map((each) => ({
          label: each.label,
          stroke: colour(each.colour),
          width: 1.6,
          ...(each.dashed ? { dash: [5, 4] } : {}),
          points: { show: false },
          value: (_plot: uPlot, value: number | null) => (value === null || value === undefined ? "–" : props.format(value)),
        })),
      ],
      hooks: { draw: [drawLimits] },
    };
  }

  function drawLimits(drawn: uPlot): void {
    const { ctx } = drawn;
    const { left, width, top } = drawn.bbox;
    for (const limit of props.limits ?? []) {
      const y = drawn.valToPos(limit.value, "y", true);
      if (y < top) continue;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour("--bad");
      ctx.lineWidth = devicePixelRatio * 1.4;
      ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.font = `${11 * devicePixelRatio}px ${getComputedStyle(document.body).fontFamily}`;
      ctx.textAlign = "right";
      const text = ctx.measureText(limit.text).width < width * 0.9 ? limit.text : `limit ${props.format(limit.value)}`;
      ctx.fillText(text, left + width - 4, y - 5 * devicePixelRatio);
      ctx.restore();
    }
  }

  const summary = () =>
    `${props.label}. ${props.lines
      .map((line, at) => {
        const last = props.data[at + 1]?.findLast((value) => value !== null && value !== undefined);
        return `${line.label}: ${last === undefined || last === null ? "not known" : props.format(last)}`;
      })
      .join("; ")}${(props.limits ?? []).map((limit) => `; ${limit.text}`).join("")}`;
  return (
    <figure>
      <div class="chart" ref={place} role="img" aria-label={summary()} />
    </figure>
  );
}

/** A line of a few numbers, without axes. */
export function Spark(props: { values: readonly (number | undefined)[]; label: string }) {
  const path = () => {
    const values = props.values;
    const most = Math.max(...values.map((value) => value ?? 0), 1e-9);
    let drawn = "";
    let gap = true;
    values.forEach((value, at) => {
      if (value === undefined) {
        gap = true;
        return;
      }
      drawn += `${gap ? "M" : "L"}${((at / Math.max(1, values.length - 1)) * 94 + 1).toFixed(1)} ${(20 - (value / most) * 17).toFixed(1)}`;
      gap = false;
    });
    return drawn;
  };
  return (
    <svg class="spark" viewBox="0 0 96 22" role="img" aria-label={props.label}>
      <path d={path()} fill="none" stroke="currentColor" stroke-width="1.4" vector-effect="non-scaling-stroke" />
    </svg>
  );
}

/** Samples as columns over the moments that any of them has. */
export function aligned(series: readonly (readonly { at: number; value: number | undefined }[])[]): (number | null)[][] {
  const moments = [...new Set(series.flatMap((each) => each.map((sample) => sample.at)))].sort((a, b) => a - b);
  const at = new Map(moments.map((moment, index) => [moment, index]));
  return [
    moments,
    ...series.map((each) => {
      const column: (number | null)[] = new Array(moments.length).fill(null);
      for (const sample of each) column[at.get(sample.at)!] = sample.value ?? null;
      return column;
    }),
  ];
}
