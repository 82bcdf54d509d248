//! The report as a page that needs nothing else: no script, no style sheet, no network.

use std::fmt::Write as _;

use plumb_go::escape_xml;
use plumb_resize::resource::Resource;

use super::{Change, Report, Row};

const STYLE: &str = "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}th,td{padding:.3em .8em;\
    border-bottom:1px solid #ddd;text-align:left}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
    td.more{color:#b35900}td.less{color:#1a7f37}";

pub(super) fn page(report: &Report, title: &str) -> String {
    let title = escape_xml(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body>\n<h1>{title}</h1>\n"
    );
    totals(&mut page, report);
    let [head, rows @ ..] = &report.table()[..] else { return page };
    page.push_str("<table>\n<tr>");
    for (column, cell) in head.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(page, "<th{}>{}</th>", if column > 2 { " class=\"n\"" } else { "" }, escape_xml(cell));
    }
    page.push_str("</tr>\n");
    for (row, cells) in report.rows.iter().zip(rows) {
        page.push_str("<tr>");
        for (column, cell) in cells.iter().enumerate() {
            let _ = write!(page, "<td class=\"{}\">{}</td>", class(row, column), escape_xml(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n</body>\n</html>\n");
    page
}

/// What all pods together request, and what they would.
fn totals(page: &mut String, report: &Report) {
    for resource in Resource::ALL {
        let mut sums = (0_i64, 0_i64);
        for row in &report.rows {
            let change: &Change = &row.resources[resource];
            if let (Some(request), Some(by)) = (change.request, change.difference(resource)) {
                let pods = i64::from(row.pods.max(1));
                sums.0 = sums.0.saturating_add(request.saturating_mul(pods));
                sums.1 = sums.1.saturating_add(request.saturating_add(by).saturating_mul(pods));
            }
        }
        if sums.0 > 0 {
            let short = |amount| super::short(resource, amount);
            let name = resource.name();
            let _ =
                writeln!(page, "<p>{name}: {} requested, {} recommended</p>", short(sums.0), short(sums.1));
        }
    }
}

/// How a cell looks: names, numbers, and differences by their direction.
fn class(row: &Row, column: usize) -> &'static str {
    let difference = match column {
        6 => row.resources[Resource::Cpu].difference(Resource::Cpu),
        9 => row.resources[Resource::Memory].difference(Resource::Memory),
        0..=2 => return "",
        _ => return "n",
    };
    match difference {
        Some(by) if by > 0 => "n more",
        Some(by) if by < 0 => "n less",
        _ => "n",
    }
}
