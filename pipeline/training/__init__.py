"""Training: speculators' own trainer, watched, resumed where it stopped, and proven complete."""
