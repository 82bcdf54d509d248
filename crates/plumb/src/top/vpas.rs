//! VPAs: the rows of `plumb status vpa`.

use plumb_controller_runtime::ObjectRef;
use plumb_resize::Quantity;
use plumb_resize::resource::Resource;
use plumb_vpa_api::VerticalPodAutoscaler;

use super::observed::Observed;
use super::table::{Key, Order, Row, Table};
use crate::status::listing::Form;
use crate::status::vpa;

/// A row for each container of each VPA.
pub(super) fn table(observed: &Observed, form: Form) -> Table {
    let rows = observed.vpas.iter().flat_map(|(object, vpa)| rows(object, vpa, form)).collect();
    let titles = vpa::head(form).into_iter().map(|title| {
        let rank = rank(&title);
        (title, rank)
    });
    Table::new(titles, rows)
}

fn rank(title: &str) -> u8 {
    match title {
        "UNCAPPED" => 4,
        "NAMESPACE" => 3,
        "LOWER" | "UPPER" => 2,
        "CONDITIONS" | "CONTAINER" | "MODE" => 1,
        _ => 0,
    }
}

fn rows(object: &ObjectRef, vpa: &VerticalPodAutoscaler, form: Form) -> Vec<Row> {
    let recommended = vpa::recommended(vpa);
    let why = vpa::why(vpa).join("; ");
    let why = if why.is_empty() { why } else { format!("{}: {why}", object.name) };
    let row = |(at, cells): (usize, Vec<String>)| {
        let container = recommended.get(at);
        let mut order = vec![Order::Text; if form.with_namespace { 4 } else { 3 }];
        for resource in Resource::ALL {
            let amount = |quantity: Option<Quantity>| Order::Amount(quantity.map(Quantity::saturating_milli));
            let all = container.map_or([None; 4], |of| {
                [of.target, of.lower_bound, of.upper_bound, of.uncapped_target].map(|of| of[resource])
            });
            order.extend(all.map(amount));
        }
        order.resize(cells.len(), Order::Text);
        let part = container.map(|container| container.container.clone()).unwrap_or_default();
        Row { key: Key { object: object.clone(), part }, cells, order, why: why.clone() }
    };
    vpa::rows(vpa, form).into_iter().enumerate().map(row).collect()
}
