/** Rows of the topics, as the control plane sends them. Absent fields are not known. Moments are ms since 1970. */



export interface Traffic {
  readonly rate?: number;
  readonly errorRate?: number;
  readonly errorShare?: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  readonly requests?: number;
  readonly failed?: number;
  readonly until?: number;
}

export interface AppName {
  readonly project: string;
  readonly environment: string;
  readonly app: string;
}

// fleet
export interface FleetSummary {
  readonly clusters: number;
  readonly agents: number;
  readonly lost: number;
  readonly apps: number;
  readonly notReady: number;
  readonly gateways: number;
  readonly unhealthy: number;
  readonly rollouts: number;
  readonly errors: number;
  readonly warnings: number;
}
export interface RegionRow {
  readonly key: string;
  readonly name: string;
  readonly schedulable: boolean;
  readonly platform?: string;
  readonly clusters: number;
}
export interface ClusterRow {
  readonly key: string;
  readonly name: string;
  readonly region: string;
  readonly schedulable: boolean;
  readonly state: string;
  readonly problem?: string;
  readonly agents: number;
  readonly deployments?: number;
  readonly cpu?: number;
  readonly cpuUsed?: number;
  readonly memory?: number;
  readonly memoryUsed?: number;
  readonly version?: string;
  readonly nodes?: number;
  readonly nodesReady?: number;
  readonly pods?: number;
  readonly podsReady?: number;
  readonly freshness?: string;
  readonly freshnessReason?: string;
  readonly heardAt?: number;
}
export interface AgentRow {
  readonly key: string;
  readonly cluster: string;
  readonly region: string;
  readonly shard: string;
  readonly agent?: string;
  readonly epoch?: number;
  readonly software?: string;
  readonly state: string;
  readonly reason?: string;
  readonly heartbeatAt?: number;
  readonly lag?: number;
  readonly held?: readonly string[];
  readonly breaker?: string;
  readonly objects?: number;
  readonly buffered?: number;
  readonly retrying?: number;
}
export interface ProblemRow {
  readonly key: string;
  readonly severity: "error" | "warning";
  readonly kind: string;
  readonly name: string;
  readonly region?: string;
  readonly cluster?: string;
  readonly reason: string;
  readonly message: string;
  readonly fix?: string;
  readonly command?: string;
}

// apps, app
export interface AppRow extends AppName, Traffic {
  readonly key: string;
  readonly summary: string;
  readonly state: string;
  readonly reason?: string;
  readonly revision?: number;
  readonly image?: string;
  readonly regions: number;
  readonly readyRegions: number;
  readonly rollout?: RolloutBrief;
}
export interface RolloutBrief {
  readonly number: number;
  readonly strategy: string;
  readonly phase: string;
  readonly paused?: boolean;
  readonly step?: number;
  readonly steps?: number;
  readonly wave?: number;
  readonly waves?: number;
  readonly weight?: number;
  readonly reason?: string;
}
export interface PlaceRow extends AppName {
  readonly key: string;
  readonly revision: number;
  readonly region: string;
  readonly cluster: string;
  readonly shard: string;
  readonly state: string;
  readonly reason?: string;
  readonly message?: string;
  readonly weight?: number;
  readonly desiredVersion?: number;
  readonly desiredState?: string;
  readonly desiredAt?: number;
  readonly replicas?: number;
  readonly min?: number;
  readonly max?: number;
  readonly appliedVersion?: number;
  readonly appliedAt?: number;
  readonly ready?: number;
  readonly needed?: number;
  readonly instances?: number;
  readonly available?: number;
  readonly drift?: readonly string[];
  readonly reportedAt?: number;
  readonly moving?: boolean;
  readonly newest?: boolean;
  readonly placement?: { readonly because?: string; readonly refused?: Readonly<Record<string, string>> };
}
export interface AppDetail extends AppRow {
  readonly version?: number;
  readonly createdAt?: number;
  readonly labels?: Readonly<Record<string, string>>;
  readonly spec?: Readonly<Record<string, unknown>>;
  readonly desired?: string;
  readonly conditions?: readonly { type: string; status: string; message?: string }[];
  readonly explain?: readonly string[];
}
export interface RevisionRow {
  readonly key: string;
  readonly revision: number;
  readonly id: string;
  readonly image?: string;
  readonly git?: Readonly<Record<string, string>>;
  readonly status: string;
  readonly state?: string;
  readonly reason?: string;
  readonly live?: boolean;
  readonly createdAt?: number;
  readonly readyAt?: number;
  readonly template?: Readonly<Record<string, unknown>>;
}
export interface InstanceRow {
  readonly key: string;
  readonly name: string;
  readonly revision: number;
  readonly region: string;
  readonly cluster: string;
  readonly node?: string;
  readonly zone?: string;
  readonly address?: string;
  readonly namespace?: string;
  readonly status: string;
  readonly ready?: boolean;
  readonly restarts?: number;
  readonly reason?: string;
  readonly message?: string;
  readonly exitCode?: number;
  readonly cpuMillicores?: number;
  readonly memoryMib?: number;
  readonly startedAt?: number;
  readonly reportedAt?: number;
}
export interface EventRow {
  readonly key: string;
  readonly id: string | number;
  readonly at: number;
  readonly type: string;
  readonly reason: string;
  readonly kind?: string;
  readonly name?: string;
  readonly region?: string;
  readonly message: string;
  readonly correlation?: string;
}
export interface TrafficRow extends Traffic {
  readonly key: string;
  readonly revision: number;
  readonly region: string;
}
export interface SampleRow extends Traffic {
  readonly key: string;
  readonly revision: number;
  readonly at: number;
  readonly seconds: number;
}

