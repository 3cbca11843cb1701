import { Empty } from "../../ui/parts";

/** What stands where the navigator would answer. */
export function NoNavigator() {
  return (
    <div class="panel">
      <Empty title="This control plane has no navigator" command="shoal navigator manager --help">
        Objects of clusters, their history and queries come from the navigator. Start one, and tell the control plane its address:
      </Empty>
    </div>
  );
}
