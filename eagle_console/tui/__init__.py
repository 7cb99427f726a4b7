"""The screen: Textual widgets over ``HostState`` snapshots; it acts through ``HostClient`` only."""
