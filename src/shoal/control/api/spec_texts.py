"""What every field of a spec means, in a sentence. The OpenAPI document and the reference pages show these texts.

By the name of the type and of the field as users write it; the empty name is the type itself.
"""

from __future__ import annotations

from collections.abc import Mapping

Texts = Mapping[str, Mapping[str, str]]

_PLACES: Texts = {
    "RegionSpec": {
        "": "A region: clusters that are near each other, with the gateways in front of them",
        "platform": "Where the region runs, such as aws; shown only",
        "canSchedule": "Whether new apps may be placed here; true if left out",
        "distances": "The way to other regions by name; gateways prefer the region with the smallest number",
        "gateways": "How the gateways of the region are reached",
    },
    "RegionGateways": {
        "service": "The type of the gateways' Service; ClusterIP if left out",
        "entries": "ADDRESS:PORT where gateways of other regions come in, if it is not what the Service says",
    },
    "ClusterSpec": {
        "": "A Kubernetes cluster of a region. Its agents serve one shard each",
        "region": "The region that it belongs to",
        "shards": "The names of its shards; `default` alone if left out",
        "taints": "Only apps that tolerate all of them are placed here",
        "capacity": "The most that apps may request here; no limit where a value is left out",
        "canSchedule": "Whether new apps may be placed here; true if left out",
        "agentImage": "The image that its agents' Deployments run; as they were installed if left out. "
        "`shoal agents upgrade` sets it in waves",
    },
    "ClusterTaint": {
        "key": "The name of the taint",
        "value": "Its value",
        "effect": "NoSchedule keeps apps away, PreferNoSchedule places them elsewhere where it can; "
        "NoSchedule if left out",
    },
    "ClusterCapacity": {
        "cpu": "Cores that apps may request",
        "memory": "Memory that apps may request",
        "deployments": "Deployments that may be placed here",
    },
    "SentinelSpec": {
        "": "The gateway of an environment in a region; without an environment, the one that environments share there",
        "region": "The region that it serves",
        "cluster": "The cluster that it runs in; placed by load if left out",
        "image": "The image that it runs; that of the environment or of the agent if left out",
        "replicas": "How many replicas it has",
        "resources": "What each replica requests",
        "desired": "Whether it runs",
    },
    "Sizes": {"cpu": "Cores, such as 500m", "memory": "Memory, such as 128Mi"},
}

_SCOPES: Texts = {
    "ProjectSpec": {"": "What environments belong to", "description": "For people"},
    "EnvironmentSpec": {
        "": "Where apps of a project run, such as production. Each has a namespace of its own in every "
        "cluster, and gateways",
        "description": "For people",
        "sentinel": "How its gateways are made",
        "rollout": "The defaults of its apps; a field that an app has replaces the one here as a whole",
        "imagePullSecrets": "Secrets with SERVER, USERNAME and PASSWORD of registries, for its apps that name none",
        "gateway": "off: the environment has no gateways, whatever routes it has; on if left out",
        "namespace": "Its namespace in every cluster, for agents that may use only some; one that exists is used as it "
        "is. Cannot be changed later. Only workspaces that run the fleet may choose; a new one is made if left out",
    },
    "EnvironmentGateways": {
        "image": "The image that gateways run; that of the agent if left out",
        "replicas": "How many replicas a gateway has",
        "resources": "What each replica requests",
        "shared": "Whether the environment uses the region's shared gateway where there is one; true if left out",
        "rollout": "How another image or other resources reach its gateways: one region after the other, weight 50 and "
        "a pause of 2m if left out. A weight is a share of the pods; steps are weight, pause and analysis. Without "
        "strategy, keep, previewHost, checks and notify",
    },
    "SecretSpec": {
        "": "Values that apps of the environment get as variables. Only agents that run such an app can open them"
    },
    "CredentialSpec": {"": "Headers for checks and notifications of rollouts. Clusters never get them"},
    "ApiKeySpec": {
        "": "A key that policies of kind keyAuth accept. Only its digest is stored",
        "permissions": "What the key may do; policies ask for them",
        "identity": "Whom the key stands for; apps get it in x-shoal-principal",
        "meta": "Anything; apps get it in x-shoal-principal",
        "expiresAt": "When the key stops working",
        "enabled": "Whether the key works; true if left out",
    },
}

