"""Profiles without measurements: the catalogue of accelerators and models, and the estimator.

The input is names, or the config.json of a model, and a deployment. The output is the coefficients of the
iteration law with intervals, the KV capacity and the maximum batch. Queueing is not considered.
"""
