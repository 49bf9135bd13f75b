"""What `bench/gateway.py` is made of: an engine, a load, and the proxies that stand between them."""
