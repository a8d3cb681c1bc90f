//! What `fix` does not write: what the hub would not, and what nobody agreed to.
