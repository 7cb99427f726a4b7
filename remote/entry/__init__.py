"""The scripts that the bundle runs on a host: stage 1 of the bootstrap, the agent, the job runner."""
