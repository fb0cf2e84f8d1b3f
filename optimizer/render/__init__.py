"""Output for readers: sections of studies, terminal text, report pages, figures and Kubernetes manifests."""
