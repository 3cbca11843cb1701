"""Examples of every command, shown at the end of its help: what it does, and the line to type.

By the words of the command. A test checks that every command has one and that every line can be parsed.
"""

from __future__ import annotations

from collections.abc import Mapping

Examples = tuple[tuple[str, str], ...]

_APPS: Mapping[str, Examples] = {
    "apply": (
        ("create or change what a file describes", "shoal apply -f app.yaml"),
        ("show what would change, and in which clusters", "shoal apply -f app.yaml --dry-run"),
        ("all files of a folder, in a project and an environment", "shoal apply -f deploy/ -p shop -e production"),
    ),
    "diff": (
        ("what applying a file would change", "shoal diff -f app.yaml"),
        ("apply only if there is something to change", "shoal diff -f app.yaml || shoal apply -f app.yaml"),
    ),
    "import": (
        (
            "an App for a Deployment that runs, to be applied when it reads as it should",
            "shoal import deployment/web --region eu -p shop -e production",
        ),
        (
            "an App whose first revision is that Deployment, of which nothing restarts",
            "shoal import deployment/web -n shop --region eu -p shop -e production --adopt --cluster eu-1",
        ),
    ),
    "edit": (("an app in your editor", "shoal edit app hello"),),
    "set": (("another image", "shoal set image hello shop/web:v2"),),
    "set image": (("the image of an app in another project", "shoal set image shop/production/web shop/web:v2"),),
    "set env": (("one variable more, one less", "shoal set env hello GREETING=hi OLD-"),),
    "wait": (
        ("until an app is ready everywhere", "shoal wait app hello --timeout 5m"),
        ("until its rollout is done; exit code 1 if it goes back", "shoal wait app hello --for rollout"),
        ("until it is gone", "shoal wait app hello --for deleted"),
        ("until a field has a value", "shoal wait app hello --for 'jsonpath={.status.state}=Stopped'"),
    ),
    "why": (
        ("why an app is where it is, and what it lacks", "shoal why app hello"),
        ("what the gateways of an environment lack", "shoal why environment production"),
    ),
    "why environment": (("what the gateways of an environment lack", "shoal why environment production"),),
    "why app": (("why an app is where it is, and what it lacks", "shoal why app hello"),),
    "why pod": (("why a pod is on its node", "shoal why pod web-1 -n default"),),
    "stop": (("no instances until it is started again", "shoal stop hello"),),
    "stop app": (("what that would do", "shoal stop app hello --dry-run"),),
    "start": (("as many instances as before", "shoal start hello"),),
    "start app": (("as many instances as before", "shoal start app hello"),),
    "restart": (("new instances of an app", "shoal restart hello"),),
    "restart app": (("what that would do", "shoal restart app hello --dry-run"),),
    "create": (("a project and an environment in it", "shoal create project shop"),),
    "create project": (("a project", 'shoal create project shop --description "the web shop"'),),
    "create environment": (("an environment of a project", "shoal create environment production -p shop"),),
    "create secret": (
        ("variables for apps, one of them from a file", "shoal create secret db --from-file PASSWORD=password.txt"),
        ("new values for a secret that exists", "shoal create secret db --from-env-file db.env --replace"),
    ),
    "create credential": (
        ("a token for the webhooks of rollouts", "shoal create credential ci --token-file ci.token"),
    ),
    "get": (
        ("all apps of the current project and environment", "shoal get apps"),
        ("one app as YAML", "shoal get app hello -o yaml"),
        ("the images of all apps", "shoal get apps -A -o jsonpath='{.items[*].spec.image}'"),
        ("every change, until Ctrl-C", "shoal get apps -w"),
    ),
    "describe": (("an app with its instances, revisions and events", "shoal describe app hello"),),
    "status": (
        ("everything that runs, and what is missing", "shoal status"),
        ("wait until an app and its gateways are ready", "shoal status hello --wait-ready --timeout 5m"),
    ),
    "explain": (
        ("what a field means", "shoal explain app.spec.rollout"),
        ("the fields of all fields of a kind", "shoal explain route --recursive"),
    ),
    "events": (
        ("what happened in the workspace, and what happens", "shoal events -f"),
        ("what happened to an app", "shoal events app hello"),
        ("Kubernetes events of all clusters", "shoal events --cluster all"),
    ),
    "history": (("who changed an app, and its revisions", "shoal history app hello"),),
    "scale": (("four instances in one region", "shoal scale hello --region eu --replicas 4"),),
    "scale app": (("the bounds of an autoscaler", "shoal scale app hello --min 2 --max 10"),),
    "rollback": (("back to the last revision that was ready", "shoal rollback hello"),),
    "rollback app": (("back to revision 3", "shoal rollback app hello --to 3"),),
    "rollout": (("follow a rollout", "shoal rollout status hello -w"),),
    "rollout plan": (
        ("play the rollout that a file describes", "shoal rollout plan -f app.yaml"),
        ("with faults and bad numbers", "shoal rollout plan -f app.yaml --simulate faults.yaml"),
    ),
    "rollout status": (
        ("follow a rollout; exit code 1 if it goes back", "shoal rollout status hello -w"),
        ("that of an environment's gateways", "shoal rollout status environment/production"),
    ),
    "rollout history": (("what was decided in rollout 3, and why", "shoal rollout history hello --number 3"),),
    "rollout pause": (("stay at the step that is under way", 'shoal rollout pause hello --reason "call at 3"'),),
    "rollout resume": (("approve a step that waits", "shoal rollout resume hello"),),
    "rollout skip": (("leave out the rest of a step", "shoal rollout skip hello"),),
    "rollout promote": (("leave out all steps that are left", "shoal rollout promote hello"),),
    "rollout abort": (("give all requests back to the old revision", "shoal rollout abort hello"),),
    "rollout retry": (("try the revision again that was taken back", "shoal rollout retry hello"),),
    "rollout undo": (("back to the revision before the last rollout", "shoal rollout undo hello"),),
    "move": (("to another cluster of its region", "shoal move hello --region eu --cluster eu-2"),),
    "move app": (("show what would move", "shoal move app hello --region eu --cluster eu-2 --dry-run"),),
    "delete": (
        ("an app with its instances", "shoal delete app hello"),
        ("end the app, and let its instances run", "shoal delete app hello --keep-running"),
        ("what a file describes, without a question", "shoal delete -f app.yaml --yes"),
        ("a project with everything in it", "shoal delete project shop --cascade"),
    ),
    "sentinels": (("no longer wait for a gateway", "shoal sentinels forget shop/production/gateway"),),
    "sentinels forget": (("no longer wait for a gateway", "shoal sentinels forget shop/production/gateway"),),
}

