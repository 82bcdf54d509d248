//! The declarations of functions.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::types::{
    AUTHORIZER, CIDR, DECISION, FORMAT, GROUP_CHECK, IP, PATH_CHECK, QUANTITY, RESOURCE_CHECK, SEMVER, Type,
    URL,
};

/// An overload of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// The id of the overload, by which costs are looked up.
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// The number of type parameters.
    pub(crate) open: usize,
}

/// The name, the id, and the types: parameters, `>`, the result. Capital letters are type parameters; a name with a leading
/// dot is a method.
const TABLE: &[(&str, &str, &str)] = &[
    ("!_", "logical_not", "bool>bool"),
    ("@not_strictly_false", "not_strictly_false", "bool>bool"),
    ("_&&_", "logical_and", "bool bool>bool"),
    ("_||_", "logical_or", "bool bool>bool"),
    ("_?_:_", "conditional", "bool A A>A"),
    ("-_", "negate_double", "double>double"),
    ("-_", "negate_int64", "int>int"),
    ("_==_", "equals", "A A>bool"),
    ("_!=_", "not_equals", "A A>bool"),
    ("_+_", "add_bytes", "bytes bytes>bytes"),
    ("_+_", "add_double", "double double>double"),
    ("_+_", "add_duration_duration", "duration duration>duration"),
    ("_+_", "add_duration_timestamp", "duration timestamp>timestamp"),
    ("_+_", "add_timestamp_duration", "timestamp duration>timestamp"),
    ("_+_", "add_int64", "int int>int"),
    ("_+_", "add_list", "list(A) list(A)>list(A)"),
    ("_+_", "add_string", "string string>string"),
    ("_+_", "add_uint64", "uint uint>uint"),
    ("_-_", "subtract_double", "double double>double"),
    ("_-_", "subtract_duration_duration", "duration duration>duration"),
    ("_-_", "subtract_int64", "int int>int"),
    ("_-_", "subtract_timestamp_duration", "timestamp duration>timestamp"),
    ("_-_", "subtract_timestamp_timestamp", "timestamp timestamp>duration"),
    ("_-_", "subtract_uint64", "uint uint>uint"),
    ("_*_", "multiply_double", "double double>double"),
    ("_*_", "multiply_int64", "int int>int"),
    ("_*_", "multiply_uint64", "uint uint>uint"),
    ("_/_", "divide_double", "double double>double"),
    ("_/_", "divide_int64", "int int>int"),
    ("_/_", "divide_uint64", "uint uint>uint"),
    ("_%_", "modulo_int64", "int int>int"),
    ("_%_", "modulo_uint64", "uint uint>uint"),
    ("_[_]", "index_list", "list(A) int>A"),
    ("_[_]", "index_map", "map(A,B) A>B"),
    ("_[_]", "optional_list_index_int", "optional(list(A)) int>optional(A)"),
    ("_[_]", "optional_map_index_value", "optional(map(A,B)) A>optional(B)"),
    ("_[?_]", "list_optindex_optional_int", "list(A) int>optional(A)"),
    ("_[?_]", "optional_list_optindex_optional_int", "optional(list(A)) int>optional(A)"),
    ("_[?_]", "map_optindex_optional_value", "map(A,B) A>optional(B)"),
    ("_[?_]", "optional_map_optindex_optional_value", "optional(map(A,B)) A>optional(B)"),
    ("@in", "in_list", "A list(A)>bool"),
    ("@in", "in_map", "A map(A,B)>bool"),
    ("cel.@mapInsert", "@mapInsert_map_map", "map(A,B) map(A,B)>map(A,B)"),
    ("cel.@mapInsert", "@mapInsert_map_key_value", "map(A,B) A B>map(A,B)"),
    // In the order of upstream, which uses the first overload if the type is not known.
    ("size", "size_bytes", "bytes>int"),
    ("size", "size_list", "list(A)>int"),
    ("size", "size_map", "map(A,B)>int"),
    ("size", "size_string", "string>int"),
    (".size", "bytes_size", "bytes>int"),
    (".size", "list_size", "list(A)>int"),
    (".size", "map_size", "map(A,B)>int"),
    (".size", "string_size", "string>int"),
    ("type", "type", "A>type"),
    ("dyn", "to_dyn", "A>dyn"),
    ("bool", "bool_to_bool", "bool>bool"),
    ("bool", "string_to_bool", "string>bool"),
    ("bytes", "bytes_to_bytes", "bytes>bytes"),
    ("bytes", "string_to_bytes", "string>bytes"),
    ("double", "double_to_double", "double>double"),
    ("double", "int64_to_double", "int>double"),
    ("double", "string_to_double", "string>double"),
    ("double", "uint64_to_double", "uint>double"),
    ("duration", "duration_to_duration", "duration>duration"),
    ("duration", "int64_to_duration", "int>duration"),
    ("duration", "string_to_duration", "string>duration"),
    ("int", "int64_to_int64", "int>int"),
    ("int", "double_to_int64", "double>int"),
    ("int", "duration_to_int64", "duration>int"),
    ("int", "string_to_int64", "string>int"),
    ("int", "timestamp_to_int64", "timestamp>int"),
    ("int", "uint64_to_int64", "uint>int"),
    ("string", "string_to_string", "string>string"),
    ("string", "bool_to_string", "bool>string"),
    ("string", "bytes_to_string", "bytes>string"),
    ("string", "double_to_string", "double>string"),
    ("string", "duration_to_string", "duration>string"),
    ("string", "int64_to_string", "int>string"),
    ("string", "timestamp_to_string", "timestamp>string"),
    ("string", "uint64_to_string", "uint>string"),
    ("string", "ip_to_string", "ip>string"),
    ("string", "cidr_to_string", "cidr>string"),
    ("timestamp", "timestamp_to_timestamp", "timestamp>timestamp"),
    ("timestamp", "int64_to_timestamp", "int>timestamp"),
    ("timestamp", "string_to_timestamp", "string>timestamp"),
    ("uint", "uint64_to_uint64", "uint>uint"),
    ("uint", "double_to_uint64", "double>uint"),
    ("uint", "int64_to_uint64", "int>uint"),
    ("uint", "string_to_uint64", "string>uint"),
    (".contains", "contains_string", "string string>bool"),
    (".endsWith", "ends_with_string", "string string>bool"),
    (".startsWith", "starts_with_string", "string string>bool"),
    ("matches", "matches", "string string>bool"),
    (".matches", "matches_string", "string string>bool"),
    (".charAt", "string_char_at_int", "string int>string"),
    (".format", "string_format", "string list(dyn)>string"),
    (".indexOf", "string_index_of_string", "string string>int"),
    (".indexOf", "string_index_of_string_int", "string string int>int"),
    (".indexOf", "list_a_index_of_int", "list(A) A>int"),
    (".lastIndexOf", "string_last_index_of_string", "string string>int"),
    (".lastIndexOf", "string_last_index_of_string_int", "string string int>int"),
    (".lastIndexOf", "list_a_last_index_of_int", "list(A) A>int"),
    (".join", "list_join", "list(string)>string"),
    (".join", "list_join_string", "list(string) string>string"),
    (".lowerAscii", "string_lower_ascii", "string>string"),
    (".upperAscii", "string_upper_ascii", "string>string"),
    (".replace", "string_replace_string_string", "string string string>string"),
    (".replace", "string_replace_string_string_int", "string string string int>string"),
    (".split", "string_split_string", "string string>list(string)"),
    (".split", "string_split_string_int", "string string int>list(string)"),
    (".substring", "string_substring_int", "string int>string"),
    (".substring", "string_substring_int_int", "string int int>string"),
    (".trim", "string_trim", "string>string"),
    ("strings.quote", "strings_quote", "string>string"),
    (".find", "string_find_string", "string string>string"),
    (".findAll", "string_find_all_string", "string string>list(string)"),
    (".findAll", "string_find_all_string_int", "string string int>list(string)"),
    (".slice", "list_slice", "list(A) int int>list(A)"),
    (".flatten", "list_flatten", "list(list(A))>list(A)"),
    (".flatten", "list_flatten_int", "list(dyn) int>list(dyn)"),
    (".distinct", "list_distinct", "list(A)>list(A)"),
    (".reverse", "list_reverse", "list(A)>list(A)"),
    (".first", "list_first", "list(A)>optional(A)"),
    (".last", "list_last", "list(A)>optional(A)"),
    ("lists.range", "lists_range", "int>list(int)"),
    ("sets.contains", "list_sets_contains_list", "list(A) list(A)>bool"),
    ("sets.equivalent", "list_sets_equivalent_list", "list(A) list(A)>bool"),
    ("sets.intersects", "list_sets_intersects_list", "list(A) list(A)>bool"),
    ("optional.of", "optional_of", "A>optional(A)"),
    ("optional.ofNonZeroValue", "optional_ofNonZeroValue", "A>optional(A)"),
    ("optional.none", "optional_none", ">optional(A)"),
    ("optional.unwrap", "optional_unwrap", "list(optional(A))>list(A)"),
    (".unwrapOpt", "optional_unwrapOpt", "list(optional(A))>list(A)"),
    (".value", "optional_value", "optional(A)>A"),
    (".hasValue", "optional_hasValue", "optional(A)>bool"),
    (".or", "optional_or_optional", "optional(A) optional(A)>optional(A)"),
    (".orValue", "optional_orValue_value", "optional(A) A>A"),
    (".getDate", "timestamp_to_day_of_month_1_based", "timestamp>int"),
    (".getDate", "timestamp_to_day_of_month_1_based_with_tz", "timestamp string>int"),
    (".getDayOfMonth", "timestamp_to_day_of_month", "timestamp>int"),
    (".getDayOfMonth", "timestamp_to_day_of_month_with_tz", "timestamp string>int"),
    (".getDayOfWeek", "timestamp_to_day_of_week", "timestamp>int"),
    (".getDayOfWeek", "timestamp_to_day_of_week_with_tz", "timestamp string>int"),
    (".getDayOfYear", "timestamp_to_day_of_year", "timestamp>int"),
    (".getDayOfYear", "timestamp_to_day_of_year_with_tz", "timestamp string>int"),
    (".getFullYear", "timestamp_to_year", "timestamp>int"),
    (".getFullYear", "timestamp_to_year_with_tz", "timestamp string>int"),
    (".getMonth", "timestamp_to_month", "timestamp>int"),
    (".getMonth", "timestamp_to_month_with_tz", "timestamp string>int"),
    (".getHours", "timestamp_to_hours", "timestamp>int"),
    (".getHours", "timestamp_to_hours_with_tz", "timestamp string>int"),
    (".getHours", "duration_to_hours", "duration>int"),
    (".getMinutes", "timestamp_to_minutes", "timestamp>int"),
    (".getMinutes", "timestamp_to_minutes_with_tz", "timestamp string>int"),
    (".getMinutes", "duration_to_minutes", "duration>int"),
    (".getSeconds", "timestamp_to_seconds", "timestamp>int"),
    (".getSeconds", "timestamp_to_seconds_tz", "timestamp string>int"),
    (".getSeconds", "duration_to_seconds", "duration>int"),
    (".getMilliseconds", "timestamp_to_milliseconds", "timestamp>int"),
    (".getMilliseconds", "timestamp_to_milliseconds_with_tz", "timestamp string>int"),
    (".getMilliseconds", "duration_to_milliseconds", "duration>int"),
    ("quantity", "string_to_quantity", "string>quantity"),
    ("isQuantity", "is_quantity_string", "string>bool"),
    ("sign", "quantity_sign", "quantity>int"),
    (".isGreaterThan", "quantity_is_greater_than", "quantity quantity>bool"),
    (".isGreaterThan", "semver_is_greater_than", "semver semver>bool"),
    (".isLessThan", "quantity_is_less_than", "quantity quantity>bool"),
    (".isLessThan", "semver_is_less_than", "semver semver>bool"),
    (".compareTo", "quantity_compare_to", "quantity quantity>int"),
    (".compareTo", "semver_compare_to", "semver semver>int"),
    (".asApproximateFloat", "quantity_get_float", "quantity>double"),
    (".asInteger", "quantity_get_int", "quantity>int"),
    (".isInteger", "quantity_is_integer", "quantity>bool"),
    (".add", "quantity_add", "quantity quantity>quantity"),
    (".add", "quantity_add_int", "quantity int>quantity"),
    (".sub", "quantity_sub", "quantity quantity>quantity"),
    (".sub", "quantity_sub_int", "quantity int>quantity"),
    ("semver", "string_to_semver", "string>semver"),
    ("semver", "string_bool_to_semver", "string bool>semver"),
    ("isSemver", "is_semver_string", "string>bool"),
    ("isSemver", "is_semver_string_bool", "string bool>bool"),
    (".major", "semver_major", "semver>int"),
    (".minor", "semver_minor", "semver>int"),
    (".patch", "semver_patch", "semver>int"),
    ("ip", "string_to_ip", "string>ip"),
    ("isIP", "is_ip", "string>bool"),
    ("ip.isCanonical", "ip_is_canonical", "string>bool"),
    (".family", "ip_family", "ip>int"),
    (".isUnspecified", "ip_is_unspecified", "ip>bool"),
    (".isLoopback", "ip_is_loopback", "ip>bool"),
    (".isLinkLocalMulticast", "ip_is_link_local_multicast", "ip>bool"),
    (".isLinkLocalUnicast", "ip_is_link_local_unicast", "ip>bool"),
    (".isGlobalUnicast", "ip_is_global_unicast", "ip>bool"),
    ("cidr", "string_to_cidr", "string>cidr"),
    ("isCIDR", "is_cidr", "string>bool"),
    (".containsIP", "cidr_contains_ip_string", "cidr string>bool"),
    (".containsIP", "cidr_contains_ip_ip", "cidr ip>bool"),
    (".containsCIDR", "cidr_contains_cidr_string", "cidr string>bool"),
    (".containsCIDR", "cidr_contains_cidr", "cidr cidr>bool"),
    (".ip", "cidr_ip", "cidr>ip"),
    (".prefixLength", "cidr_prefix_length", "cidr>int"),
    (".masked", "cidr_masked", "cidr>cidr"),
    ("url", "string_to_url", "string>url"),
    ("isURL", "is_url_string", "string>bool"),
    (".getScheme", "url_get_scheme", "url>string"),
    (".getHost", "url_get_host", "url>string"),
    (".getHostname", "url_get_hostname", "url>string"),
    (".getPort", "url_get_port", "url>string"),
    (".getEscapedPath", "url_get_escaped_path", "url>string"),
    (".getQuery", "url_get_query", "url>map(string,list(string))"),
    ("format.named", "format-named", "string>optional(format)"),
    ("jsonpatch.escapeKey", "string_jsonpatch_escapeKey_string", "string>string"),
    (".path", "authorizer_path", "authorizer string>path_check"),
    (".group", "authorizer_group", "authorizer string>group_check"),
    (".serviceAccount", "authorizer_serviceaccount", "authorizer string string>authorizer"),
    (".resource", "groupcheck_resource", "group_check string>resource_check"),
    (".subresource", "resourcecheck_subresource", "resource_check string>resource_check"),
    (".namespace", "resourcecheck_namespace", "resource_check string>resource_check"),
    (".name", "resourcecheck_name", "resource_check string>resource_check"),
    (".fieldSelector", "authorizer_fieldselector", "resource_check string>resource_check"),
    (".labelSelector", "authorizer_labelselector", "resource_check string>resource_check"),
    (".check", "pathcheck_check", "path_check string>decision"),
    (".check", "resourcecheck_check", "resource_check string>decision"),
    (".allowed", "decision_allowed", "decision>bool"),
    (".reason", "decision_reason", "decision>string"),
    (".errored", "decision_errored", "decision>bool"),
    (".error", "decision_error", "decision>string"),
    (".validate", "format-validate", "format string>optional(list(string))"),
];

