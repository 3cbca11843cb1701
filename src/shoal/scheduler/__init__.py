"""The scheduler: assigns a node to every waiting pod, through the API like any other client.

    informers ─▶ snapshot (nodes, pods, counts per domain) ─┐
        └─────▶ queue ─▶ plan: one table per shape of pods ─┴▶ assume ─▶ bind, many at a time
                  ▲                        └ nothing fits: events, condition, preemption
                  └──────── changes that could let a pod fit (hints)

Pods of one *shape* (all fields of a pod that affect its placement) share their work: a *table* holds for each node
whether the shape fits and its score, and re-evaluates only nodes that changed.
"""
