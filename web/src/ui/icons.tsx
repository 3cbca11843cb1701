/** Icons of the navigation, drawn here: sixteen units wide, one stroke. */

import type { JSX } from "solid-js";

const SHAPES: Readonly<Record<string, string>> = {
  fleet: "M2 3h5v4H2zM9 3h5v4H9zM2 9h5v4H2zM9 9h5v4H9z",
  apps: "M8 1.500l6 3.250v6.500l-6 3.250-6-3.250v-6.500zM2 4.750l6 3.250 6-3.250M8 8v6.500",
  rollouts: "M2 13h3V9h3V6h3V3h3",
  traffic: "M1.500 8h2.500l2-5 3.500 10 2-5h3",
  clusters: "M3 2h10v4H3zM3 10h10v4H3zM5.500 4h.01M5.500 12h.01",
  query: "M7 2.500a4.500 4.500 0 1 1 0 9 4.500 4.500 0 0 1 0-9M10.300 10.300L14 14",
  time: "M8 1.800a6.200 6.200 0 1 1 0 12.400A6.200 6.200 0 0 1 8 1.800M8 4.500V8l2.500 1.500",
  shards: "M8 1.800a6.200 6.200 0 1 1 0 12.400A6.200 6.200 0 0 1 8 1.800M8 8V1.800M8 8l5.400 3.100M8 8l-5.400 3.100",
  settings: "M2 4.500h7M12 4.500h2M2 11.500h2M7 11.500h7M9 3v3h3V3zM4 10v3h3v-3z",
  menu: "M2 4h12M2 8h12M2 12h12",
  theme: "M8 1.800a6.200 6.200 0 1 1 0 12.400A6.200 6.200 0 0 1 8 1.800M8 1.800v12.400M8 4h3.500M8 8h6M8 12h3.500",
};

export function Icon(props: { name: string }): JSX.Element {
  return (
    <svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linejoin="round" stroke-linecap="round" aria-hidden="true">
      <path d={SHAPES[props.name]} />
    </svg>
  );
}

export function Mark(): JSX.Element {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <path fill="currentColor" d="M3 16c5-7 12-8 18-3l6-4-2 7 2 7-6-4c-6 5-13 4-18-3z" />
    </svg>
  );
}