// rollouts, rollout
export interface RolloutRow extends AppName {
  readonly key: string;
  readonly number: number;
  readonly strategy: string;
  readonly configured?: boolean;
  readonly revision: number;
  readonly stableRevision?: number;
  readonly phase: string;
  readonly outcome?: string;
  readonly paused?: boolean;
  readonly reason?: string;
  readonly wave?: number;
  readonly waves?: number;
  readonly step?: number;
  readonly steps?: number;
  readonly weight?: number;
  readonly hurried?: boolean;
  readonly actor?: string;
  readonly startedAt?: number;
  readonly updatedAt?: number;
  readonly endedAt?: number;
}
export interface RolloutDetail extends RolloutRow {
  readonly hold?: string;
  readonly verdict?: string;
  readonly failure?: string;
  readonly failedRegions?: readonly string[];
  readonly keptUntil?: number;
  readonly stepUntil?: number;
  readonly holdEndsAt?: number;
  readonly dueAt?: number;
  readonly waveRegions?: readonly (readonly string[])[];
}
export interface StepRow {
  readonly key: string;
  readonly index: number;
  readonly kind: string;
  readonly weight?: number;
  readonly seconds?: number;
  readonly approval?: boolean;
  readonly replicas?: number | string;
  readonly percent?: number;
  readonly name?: string;
  readonly value?: string;
  readonly state: "done" | "now" | "next";
}
export interface RolloutRegionRow {
  readonly key: string;
  readonly region: string;
  readonly wave?: number;
  readonly size?: number;
  readonly weight?: number;
  readonly routed?: number;
  readonly goalWeight?: number;
  readonly lost?: boolean;
  readonly leftOut?: boolean;
  readonly waitsFor?: string;
  readonly failure?: string;
  readonly candidateReady?: number;
  readonly candidateInstances?: number;
  readonly candidateRequests?: number;
  readonly candidateFailed?: number;
  readonly candidateP50Ms?: number;
  readonly candidateP99Ms?: number;
  readonly stableReady?: number;
  readonly stableInstances?: number;
  readonly stableRequests?: number;
  readonly stableFailed?: number;
  readonly stableP50Ms?: number;
  readonly stableP99Ms?: number;
}
export interface DecisionRow {
  readonly key: string;
  readonly id: string | number;
  readonly at: number;
  readonly actor: string;
  readonly action: string;
  readonly reason: string;
  readonly wave?: number;
  readonly step?: number;
  readonly numbers?: Readonly<Record<string, unknown>>;
}
export interface RolloutSample extends Traffic {
  readonly key: string;
  readonly role: "candidate" | "stable";
  readonly region: string;
  readonly at: number;
  readonly seconds: number;
}
export interface LimitRow {
  readonly key: string;
  readonly measure: string;
  readonly value: number;
  readonly unit: "share" | "ms";
  readonly text: string;
  readonly relative?: boolean;
}

// traffic
export interface RouteRow extends Traffic {
  readonly key: string;
  readonly project: string;
  readonly environment: string;
  readonly name: string;
  readonly host?: string;
  readonly paths?: readonly string[];
  readonly apps?: readonly string[];
  readonly state?: string;
  readonly message?: string;
}
export interface GatewayRow {
  readonly key: string;
  readonly project?: string;
  readonly environment?: string;
  readonly gateway?: string;
  readonly region: string;
  readonly cluster?: string;
  readonly health?: string;
  readonly available?: number;
  readonly desired?: number;
  readonly status?: string;
  readonly address?: string;
  readonly reason?: string;
}
export interface PolicyRow {
  readonly key: string;
  readonly project?: string;
  readonly environment?: string;
  readonly name: string;
  readonly type: string;
  readonly state?: string;
  readonly message?: string;
}
export interface RefusalRow {
  readonly key: string;
  readonly kind: string;
  readonly name: string;
  readonly cluster: string;
  readonly gateway: string;
  readonly message: string;
}
export interface HostRow extends Traffic {
  readonly key: string;
  readonly host: string;
  readonly routes?: readonly string[];
}
export interface EdgeRow extends Traffic {
  readonly key: string;
  readonly source: { readonly namespace: string; readonly service: string };
  readonly destination: { readonly namespace: string; readonly service: string };
  readonly between?: readonly { readonly source: string; readonly destination: string }[];
}
