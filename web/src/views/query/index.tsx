import type { ViewProps } from "../index";
export default function View(_props: ViewProps) {
  return <p class="soft">Not built yet.</p>;
}
