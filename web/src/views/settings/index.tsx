/** Members and tokens, secrets by name, the audit log, quotas, and the settings of the navigator's edges. */

import { createSignal, For, Show } from "solid-js";
import { navigator_, rest } from "../../api/rest";
import { place } from "../../app/router";
import { may, session, workspace } from "../../app/session";
import { command } from "../../text/commands";
import { count } from "../../text/numbers";
import { parsed } from "../../text/times";
import { ActionButton, type Ask } from "../../ui/action";
import { Ago, Clock, Command, Empty, Head, Meter, Panel, Problem, State, Tabs } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { useLoad } from "../../ui/load";

const TABS = [["tokens", "Members and tokens"], ["secrets", "Secrets"], ["audit", "Audit"], ["quotas", "Quotas"], ["edges", "Edges"]] as const;

export default function Settings() {
  const tab = () => TABS.find(([key]) => key === place().query.tab)?.[0] ?? "tokens";
  return (
    <>
      <Head title="Settings" />
      <Tabs label="Settings" tabs={TABS} chosen={tab()} />
      <Show when={tab() === "tokens"}><Tokens /></Show>
      <Show when={tab() === "secrets"}><Secrets /></Show>
      <Show when={tab() === "audit"}><Audit /></Show>
      <Show when={tab() === "quotas"}><Quotas /></Show>
      <Show when={tab() === "edges"}><Edges /></Show>
    </>
  );
}

interface Token { readonly id: string; readonly kind: string; readonly name: string; readonly role: string; readonly cluster: string; readonly region: string; readonly state: string; readonly createdAt?: string; readonly expiresAt?: string; readonly lastUsedAt?: string }

const NO_RIGHT = "Your role may not see this. An administrator of the workspace can.";

function Tokens() {
  const [made, setMade] = createSignal<string>();
  const answer = useLoad(() => (may("manage") ? { of: workspace() ?? "" } : undefined), (_of, signal) => rest.get<{ items: readonly Token[] }>("/tokens", {}, signal));
  const create = (): Ask => {
    const [name, setName] = createSignal("");
    const [role, setRole] = createSignal("viewer");
    return {
      title: "Create a token", verb: "Create", done: "The token is created: copy it now", text: "The token of a user, for this page and the command line. Its text is shown once.",
      command: () => command(["shoal", "token", "create", "--kind", "user", "--name", name() || "NAME", "--role", role()]),
      run: async () => {
        const said = await rest.send<{ token: string }>("POST", "/tokens", { kind: "user", name: name(), role: role() });
        setMade(said.token);
        answer.again();
      },
      form: () => (
        <div class="row">
          <label class="field"><span>Name</span><input type="text" required maxlength="63" value={name()} onInput={(event) => setName(event.currentTarget.value)} /></label>
          <label class="field"><span>Role</span><select onChange={(event) => setRole(event.currentTarget.value)}><For each={["viewer", "editor", "admin"]}>{(each) => <option value={each}>{each}</option>}</For></select></label>
        </div>
      ),
    };
  };
  const columns: readonly Column<Token>[] = [
    { key: "name", title: "Name", sort: (of) => of.name, cell: (of) => <strong class="wrap">{of.name || "–"}</strong> },
    { key: "kind", title: "Kind", sort: (of) => of.kind, cell: (of) => of.kind },
    { key: "role", title: "Role or cluster", sort: (of) => of.role, cell: (of) => of.role || [of.cluster, of.region].filter(Boolean).join(", ") || "–" },
    { key: "state", title: "State", sort: (of) => of.state, cell: (of) => <State of={of.state} tone={of.state === "active" ? "ok" : "muted"} /> },
    { key: "used", title: "Last used", align: "end", wide: true, sort: (of) => parsed(of.lastUsedAt), cell: (of) => <Ago at={parsed(of.lastUsedAt)} /> },
    { key: "created", title: "Created", align: "end", wide: true, sort: (of) => parsed(of.createdAt), cell: (of) => <Ago at={parsed(of.createdAt)} /> },
    { key: "act", title: "Revoke", wide: true, cell: (of) => (
      <ActionButton label="Revoke" danger when={may("manage") && of.state === "active"} ask={() => ({
        title: `Revoke the token ${of.name || of.id}`, verb: "Revoke", danger: true, done: "The token is revoked", text: "It stops working within a second.",
        command: () => command(["shoal", "token", "revoke", of.id]), run: async () => { await rest.send("DELETE", `/tokens/${encodeURIComponent(of.id)}`); answer.again(); },
      })} />
    ) },
  ];
  return (
    <Panel title="Members and tokens" end={<ActionButton label="Create a token" main ask={create} when={may("manage")} />}>
      <Show when={made()}>{(text) => <div class="inside"><div class="notice ok"><strong>The new token. It is not shown again.</strong><Command text={text()} /></div></div>}</Show>
      <Show when={may("manage")} fallback={<Empty title="Not for your role">{NO_RIGHT}</Empty>}>
        <Answered answer={answer}><Table label="Tokens" columns={columns} rows={answer.value()?.items ?? []} sort={{ key: "state", down: false }} tall empty={<Empty title="No token" />} /></Answered>
      </Show>
    </Panel>
  );
}

