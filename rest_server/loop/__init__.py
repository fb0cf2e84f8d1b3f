"""The control loop: it measures a fleet's loads, plans the fleet, and scales its Deployments.

Sources return windows of measurements (`sources`), `estimators` turn these into loads, and `deciding` returns
the desired replicas: a pure function of state and inputs, so a recorded cycle can be repeated. `kubernetes`
scales, and `controller` runs the cycles.
"""
