"""The whole weight sync in virtual time: the real machines of operator, agent and gateway, and what is between them.

API server, SGLang, trainer and network are modelled; any part may fail at any moment.

    trainer ──publish──▶ LeaseServer ◀──read/write under resourceVersion──▶ Operator × n (the real Machine)
       ▲ releasable          │ watch, in order, sometimes late                │ poll, prepare, sync      │ post
       └─────────────────────┤                                                ▼                          │
                             └────────────▶ Gateway × n (the real Pause)    Engine × n (the real Exchange)
                                                   ▲─────────────────────────────────────────────────────┘

`system.System` holds them and checks what must be true at every moment; `faults` are what can be done to them.
"""