_ROLLOUTS: Texts = {
    "RolloutFields": {
        "": "How a new revision replaces the old one",
        "strategy": "canary if there are steps, else rolling. rolling exchanges instances, canary gives the "
        "new revision a share of the "
        "requests, blueGreen switches all requests at once, recreate stops the old revision first",
        "steps": "What regions do one after the other. A number is a weight in percent",
        "every": "How long each weight is held; 5m if left out",
        "waves": "Regions that go together, in order; all regions at once if left out",
        "regions": "The waves in short: a name is a wave of one region, a list of names is a wave of several",
        "windows": "When waves may begin; always if left out",
        "abort": "Limits for the new revision. Without any, it is compared with the old one",
        "judge": "Whether the gateways' numbers decide; true for canary and where abort has a limit",
        "interval": "The time between two looks at the numbers; 30s if left out",
        "keep": "How long the old revision keeps its full size after the promotion; 30m if left out",
        "holdLimit": "How long a rollout waits for an approval or for samples before it goes back; 24h if left out",
        "deadline": "How long a region may take to have a step's instances ready; 10m if left out",
        "onFailure": "What happens when the new revision fails: rollback, or freeze (weights stay until "
        "somebody decides); rollback if "
        "left out",
        "previewHost": "A host whose requests all go to the new revision",
        "checks": "Questions that analysis steps ask elsewhere",
        "notify": "Where events of the rollout are sent",
    },
    "RolloutStep": {
        "weight": "Percent of the requests that the new revision gets",
        "replicas": "Instances of the new revision: a number, or a percentage of those of the old one",
        "pause": "Wait: a duration, or until somebody approves",
        "analysis": "Judge for this long, a duration; also with checks",
        "header": "Requests with this header go to the new revision",
        "cookie": "Requests with this cookie go to the new revision",
        "mirror": "Percent of the requests that are copied to the new revision; users get no answers of it",
    },
    "PauseStep": {"for": "How long"},
    "AnalysisStep": {"for": "How long", "checks": "Names of the checks that must pass; all if left out"},
    "TesterStep": {"name": "The name of the header or cookie", "value": "Its value; any value if left out"},
    "RolloutWave": {
        "name": "Shown in the status",
        "regions": "The regions of the wave",
        "percent": "Percent of the app's regions, taken from those that no wave before it has",
        "soak": "How long to wait after the wave before the next begins",
        "concurrency": "How many of its regions go at a time; 0 is all",
        "maxFailures": "How many of its regions may fail before the rollout does; 0 if left out",
    },
    "RolloutWindow": {"days": "Days of the week, in UTC"},
    "AbortRules": {
        "errors": "The share of requests with 5xx at which the new revision goes back",
        **{
            f"p{each}": f"The latency that {each} of 100 requests must keep to"
            for each in ("50", "75", "90", "95", "99", "99.9")
        },
    },
    "RolloutCheck": {
        "name": "What analysis steps call it",
        "kind": "What is asked",
        "url": "Where",
        "interval": "The time between two questions; 30s if left out",
        "failures": "How many failures in a row make the rollout fail; 1 if left out",
        "command": "What a job runs; the image's own if left out",
        "args": "Arguments of the command",
        "resources": "What a job may use; 100m and 128Mi if left out",
    },
    "CheckResources": {"cpu": "CPU", "memory": "Memory"},
    "RolloutNotification": {
        "url": "Where events are posted",
        "format": "json, or slack for an incoming webhook of Slack; json if left out",
        "on": "Which events; all if left out",
    },
}