function Answered(props: { answer: { value: () => unknown; error: () => unknown }; children: import("solid-js").JSX.Element }) {
  return (
    <>
      <Show when={props.answer.error()}>{(failed) => <div class="inside"><Problem error={failed()} title="Not available" /></div>}</Show>
      <Show when={props.answer.value() !== undefined} fallback={<Show when={!props.answer.error()}><p class="inside soft" role="status">Loading…</p></Show>}>{props.children}</Show>
    </>
  );
}

interface Secret { readonly metadata: { readonly name: string; readonly project: string; readonly environment: string; readonly updatedAt?: string; readonly version?: number } }

function Secrets() {
  const answer = useLoad(() => ({ of: workspace() ?? "" }), (_of, signal) => rest.get<{ items: readonly Secret[] }>("/secrets", { limit: 500 }, signal));
  const columns: readonly Column<Secret>[] = [
    { key: "name", title: "Secret", sort: (of) => of.metadata.name, cell: (of) => <strong class="wrap">{of.metadata.name}</strong> },
    { key: "where", title: "Environment", sort: (of) => `${of.metadata.project}/${of.metadata.environment}`, cell: (of) => <span class="wrap">{of.metadata.project}/{of.metadata.environment}</span> },
    { key: "updated", title: "Changed", align: "end", sort: (of) => parsed(of.metadata.updatedAt), cell: (of) => <Ago at={parsed(of.metadata.updatedAt)} /> },
  ];
  return <Panel title="Secrets" note="names only: values are encrypted for the agents that need them"><Answered answer={answer}><Table label="Secrets" columns={columns} rows={answer.value()?.items ?? []} sort={{ key: "name", down: false }} tall empty={<Empty title="No secret yet" command="shoal create secret NAME -p PROJECT -e ENVIRONMENT --from-file FILE">Create one:</Empty>} /></Answered></Panel>;
}

interface Audited { readonly id?: string | number; readonly at?: string; readonly time?: string; readonly actor?: string; readonly action?: string; readonly kind?: string; readonly name?: string; readonly object?: unknown; readonly changes?: readonly unknown[]; readonly changed?: readonly unknown[]; readonly result?: string; readonly refused?: string }

function changeText(change: unknown): string {
  if (typeof change === "string") return change;
  const { path, before, after } = (change ?? {}) as { path?: string; before?: unknown; after?: unknown };
  return path ? `${path}: ${JSON.stringify(before ?? null)} → ${JSON.stringify(after ?? null)}` : JSON.stringify(change);
}

