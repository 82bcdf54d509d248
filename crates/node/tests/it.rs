//! The node agent, through its public door.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod it {
    mod agent;
    mod allocator;
    mod cluster;
    mod door;
    mod env;
    mod journal;
    mod last_words;
    mod lifecycle;
    mod objects;
    mod probe;
    mod register;
    mod server;
    mod site;
    mod specify;
    mod tokens;
    mod usage;
    mod volumes;
}