_APPS: Texts = {
    "AppSpec": {
        "": "What to run, with which resources, in which regions. A change of what runs makes a new revision",
        "image": "The container image; on clusters whose pods are processes, the name of a program",
        "topology": "The regions in which the app runs, each at most once",
        "command": "Replaces the image's entry point",
        "args": "Arguments of the command",
        "env": "Variables of the containers",
        "resources": "What each instance requests, and may use at most",
        "port": "Where the app listens; 8080 if left out. The variable PORT has it",
        "protocol": "What the app speaks: http1, or h2c for gRPC; http1 if left out",
        "healthcheck": "How to find out that an instance is ready and alive; without one it is when its containers run",
        "autoscaling": "The number of instances follows their load, in every region that does not say otherwise",
        "shutdownSignal": "The signal that ends an instance; SIGTERM if left out",
        "terminationSeconds": "How long an instance may take to end before it is killed; 30 if left out",
        "git": "Where the revision comes from; shown only",
        "restarts": "How often the app was restarted; another number makes a revision with new instances. What is left "
        "out stays as it is",
        "drift": "Whether changes that others make to its objects are corrected or only reported; correct if left out",
        "desired": "stopped keeps the app without instances; running if left out",
        "placement": "Which clusters of a region may run it",
        "nodeSelector": "Labels that nodes must have",
        "security": "What the containers may do; as little as possible if left out",
        "imagePullSecrets": "Secrets of the environment with SERVER, USERNAME and PASSWORD of the registries that the "
        "image comes from; those of the environment's spec if left out",
        "podLabels": "Labels of the pods beside Shoal's own, for Services, policies and monitors that you made. Where "
        "set, others than Shoal's gateways reach the pods too, so the NetworkPolicy lets them in",
        "readiness": "When a revision counts as ready as a whole",
        "rollout": "How a new revision replaces the old one; what is left out comes from the environment",
    },
    "AppSecurity": {
        "": "Containers have no capabilities, gain no privileges and run with the runtime's seccomp profile, unless it "
        "says otherwise. Revisions that an earlier release made keep what they had",
        "runAsNonRoot": "Refuse to start as root; also true without it where the namespace enforces restricted",
        "runAsUser": "The number of the user to run as; the image's if left out",
        "capabilities": "Capabilities to keep, such as NET_BIND_SERVICE or CHOWN; none if left out",
        "privilegeEscalation": "Whether a process may gain more privileges than its parent, as sudo does",
        "seccomp": "Unconfined lifts the runtime's filter of system calls; RuntimeDefault if left out",
    },
    "RegionOfApp": {
        "region": "The name of the region",
        "replicas": "How many instances run there; 1 if left out. Not used with autoscaling",
        "autoscaling": "As for the app, for this region alone",
        "overrides": "What differs in this region",
        "surge": "How many more instances there may be while revisions are exchanged: a number or a "
        "percentage; 25% if left out",
        "adopt": "A Deployment that runs already and is the first revision of the app in the region. Only looked at "
        "when the region is new",
    },
    "AdoptedDeployment": {
        "": "A Deployment that runs in a cluster of the region; `shoal import --adopt` writes it. Its pods go on",
        "cluster": "The cluster where it runs, by its name in the fleet",
        "namespace": "Its namespace; the environment must have the same",
        "deployment": "Its name, which stays",
        "uid": "Its uid: another Deployment of the same name is not adopted",
        "selector": "The labels by which it selects its pods",
        "autoscaler": "The HorizontalPodAutoscaler that scales it; the app's autoscaling sets its bounds from then on",
    },
    "RegionOverrides": {
        "env": "Variables, added to those of the app",
        "resources": "Instead of those of the app",
        "image": "Instead of that of the app",
    },
    "Resources": {"ephemeralStorage": "Space on the node's disk"},
    "Autoscaling": {
        "min": "The least instances; 1 if left out",
        "max": "The most instances; the same as min if left out",
        "cpu": "Percent of the requested processor time that instances use on average; 80 if neither is given",
        "memory": "Percent of the requested memory that instances use on average",
    },
    "Healthcheck": {
        "": "Exactly one of http, tcp, grpc and exec",
        "http": "GET must give a code from 200 to 399",
        "tcp": "The port must accept a connection",
        "grpc": "The gRPC health service must say SERVING",
        "exec": "A command in the container must exit with 0",
        "initialDelay": "Seconds from the start to the first check; 0 if left out",
        "period": "Seconds between two checks; 10 if left out",
        "timeout": "Seconds that a check may take; 1 if left out",
        "failures": "Failures in a row that make an instance not ready, or restart it; 3 if left out",
    },
    "HttpProbe": {"path": "The path; / if left out", "port": "The port; that of the app if left out"},
    "PortProbe": {"port": "The port; that of the app if left out"},
    "ExecProbe": {"command": "The program and its arguments"},
    "GitSource": {
        "sha": "The commit",
        "branch": "The branch",
        "repository": "The repository",
        "message": "The first line of the commit's message",
    },
    "AppPlacement": {
        "labels": "Labels that clusters must have",
        "cel": "A CEL expression that must be true of a cluster",
        "tolerations": "Taints of clusters that do not keep the app away",
        "spread": "together: in the cluster where the environment's gateway of the region is; apart: over the "
        "clusters of the region",
    },
    "Toleration": {
        "key": "The taint's key; left out with operator Exists it stands for every taint",
        "operator": "Equal compares the value, Exists does not; Equal if left out",
        "value": "The taint's value",
        "effect": "The taint's effect; every effect if left out",
    },
    "AppReadiness": {
        "regions": "How many regions must be ready: a number, all, or allButOne; allButOne if left out",
        "deadline": "Seconds until a revision that is not ready has failed; 600 if left out",
    },
}

