"""Control loop: measures the loads of a fleet, plans the fleet, and scales its Deployments.

Sources return windows of measurements (`sources`), and `estimators` convert these to loads. `deciding`
returns the desired replicas as a pure function of state and inputs, so a recorded cycle can be repeated.
`kubernetes` scales the workloads, and `controller` runs the cycles.
"""
