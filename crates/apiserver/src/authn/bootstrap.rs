//! Bootstrap tokens, by which machines request to join as nodes: Secrets in `kube-system`, which `kubeadm` and
//! `plumb token` create.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use plumb_store::{Key, Store};
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use super::User;
use crate::object::{decode, is_deleting};

/// The type of the Secrets.
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of all users of bootstrap tokens.
const GROUP: &str = "system:bootstrappers";

/// Authenticates bootstrap tokens. Their Secret is read for every request: a token that was deleted or has expired is
/// invalid at once.
#[derive(Debug)]
pub(super) struct Bootstrap(pub(super) Store);

impl Bootstrap {
    /// The user of a token, if it is a valid bootstrap token.
    pub(super) fn bearer(&self, presented: &[u8], now: Timestamp) -> Option<User> {
        let (id, secret) = parts(std::str::from_utf8(presented).ok()?)?;
        let key = Key::new(format!("core/secrets/kube-system/bootstrap-token-{id}")).ok()?;
        let stored = decode(&self.0.get(&key)?.value).ok()?;
        judge(&stored, id, secret, now)
    }
}

/// The id and the secret of a token: six and sixteen lower-case letters and digits, separated by a dot.
fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let is = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (is(id, 6) && is(secret, 16)).then_some((id, secret))
}

fn judge(stored: &Value, id: &str, secret: &str, now: Timestamp) -> Option<User> {
    if is_deleting(stored) || stored["type"] != TYPE {
        return None;
    }
    let data = |name: &str| {
        let encoded = stored["data"][name].as_str()?;
        String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
    };
    let right: bool = data("token-secret")?.as_bytes().ct_eq(secret.as_bytes()).into();
    if !right || data("token-id")? != id || data("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    if let Some(end) = data("expiration") {
        // A time that cannot be parsed is over, as upstream has it.
        if end.parse::<Timestamp>().ok().is_none_or(|end| end <= now) {
            return None;
        }
    }
    let mut groups = vec![GROUP.to_owned()];
    for group in data("auth-extra-groups").unwrap_or_default().split(',').filter(|group| !group.is_empty()) {
        // Groups of bootstrap tokens have this prefix, so that a token cannot have the rights of other groups.
        let rest = group.strip_prefix("system:bootstrappers:")?;
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if !rest.split(':').all(is_word) {
            return None;
        }
        groups.push(group.to_owned());
    }
    Some(User::new(format!("system:bootstrap:{id}"), "", groups))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({});
        let usual = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("expiration", "2026-01-02T00:00:00Z"),
            ("auth-extra-groups", "system:bootstrappers:plumb:default-node-token"),
        ];
        for (name, value) in usual.iter().chain(changes) {
            data[*name] = json!(BASE64_STANDARD.encode(value));
        }
        json!({ "metadata": {}, "type": TYPE, "data": data })
    }

    #[test]
    fn a_token_is_two_words_of_fixed_length() {
        assert_eq!(parts("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for wrong in [
            "",
            "abcdef",
            "abcdef.",
            "ABCDEF.0123456789abcdef",
            "abcde.0123456789abcdef",
            "a/../b.0123456789abcdef",
        ] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_is_good_until_it_expires_and_only_for_what_it_is_for() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ask = |stored: &Value, secret: &str, now: Timestamp| judge(stored, "abcdef", secret, now);
        let good = ask(&secret(&[]), "0123456789abcdef", now).unwrap();
        assert_eq!(good.name(), "system:bootstrap:abcdef");
        assert_eq!(
            good.groups(),
            ["system:bootstrappers", "system:bootstrappers:plumb:default-node-token", "system:authenticated"]
        );
        assert!(ask(&secret(&[]), "0123456789abcdee", now).is_none());
        assert!(ask(&secret(&[]), "0123456789abcdef", "2026-01-02T00:00:00Z".parse().unwrap()).is_none());
        for change in [
            ("usage-bootstrap-authentication", "false"),
            ("token-id", "fedcba"),
            ("expiration", "soon"),
            ("auth-extra-groups", "system:masters"),
        ] {
            assert!(ask(&secret(&[change]), "0123456789abcdef", now).is_none(), "{change:?}");
        }
    }
}
