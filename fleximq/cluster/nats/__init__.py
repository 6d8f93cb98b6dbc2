"""The store on NATS with JetStream; only this wing imports nats-py, which the extra ``cluster`` installs."""
