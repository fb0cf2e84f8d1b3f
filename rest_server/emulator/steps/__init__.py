"""The steps of a request between a client and a replica, each in its own file.

| step | what it decides | record |
|---|---|---|
| key, rate limit (`gate`) | whether the client can send | settings |
| `batches` | sends the requests of offline batches the same way | `Server.deadline` |
| `jobs` | keeps jobs for workers, which send their requests like other clients | |
| `routes` | small or large model, and whether the large one answers again | `plan.routes`, `spec.routes` |
| `versions` | the version of the model, and another one if it fails | `plan.versions` |
| `caches` | whether a stored result is the answer | `plan.caches` |
| `queues` | when a slot of the shared replicas is free for it | `plan.shared_queues` |
| replica (`router`) | which replica, and the network time to it | `PoolRun.delay_ms` |

`table` lists them in this order.
"""
