/** Numbers as people read them. Absent numbers are "–": not known is not zero. */

export const NONE = "–";

export function count(value: number | undefined): string {
  if (value === undefined) return NONE;
  if (Math.abs(value) < 10_000) return String(Math.round(value));
  if (Math.abs(value) < 1_000_000) return `${trimmed(value / 1000)}k`;
  return `${trimmed(value / 1_000_000)}M`;
}

export function rate(value: number | undefined): string {
  if (value === undefined) return NONE;
  if (value === 0) return "0/s";
  if (value < 0.1) return "<0.1/s";
  return `${value < 10 ? value.toFixed(1) : count(value)}/s`;
}

export function share(value: number | undefined): string {
  if (value === undefined) return NONE;
  const percent = value * 100;
  if (percent === 0) return "0 %";
  if (percent < 0.01) return "<0.01 %";
  return `${percent < 1 ? percent.toFixed(2) : percent < 10 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

export function percent(value: number | undefined): string {
  return value === undefined ? NONE : `${trimmed(value)} %`;
}

export function millis(value: number | undefined): string {
  if (value === undefined) return NONE;
  if (value < 1) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${value < 10 ? trimmed(value) : Math.round(value)} ms`;
  return `${trimmed(value / 1000)} s`;
}

export function cores(millicores: number | undefined): string {
  if (millicores === undefined) return NONE;
  return trimmed(millicores / 1000);
}

export function memory(mebibytes: number | undefined): string {
  if (mebibytes === undefined) return NONE;
  return mebibytes < 1024 ? `${Math.round(mebibytes)} MiB` : `${trimmed(mebibytes / 1024)} GiB`;
}

function trimmed(value: number): string {
  return value.toFixed(1).replace(/\.0$/, "");
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
