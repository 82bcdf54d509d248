//! The CPU start-up boost (AEP-7862): how much a container gets at its start, and what it gets back to. Pure.