_CLUSTERS: Mapping[str, Examples] = {
    "query": (
        ("pods that are not ready", 'shoal query "pods where not ready"'),
        ("how many pods run an image, by region", "shoal query \"pods where image ~ 'v2' count by region\""),
        ("the fields of a kind", "shoal query --fields pods"),
    ),
    "services": (
        ("services of all clusters", "shoal services"),
        ("one service with its endpoints", "shoal services shop/web"),
    ),
    "mesh": (("who calls whom", "shoal mesh graph"),),
    "mesh workload": (("the Istio resources that act on a workload", "shoal mesh workload shop/web"),),
    "mesh graph": (("who calls a service, in the last hour", "shoal mesh graph shop/web --since 1h"),),
    "mesh proxy": (("the configuration of a pod's Envoy", "shoal mesh proxy shop/web-1"),),
    "logs": (
        ("the pods of an app, in all clusters", "shoal logs hello -f"),
        ("the last lines of one pod", "shoal logs shop/web-1 --tail 20"),
    ),
    "search": (("objects of any kind by image, host or address", "shoal search web v2"),),
    "changes": (
        ("what changed in the last hour", "shoal changes --from 1h"),
        ("what differs between two clusters", "shoal changes eu-1 us-1"),
        ("the history of one object", "shoal changes --of nodes/node-1 --from 1d"),
    ),
    "lint": (("mistakes in the mesh configuration, no warnings", "shoal lint --errors"),),
    "checks": (("the results of all checks", "shoal checks run"),),
    "checks run": (("the result of one check, as it was an hour ago", "shoal checks run ready --at 1h"),),
    "checks list": (("the saved checks", "shoal checks list"),),
    "checks save": (("a query that must find nothing", 'shoal checks save ready "pods where not ready"'),),
    "checks remove": (("a check that is not needed any more", "shoal checks remove ready"),),
}

