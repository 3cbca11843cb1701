"""Levels inside the large packages: which sub-package or module may import which.

Each package has its levels from the bottom up, the names of one level separated by spaces. A name is a module or a
sub-package below the package; a dotted one (``runtime.model``) stands on a level of its own, apart from the sub-package
it is in. Imports go to lower levels only, and names of one level do not know each other.
"""

from __future__ import annotations

LEVELS: dict[str, tuple[str, ...]] = {
    "apiserver": (
        # names, paths, settings and other parts that know nothing of requests
        "effects flow health negotiate network_errors node_access objects paths user",
        # requests and responses as data, the served resources, and users as aggregated servers see them
        "front_proxy messages registry",
        # parts of one connection, the audit log, and answers in other forms
        "audit compression connection exchange forms framing shapes",
        "http2",  # connections of HTTP/2
        "http",  # the server of connections
        "context fencing",  # what every verb is given
        # one question about a request each, debugging pages, metrics of the store
        "authz body creation ranges selection store_metrics zpages",
        "admission allocation protection read",  # what happens before a write, and reads
        "custom nodes protection_metrics watch writing",  # the steps of a write, streams, and connections to nodes
        "metrics request_metrics write",  # the verbs that create and update, and the count of requests
        "aggregator authn delete patch quota_status roles",  # verbs and background work on top of writes
        "advertising housekeeping pages reviews subresources",  # the rest of the API
        "boot handler",  # the request's way to its verb, and the objects of a new server
        "inprocess server",  # whole servers
    ),
    "app": (
        # what every process needs: settings, files, ports, child processes, connections; the demo
        "authorities connect demo examples files findings grant_file health home kubectl locks main ports processes public_address "
        "settings start_display up_options welcome",
        "fork_server pod_forks",  # child processes of `shoal up`, and what its pods are forked from
        "forking",
        "children introduction",
        # the settings of a cluster, and its keys and certificates
        "config pki",
        # the components of a cluster, the credentials of their clients, and certificates of running processes
        "certificates components credentials",
        "sandboxes",  # the runtime that isolates pods
        # parts of a running cluster: embedded components, credential reload, runtimes, simulated nodes
        "embedded reload runtimes simulated",
        "container_network sandbox_network",  # the networks of clusters of containers and of sandboxes
        # the processes of the fleet; clusters that join it; nodes on this machine
        "fleet joining nodes",
        # the processes of the navigator and of sharding
        "navigator sharding",
        # whole systems: a cluster, and `shoal up`; backups of what they keep; what a support bundle holds
        "backup cluster support up up_steps",
        # the command line
        "commands",
    ),
    "base": (
        # tools without dependencies inside the package
        "access asgi_common backoff bounded bounded_cache clock coalescing destinations exposition fair_lock front_limits "
        "huffman ids local_routes progress proxies spdy tracing websocket",
        "asgi_front breaker deadline files grants hpack http2 logs metrics",  # tools that need the clock, ids or another tool
        "tasks",  # tasks with an owner
        "supervision",  # loops that are started again
        "asgi connect http1 settings stdlib_logs table_copies",  # servers, clients and settings of a process
        "outbound",  # calls to where users say, over http1
    ),
    "cli": (
        # data and text: the catalog of commands, contexts, durations, output formats
        "adopting examples templates",  # of imports, of help, and of -o jsonpath=
        "apps catalog contexts durations extras importing printers",
        # what every command uses: dispatch, shared options, the REST client, timestamps
        "dispatch options rest timestamps",
        # watch mode, and what people see while a command waits
        "progress watching",
        # commands of the navigator
        "navigator",
        # commands of the control plane; `events` also shows those of clusters, from the navigator
        "fleet",
    ),
    "control": (
        "database rollout",
        "checks.plan",  # which checks are due, and what their answers mean for a rollout
        "checks.rows checks.outbox checks.job_rows",  # what the engine reads and writes of them in its own transactions
        "domain",
        "checks secrets service.config service.garbage service.metrics",
        "service.desired",
        "service.stream",
        "service.agents",
        "service.reports",
        "service",
        "api relay",
    ),
    "controllers": (
        # what every controller is built with: the client and informers, discovery, a loop with a period
        "context discovery periodic",
        # what controllers of pods share
        "podindex pods",
        # controllers that use no other controller; the revisions of pod templates
        "autoscaling disruption endpointslice garbagecollector job namespace nodelifecycle persistentvolume podgc "
        "replicaset revisions servicecidr taints ttl",
        # controllers that use the decisions of another one, or revisions
        "cronjob daemonset deployment endpoints replicationcontroller statefulset",
        # mirrors Endpoints to EndpointSlices, with the code of both
        "mirroring",
        # starts all controllers
        "wiring",
    ),
    "dashboard": (
        "files gate live.plan login metrics navigator",  # data, and parts that know nothing of each other
        "live.feed",
        "live",  # feeds of a process, streams of browsers, when to look again
        "topics.model",
        "topics",
        "page",  # requests
        "wiring",
    ),
    "krane": (
        "addresses cache config drift election heartbeats identity metrics owner protocol rights unsealing",
        "inbox key_state labels model",
        "guard joining session stream",
        "context objects",
        "actual deployments following working",
        "reports resync sentinels",
        "controller handlers rbac",
        "upgrade",
        "agent",
    ),
    "kube": (
        # values and tables: texts with a syntax, quantities, times, resources, the schemas of built-in kinds
        "fieldselector jsonpath jsonutil names objects quantity resources schema times",
        # one operation on objects of any kind each: evaluate, select, patch, encode, print
        "cel discovery labels patch podsecurity protobuf rules tables webhooks yamlcodec",
        # kinds: the rules of built-in and of custom ones, how their objects are read, how they are documented
        "crd decode kinds openapi zeros",
        # what needs decoded objects or the rules of their kinds: field managers, quotas
        "ownership quota",
    ),
    "navigator": (
        "change_signal connections digest model summary_base",
        "route_summaries",
        "summaries",
        "edge istio view",
        "answers manager",
    ),
    "node": (
        "runtime.process.shim",  # runs one container; imports nothing
        "forks",  # the process that shims, programs of ours and service proxies are forked from
        # settings and errors; names and network policies; objects that pods refer to; why a node ended a pod; the proxy
        "config dns errors limits pod_failure policy references",
        "proxy",
        # what runs containers: the seam and its implementations
        "runtime",
        # the containers of a pod, and their probes
        "containers probes",
        # what a pod's spec says: environment, resources; events about it
        "env events resources",
        # decisions and services of the node that pods need: admission, eviction, images, volumes; the Node object
        "admission eviction images node_object volumes",
        # one pod; the node's own state: pressure, registration
        "pods pressure registration",
        # the agent: all pods of the node
        "agent",
        # the node's endpoints: logs, exec, statistics
        "server",
        # whole nodes: real ones, simulated ones
        "simulated wiring",
    ),
    "scheduler": (
        # frozen data, and matching of pods to nodes
        "model nodematch",
        # resources as integers, settings, the texts of refusals
        "amounts config messages",
        # pods as the scheduler sees them
        "shapes",
        # nodes with their pods; pods that wait
        "nodes queue",
        # filters and scores: counts per domain, one node, volumes; metrics of the queue
        "counters local metrics volumes",
        # the state of the cluster; the writes
        "actions snapshot",
        # what depends on several nodes; which events could help a pod
        "hints topology",
        # fitting nodes and scores of one shape
        "table",
        # which pods to delete for another one
        "preemption",
        # the decision about one pod
        "plan",
        # events of informers, applied to snapshot and queue
        "intake",
        # the loop
        "service",
        # a whole scheduler
        "wiring",
        # a scheduler that only explains
        "explain",
    ),
    "sentinel": (
        "admin config folders headers metrics model status xds",  # data, settings, counts, and the protocols with Envoy and the API server
        "arrivals isolation issuers policies snapshot zone",  # parts that work on the data without Envoy's messages
        "translate",  # the data to Envoy's configuration
        "bootstrap inputs",  # Envoy's start file, and the reading of the cluster
        "cut_off stats supervisor",  # the running Envoy: its process, its statistics, and when it closes connections
        "health",  # endpoints for probes and metrics
        "service",  # the whole gateway
    ),
    "sharding": (
        "model rbac reflector_config",
        "leases manifests ring",
        "migration plan worker",
        "manager proxy",
    ),
    "store": (
        # the interface, and small parts that any process can use: socket, thread, URLs
        "control model thread urls",
        # interfaces of a durable log and of a copy; recent events, ordered keys, counts
        "copy_model figures journal ordered ring",
        # the durable logs; the current objects in memory
        "memory postgres sqlite view",
        # the sides of a copy; the store itself, on any of the logs
        "copy_postgres copy_sqlite group",
        # chooses the sides of a copy by URL and moves a store
        "copy",
        # backups while servers write, and what is restored from them
        "snapshot",
    ),
}