function Audit() {
  const answer = useLoad(() => (may("manage") ? { of: workspace() ?? "" } : undefined), (_of, signal) => rest.get<{ items: readonly Audited[] }>("/audit", { limit: 200 }, signal));
  const columns: readonly Column<Audited>[] = [
    { key: "at", title: "Time", sort: (of) => parsed(of.at ?? of.time), cell: (of) => <Show when={parsed(of.at ?? of.time)} fallback="–">{(at) => <Clock at={at()} />}</Show> },
    { key: "actor", title: "Who", sort: (of) => of.actor, cell: (of) => of.actor ?? "–" },
    { key: "action", title: "Action", sort: (of) => of.action, cell: (of) => of.action ?? "–" },
    { key: "object", title: "Object", cell: (of) => <span class="wrap">{of.kind} {of.name ?? (typeof of.object === "string" ? of.object : "")}</span> },
    { key: "changes", title: "Changed", wide: true, cell: (of) => <ul class="small mono"><For each={(of.changes ?? of.changed ?? []).slice(0, 5)}>{(each) => <li class="wrap">{changeText(each)}</li>}</For></ul> },
  ];
  return (
    <Panel title="Audit" note="who changed what, newest first">
      <Show when={may("manage")} fallback={<Empty title="Not for your role">{NO_RIGHT}</Empty>}>
        <Answered answer={answer}><Table label="Audit log" columns={columns} rows={answer.value()?.items ?? []} tall empty={<Empty title="Nothing was changed yet" />} /></Answered>
      </Show>
    </Panel>
  );
}

function Quotas() {
  const answer = useLoad(() => ({ of: workspace() ?? "" }), (_of, signal) => rest.get<{ quotas?: Readonly<Record<string, { used: number; limit: number }>> }>("/quotas", {}, signal));
  const rows = () => Object.entries(answer.value()?.quotas ?? {}).map(([name, use]) => ({ name, ...use }));
  const columns: readonly Column<{ name: string; used: number; limit: number }>[] = [
    { key: "name", title: "Quota", sort: (of) => of.name, cell: (of) => of.name },
    { key: "used", title: "Used", align: "end", sort: (of) => of.used, cell: (of) => `${count(of.used)} of ${count(of.limit)}` },
    { key: "part", title: "Part", sort: (of) => of.used / of.limit, cell: (of) => <Meter part={of.limit ? of.used / of.limit : 0} label={`${of.used} of ${of.limit} used`} /> },
  ];
  return <Panel title="Quotas" note={`of the workspace ${workspace() ?? session()?.workspace ?? ""}`}><Answered answer={answer}><Table label="Quotas" columns={columns} rows={rows()} sort={{ key: "part", down: true }} empty={<Empty title="No quota applies" />} /></Answered></Panel>;
}

interface Edge { readonly cluster: string; readonly connected: boolean; readonly taken: boolean; readonly error: string; readonly options: Readonly<Record<string, string>>; readonly settings: Readonly<Record<string, string>> }

function Edges() {
  const answer = useLoad(() => (session()?.navigator && may("operate") ? "edges" : undefined), (_of, signal) => navigator_.get<{ items: readonly Edge[] }>("/edges", {}, signal));
  const columns: readonly Column<Edge>[] = [
    { key: "cluster", title: "Cluster", sort: (of) => of.cluster, cell: (of) => <strong>{of.cluster}</strong> },
    { key: "connected", title: "State", cell: (of) => <State of={of.connected ? "Connected" : "Disconnected"} /> },
    { key: "taken", title: "Options", cell: (of) => <span class="wrap">{of.error ? <span class="bad">{of.error}</span> : of.taken ? "taken over" : "not yet taken over"}</span> },
    { key: "settings", title: "Settings", wide: true, cell: (of) => (
      <details>
        <summary>{count(Object.keys(of.settings).length)} in use{Object.keys(of.options).length ? `, ${Object.keys(of.options).length} stored for this cluster` : ""}</summary>
        <ul class="small mono"><For each={Object.entries(of.settings)}>{([name, value]) => <li class="wrap">{name}={value}</li>}</For></ul>
      </details>
    ) },
  ];
  return (
    <Panel title="Edges of the navigator">
      <Show when={session()?.navigator && may("operate")} fallback={<Empty title="Not shown">{session()?.navigator ? "Settings of edges are for administrators of the fleet." : "This control plane has no navigator."}</Empty>}>
        <Answered answer={answer}>
          <Table label="Edges" columns={columns} rows={answer.value()?.items ?? []} sort={{ key: "cluster", down: false }} tall empty={<Empty title="No edge reports" />} />
          <div class="inside"><Command text="shoal navigator edges set --all sync.interval_s=20" /></div>
        </Answered>
      </Show>
    </Panel>
  );
}
