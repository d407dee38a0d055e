"""Every transition of the store, once: plain functions over a `Part`, without I/O.

`part` and `rows` are what they read and write; `intake` and `drops` serve ingress, `leases`, `journal` and `children`
the agent, `outbox` delivery, `sweeps` time, `facts` sign-ins and notes. `messages`, `turns` and `slots` are their
shared steps. `gateway.store.kernel_store` calls them for each method of the ports.
"""