_TRAFFIC: Texts = {
    "RouteSpec": {
        "": "Which requests go to which app. Exactly one of app, backends and redirect",
        "host": "The host of the requests",
        "path": "The beginning of the path; / if left out",
        "headers": "Headers that requests must have",
        "app": "The app that answers",
        "backends": "Apps that share the requests",
        "redirect": "Answer with a redirect instead",
        "sticky": "Requests of one client go to the same instance",
        "mirror": "Copy requests to another app; its answers are dropped",
        "rewrite": "What the app sees instead",
        "timeouts": "Limits in seconds; 0 is none",
        "retries": "How often a request is tried again that did not reach an instance, or that may be "
        "repeated; 2 if left out",
        "tls": "Serve the host with a certificate of its own",
        "policies": "The policies that apply, in this order; all of the environment if left out",
    },
    "RouteBackend": {
        "app": "The name of the app",
        "weight": "Its share, relative to the others; 100 if left out",
        "deployment": "One revision of it; the live one if left out",
    },
    "StickyRoute": {
        "": "Exactly one of cookie and header",
        "cookie": "A cookie that the gateway sets",
        "header": "A header of the request",
        "ttl": "Seconds that the cookie lives; as long as the browser runs if left out",
    },
    "MirrorRoute": {"app": "The app that gets copies", "percent": "Percent of the requests; 100 if left out"},
    "RouteRedirect": {
        "scheme": "The new scheme",
        "host": "The new host",
        "path": "The new path, as a whole",
        "prefix": "Replaces the route's path at the beginning",
        "code": "The code of the answer; 302 if left out",
    },
    "RouteRewrite": {"prefix": "Replaces the route's path at the beginning", "host": "The host that the app sees"},
    "RouteTimeouts": {
        "total": "For the whole answer; 60 if left out",
        "idle": "Without a byte in either direction; 300 if left out",
        "header": "For one try; none if left out",
    },
    "RouteTls": {"secret": "A Secret with the values TLS_CRT and TLS_KEY"},
    "PolicySpec": {
        "": "What a gateway checks before a request reaches an app. Exactly one of cors, firewall, jwt, "
        "keyAuth, rateLimit and requestSize",
        "keyAuth": "Requests need an API key",
        "jwt": "Requests need a signed token",
        "rateLimit": "Requests are counted, those above the limit get 429",
        "firewall": "Requests are refused or let in by address, header or path",
        "requestSize": "Larger bodies get 413",
        "cors": "Browsers of other origins may call the routes",
        "match": "The policy applies to requests that fit all of these; to all if left out",
        "enabled": "Whether the policy applies; true if left out",
        "order": "Policies with smaller numbers come first; 100 if left out",
        "failOpen": "Let requests pass that cannot be checked; only for rateLimit, requestSize and cors",
        "routes": "The routes that it applies to; all of the environment if left out",
    },
    "RequestMatch": {
        "": "Exactly one of its fields",
        "path": "The path of the request",
        "method": "One of these methods",
        "header": "A header of the request",
        "query": "A parameter of the query",
    },
    "PathMatch": {
        "": "Exactly one of exact, prefix and regex",
        "exact": "The whole text",
        "prefix": "Its beginning",
        "regex": "A regular expression (RE2) for the whole text",
        "ignoreCase": "Capital and small letters are the same",
    },
    "NamedMatch": {
        "": "At most one of exact, prefix, regex and present; without any it must be present",
        "name": "The name of the header or parameter",
        "exact": "The whole value",
        "prefix": "Its beginning",
        "regex": "A regular expression (RE2) for the whole value",
        "ignoreCase": "Capital and small letters are the same",
        "present": "It must be there, with any value",
    },
    "KeyAuth": {
        "locations": "Where the key may be; in the header Authorization as a bearer token if left out",
        "permissions": "What the key must be allowed to do",
    },
    "KeyLocation": {
        "": "Exactly one of bearer, header and query",
        "bearer": "The header Authorization: Bearer KEY",
        "header": "The header with this name",
        "query": "The parameter of the query with this name",
        "stripPrefix": "What stands before the key in the header",
    },
    "JwtAuth": {
        "": "Exactly one of jwksUri, oidcIssuer and pem",
        "jwksUri": "Where the public keys are",
        "oidcIssuer": "An OpenID Connect issuer, whose document names the keys",
        "pem": "A public key or certificate",
        "issuer": "The claim iss that tokens must have",
        "subjectClaim": "The claim that names the user; sub if left out",
        "audiences": "One of these must be in the claim aud",
        "algorithms": "Accepted signatures; RS256 and ES256 if left out",
        "anonymous": "Let requests without a token pass; a wrong one is still refused",
        "clockSkew": "Seconds that clocks may differ; 60 if left out",
        "cache": "Seconds that keys are kept; 300 if left out",
    },
    "RateLimit": {
        "limit": "Requests in a window",
        "window": "Seconds; 60 if left out",
        "scope": "Whether each replica counts for itself (local), all replicas together with some delay "
        "(cluster), or exactly (strict, "
        "which needs Redis); cluster if left out",
        "identifier": "Whose requests are counted together; those of an address if left out",
        "cost": "What one request counts; 1 if left out",
    },
    "RateIdentifier": {
        "": "Exactly one of its fields",
        "remoteIp": "The client's address",
        "header": "The value of the header with this name",
        "path": "The path of the request",
        "subject": "The user that keyAuth or jwt found",
        "principal": "This claim of the token",
    },
    "Firewall": {
        "": "At least one of cidrs, headers and paths",
        "action": "deny refuses requests that fit, allow refuses all others; deny if left out",
        "cidrs": "Addresses or networks of clients",
        "headers": "Requests that have one of these headers",
        "paths": "Paths that begin so",
    },
    "RequestSize": {"maxBytes": "The largest body, a quantity such as 10Mi"},
    "Cors": {
        "origins": "Origins that may call, such as https://app.example.com, or *",
        "methods": "Methods that they may use; GET, HEAD and POST if left out",
        "headers": "Headers that they may send",
        "exposeHeaders": "Headers of answers that they may read",
        "credentials": "Whether browsers send cookies; not with origin *",
        "maxAge": "Seconds that browsers remember the answer; 600 if left out",
    },
}

SPEC_TEXTS: Texts = {**_PLACES, **_SCOPES, **_ROLLOUTS, **_APPS, **_TRAFFIC}
