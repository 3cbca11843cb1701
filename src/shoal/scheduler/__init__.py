"""The scheduler: gives every pod that waits for one a node, through the API like any other client.

    informers ─▶ snapshot (nodes, pods, counts per domain) ─┐
        └─────▶ queue ─▶ plan: one table per shape of pods ─┴▶ assume ─▶ bind, many at a time
                  ▲                        └ nothing fits: events, condition, preemption
                  └──────── what changed, and could it help? (hints)

Pods of one *shape* (everything of a pod that placing it depends on) share their work: a *table* knows for each node
whether the shape fits and how well, and only looks again at nodes that changed.
"""
