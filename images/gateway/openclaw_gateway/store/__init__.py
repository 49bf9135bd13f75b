"""The experience store: every turn from its first byte to the optimizer step that trained it.

```
            begin               finish             attach next state        lease, score           lease, ack
 request ──▶ generating ──────▶ next_state ──────▶ judge ─────────────────▶ queued ──▶ leased ──▶ trained
                │                   │                 │                        │          │
                └───────────────────┴─────────────────┴──── dropped(reason) ◀──┴──────────┘
```
`schema` has the tables, `transaction` what an operation gets, `writer` the one thread that commits, `store` the
asynchronous face. The operations themselves (`sessions`, `turns`, `judging`, `samples`, `stats`, `upkeep`) are plain
functions of a transaction: no clock, no loop, no thread, so that tests drive them directly.
"""
