/** Every app of the workspace, with a filter. */

import { createMemo, createSignal } from "solid-js";
import { place, setQuery } from "../../app/router";
import { useTopic } from "../../live/topic";
import type { AppRow } from "../../live/rows";
import { plural } from "../../text/numbers";
import { Empty, Head, Loaded, Panel } from "../../ui/parts";
import { AppTable } from "./table";

export default function Apps() {
  const topic = useTopic("apps");
  const [text, setText] = createSignal(place().query.find ?? "");
  const apps = createMemo(() => {
    const words = text().toLowerCase().split(/\s+/).filter(Boolean);
    return topic.list<AppRow>("app").filter((app) => {
      const of = `${app.project}/${app.environment}/${app.app} ${app.image ?? ""} ${app.state}`.toLowerCase();
      return words.every((word) => of.includes(word));
    });
  });
  return (
    <>
      <Head title="Apps">
        <input
          type="search" placeholder="Filter by name, image or state" aria-label="Filter by name, image or state" value={text()}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setQuery({ find: event.currentTarget.value });
          }}
        />
      </Head>
      <Loaded ready={topic.ready()} error={topic.error()} what="Apps">
        <Panel title="Apps" note={plural(apps().length, "app")}>
          <AppTable
            apps={apps()}
            tall
            empty={
              <Empty title={text() ? `No app fits "${text()}"` : "No app runs yet"} command={text() ? undefined : "shoal apply -f examples/hello.yaml"}>
                {text() ? "Use fewer words." : "Apply a file that describes one:"}
              </Empty>
            }
          />
        </Panel>
      </Loaded>
    </>
  );
}
