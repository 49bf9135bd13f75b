"""Pure builders: a training and what was observed in, whole manifests out. No clock, no client, no environment."""
