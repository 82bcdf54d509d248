//! The options of a create, an update, a patch or an apply, as upstream's `CreateOptions`, `UpdateOptions` and
//! `PatchOptions`.

use http::HeaderMap;
use http::header::USER_AGENT;
use plumb_validation::field::{BadValue, FieldError};

use crate::codec::{FieldValidation, media_type};
use crate::error::ApiError;
use crate::url::{Query, Verb};

/// The content type of server-side apply.
const APPLY: &str = "application/apply-patch+yaml";
/// The longest name of a field manager.
const LONGEST_NAME: usize = 128;

/// The options of a write.
pub(crate) struct WriteOptions {
    /// Whether nothing is stored.
    pub(crate) dry_run: bool,
    /// How unknown and duplicate fields are handled.
    pub(crate) field_validation: FieldValidation,
    /// The field manager: the parameter, else the name in the user agent.
    pub(crate) field_manager: String,
    /// Whether the request is a server-side apply.
    pub(crate) is_apply: bool,
}

impl WriteOptions {
    /// Reads and validates the options of a request.
    pub(crate) fn of(verb: Verb, query: &Query, headers: &HeaderMap) -> Result<Self, ApiError> {
        let is_apply = verb == Verb::Patch && media_type(headers) == APPLY;
        validate(verb, query, is_apply)?;
        Ok(Self {
            dry_run: query.dry_run()?,
            field_validation: FieldValidation::of(query)?,
            field_manager: field_manager(query, headers),
            is_apply,
        })
    }
}

/// The field manager of a request: the parameter `fieldManager`, else the name in its user agent.
fn field_manager(query: &Query, headers: &HeaderMap) -> String {
    if let Some(name) = query.get("fieldManager") {
        return name.to_owned();
    }
    let agent = headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    named_after(agent.as_deref().unwrap_or_default())
}

/// The user agent up to its first slash, without unprintable characters, and cut to the longest name.
fn named_after(agent: &str) -> String {
    let mut name = String::new();
    for letter in agent.split('/').next().unwrap_or_default().chars().filter(|letter| is_printed(*letter)) {
        if name.len() + letter.len_utf8() > LONGEST_NAME {
            break;
        }
        name.push(letter);
    }
    name
}

/// Whether a character is printable; of white space, only the plain space.
fn is_printed(letter: char) -> bool {
    letter == ' ' || !(letter.is_control() || letter.is_whitespace() || letter == '\u{fffd}')
}

/// Validates the parameters of a write.
fn validate(verb: Verb, query: &Query, is_apply: bool) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    let name = query.get("fieldManager").unwrap_or_default();
    if is_apply && name.is_empty() {
        errors.push(FieldError::required("fieldManager", "is required for apply patch"));
    }
    if !is_apply && verb == Verb::Patch && query.get("force").is_some() {
        errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    if name.len() > LONGEST_NAME {
        errors.push(FieldError::too_long("fieldManager", LONGEST_NAME));
    }
    for (place, letter) in name.char_indices().filter(|(_, letter)| !is_printed(*letter)) {
        let why = format!("invalid character U+{:04X} (at position {place})", u32::from(letter));
        errors.push(FieldError::invalid("fieldManager", name, why));
    }
    if let Some(dry_run) = query.get("dryRun").filter(|value| *value != "All") {
        errors.push(FieldError::not_supported("dryRun", BadValue::Bare(format!("[{dry_run:?}]")), &["All"]));
    }
    if let Some(validation) = query.get("fieldValidation") {
        let known = ["", "Ignore", "Strict", "Warn"];
        if !known.contains(&validation) {
            errors.push(FieldError::not_supported("fieldValidation", validation, &known));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = match verb {
        Verb::Create => "CreateOptions",
        Verb::Patch => "PatchOptions",
        _ => "UpdateOptions",
    };
    Err(ApiError::invalid("meta.k8s.io", kind, "", &errors))
}
