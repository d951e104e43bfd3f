"""The bus that carries hints between processes: the ports in `services.common.hints`, made real.

`waiters` and `outbox` are the two ends in this process, whatever lies between: who waits for which
key, and which keys are to be sent. `postgres` and `nats` are what may lie between; each keeps a
connection, passes on what comes in to the waiters and sends what the outbox holds. `open` makes
the bus that the settings ask for.
"""
