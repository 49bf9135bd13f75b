"""The environment: simulated users with a hidden preference, and the offline judge endpoint of the quickstart.

__main__        configuration, start
settings        what environment variables say
users           the users' loops and one session
chat            a stock-like client that waits refusals out
journal         what the users saw, by their own clock
server          /report /stop /start /healthz /metrics
tasks/          hidden preferences and reactions (pure)
judge_endpoint  an OpenAI-compatible judge that decides by rule
"""
