"""The policy gateway: an OpenAI-compatible endpoint that records every trainable turn.

```
client ──▶ public_app ──▶ chat ──▶ requests      body and headers → one value (pure)
                           │  ├──▶ pause         503, or wait, while weights are exchanged (pure)
                           │  ├──▶ store         session match, next state, admission, begin turn: one transaction
                           │  ├──▶ fleet         which engine (pure); probes keeps it true
                           │  └──▶ upstream ───▶ SGLang
                           │         └─ relay    events to the client, ids and logprobs to recording
                           └── finish turn, committed before the last frame is sent
judge, trainer, operator ──▶ internal_api ──▶ store, pause
loops: store writer thread · probes · housekeeping · Lease watch · EndpointSlice watch
```
"""
