/** Where a problem is looked at. */

import { href, links } from "../../app/paths";
import type { ProblemRow } from "../../live/rows";

export function linkOf(problem: ProblemRow): string {
  const parts = problem.name.split("/");
  const [project = "", environment = "", app = ""] = parts;
  switch (problem.kind) {
    case "App":
      return links.app({ project, environment, app });
    case "Rollout":
      return links.rollout({ project, environment, app }, Number(parts[3]) || undefined);
    case "Cluster":
      return links.cluster(problem.name);
    case "Agent":
      return links.cluster(problem.cluster ?? project);
    default:
      return href(["traffic"]);
  }
}
