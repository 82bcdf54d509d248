//! Label selectors in messages.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// A selector as upstream prints it in messages: the `%v` of its Go struct.
pub(crate) fn as_in_go(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}: {value},")).collect::<Vec<_>>().concat();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions = expressions
        .map(|one| {
            let values = one.values.as_deref().unwrap_or_default().join(" ");
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                one.key, one.operator
            )
        })
        .collect::<Vec<_>>()
        .concat();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
