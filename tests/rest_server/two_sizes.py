"""A fleet whose servers take one card and four cards a replica; figures made for tests."""

_FLEET = """
accelerators:
  - {name: GPU, type: GPU, cost: 50, memSize: 80}
  - {name: 4xGPU, type: GPU, multiplicity: 4, cost: 200, memSize: 320}
count: [{type: GPU, count: CARDS}]
models:
  - {name: chat, acc: GPU, queueModel: continuous, maxBatchSize: 4, kvCapacity: 40000,
     perfParms: {alpha: 20.0, beta: 1.0, gamma: 0.0001}}
  - {name: large, acc: 4xGPU, queueModel: continuous, maxBatchSize: 4, kvCapacity: 40000,
     perfParms: {alpha: 20.0, beta: 1.0, gamma: 0.0001}}
serviceClasses:
  - {name: first, priority: 1, modelTargets: [{model: large, slo-itl: 60, slo-ttft: 1500}]}
  - {name: second, priority: PRIORITY, modelTargets: [{model: chat, slo-itl: 60, slo-ttft: 1500}]}
servers:
  - {name: talk, class: second, model: chat, maxQueueSize: 40,
     currentAlloc: {load: {arrivalRate: 2/s, avgInTokens: 40, avgOutTokens: 30}}}
  - {name: think, class: first, model: large, maxQueueSize: 40,
     currentAlloc: {load: {arrivalRate: 2/s, avgInTokens: 40, avgOutTokens: 30}}}
"""


def two_sizes(cards: int, priority: int = 1) -> str:
    """Return the fleet with a number of cards, and a priority of the server that takes one."""
    return _FLEET.replace("CARDS", str(cards)).replace("PRIORITY", str(priority))
