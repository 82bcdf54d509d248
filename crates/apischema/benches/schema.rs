//! What the schema table costs: `cargo bench -p plumb-apischema`.

use plumb_apischema::Schema;

fn main() {
    divan::main();
}

#[divan::bench]
fn load_the_table() -> Schema {
    Schema::load(include_str!("../data/kubernetes-1.36.schema")).expect("the table is sound")
}