/// The types that have an order. Numbers compare across types too.
const ORDERED: [&str; 8] = ["bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"];

static OVERLOADS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut found: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    let mut add = |name: &'static str, id: &'static str, signature: &str| {
        let (member, name) = name.strip_prefix('.').map_or((false, name), |name| (true, name));
        let (params, result) = signature.split_once('>').unwrap_or((signature, "dyn"));
        let params: Vec<Type> = params.split(' ').filter(|text| !text.is_empty()).map(parse).collect();
        let open = usize::from(signature.contains('A')) + usize::from(signature.contains('B'));
        let overload = Overload { id, member, params, result: parse(result), open };
        found.entry(name).or_default().push(overload);
    };
    for (name, id, signature) in TABLE {
        add(name, id, signature);
    }
    let comparisons = [
        ("_<_", "less_string", "less_bytes", "less"),
        ("_<=_", "less_equals_string", "less_equals_bytes", "less_equals"),
        ("_>_", "greater_string", "greater_bytes", "greater"),
        ("_>=_", "greater_equals_string", "greater_equals_bytes", "greater_equals"),
    ];
    for (name, text, bytes, other) in comparisons {
        for ty in ORDERED {
            let id = match ty {
                "string" => text,
                "bytes" => bytes,
                _ => other,
            };
            add(name, id, &format!("{ty} {ty}>bool"));
        }
        for (a, b) in [("int", "double"), ("int", "uint"), ("uint", "double")] {
            add(name, other, &format!("{a} {b}>bool"));
            add(name, other, &format!("{b} {a}>bool"));
        }
    }
    for (ty, sums) in [
        ("int", true),
        ("uint", true),
        ("double", true),
        ("bool", false),
        ("duration", true),
        ("timestamp", false),
        ("string", false),
        ("bytes", false),
    ] {
        add(".isSorted", "list_is_sorted", &format!("list({ty})>bool"));
        add(".min", "list_min", &format!("list({ty})>{ty}"));
        add(".max", "list_max", &format!("list({ty})>{ty}"));
        let sort = if matches!(ty, "string" | "bytes") { "list_sort_text" } else { "list_sort" };
        let sort_by = if matches!(ty, "string" | "bytes") { "list_sort_by_text" } else { "list_sort_by" };
        add(".@sortByAssociatedKeys", sort_by, &format!("list(A) list({ty})>list(A)"));
        add(".sort", sort, &format!("list({ty})>list({ty})"));
        if sums {
            add(".sum", "list_sum", &format!("list({ty})>{ty}"));
        }
    }
    for name in super::named::CONSTANTS {
        add(name, name, ">format");
    }
    found
});

