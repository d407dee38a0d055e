"""Every transition of the store, once: plain functions over a `Part`, without I/O.

`part` and `rows` are what they read and write; `intake` and `drops` serve ingress, `journal` and `children` the agent,
`outbox` delivery, `sweeps` time, `records` everything beside turns. `messages`, `turns` and `slots` are their shared
steps. `gateway.store.kernel_store` calls them for each method of the ports.
"""