_FLEET: Mapping[str, Examples] = {
    "agents": (("the agents of all clusters", "shoal agents -o wide"),),
    "agents list": (("as JSON", "shoal agents list -o json"),),
    "agents upgrade": (
        (
            "which clusters are upgraded in which wave",
            "shoal agents upgrade --image registry.example/shoal:1.2.3 --dry-run",
        ),
        ("all clusters, one first", "shoal agents upgrade --image registry.example/shoal:1.2.3 --waves 1,50%,100%"),
    ),
    "agents confirm": (("confirm deletions that an agent holds back", "shoal agents confirm eu-1/default"),),
    "token": (("the tokens of the control plane", "shoal token list"),),
    "token create": (
        ("a token for a person", "shoal token create --name ann --role editor --ttl 7d"),
        ("a join file for a cluster", "shoal token create --kind agent --cluster eu-2 --region eu --to join.json"),
    ),
    "token list": (("the tokens of agents", "shoal token list --kind agent"),),
    "token revoke": (("end a token", "shoal token revoke ann"),),
    "token rotate": (("replace a token; the old one works for ten minutes", "shoal token rotate ann --grace 10m"),),
    "token rotate-key": (("a new key for service account tokens", "shoal token rotate-key --dir ~/.shoal"),),
    "workspaces": (("the workspaces of the fleet", "shoal workspaces"),),
    "workspaces list": (("the workspaces of the fleet", "shoal workspaces list"),),
    "workspaces create": (("a workspace", "shoal workspaces create team-a"),),
    "workspaces quotas": (("what a workspace uses and may use", "shoal workspaces quotas team-a"),),
    "workspaces set": (("a quota and a domain", "shoal workspaces set team-a --quota apps=10 --domain a.example.com"),),
    "workspaces delete": (("a workspace that is empty", "shoal workspaces delete team-a"),),
    "master-key": (("the master keys in use", "shoal master-key list"),),
    "master-key list": (("the master keys in use", "shoal master-key list"),),
    "master-key rotate": (("a new master key, with everything sealed anew", "shoal master-key rotate"),),
    "audit": (
        ("the newest changes of the workspace", "shoal audit"),
        ("what a token changed, as JSON", "shoal audit --actor ci --limit 500 -o json"),
    ),
    "open": (
        ("a link to the page", "shoal open"),
        ("to the page of another control plane", "shoal open --context production"),
    ),
    "whoami": (("whose token this is, and what it may do", "shoal whoami"),),
    "config": (("choose a control plane", "shoal config use-context production"),),
    "config get-contexts": (("the known control planes", "shoal config get-contexts"),),
    "config use-context": (("choose a control plane", "shoal config use-context production"),),
    "config set-context": (
        ("add a control plane", "shoal config set-context prod --url https://shoal.example.com:7400 --token -"),
        ("a default project and environment", "shoal config set-context --project shop --environment production"),
    ),
    "config view": (("the context file, without its tokens", "shoal config view"),),
    "config check": (("whether a settings file is valid", "shoal config check krane krane.yaml"),),
    "config show": (("the settings that a process would have here", "shoal config show control"),),
    "config schema": (("a JSON Schema for editors", "shoal config schema krane"),),
}

