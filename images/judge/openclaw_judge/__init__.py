"""The judge: leases turns from the gateway, asks a judge endpoint what their next state says of them, writes scores.

__main__   configuration, secrets, start
worker     the loops
prompt     a turn → chat messages (pure)
endpoint   one judgement, with its time bounds
votes      text → vote → majority (pure)
store      the gateway's internal API
state      health of the endpoint, counts, metrics
server     /healthz /readyz /metrics /state
"""
