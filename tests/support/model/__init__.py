"""A model's server that answers from a script; `tests.support.model_server` says how it is used."""
