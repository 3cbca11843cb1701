// A made-up fleet with traffic, a rollout and, with `trouble`, a lost agent and a bad revision. It plays the topics of the stream.

let seed = 7;
const random = () => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff;
const pick = (list) => list[Math.floor(random() * list.length)];
const REGIONS = ["eu", "us", "ap", "sa"];
const NAMES = ["web", "checkout", "search", "api", "billing", "cart", "mail", "media", "auth", "reports"];

export class World {
  constructor({ clusters, apps, trouble }) {
    this.began = Date.now();
    this.trouble = trouble;
    this.regions = REGIONS.slice(0, Math.min(REGIONS.length, Math.max(2, Math.ceil(clusters / 12) + 1)));
    this.clusters = Array.from({ length: clusters }, (_, n) => ({ name: `${this.regions[n % this.regions.length]}-${1 + Math.floor(n / this.regions.length)}`, region: this.regions[n % this.regions.length] }));
    this.apps = Array.from({ length: apps }, (_, n) => ({
      project: n < 2 ? "orders" : n % 2 ? "shop" : "demo", environment: "production", app: n === 0 ? "api" : `${NAMES[n % NAMES.length]}${n < NAMES.length ? "" : `-${Math.floor(n / NAMES.length)}`}`,
      rate: 20 + random() * 400, errorShare: n === 0 ? 0.004 : random() * 0.0004, p99: 5 + random() * 90, weight: 25,
    }));
    this.numbers = new Map();
  }
  lost(cluster) {
    return this.trouble && cluster.name === this.clusters.at(-1).name;
  }
  fleet() {
    const rows = {};
    const lost = this.clusters.filter((each) => this.lost(each));
    rows["#"] = { clusters: this.clusters.length, agents: this.clusters.length, lost: lost.length, apps: this.apps.length, notReady: this.trouble ? 2 : 0, gateways: this.clusters.length, unhealthy: 0, rollouts: 1, errors: lost.length, warnings: this.trouble ? 1 : 0 };
    for (const name of this.regions) rows[`region/${name}`] = { name, schedulable: true, platform: "", clusters: this.clusters.filter((each) => each.region === name).length };
    this.clusters.forEach((each, n) => {
      const dead = this.lost(each);
      rows[`cluster/${each.name}`] = {
        name: each.name, region: each.region, schedulable: true, taints: [], state: dead ? "Lost" : "Ready", ...(dead ? { problem: "Its agent has been silent for 41 s. Pods and traffic go on with the last known state." } : {}),
        agents: 1, deployments: 7, cpu: 16000, cpuUsed: 3000 + ((n * 1370) % 12500), memory: 65536, memoryUsed: 20000 + ((n * 7919) % 40000), version: "v1.37.0", nodes: 8, nodesReady: 8, pods: 500, podsReady: dead ? 488 : 500,
        freshness: dead ? "stale" : "healthy", heardAt: Date.now() - (dead ? 41000 : 1200),
      };
      rows[`agent/${each.name}/default`] = { cluster: each.name, region: each.region, shard: "default", agent: "krane-0", epoch: 3, software: "0.1.0", state: dead ? "Lost" : "Joined", reason: dead ? "AgentLost" : "", heartbeatAt: Date.now() - (dead ? 41000 : 2500), lag: dead ? 41 : 0.1, held: [], connection: "connected", breaker: "closed", objects: 12, buffered: 0, retrying: 0 };
    });
    if (this.trouble) {
      const dead = lost[0];
      rows[`problem/Agent/${dead.name}`] = { severity: "error", kind: "Agent", name: `${dead.name}/default`, region: dead.region, cluster: dead.name, reason: "AgentLost", message: `The agent of ${dead.name} has been silent for 41 s: nothing new is applied there. Its pods and its gateway go on.`, fix: "Check that the cluster and its agent run and reach the control plane.", command: "shoal agents" };
      rows["problem/Rollout/orders/production/api"] = { severity: "warning", kind: "Rollout", name: "orders/production/api/3", reason: "RolledBack", message: "Rollout 3 went back: 4.9 % of 263 requests to revision 4 failed, the limit is 1 %.", fix: "Correct the revision and apply it again.", command: "shoal rollout history api -p orders -e production --number 3" };
    }
    return rows;
  }
  appRow(app, n) {
    return {
      project: app.project, environment: app.environment, app: app.app, summary: "Ready 2/2 regions", state: this.trouble && n === 1 ? "Degraded" : n === 0 ? "Progressing" : "Ready", ...(this.trouble && n === 1 ? { reason: "NotReady: 1 of 2 instances in us are ready" } : {}), revision: 3 + (n % 5), image: `registry.example.com/${app.project}/${app.app}:v${3 + (n % 5)}`,
      regions: 2, readyRegions: this.trouble && n === 1 ? 1 : 2, rate: app.rate, errorRate: app.rate * app.errorShare, errorShare: app.errorShare, p50Ms: app.p99 / 4, p99Ms: app.p99,
      ...(n === 0 ? { rollout: { number: 3, strategy: "canary", phase: "running", paused: false, step: 2, steps: 6, wave: 1, waves: 2, weight: app.weight, reason: "188 of 600 requests that a judgement needs" } } : {}),
    };
  }
  apps_() {
    const rows = {};
    this.apps.forEach((app, n) => {
      rows[`app/${app.project}/${app.environment}/${app.app}`] = this.appRow(app, n);
    });
    return rows;
  }
  place(app, region, revision, weight, bad) {
    return {
      project: app.project, environment: app.environment, app: app.app, revision, region, cluster: `${region}-1`, shard: "default", state: bad ? "Degraded" : "Ready", ...(bad ? { reason: "NotReady", message: "1 of 2 instances are ready: web-4-x7: CrashLoopBackOff" } : {}), weight, desiredVersion: 29 + revision, desiredState: "running", desiredAt: this.began - 6e5,
      replicas: 2, appliedVersion: 29 + revision, appliedAt: this.began - 59e4, ready: bad ? 1 : 2, needed: 2, instances: 2, available: 2, drift: [], reportedAt: Date.now() - 4000, newest: revision === 4, placement: { because: "only this cluster accepts it", refused: { [`${region}-2`]: "its taint dedicated=batch is not tolerated" } },
    };
  }
  samples(make) {
    const rows = {};
    const last = Math.floor(Date.now() / 5000) * 5000;
    for (let at = last - 595000; at <= last; at += 5000) make(rows, at);
    return rows;
  }
  app({ project, environment, app: name }) {
    const n = this.apps.findIndex((each) => each.app === name && each.project === project && each.environment === environment);
    if (n < 0) return { error: { code: "NotFound", message: `There is no app ${project}/${environment}/${name}.`, fix: "See the list of apps." } };
    const app = this.apps[n];
    const bad = this.trouble && n === 1;
    const rows = {
      app: { ...this.appRow(app, n), version: 17, createdAt: this.began - 864e5, labels: { tier: "web" }, desired: "running", spec: { image: `registry.example.com/${project}/${name}:v4`, port: 8080, env: { GREETING: "hello <b>you</b>" }, resources: { cpu: "50m", memory: "64Mi" }, healthcheck: { http: { path: "/health" }, period: 1 }, topology: [{ region: "eu", replicas: 2 }, { region: "us", replicas: 2 }], rollout: { steps: [5, 25, 50], every: "10s", abort: { errors: "1%", p99: "500ms" } } }, conditions: [{ type: "Ready", status: bad ? "False" : "True", message: bad ? "1 of 2 regions is ready" : "" }], explain: [`${name}: Ready 2/2 regions`, "eu → eu-1/default: placed because only this cluster accepts it", "us → us-1/default: Ready"] },
    };
    for (const region of ["eu", "us"]) {
      rows[`place/3/${region}/${region}-1/default`] = this.place(app, region, 3, n === 0 ? 75 : 0);
      rows[`place/4/${region}/${region}-1/default`] = this.place(app, region, 4, n === 0 ? 25 : 100, bad && region === "us");
      for (const revision of [3, 4]) {
        rows[`traffic/${revision}/${region}`] = { revision, region, rate: app.rate / 4, errorRate: 0.1, errorShare: revision === 4 ? app.errorShare * 3 : 0.0002, p50Ms: 3, p99Ms: app.p99, requests: 5300, failed: 12, until: Date.now() };
        for (let i = 0; i < 2; i++) rows[`instance/${name}-${revision}-${region}-${i}x7`] = { name: `${name}-${revision}-${region}-${i}x7`, revision, region, cluster: `${region}-1`, shard: "default", node: "node-1", zone: "a", address: `10.0.${revision}.${i + 7}`, namespace: `${project}-production-x1`, status: bad && revision === 4 && region === "us" && i ? "CrashLoopBackOff" : "Running", ready: !(bad && revision === 4 && region === "us" && i), restarts: i * 2, ...(bad && revision === 4 && region === "us" && i ? { reason: "CrashLoopBackOff", message: "back-off 20s restarting: exit code 1", exitCode: 1 } : {}), cpuMillicores: 50, memoryMib: 64, startedAt: this.began - 3e6, reportedAt: Date.now() - 4000 };
      }
      rows[`gateway/${region}`] = { project, environment, gateway: "sentinel", region, cluster: `${region}-1`, health: "healthy", available: 1, desired: 1, status: "applied", address: "127.8.222.70:8040" };
    }
    for (const revision of [4, 3, 2, 1]) rows[`revision/${revision}`] = { revision, id: `dep_${revision}x`, image: `registry.example.com/${project}/${name}:v${revision}`, git: { commit: "8d3fdf2a", branch: "main" }, status: revision === 3 ? "ready" : revision === 4 ? "deploying" : revision === 2 ? "failed" : "superseded", state: revision > 2 ? "running" : "archived", ...(revision === 2 ? { reason: "rollout 1 took it back: 4.9 % of requests failed" } : {}), live: revision === 3, createdAt: this.began - 36e5 * (5 - revision), readyAt: this.began - 36e5 * (5 - revision) + 2400 };
    for (let i = 0; i < 20; i++) rows[`event/${i}`] = { id: i, at: this.began - i * 47000, type: i % 6 === 3 ? "Warning" : "Normal", reason: i % 6 === 3 ? "Unhealthy" : pick(["Scaled", "Placed", "Applied", "RolloutStep"]), kind: "App", name: `${project}/${environment}/${name}`, region: i % 2 ? "eu" : "us", message: i % 6 === 3 ? "readiness probe failed: <script>alert(1)</script> HTTP 503" : "revision 4 takes 25 % of the requests in eu", correlation: "7c0cf3a4" };
    rows["route/api"] = { name: "api", host: "orders.localhost", path: "/", state: "applied" };
    rows["policy/limits"] = { name: "limits", type: "rateLimit", state: "applied", spec: { requests: 100, per: "second" } };
    rows["rollout"] = { project, environment, app: name, number: 3, strategy: "canary", revision: 4, stableRevision: 3, phase: "running", paused: false, reason: "188 of 600 requests that a judgement needs", wave: 1, waves: 2, step: 2, steps: 6, weight: 25, actor: "admin", startedAt: this.began - 24000 };
    Object.assign(rows, this.samples((into, at) => {
      for (const revision of [3, 4]) into[`sample/${revision}/${at}`] = { revision, at, seconds: 5, requests: 500, failed: revision === 4 ? Math.round(random() * 6) : 0, rate: (app.rate * (revision === 4 ? 0.25 : 0.75)) * (0.9 + random() * 0.2), p50Ms: 3, p99Ms: app.p99 * (0.8 + random() * 0.5) };
    }));
    return rows;
  }
  rollouts() {
    const rows = {};
    this.apps.slice(0, 5).forEach((app, n) => {
      rows[`${app.project}/${app.environment}/${app.app}/3`] = { project: app.project, environment: app.environment, app: app.app, number: 3, strategy: n === 3 ? "blueGreen" : "canary", configured: true, revision: 4, stableRevision: 3, phase: n === 0 ? "running" : n === 1 ? "rolledBack" : "promoted", outcome: n === 0 ? "" : n === 1 ? "rolledBack" : "promoted", paused: false, reason: n === 1 ? "4.9 % of 263 requests to revision 4 failed, the limit is 1 %" : n === 0 ? "188 of 600 requests that a judgement needs" : "every step passed", wave: 1, waves: 2, step: 2, steps: 6, weight: n === 0 ? 25 : n === 1 ? 0 : 100, actor: "admin", startedAt: this.began - 864e3 * (n + 0.03), updatedAt: this.began, ...(n ? { endedAt: this.began - 864e3 * n + 2e5 } : {}) };
    });
    return rows;
  }
  rollout({ project, environment, app: name }) {
    const base = this.rollouts()[`${project}/${environment}/${name}/3`];
    if (!base) return { error: { code: "NotFound", message: `${project}/${environment}/${name} has had no rollout.`, fix: "" } };
    const back = base.phase === "rolledBack";
    const rows = { rollout: { ...base, hold: back ? "" : "188 of 600 requests to revision 4 that a judgement needs", verdict: back ? "worse: 4.9 % of 263 requests failed" : "no difference seen yet", stepUntil: Date.now() + 48000, holdEndsAt: Date.now() + 82800e3, dueAt: Date.now() + 3000, waveRegions: [["eu"], ["us"]] } };
    [["weight", 5], ["analysis"], ["weight", 25], ["analysis"], ["weight", 50], ["analysis"], ["promote"]].forEach(([kind, weight], index) => {
      rows[`step/${index}`] = { index, kind, ...(weight ? { weight } : {}), ...(kind === "analysis" ? { seconds: 60 } : {}), state: index < 2 ? "done" : index === 2 + (back ? 0 : 1) ? "now" : index < 3 ? "done" : "next" };
    });
    ["eu", "us"].forEach((region, n) => {
      rows[`region/${region}`] = { region, wave: n + 1, size: 2, weight: n ? 0 : back ? 0 : 25, routed: n ? 0 : back ? 0 : 25, goalWeight: n ? 0 : 25, goalInstances: 1, candidateReady: n ? 0 : 1, candidateInstances: n ? 0 : 1, candidateRequests: n ? 0 : 263, candidateFailed: back ? 13 : 1, candidateP50Ms: 3.1, candidateP99Ms: 41, stableReady: 2, stableInstances: 2, stableRequests: 4421, stableFailed: 0, stableP50Ms: 2.9, stableP99Ms: 38, ...(n ? { waitsFor: "wave 1" } : {}) };
    });
    [["start", "from revision 3 to 4: canary"], ["step", "weight is done; weight 5 %"], ["step", "analysis passed: no difference from stable"], [back ? "rollback" : "step", back ? base.reason : "weight is done; weight 25 %"]].forEach(([action, reason], n) => {
      rows[`decision/${n}`] = { id: n, at: this.began - 90000 + n * 21000, actor: n ? "rollout" : "admin", action, reason, wave: 1, step: n, numbers: n === 2 ? { evidence: 0.4, requests: 620 } : {} };
    });
    rows["limit/errors"] = { measure: "errors", value: 0.01, unit: "share", text: "aborts above 1 % errors" };
    rows["limit/p99"] = { measure: "latency", value: 500, unit: "ms", text: "aborts above 500 ms" };
    Object.assign(rows, this.samples((into, at) => {
      if (at < this.began - 300000) return;
      for (const role of ["candidate", "stable"]) for (const region of ["eu", "us"]) {
        if (role === "candidate" && region === "us") continue;
        into[`sample/${role}/${region}/${at}`] = { role, region, at, seconds: 5, requests: role === "stable" ? 480 : 30, failed: 0, errorShare: role === "candidate" ? (back ? 0.049 : 0.004) * random() * 1.4 : 0.0005 * random(), p50Ms: 3, p99Ms: (role === "stable" ? 38 : 44) * (0.9 + random() * 0.25) };
      }
    }));
    return rows;
  }
  traffic() {
    const rows = {};
    this.apps.forEach((app, n) => {
      rows[`route/${app.project}/${app.environment}/${app.app}`] = { project: app.project, environment: app.environment, name: app.app, host: `${app.app}.example.com`, paths: ["/"], apps: [app.app], state: n === 2 && this.trouble ? "refused" : "applied", ...(n === 2 && this.trouble ? { message: "eu: the certificate of the host has expired" } : {}), rate: app.rate, errorRate: app.rate * app.errorShare, errorShare: app.errorShare, p50Ms: app.p99 / 4, p99Ms: app.p99, until: Date.now() };
      rows[`host/${app.app}.example.com`] = { host: `${app.app}.example.com`, rate: app.rate, errorRate: 0, errorShare: app.errorShare, routes: [app.app] };
    });
    for (const region of this.regions) rows[`gateway/orders/production/${region}`] = { project: "orders", environment: "production", gateway: "sentinel", region, cluster: `${region}-1`, shard: "default", health: "healthy", available: 1, desired: 1, status: "applied", address: "127.8.222.70:8040" };
    rows["policy/orders/production/limits"] = { project: "orders", environment: "production", name: "limits", type: "rateLimit", state: "applied" };
    if (this.trouble) rows["refusal/Route/demo/production/search/eu-1/sentinel"] = { kind: "Route", name: "demo/production/search", cluster: "eu-1", gateway: "sentinel-eu", message: "the certificate of the host has expired: replace secret search-tls" };
    Object.assign(rows, this.samples((into, at) => { into[`sample/${at}`] = { at, seconds: 5, requests: 9000, failed: 4, rate: 1700 + random() * 200, p50Ms: 4, p99Ms: 60 + random() * 20 }; }));
    const services = ["web", "checkout", "cart", "billing", "auth", "mail", "search"];
    [[0, 1], [0, 2], [0, 6], [1, 3], [1, 4], [2, 4], [3, 5], [3, 4], [4, 2]].forEach(([a, b], n) => {
      rows[`edge/shop/${services[a]}/shop/${services[b]}`] = { source: { namespace: "shop", service: services[a] }, destination: { namespace: "shop", service: services[b] }, rate: 40 + n * 11, errorRate: n === 3 ? 2 : 0, errorShare: n === 3 ? 0.03 : 0.0001, p99Ms: 12 + n * 9 };
    });
    return rows;
  }
  clusters_() {
    return Object.fromEntries(this.clusters.map((each) => [each.name, { name: each.name, region: each.region, environment: "", freshness: this.lost(each) ? "stale" : "healthy", edge: each.name, connectedAt: this.began - 1e6, heardAt: Date.now() - 2000, kinds: [{ kind: "pods", state: "synced", rows: 500 }, { kind: "services", state: "synced", rows: 60 }, { kind: "virtualservices", state: "missing", rows: 0 }] }]));
  }
  pods({ cluster }, most = 400) {
    const rows = { "#": { kind: "pods", columns: [["cluster", "text"], ["namespace", "text"], ["name", "text"], ["status", "text"], ["ready", "bool"], ["restarts", "number"], ["node", "text"], ["age", "age"]].map(([name, type]) => ({ name, type })), total: most, notFresh: [], forbidden: [] } };
    for (let i = 0; i < most; i++) rows[`${cluster ?? "eu-1"}/shop/web-${i}`] = { cluster: cluster ?? "eu-1", namespace: "shop", name: `web-${i}`, status: i % 97 === 5 ? "CrashLoopBackOff" : "Running", ready: i % 97 !== 5, restarts: i % 9 === 0 ? 1 : 0, node: `node-${i % 8}`, age: this.began - i * 60000 };
    return rows;
  }
  topic(topic, parameters) {
    switch (topic) {
      case "fleet": return this.fleet();
      case "apps": return this.apps_();
      case "app": return this.app(parameters);
      case "rollouts": return this.rollouts();
      case "rollout": return this.rollout(parameters);
      case "traffic": return this.traffic();
      case "clusters": return this.clusters_();
      case "services": return Object.fromEntries(NAMES.map((name) => [`shop/${name}`, { namespace: "shop", name, types: ["ClusterIP"], ports: [80], endpoints: 12, readyEndpoints: name === "api" ? 11 : 12, clusters: this.clusters.slice(0, 3).map((each) => each.name) }]));
      case "workloads": return Object.fromEntries(NAMES.map((name) => [`shop/Deployment/${name}`, { namespace: "shop", kind: "Deployment", name, replicas: 4, ready: 4, clusters: ["eu-1"], pods: 4 }]));
      case "pods": return this.pods(parameters);
      case "query": return /^pods/.test(parameters.text) ? this.pods({}, 1000) : { error: { code: "BadRequest", message: "there is no kind 'po2ds': did you mean pods?", fix: "" } };
      case "checks": return { "no-old-images": { name: "no-old-images", query: "pods where image ~ ':v0$'", expect: "none", ok: true, total: 0, examples: [] }, "nodes-ready": { name: "nodes-ready", query: "nodes where not ready", expect: "none", ok: false, total: 2, examples: ["eu-1/node-3"] } };
      case "mistakes": return { 1: { cluster: "eu-1", code: "unknown-subset", severity: "error", kind: "VirtualService", namespace: "shop", name: "web", path: "spec.http[0].route[1].destination.subset", message: "the DestinationRule of web.shop.svc.cluster.local has no subset v2", fix: "add the subset, or use one of v1" } };
      case "shards": {
        const names = ["websites-5pchn", "websites-grv9f", "websites-twnff", "websites-x4bdb"];
        const rows = { "config/eu-1/default/websites": { cluster: "eu-1", namespace: "default", name: "websites", shards: 4, minShards: 2, maxShards: 8, strategy: "consistentHash", conditions: [{ type: "Ready", status: "True" }] } };
        const owners = [];
        for (let at = 0; at < 1024; at += 64) owners.push([at, at + 63, names[(at / 64) % 4]]);
        rows["slots/eu-1/default/websites"] = { cluster: "eu-1", namespace: "default", name: "websites", config: "websites", owners, moving: [{ slot: 130, from: names[2], to: names[0], phase: "drain" }] };
        names.forEach((name, n) => { rows[`instance/eu-1/default/${name}`] = { cluster: "eu-1", namespace: "default", name, config: "websites", phase: "Running", load: 0.2 + n * 0.17, slots: 256, keys: 60 + n }; });
        return rows;
      }
      case "why": return { "#": { level: "waiting", text: "web is Ready in 1 of 2 regions: us waits for 1 instance." }, "step/0": { order: 0, level: "ok", title: "What is wanted", text: "2 instances in eu and in us, of revision 4", kind: "App", name: parameters.name }, "step/1": { order: 1, level: "ok", title: "Placement", text: "eu → eu-1: only this cluster accepts it", region: "eu", cluster: "eu-1" }, "step/2": { order: 2, level: "ok", title: "Applied", text: "version 33 was applied 10 min ago", cluster: "eu-1" }, "step/3": { order: 3, level: "bad", title: "Instances", text: "web-4-us-1x7 does not start: CrashLoopBackOff, exit code 1", kind: "Pod", name: "web-4-us-1x7", cluster: "us-1", fix: "Read its log.", command: "shoal logs web -p orders -e production --previous" } };
      case "events": return {};
      default: return { error: { code: "NotFound", message: `topic ${topic} is not known` } };
    }
  }
  // Some numbers change; returns what changed in a topic.
  step() {
    const touched = this.apps.filter(() => random() < Math.min(1, 8 / this.apps.length));
    for (const app of touched) {
      app.rate = Math.max(1, app.rate * (0.95 + random() * 0.1));
      app.p99 = Math.max(2, app.p99 * (0.96 + random() * 0.08));
    }
    this.count = (this.count ?? 0) + 1;
    const cluster = this.clusters[this.count % this.clusters.length];
    return (topic) => {
      if (topic === "apps") return { set: Object.fromEntries(touched.map((app) => [`app/${app.project}/${app.environment}/${app.app}`, { rate: app.rate, p99Ms: app.p99 }])) };
      if (topic === "traffic") return { set: Object.fromEntries(touched.map((app) => [`route/${app.project}/${app.environment}/${app.app}`, { rate: app.rate, p99Ms: app.p99 }])) };
      if (topic === "fleet" && !this.lost(cluster)) return { set: { [`agent/${cluster.name}/default`]: { heartbeatAt: Date.now(), lag: random() * 0.4 } } };
      return undefined;
    };
  }
  rest(method, path, query, body) {
    if (path === "/ui/navigator/search") return { items: [{ kind: "pods", cluster: "eu-1", namespace: "shop", name: `${query.get("text")}-1` }, { kind: "services", cluster: "us-1", namespace: "shop", name: query.get("text") }] };
    if (path === "/ui/navigator/kinds") return { items: [{ name: "pods", words: ["pod"], columns: ["cluster", "name"], fields: [{ name: "image", type: "texts", help: "images of its containers" }, { name: "ready", type: "bool", help: "whether it takes traffic" }, { name: "restarts", type: "number", help: "restarts of all its containers" }, { name: "region", type: "text", help: "region of its cluster" }] }, { name: "nodes", words: ["node"], columns: [], fields: [{ name: "ready", type: "bool", help: "" }] }] };
    if (path === "/ui/navigator/diff") return { from: new Date(this.began - 6e5).toISOString(), to: new Date().toISOString(), historyBegins: new Date(this.began - 864e5).toISOString(), added: [{ kind: "pods", cluster: "eu-1", namespace: "shop", name: "web-9" }], removed: [{ kind: "pods", cluster: "eu-1", namespace: "shop", name: "web-2" }], changed: [{ kind: "deployments", cluster: "eu-1", namespace: "shop", name: "web", fields: [{ path: "images", before: ["web:v1"], after: ["web:v2"] }] }] };
    if (path.endsWith("/logs")) return Array.from({ length: 40 }, (_, n) => `2026-11-19T21:40:${String(n).padStart(2, "0")}Z \u001b[32mINFO\u001b[0m request done path=/ <img src=x onerror=alert(1)> status=200`).join("\n");
    if (path === "/api/v1/tokens") return { items: [{ id: "tok_1", name: "admin", kind: "user", role: "admin", createdAt: new Date(this.began).toISOString() }, { id: "tok_2", kind: "agent", name: "eu-1", cluster: "eu-1", region: "eu", createdAt: new Date(this.began).toISOString() }] };
    if (path === "/api/v1/secrets") return { items: [{ metadata: { project: "shop", environment: "production", name: "stripe", updatedAt: new Date(this.began).toISOString() } }] };
    if (path === "/api/v1/audit") return { items: [{ at: new Date(this.began).toISOString(), actor: "admin", action: "update", kind: "App", name: "orders/production/api", result: "ok", changes: ["spec.image: v3 → v4"] }] };
    if (path === "/api/v1/quotas") return { workspace: "default", items: [] };
    if (path === "/ui/navigator/edges") return { items: [] };
    if (method === "POST" || method === "PATCH") return { changed: [{ path: "spec.topology[0].replicas", before: 2, after: body.replicas ?? 3 }], dryRun: query.get("dryRun") === "true" };
    return undefined;
  }
}
