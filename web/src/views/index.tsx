/** The views and their addresses. To add one, see README.md. */

import { lazy, type Component } from "solid-js";

export interface ViewProps {
  /** The named parts of the address. */
  readonly of: Readonly<Record<string, string>>;
}

type View = Component<ViewProps>;

/** The first pattern that fits wins. `:name?` may be left out. */
export const PATTERNS = [
  ["/", "fleet"],
  ["/apps", "apps"],
  ["/app/:project/:environment/:app", "app"],
  ["/rollouts", "rollouts"],
  ["/rollout/:project/:environment/:app/:number?", "rollout"],
  ["/traffic", "traffic"],
  ["/clusters", "clusters"],
  ["/cluster/:cluster", "cluster"],
  ["/query", "query"],
  ["/time", "time"],
  ["/shards", "shards"],
  ["/why/:kind/:name", "why"],
  ["/settings", "settings"],
] as const;

export const VIEWS: Readonly<Record<string, View>> = {
  fleet: lazy(() => import("./fleet")),
  apps: lazy(() => import("./apps")),
  app: lazy(() => import("./app")),
  rollouts: lazy(() => import("./rollouts")),
  rollout: lazy(() => import("./rollout")),
  traffic: lazy(() => import("./traffic")),
  clusters: lazy(() => import("./clusters")),
  cluster: lazy(() => import("./cluster")),
  query: lazy(() => import("./query")),
  time: lazy(() => import("./time")),
  shards: lazy(() => import("./shards")),
  why: lazy(() => import("./why")),
  settings: lazy(() => import("./settings")),
};

/** The navigation, top to bottom: address, title, icon, views that it stands for, letter after "g". */
export const NAVIGATION = [
  { path: "/", title: "Fleet", icon: "fleet", views: ["fleet"], letter: "f" },
  { path: "/apps", title: "Apps", icon: "apps", views: ["apps", "app"], letter: "a" },
  { path: "/rollouts", title: "Rollouts", icon: "rollouts", views: ["rollouts", "rollout"], letter: "r" },
  { path: "/traffic", title: "Traffic", icon: "traffic", views: ["traffic"], letter: "t" },
  { path: "/clusters", title: "Clusters", icon: "clusters", views: ["clusters", "cluster"], letter: "c" },
  { path: "/query", title: "Query", icon: "query", views: ["query"], letter: "q" },
  { path: "/time", title: "Time", icon: "time", views: ["time"], letter: "h" },
  { path: "/shards", title: "Shards", icon: "shards", views: ["shards"], letter: "s" },
  { path: "/settings", title: "Settings", icon: "settings", views: ["settings"], letter: "e" },
] as const;