_PROCESSES: Mapping[str, Examples] = {
    "up": (
        ("the whole system on this machine", "shoal up"),
        ("with three regions, in a directory", "shoal up --regions eu,us,ap --dir ./fleet"),
    ),
    "down": (("stop it", "shoal down"),),
    "cluster": (("a Kubernetes-compatible cluster", "shoal cluster start"),),
    "cluster start": (
        ("a cluster on this machine", "shoal cluster start --dir ./eu-1 --port 6443"),
        ("with pods as containers", "shoal cluster start --runtime docker"),
    ),
    "cluster join": (
        (
            "a Kubernetes cluster joins the fleet",
            "shoal cluster join eu-1 --kubeconfig eu-1.yaml --region eu --image registry.example/shoal:1.2.3",
        ),
        (
            "what that would apply, to look at or to commit",
            "shoal cluster join eu-1 --region eu --image registry.example/shoal:1.2.3 --print",
        ),
    ),
    "cluster leave": (
        ("everything that joining has made is removed", "shoal cluster leave eu-1 --kubeconfig eu-1.yaml"),
    ),
    "cluster rotate-ca": (("a new certificate authority", "shoal cluster rotate-ca --overlap 30d"),),
    "control": (("a control plane", "shoal control start"),),
    "control start": (("on one port of all addresses", "shoal control start --host 0.0.0.0 --port 7400"),),
    "control rotate-ca": (("a new certificate authority", "shoal control rotate-ca --overlap 30d"),),
    "control credentials": (("what another control plane needs", "shoal control credentials export keys.json"),),
    "control credentials export": (("for a further control plane", "shoal control credentials export keys.json"),),
    "krane": (("the agent of a cluster", "shoal krane start --join join.json"),),
    "krane start": (("with a kubeconfig", "shoal krane start --join join.json --kubeconfig eu-1.kubeconfig"),),
    "krane manifests": (("the rights that an agent needs", "shoal krane manifests"),),
    "sentinel": (("a gateway", "shoal sentinel start --config gateway.yaml"),),
    "sentinel start": (("a gateway, settings from a file", "shoal sentinel start --config gateway.yaml"),),
    "shard": (("the manager of a cluster", "shoal shard manager --kubeconfig eu-1.kubeconfig --install"),),
    "shard manager": (("apply the definitions first", "shoal shard manager --kubeconfig eu-1.kubeconfig --install"),),
    "shard manifests": (("the rights that a manager needs", "shoal shard manifests"),),
    "shard worker": (("a worker of a controller in Python", "shoal shard worker websites:controller"),),
    "shard proxy": (("for a controller in another language", "shoal shard proxy --kubeconfig eu-1.kubeconfig"),),
    "navigator": (("the manager", "shoal navigator manager"),),
    "navigator manager": (("on a port", "shoal navigator manager --port 7410"),),
    "navigator edge": (
        ("the edge of a cluster", "shoal navigator edge --join edge.json --kubeconfig eu-1.kubeconfig"),
    ),
    "navigator rotate-ca": (("a new certificate authority", "shoal navigator rotate-ca --overlap 30d"),),
    "navigator manifests": (
        ("the rights that an edge needs", "shoal navigator manifests"),
        ("for two namespaces only", "shoal navigator manifests --namespace shop --namespace web"),
    ),
    "navigator forget": (("a cluster that is gone", "shoal navigator forget eu-3 --revoke"),),
    "navigator token": (("the tokens of edges and readers", "shoal navigator token list"),),
    "navigator token create": (("a join file for an edge", "shoal navigator token create --cluster eu-2"),),
    "navigator token list": (("the tokens of edges and readers", "shoal navigator token list"),),
    "navigator token rotate": (("replace a token", "shoal navigator token rotate 01jd4k --grace 10m"),),
    "navigator token revoke": (("end a token", "shoal navigator token revoke 01jd4k"),),
    "navigator edges": (("the options of all edges", "shoal navigator edges get"),),
    "navigator edges get": (("the settings of one edge", "shoal navigator edges get eu-1"),),
    "navigator edges set": (("an option of one edge", "shoal navigator edges set eu-1 sync.interval_s=10"),),
    "navigator edges unset": (
        ("take an option of all edges back", "shoal navigator edges unset --all sync.interval_s"),
    ),
    "store": (("move a cluster to PostgreSQL", "shoal store copy ~/.shoal postgresql://shoal@db/cluster"),),
    "store copy": (("move a cluster to PostgreSQL", "shoal store copy ~/.shoal postgresql://shoal@db/cluster"),),
    "store thaw": (("let a store accept writes again", "shoal store thaw ~/.shoal"),),
    "store rotate-key": (("a new key for events", "shoal store rotate-key postgresql://shoal@db/cluster"),),
    "image": (("an image that was built here", "shoal image load web.tar"),),
    "image load": (
        ("an archive of `docker save`", "shoal image load web.tar --dir ~/.shoal/clusters/eu-1"),
        ("an OCI layout, under a name", "shoal image load ./layout --name shop/web:1"),
    ),
    "image list": (("the images of a cluster", "shoal image list"),),
    "image prune": (("everything that no container uses", "shoal image prune --all"),),
    "backup": (("a backup of everything", "shoal backup create fleet.backup"),),
    "backup create": (("of the control plane alone", "shoal backup create control.backup --only control"),),
    "backup verify": (("whether a backup is complete", "shoal backup verify fleet.backup"),),
    "backup restore": (("into a new directory", "shoal backup restore fleet.backup --dir ./restored"),),
    "completion": (
        ("in bash or zsh", "source <(shoal completion bash)"),
        ("in fish", "shoal completion fish | source"),
    ),
    "examples": (("the examples of the guides, in ./examples", "shoal examples"),),
    "doctor": (("what is wrong with this machine and the fleet, and what to do", "shoal doctor"),),
    "doctor machine": (("the same", "shoal doctor machine"),),
    "doctor cluster": (
        ("whether a Kubernetes cluster can join the fleet", "shoal doctor cluster --kubeconfig eu-1.yaml"),
    ),
    "support-bundle": (("for somebody who helps", "shoal support-bundle --to bundle.tar.gz"),),
    "version": (("the versions of Shoal, Python and SQLite", "shoal version"),),
}

EXAMPLES: Mapping[str, Examples] = {**_APPS, **_CLUSTERS, **_FLEET, **_PROCESSES}
