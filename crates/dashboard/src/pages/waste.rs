//! What is allocated and not used, in cores, bytes, and money.

use plumb_resize::resource::{Amounts, Resource};

use super::columns;
use crate::Prices;
use crate::cluster::Cluster;
use crate::page::Section;
use crate::source::Access;
use crate::table::{Cell, Table};

/// The hours of an average month.
const MONTH: f64 = 730.0;

/// What all pods of nodes have together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    /// Their allocated requests.
    pub(super) allocated: Amounts,
    /// What they use.
    pub(super) used: Amounts,
}

/// The section of the overview. It compares sums: a pod that uses more than its requests lowers what is not used.
pub(super) fn section(cluster: &Cluster, total: Total) -> Section {
    let is_known = cluster.usage.access() == Access::Granted;
    let unused = total.allocated.less(total.used);
    let mut names =
        vec![("resource", "Resource"), ("allocated", "Allocated"), ("used", "Used"), ("unused", "Not used")];
    if cluster.prices.is_some() {
        names.extend([("perHour", "Per hour"), ("perMonth", "Per month")]);
    }
    let row = |resource: Resource| {
        let amount = |of: Amounts, is_known: bool| Cell::Amount(resource, is_known.then_some(of[resource]));
        let mut row = vec![
            Cell::text(resource.name()),
            amount(total.allocated, true),
            amount(total.used, is_known),
            amount(unused, is_known),
        ];
        if let Some(prices) = cluster.prices {
            let hour = price(prices, resource, unused[resource]);
            row.extend(
                [hour, hour * MONTH]
                    .map(|money| Cell::text(if is_known { money_text(money) } else { String::new() })),
            );
        }
        row
    };
    let table = Table {
        caption: "What pods have allocated and do not use now".to_owned(),
        columns: columns(&names),
        rows: Resource::ALL.into_iter().map(row).collect(),
        empty: "",
    };
    Section::new("waste", "Waste")
        .needs("pods", &cluster.pods.access())
        .needs("pods of metrics.k8s.io", &cluster.usage.access())
        .with_table(table)
}

/// What an amount of a resource costs in an hour.
fn price(prices: Prices, resource: Resource, amount: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "money is shown with two digits")]
    let amount = amount as f64;
    match resource {
        Resource::Cpu => prices.core * amount / 1000.0,
        Resource::Memory => prices.gib * amount / f64::from(1 << 30),
    }
}

fn money_text(money: f64) -> String {
    format!("{money:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_that_of_cores_and_gib_in_an_hour() {
        let prices = Prices { core: 0.04, gib: 0.005 };
        assert_eq!(money_text(price(prices, Resource::Cpu, 1500)), "0.06");
        assert_eq!(money_text(price(prices, Resource::Memory, 10 << 30) * MONTH), "36.50");
        assert_eq!(money_text(price(prices, Resource::Cpu, 0)), "0.00");
    }
}
