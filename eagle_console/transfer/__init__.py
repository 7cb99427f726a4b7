"""Fetching files from a host: what is to be fetched and where it goes, the transfer itself, and how far it is."""