/// The overloads of a function; `None` if there is no function of that name.
pub(crate) fn overloads(name: &str) -> Option<&'static [Overload]> {
    OVERLOADS.get(name).map(Vec::as_slice)
}

/// Parses a type of the table.
fn parse(text: &str) -> Type {
    let inner = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix(')');
    if let Some(of) = inner("list(") {
        return Type::list(parse(of));
    }
    if let Some(of) = inner("optional(") {
        return Type::optional(parse(of));
    }
    if let Some((key, value)) = inner("map(").and_then(|of| of.split_once(',')) {
        return Type::Map(Arc::new(parse(key)), Arc::new(parse(value)));
    }
    match text {
        "A" => Type::Param(0),
        "B" => Type::Param(1),
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::Type,
        "quantity" => Type::Opaque(QUANTITY),
        "url" => Type::Opaque(URL),
        "ip" => Type::Opaque(IP),
        "cidr" => Type::Opaque(CIDR),
        "format" => Type::Opaque(FORMAT),
        "semver" => Type::Opaque(SEMVER),
        "authorizer" => Type::Opaque(AUTHORIZER),
        "path_check" => Type::Opaque(PATH_CHECK),
        "group_check" => Type::Opaque(GROUP_CHECK),
        "resource_check" => Type::Opaque(RESOURCE_CHECK),
        "decision" => Type::Opaque(DECISION),
        _ => Type::Dyn,
    }
}
