"""The pipeline floor: what a stage is (``pipeline.plan``) and the stages, run by the host's ML interpreter."""
