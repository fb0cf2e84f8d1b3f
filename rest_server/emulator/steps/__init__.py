"""Steps that a request passes between a client and a replica, each in its own file.

| step | decision | record | |---|---|---| | key, rate limit (`gate`) | whether the client can send | settings
| | `batches` | sends the requests of offline batches in the same way | `Server.deadline` | | `jobs` | stores
jobs for workers, which send requests like other clients | | | `routes` | small or large model, and whether
the large one also serves it | `plan.routes`, `spec.routes` | | `versions` | version of the model, and another
one if it fails | `plan.versions` | | `caches` | whether a stored result is the response | `plan.caches` | |
`queues` | when a slot of the shared replicas is free for it | `plan.shared_queues` | | replica (`router`) |
which replica, and the network latency to it | `PoolRun.delay_ms` |

`table` lists the steps in this order.
"""
